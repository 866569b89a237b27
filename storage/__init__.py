"""Bytes: HFile v3, filters, Avro columns, stores. Knows nothing of tables."""

if __name__ != "metatable.storage":  # a second copy would have other error classes
    raise ImportError(f"import metatable.storage, not {__name__}")
