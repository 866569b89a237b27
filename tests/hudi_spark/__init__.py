"""Hudi on Spark and our tables, both ways: `make hudi-spark`, an environment of its own.

The normal run does not collect this folder. LAST_RUN.md says when it was run last, on what.
"""
