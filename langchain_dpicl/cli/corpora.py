"""`dpicl ledger corpora` and `renew`: caps and next periods."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from langchain_dpicl.ledger import CorpusState, Ledger
from langchain_dpicl.ledger.terms import moment

_NEVER = "for all time"


def show_corpora(options: argparse.Namespace, ledger: Ledger) -> int:
    """Show every corpus: its cap, what is committed, and which accounts count."""
    found = [_corpus(ledger.corpus(name)) for name in ledger.corpora()]
    if options.json:
        _print(json.dumps(found, indent=2))
        return 0
    table = Table("corpus", "unit", "cap", "committed", "account", "counts until (UTC)")
    table.columns[4].no_wrap = True
    for corpus in found:
        days = corpus["window_days"]
        window = _NEVER if days is None else f"within any {days} days"
        spent = corpus["epsilon_committed"], corpus["delta_committed"]
        cells = [
            escape(corpus["corpus"]),
            escape(corpus["unit_key"] or "each record"),
            f"epsilon {corpus['epsilon']:g}, delta {corpus['delta']:g} {window}",
            f"epsilon {spent[0]:g}, delta {spent[1]:g}",
        ]
        for account in corpus["accounts"] or [{"account": "", "counts_until": ""}]:
            until = account["counts_until"]
            until = _NEVER if until is None else until[:16].replace("T", " ")
            table.add_row(*cells, escape(account["account"]), until)
            cells = [""] * len(cells)
    Console().print(table)
    return 0


def renew(options: argparse.Namespace, ledger: Ledger) -> int:
    """Open the account of the next period, on the same terms."""
    before = ledger.accounts()
    terms = ledger.renew(options.account).account
    is_new = terms.name not in before
    start, end = map(moment, terms.span)
    found = {
        "account": terms.name,
        "corpus": terms.corpus,
        "period": terms.period,
        "from": start.isoformat(),
        "until": end.isoformat(),
        "epsilon": terms.epsilon,
        "delta": terms.delta,
        "opened": is_new,
    }
    text = (
        f"{'Opened' if is_new else 'There is already'} account {terms.name!r} "
        f"(epsilon {terms.epsilon:g}, delta {terms.delta:g}) for {terms.period}: "
        "what it releases adds to what the people of the corpus have lost."
    )
    _print(json.dumps(found) if options.json else text)
    return 0


def _corpus(corpus: CorpusState) -> dict[str, Any]:
    terms = corpus.terms
    epsilon, delta = corpus.committed
    return {
        "corpus": terms.name,
        "unit_key": terms.unit_key,
        "epsilon": terms.epsilon,
        "delta": terms.delta,
        "window_days": terms.window_days,
        "epsilon_committed": epsilon,
        "delta_committed": delta,
        "accounts": [
            {
                "account": book.name,
                "period": book.account.period,
                "purpose": book.account.purpose,
                "epsilon": book.account.epsilon,
                "delta": book.account.delta,
                "counts_until": None if until is None else moment(until).isoformat(),
            }
            for book in corpus.counted
            for until in [corpus.counts_until(book)]
        ],
    }


def _print(text: str) -> None:
    print(text)  # noqa: T201 - the command's output
