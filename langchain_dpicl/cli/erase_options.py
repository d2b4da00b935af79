"""The options of `dpicl erase`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeAlias

Commands: TypeAlias = Any  # What argparse returns for commands has a private name.
Run: TypeAlias = Callable[[argparse.Namespace], int]


def add_erase(commands: Commands, run: Run) -> None:
    """Add `dpicl erase`."""
    parser = commands.add_parser(
        "erase",
        help="erase a person from a saved index, with a certificate",
        description=(
            "Save the index anew without a person's records; processes that follow it "
            "take that over. Balances and what was released stay in the ledger. Run it "
            "again after a crash. With --check: is a certificate of this person?"
        ),
    )
    parser.add_argument("unit", metavar="UNIT", help="the id; - reads it from a line")
    parser.add_argument("--index", metavar="PATH", required=True, help="saved groups")
    parser.add_argument("--ledger", metavar="URL", help="where the accounts are")
    parser.add_argument(
        "--account",
        action="append",
        metavar="NAME",
        help="an account over these records; may be given several times",
    )
    parser.add_argument("--corpus", metavar="NAME", help="all accounts of a corpus")
    parser.add_argument("--certificate", metavar="FILE", help="where to write it")
    parser.add_argument(
        "--clear-cache",
        action="store_true",
        help="let no cached answer of the accounts be given again",
    )
    parser.add_argument(
        "--check", action="store_true", help="compare --certificate with UNIT"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.set_defaults(run=run)
