"""What the name of a file of rows tells: its form, and how it is packed."""

from __future__ import annotations

import os

__all__ = ["form_of", "is_of_tabs", "packing_of"]

_FORMS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}
_PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


def form_of(path: str) -> str | None:
    """csv, jsonl or parquet; None where the name does not tell."""
    return _FORMS.get(_suffix(path))


def packing_of(path: str) -> str | None:
    """The codec that a text is packed with, as Arrow calls it."""
    return _PACKED.get(os.path.splitext(path.lower())[1])


def is_of_tabs(path: str) -> bool:
    """Whether it is CSV with tabs between cells."""
    return _suffix(path) == ".tsv"


def _suffix(path: str) -> str:
    """What the name ends with, but for how it is packed."""
    stem, suffix = os.path.splitext(path.lower())
    return os.path.splitext(stem)[1] if suffix in _PACKED else suffix
