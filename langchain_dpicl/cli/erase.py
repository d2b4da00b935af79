"""`dpicl erase`: what an operator owes to people."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from langchain_dpicl.common.progress import is_watched
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.operate import ErasureCertificate, erase


def run(options: argparse.Namespace) -> int:
    """Run `dpicl erase`."""
    # An argument can be read in the list of processes and in the shell's history.
    unit = sys.stdin.readline().rstrip("\r\n") if options.unit == "-" else options.unit
    if options.check:
        return _check(options, unit)
    made = erase(
        unit,
        index=options.index,
        ledger=options.ledger,
        accounts=options.account or (),
        corpus=options.corpus,
        certificate=options.certificate,
        clear_cache=options.clear_cache,
        progress=is_watched(),
    )
    text = (
        f"Erased {made.index['documents_erased']} documents, at {made.erased_at}. Not "
        "undone:\n" + "\n".join(f"- {one}" for one in made.not_undone)
    )
    _print(json.dumps(asdict(made), indent=2) if options.json else text)
    return 0


def _check(options: argparse.Namespace, unit: str) -> int:
    if not options.certificate:
        raise InvalidParameterError(
            "Name the certificate to check: --certificate FILE."
        )
    certificate = ErasureCertificate.load(options.certificate)
    is_of = certificate.is_of(unit, options.index)
    text = "The certificate is of this person." if is_of else "It is of somebody else."
    _print(json.dumps({"is_of": is_of}) if options.json else text)
    return 0 if is_of else 1


def _print(text: str) -> None:
    print(text)  # noqa: T201 - the command's output
