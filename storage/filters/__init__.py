"""Is this key in that file? Families of filters over 64-bit hashes."""
