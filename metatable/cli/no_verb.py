"""A command without its verb: it shows what there is, and ends as a wrong call."""

from __future__ import annotations

import argparse
import sys
from functools import partial

__all__ = ["show_help_of"]


def show_help_of(parser: argparse.ArgumentParser) -> None:
    """Let `parser` show its help, on standard error, where no verb is given."""
    parser.set_defaults(run=partial(_show, parser))


def _show(parser: argparse.ArgumentParser, _: argparse.Namespace) -> int:
    parser.print_help(sys.stderr)
    return 2
