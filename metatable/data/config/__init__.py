"""Config: the options of a table, which there are and what each may be."""
