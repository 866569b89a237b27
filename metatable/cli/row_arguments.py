"""Arguments of verbs that take rows, give rows, or look at a part of a table."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from metatable.cli.descriptors import descriptor_of
from metatable.cli.verb import at_least_one
from metatable.storage.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "FORMS_IN",
    "FORMS_OUT",
    "add_columns",
    "add_format_in",
    "add_keys",
    "add_moment",
    "add_output",
    "add_rows",
    "add_where",
    "chosen",
    "parsed_where",
]

FORMS_IN = ("csv", "jsonl", "parquet")
"""What files of rows can be, whether they are read or written."""

FORMS_OUT = (*FORMS_IN, "table")
"""What printed rows can be."""

_STANDARD_OUTPUT = 1


def add_rows(parser: argparse.ArgumentParser, count: str = "+") -> None:
    """Files of rows."""
    parser.add_argument(
        "rows",
        metavar="ROWS",
        nargs=count,
        help="files: .csv, .tsv, .jsonl, .parquet (texts also .gz, .bz2, .zst); - is standard"
        " input",
    )
    add_format_in(parser)


def add_format_in(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="given_format",
        choices=FORMS_IN,
        help="the form of ROWS, where names do not tell",
    )
    parser.add_argument("--delimiter", metavar="C", help="between cells of CSV (,)")
    parser.add_argument(
        "--null", action="append", metavar="TEXT", help="null in CSV (an empty cell; repeatable)"
    )


def add_keys(parser: argparse.ArgumentParser) -> None:
    """Files of rows, or keys on the command line."""
    add_rows(parser, "*")
    parser.add_argument(
        "--key",
        action="append",
        metavar="KEY",
        help="a key instead of ROWS (repeatable); of several columns a line of CSV, with the"
        " partition's where keys are unique in partitions only",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """Where rows go, and in which form."""
    parser.add_argument(
        "--output",
        type=_file,
        metavar="FILE",
        help=".csv, .tsv, .jsonl or .parquet (texts also .gz, .bz2, .zst)",
    )
    parser.add_argument("--format", choices=FORMS_OUT, help="the form of what is printed")
    parser.add_argument("--limit", type=at_least_one, metavar="N", help="no more rows than N")


def _file(text: str) -> str | None:
    """`-` and `/dev/stdout` are standard output, as without a name."""
    return None if text == "-" or descriptor_of(text) == _STANDARD_OUTPUT else text


def add_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--where",
        metavar="CONDITION",
        help="such as \"fare > 7.5 and city in ('Ulm', 'Bonn')\"; also: or, not, is null, between,"
        " starts with",
    )


def add_moment(parser: argparse.ArgumentParser) -> None:
    """Which version."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--version", type=at_least_one, metavar="N", help="an older version")
    which.add_argument("--as-of", metavar="MOMENT", help="as of an instant, or a time (UTC)")


def add_columns(
    parser: argparse.ArgumentParser, name: str, told: str, required: bool = False
) -> None:
    """An option of one column or several, for `chosen`: after commas, or the option repeated."""
    told += " (repeatable)"
    parser.add_argument(name, action="append", metavar="A[,B]", required=required, help=told)


def chosen(words: Sequence[str] | None) -> list[str] | None:
    """Columns of `a,b` and `c`, in this order. Raises UsageError where a word names none: a
    variable of a shell may be empty."""
    if words is None:
        return None
    named = [[name.strip() for name in word.split(",") if name.strip()] for word in words]
    for word, names in zip(words, named, strict=True):
        if not names:
            raise UsageError("no column is named", found=word, expected="such as a,b,c")
    return [name for names in named for name in names]


def parsed_where(text: str | None, schema: pa.Schema) -> Any:
    """The expression of `--where`, or None."""
    if text is None:
        return None
    from metatable.query.where_text import parse_text  # noqa: PLC0415  (loads pyarrow)

    return parse_text(text, schema)
