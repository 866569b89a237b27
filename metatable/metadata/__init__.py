"""The metadata table: what this library stores of a table besides Hudi's own files.

Each version of the table is a root file (`manifest`), which names HFiles. Their entries, in
metadata partitions such as `files` and `column_stats`, tell which files are live, where keys are,
and which files can be skipped. A `Snapshot` reads one version, a `Transaction` publishes the next.
All of it lies below `.hoodie/metatable/`; FORMAT.md has the bytes.
"""
