"""HFiles of the metadata partitions: their keys and values, and many of them asked as one."""
