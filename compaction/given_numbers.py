"""Numbers that callers give to services, such as a ratio or hours: whether they are any."""

from __future__ import annotations

from numbers import Real
from typing import Any

__all__ = ["is_number"]


def is_number(found: Any, least: float) -> bool:
    """Whether it is one, and this or more; NaN is not."""
    is_one = isinstance(found, Real) and not isinstance(found, bool)
    return is_one and bool(found >= least)
