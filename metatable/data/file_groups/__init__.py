"""File groups: how Hudi names the files of a table, and many slices at once."""
