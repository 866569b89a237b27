"""Hudi's table format: what any Hudi reader would recognise.

The names of files, the timeline, base files, logs, keys, schemas and statistics; and the options of
a table.
"""
