"""Table services: merge buckets, roll back, verify."""

if __name__ != "metatable.compaction":  # a second copy would have other error classes
    raise ImportError(f"import metatable.compaction, not {__name__}")
