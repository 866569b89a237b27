"""Columns: the types that a table may have, its schema as it is stored and as it changes, and the
columns of data files as the table's.
"""
