"""Base files: the Parquet files of a table, written, read, spliced, and what their footers tell."""
