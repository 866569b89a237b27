"""Cleaning: what no kept version needs goes, in the table and in stores outside."""
