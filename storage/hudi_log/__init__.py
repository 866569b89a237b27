"""Hudi's log files: blocks of rows, deletes and commands, one behind the other.

Knows bytes and Arrow columns, but neither slices nor instants that count.
"""
