"""What numpy arrays of one kind of value are called, in signatures and dataclasses.

Their dimensions are one, unless it is said otherwise.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = [
    "Bools",
    "Float64s",
    "Int32s",
    "Int64s",
    "UInt8s",
    "UInt16s",
    "UInt32s",
    "UInt64s",
]

Bools = npt.NDArray[np.bool_]
Float64s = npt.NDArray[np.float64]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
UInt8s = npt.NDArray[np.uint8]
UInt16s = npt.NDArray[np.uint16]
UInt32s = npt.NDArray[np.uint32]
UInt64s = npt.NDArray[np.uint64]
