"""Small faults put into the code, one at a time: those that no test notices show what is missing.

    making.py         finds every place where a small fault can be put, and picks some by a seed
    rooms.py          which tests are likely to notice a fault of a module
    running.py        runs them on a copy of the tree, under a limit of time and memory
    equivalents.toml  faults that are none, each with its reason

`python -m tests.mutants` (`make mutants`) prints the survivors and the share that was noticed.
"""
