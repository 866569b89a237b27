"""Manifests: versions of a table and their pages, and who is writing the next one."""
