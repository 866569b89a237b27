"""Table services: compact, cluster, resize, clean, roll back and restore, savepoints, set options,
verify and repair.

A service plans, works and publishes one `Change` (`service.py`). `reshaping/` writes file groups
anew, `merging/` HFiles, `ways_back/` undoes, `cleaning/` deletes. `verify` only reads, and `repair`
sets out from what it finds (`checks/`).
"""

if __name__ != "metatable.compaction":  # a second copy would have other error classes
    raise ImportError(f"import metatable.compaction, not {__name__}")
