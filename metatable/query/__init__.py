"""Reading a table: scans, changes between versions, rows by key, and facts about the table.

A condition is one of the `expressions`; `predicates` says what it means for the columns of a table,
`row_dialect` of which rows it is true, `bounds` of which files it may be, and `skipping` which
files of a version are left.
"""
