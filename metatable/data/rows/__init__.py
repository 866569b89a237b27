"""Rows: taking, leaving out and merging them, whole columns at a time."""
