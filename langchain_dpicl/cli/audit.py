"""`dpicl audit`: what a person could lose, measured; one command for each audit."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

from langchain_core.documents import Document
from langchain_core.runnables import Runnable

from langchain_dpicl.audit import AuditReport, attack, mechanisms, one_run, snapshot
from langchain_dpicl.audit.worlds import Canaries
from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.chain import DPChain
from langchain_dpicl.cli.loading import (
    load_chain,
    load_object,
    read_corpus,
    read_text,
)

Make = Callable[[argparse.Namespace], AuditReport]


def run(options: argparse.Namespace) -> int:
    """Make the report, save it, print it; return 1 where the claim is exceeded."""
    report = MAKERS[options.audit](options)
    for path in options.out or ():
        report.save(path)
    print(json.dumps(report.to_dict(), indent=2) if options.json else report)  # noqa: T201 - the command's output
    return 0 if report.is_sound else 1


def _snapshot(options: argparse.Namespace) -> AuditReport:
    chain, budget = _chain_of(options)
    canaries: Canaries = options.units
    if options.canaries is not None and options.canaries.endswith(".jsonl"):
        unit_key = chain.groups.unit_key
        canaries = read_corpus(options.canaries, unit_key=unit_key, text_key="text")
    elif options.canaries is not None:
        canaries = _lines(options.canaries)
    return snapshot(
        chain,
        canaries,
        _lines(options.questions),
        repeats=options.repeats,
        delta=options.delta,
        budget=budget,
        progress=not options.json,
    )


def _attacks(options: argparse.Namespace) -> AuditReport:
    chain, budget = _chain_of(options)
    return attack(
        chain,
        _read(options, chain, options.members),
        _read(options, chain, options.others),
        plain=options.plain and load_object(options.plain, Runnable, "app:rag"),
        budget=budget,
        progress=not options.json,
    )


def _lines(path: str) -> list[str]:
    return [line.strip() for line in read_text(path).splitlines() if line.strip()]


def _one_run(options: argparse.Namespace) -> AuditReport:
    chain, budget = _chain_of(options)
    return one_run(
        chain,
        _read(options, chain, options.canaries),
        options.question,
        records=_read(options, chain, options.records),
        guesses=options.guesses,
        budget=budget,
        progress=not options.json,
    )


def _chain_of(
    options: argparse.Namespace,
) -> tuple[DPChain, PrivacyBudgetHandler | None]:
    chain, handlers = load_chain(options.chain)
    budgets = [one for one in handlers if isinstance(one, PrivacyBudgetHandler)]
    return chain, next(iter(budgets), None)


def _read(options: argparse.Namespace, chain: DPChain, path: str) -> list[Document]:
    key = options.unit_key or chain.groups.unit_key
    return read_corpus(path, unit_key=key, text_key=options.text_key)


def _mechanisms(options: argparse.Namespace) -> AuditReport:
    return mechanisms(thorough=options.thorough, progress=not options.json)


MAKERS: dict[str, Make] = {
    "attacks": _attacks,
    "mechanisms": _mechanisms,
    "one-run": _one_run,
    "snapshot": _snapshot,
}
"""What makes the report of each command that `cli/commands.py` lists."""
