"""Reshaping: file groups become others of the same rows: logs compacted, rows clustered, buckets
resized.
"""
