"""Keys: record keys and partition paths as text, and orders that rows are cut by."""
