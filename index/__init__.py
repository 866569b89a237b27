"""Where is this key? One class an index, behind one small protocol."""

if __name__ != "metatable.index":  # a second copy would have other error classes
    raise ImportError(f"import metatable.index, not {__name__}")
