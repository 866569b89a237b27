"""Parquet's bytes where pyarrow does not reach: footers read alone, filters of columns, files put
together from column chunks of others, rows read from single pages.

Knows nothing of Hudi and of tables.
"""
