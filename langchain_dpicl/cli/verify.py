"""`dpicl verify`: the record of a saved answer, held against the ledger."""

from __future__ import annotations

import argparse
import json

from rich.console import Console
from rich.markup import escape

from langchain_dpicl import report
from langchain_dpicl.cli.loading import read_text
from langchain_dpicl.common import files
from langchain_dpicl.errors import InvalidParameterError


def run(options: argparse.Namespace) -> int:
    """Print the verdict; return 0 where the record is confirmed, else 1."""
    try:
        answer = files.strict_json(read_text(options.answer))
    except (ValueError, RecursionError):
        answer = None
    if answer is None:
        raise InvalidParameterError(f"{options.answer!r} holds no JSON.")
    verdict = report.verify(answer, options.ledger)
    if options.json:
        print(json.dumps(verdict.to_dict(), indent=2))  # noqa: T201 - the command's output
    else:
        console = Console(soft_wrap=True, highlight=False)
        color = "green" if verdict.is_confirmed else "red"
        console.print(f"[bold {color}]{escape(verdict.summary)}[/]")
        for words, found in (
            ("pass", verdict.checked),
            ("fail", verdict.wrong),
            ("not compared", verdict.not_compared),
        ):
            for line in found:
                console.print(f"  {words}: {escape(line)}")
        if verdict.digest:
            console.print(f"  digest of the journal up to it: {verdict.digest}")
    return 0 if verdict.is_confirmed else 1
