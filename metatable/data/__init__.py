"""Hudi's table format: what any Hudi reader would recognise.

The rooms, each of which knows only those before it:

    file_groups  names of files, and many file slices at once
    config       the options of a table
    columns      types, schemas, and columns of data files as the table's
    rows         taking, leaving out and merging them
    hoodie       what lies in `.hoodie`: timeline, commits, properties
    keys         record keys and partition paths as text
    base_files   Parquet files and what their footers tell
    logs         log files, and slices with their logs merged in
    reading      the rows of file slices
"""
