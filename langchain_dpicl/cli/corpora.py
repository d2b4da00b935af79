"""`dpicl ledger corpora`, `renew` and `alert`: caps, next periods, low balances."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.ledger import CorpusState, Ledger
from langchain_dpicl.ledger.charging import is_payable
from langchain_dpicl.ledger.corpus import renewed

LOW = 3  # The exit status of `alert` when a balance is low.
_NEVER = "for ever"


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
    state = ledger.state(options.account)
    corpus = state.terms.corpus
    at = None if corpus is None else ledger.corpus(corpus).at
    terms = renewed(state.terms, at)
    is_new = terms.name not in ledger.accounts()
    ledger.open(terms)
    span = terms.span
    found = {
        "account": terms.name,
        "corpus": terms.corpus,
        "period": terms.period,
        "from": span and span.start.isoformat(),
        "until": span and span.end.isoformat(),
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


def alert(options: argparse.Namespace, ledger: Ledger) -> int:
    """Show what is left of each account that still pays; tell whether one is low."""
    below = _share(options.below)
    names = [options.account] if options.account else ledger.accounts()
    states = [ledger.state(name) for name in names]
    rows: list[dict[str, Any]] = [
        {
            "account": state.terms.name,
            "share_left": round(state.left, 6),
            "low": state.left < below,
        }
        for state in states
        # What is over needs no alert, unless it is asked for by name.
        if options.account or is_payable(state)
    ]
    if options.json:
        _print(json.dumps(rows, indent=2))
    else:
        table = Table("account", "left", "")
        for row in rows:
            low = f"below {below:.0%}" if row["low"] else ""
            table.add_row(escape(row["account"]), f"{row['share_left']:.1%}", low)
        Console().print(table)
    return LOW if any(row["low"] for row in rows) else 0


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
                "account": account.terms.name,
                "period": account.terms.period,
                "purpose": account.terms.purpose,
                "epsilon": account.terms.epsilon,
                "delta": account.terms.delta,
                "counts_until": None if until is None else until.isoformat(),
            }
            for account in corpus.counted
            for until in [corpus.counts_until(account)]
        ],
    }


def _share(text: str) -> float:
    number, percent, rest = text.partition("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = -1.0
    if rest or not 0 < share <= 1:
        raise InvalidParameterError(
            f"--below takes a share such as 20% or 0.2, not {text[:40]!r}."
        )
    return share


def _print(text: str) -> None:
    print(text)  # noqa: T201 - the command's output
