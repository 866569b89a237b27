"""The metadata table: what this library stores of a table besides Hudi's own files.

Each version of the table is a root file (`manifests/`), which names HFiles (`hfiles/`). Their
entries, in metadata partitions such as `files` and `column_stats` (`partitions/`), tell which files
are live, where keys are, and which files can be skipped. A `Snapshot` reads one version, a
`Transaction` publishes the next (`commits/`). All of it lies below `.hoodie/metatable/`; FORMAT.md
has the bytes.
"""
