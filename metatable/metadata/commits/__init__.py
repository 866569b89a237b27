"""Commits: a `Change` is published by one put, what follows it, and what is left of who died."""
