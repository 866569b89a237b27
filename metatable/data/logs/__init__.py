"""Logs: what log files of a merge-on-read table hold, and a slice with its logs merged in."""
