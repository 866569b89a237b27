"""Bytes, and where they lie: HFile v3, filters, Avro in columns, the parts of Parquet that pyarrow
does not reach, Hudi's log files; disks, object stores and key-value stores. Knows nothing of
tables.
"""

if __name__ != "metatable.storage":  # a second copy would have other error classes
    raise ImportError(f"import metatable.storage, not {__name__}")
