"""NAME=VALUE on the command line; above all, what a store needs to be told.

`--storage-option NAME=VALUE`, and for addresses such as `s3://…` the environment:
METATABLE_STORAGE_ENDPOINT=… stands for `--storage-option endpoint=…`, so that secrets need not
be on the command line, where everybody on the machine reads them. What is on it goes first.
"""

from __future__ import annotations

import argparse
import os
import re

from metatable.storage.errors import UsageError

__all__ = ["PREFIX", "add_storage_option", "named_value", "storage_options"]

PREFIX = "METATABLE_STORAGE_"


def add_storage_option(parser: argparse.ArgumentParser) -> None:
    """Add the argument; it may be repeated."""
    parser.add_argument(
        "--storage-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"for the store, such as region=eu-west-1 (may be repeated); or {PREFIX}REGION",
    )


def storage_options(args: argparse.Namespace) -> dict[str, str]:
    """What was given. Raises UsageError for an option without a value."""
    place = args.table if "table" in args else args.file
    far = "://" in place and not place.lower().startswith("file:")
    options = _of_environment() if far else {}
    return options | dict(named_value(given, "storage option") for given in args.storage_option)


def named_value(given: str, what: str) -> tuple[str, str]:
    """Of NAME=VALUE. Raises UsageError for a `what` without a value."""
    name, equals, value = given.partition("=")
    if not equals:
        name = re.split(r"\W", given)[0]  # what is behind it may be a secret
        raise UsageError(f"{what} without a value", found=name, expected="NAME=VALUE")
    return name, value


def _of_environment() -> dict[str, str]:
    return {
        name.removeprefix(PREFIX).lower(): value
        for name, value in os.environ.items()
        if name.startswith(PREFIX) and value
    }
