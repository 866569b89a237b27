"""Hudi's table format: what any Hudi reader would recognise."""
