"""Sizes in words, for people."""

from __future__ import annotations

__all__ = ["size_text"]


def size_text(count: float) -> str:
    """`1.2 MB`, in units of 1000."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
