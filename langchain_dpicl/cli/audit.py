"""`dpicl audit snapshot`: what each of some people could lose, measured."""

from __future__ import annotations

import argparse
import json

from langchain_dpicl.audit import AuditReport, snapshot
from langchain_dpicl.audit.worlds import Canaries
from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.cli.loading import load_chain, read_corpus, read_text


def run(options: argparse.Namespace) -> int:
    """Make the report, save it, print it; return 1 where the claim is exceeded."""
    report = _snapshot(options)
    for path in options.out or ():
        report.save(path)
    print(json.dumps(report.to_dict(), indent=2) if options.json else report)  # noqa: T201 - the command's output
    return 0 if report.is_sound else 1


def _snapshot(options: argparse.Namespace) -> AuditReport:
    chain, handlers = load_chain(options.chain)
    budgets = [one for one in handlers if isinstance(one, PrivacyBudgetHandler)]
    canaries: Canaries = options.units
    if options.canaries is not None and options.canaries.endswith(".jsonl"):
        unit_key = chain.groups.unit_key
        canaries = read_corpus(options.canaries, unit_key=unit_key)
    elif options.canaries is not None:
        canaries = _lines(options.canaries)
    return snapshot(
        chain,
        canaries,
        _lines(options.questions),
        repeats=options.repeats,
        delta=options.delta,
        budget=next(iter(budgets), None),
        progress=not options.json,
    )


def _lines(path: str) -> list[str]:
    return [line.strip() for line in read_text(path).splitlines() if line.strip()]
