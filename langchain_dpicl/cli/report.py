"""`dpicl report`: an account as a page to sign, or as data."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from langchain_dpicl import report
from langchain_dpicl.errors import InvalidParameterError

_ENDINGS = {"html": ".html", "json": ".json"}


def run(options: argparse.Namespace) -> int:
    """Make the report, save or print it; return 1 where the ledger is damaged."""
    form, out = _form(options)
    made = report.of(
        options.ledger,
        options.account,
        facts=options.facts,
        audits=options.audits,
        erasures=options.erasures,
    )
    if out is not None:
        made.save(out)
        state = "whole" if made.is_whole else f"damaged: {made.damage}"
        text = f"Wrote {out}. The ledger is {state}."
        saved = {"saved": str(out), "is_whole": made.is_whole}
        print(json.dumps(saved) if options.json else text)  # noqa: T201 - the command's output
    elif form == "json":
        print(json.dumps(made.to_dict(), indent=2))  # noqa: T201 - the command's output
    else:
        print(made.to_html())  # noqa: T201 - the command's output
    return 0 if made.is_whole else 1


def _form(options: argparse.Namespace) -> tuple[str, Path | None]:
    """Return the form of the report, and where it goes; None: it is printed."""
    if options.out is None:
        return options.format or ("json" if options.json else "html"), None
    out = Path(options.out)
    if options.format and out.suffix != _ENDINGS[options.format]:
        raise InvalidParameterError(
            f"--format {options.format} goes with a file {_ENDINGS[options.format]}, "
            f"not {out.suffix!r}."
        )
    return options.format or "", out
