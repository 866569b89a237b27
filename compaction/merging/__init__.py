"""Merging: HFiles of the metadata partitions become fewer."""
