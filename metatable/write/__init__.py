"""A data commit: rows in, one version out. `commit_pass` is the order of its steps."""
