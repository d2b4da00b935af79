"""`dpicl ledger`: accounts and charges, for the operator."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console
from rich.table import Table

from langchain_dpicl import accounting
from langchain_dpicl.accounting import event_to_dict
from langchain_dpicl.cli.loading import sqlite_path
from langchain_dpicl.exceptions import InvalidParameterError, LedgerError
from langchain_dpicl.ledger import Ledger, SQLLedger


def run(options: argparse.Namespace) -> int:
    """Run `dpicl ledger ACTION`."""
    path = sqlite_path(options.ledger)
    if path is not None and not path.exists():
        # Opening would make an empty one.
        raise LedgerError(f"There is no ledger at {path}.")
    ledger = SQLLedger(options.ledger)
    try:
        return _act(options, ledger)
    finally:
        ledger.dispose()


def _act(options: argparse.Namespace, ledger: Ledger) -> int:
    if options.action == "list":
        _list(options, [_summary(ledger, name) for name in ledger.accounts()])
        return 0
    if not options.account:
        raise InvalidParameterError(
            f"Name an account: dpicl ledger {options.action} ACCOUNT. "
            "'dpicl ledger list' shows them."
        )
    if options.action == "close":
        ledger.close_account(options.account)
        _print_json_or(options, _summary(ledger, options.account), "Closed.")
        return 0
    charges = [
        {
            "account": options.account,
            "sequence": record.charge.sequence,
            "at": record.at.isoformat(),
            "events": [event_to_dict(event) for event in record.charge.events],
        }
        for record in ledger.charges(options.account)
    ]
    if options.action == "export":
        for charge in charges:
            print(json.dumps(charge))  # noqa: T201 - the command's output
        return 0
    summary = _summary(ledger, options.account)
    if options.json:
        print(json.dumps({**summary, "charges": charges}, indent=2))  # noqa: T201 - the command's output
        return 0
    _list(options, [summary])
    table = Table("query", "charged at (UTC)", "events")
    for charge in charges:
        table.add_row(str(charge["sequence"]), charge["at"], _short(charge["events"]))
    Console().print(table)
    return 0


def _summary(ledger: Ledger, name: str) -> dict[str, Any]:
    state = ledger.state(name)
    spent = 0.0
    if state.plan is not None and state.used:
        spent = accounting.spent(state.plan.events, state.used, state.terms.delta)
    return {
        "account": name,
        "epsilon": state.terms.epsilon,
        "delta": state.terms.delta,
        "epsilon_spent": spent,
        "queries": state.terms.queries,
        "queries_spent": state.used,
        "closed": state.closed,
    }


def _list(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    if options.json:
        print(json.dumps(rows, indent=2))  # noqa: T201 - the command's output
        return
    table = Table("account", "epsilon spent", "of", "delta", "queries", "of", "state")
    for row in rows:
        table.add_row(
            row["account"],
            f"{row['epsilon_spent']:.3f}",
            f"{row['epsilon']:g}",
            f"{row['delta']:g}",
            str(row["queries_spent"]),
            str(row["queries"]),
            "closed" if row["closed"] else "open",
        )
    Console().print(table)


def _print_json_or(options: argparse.Namespace, value: Any, text: str) -> None:
    print(json.dumps(value) if options.json else text)  # noqa: T201 - the command's output


def _short(events: list[dict[str, Any]]) -> str:
    return "; ".join(
        " ".join(
            str(value) if key == "kind" else f"{key}={value:.4g}"
            for key, value in event.items()
            if not (key == "count" and value == 1)
            and not (key == "sampling_rate" and value == 1)
        )
        for event in events
    )
