"""Our versions and entries: the metadata table."""
