"""`--storage-option NAME=VALUE`: what a store needs to be told, for verbs of tables and files."""

from __future__ import annotations

import argparse

from metatable.storage.errors import UsageError

__all__ = ["add_storage_option", "storage_options"]


def add_storage_option(parser: argparse.ArgumentParser) -> None:
    """Add the argument; it may be repeated."""
    parser.add_argument(
        "--storage-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="for the store, such as region=eu-west-1 (may be repeated)",
    )


def storage_options(args: argparse.Namespace) -> dict[str, str]:
    """What was given. Raises UsageError for an option without a value."""
    options = {}
    for given in args.storage_option:
        name, equals, value = given.partition("=")
        if not equals:
            raise UsageError("storage option without a value", found=given, expected="NAME=VALUE")
        options[name] = value
    return options
