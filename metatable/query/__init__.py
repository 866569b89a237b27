"""Reading a table: scans, changes between versions, rows by key, and facts about the table.

A condition is one of the `expressions`; `predicates` says what it means for the columns of a table,
and `skipping` which files may hold such rows.
"""
