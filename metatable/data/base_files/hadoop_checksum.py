"""Hadoop's checksum of a file, which its file system for disks keeps beside each one that it wrote.

    <folder>/.<name>.crc    of <folder>/<name>

It refuses to read a file that is another one since; a file without a checksum it reads. Whoever
puts a file in the place of one that Hudi on Spark may have written, or a copy by Hadoop's tools,
deletes the checksum first.
"""

from __future__ import annotations

from metatable.storage.store import Store

__all__ = ["forget_checksum", "put_over"]


def forget_checksum(store: Store, path: str) -> None:
    """Delete the checksum of the file of this path, if there is one."""
    folder, slash, name = path.rpartition("/")
    store.delete([f"{folder}{slash}.{name}.crc"])


def put_over(store: Store, path: str, body: bytes) -> None:
    """Put a file where one of Hadoop's may be, or has been."""
    forget_checksum(store, path)
    store.put(path, body)
