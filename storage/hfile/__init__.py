"""HFile v3, read and written in columns. The format in our own words: FORMAT.md."""
