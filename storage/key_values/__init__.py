"""Key-value stores outside of the table: entries by key, in HBase or in a file of SQLite."""

from metatable.storage.key_values.client import Client, client_of
from metatable.storage.key_values.protocol import CELLS, KeyValues

__all__ = ["CELLS", "Client", "KeyValues", "client_of"]
