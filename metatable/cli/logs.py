"""Logs on standard error: what `-v` and `-vv` ask for.

The library has a logger per room, `metatable.write`, `metatable.storage` and so on, and is silent
unless somebody listens.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ROOT", "listening", "told_on_standard_error"]

ROOT = "metatable"
_FORM = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


@contextmanager
def told_on_standard_error(verbose: int) -> Iterator[None]:
    """Warnings, always; with one `-v` what was done, with two how."""
    handler = logging.StreamHandler()
    form = _FORM if verbose else "metatable: %(message)s"
    handler.setFormatter(logging.Formatter(form, "%H:%M:%S"))
    with listening(handler, _LEVELS[min(verbose, 2)]):
        yield


@contextmanager
def listening(handler: logging.Handler, level: int) -> Iterator[None]:
    """`handler` hears what the library logs from `level` on, as long as the block lasts."""
    logger = logging.getLogger(ROOT)
    before = logger.level
    handler.setLevel(level)
    logger.addHandler(handler)
    logger.setLevel(min(level, before) if before else level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
