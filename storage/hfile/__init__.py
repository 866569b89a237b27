"""HFile v3, read and written in columns. The format in our own words: FORMAT.md.

    reader.py    HFileReader: get, find, get_sorted, prefix, scan, meta
    writer.py    HFileWriter: add, add_meta, add_file_info
    forms.py     OURS, HUDI, HBASE: what differs between writers
    codec.py     Codec: GZ, NONE, SNAPPY, LZ4, ZSTD
    verify.py    verify: the faults of any writer's file; inspect.py: its facts
    reading/, writing/    what only one of the two needs

An example that runs is in docs/hfiles.md.
"""
