"""Parquet's bytes where pyarrow does not reach: footers read alone, filters of columns.

Knows nothing of Hudi and of tables.
"""
