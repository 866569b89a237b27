"""A bucket function as a user writes one: all keys of a customer are in one bucket."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from metatable import BucketFunction, register_bucket_function
from metatable.data.bucket_functions import place_by_text
from metatable.storage.arrays import Int64s

__all__ = ["BY_CUSTOMER"]


def _customer(keys: pa.Array, space: int) -> Int64s:
    return place_by_text(pc.utf8_slice_codeunits(keys, 0, 2), space)


BY_CUSTOMER = BucketFunction(_customer)
register_bucket_function("by_customer", BY_CUSTOMER)
