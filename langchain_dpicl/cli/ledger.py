"""`dpicl ledger`: accounts and charges, for the operator."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from langchain_dpicl.accounting import Cost
from langchain_dpicl.budget import Stored, charges, forget, plan_of
from langchain_dpicl.budget.pricing import epsilon_spent
from langchain_dpicl.cli.corpora import renew, show_corpora
from langchain_dpicl.cli.loading import read_text
from langchain_dpicl.errors import InvalidParameterError, LedgerError
from langchain_dpicl.ledger import (
    AccountTerms,
    Head,
    Ledger,
    backup_ledger,
    new_ledger,
)
from langchain_dpicl.ledger.terms import NOTHING, moment
from langchain_dpicl.report.charges import as_json, short_events


def run(options: argparse.Namespace) -> int:
    """Run `dpicl ledger ACTION`."""
    if options.id_file and not options.units:
        raise InvalidParameterError(
            "--id-file looks people up in 'dpicl ledger export ACCOUNT --units'."
        )
    if options.head and options.action != "verify":
        raise InvalidParameterError("--head is for 'dpicl ledger verify'.")
    if options.action == "create":
        return _create(options)
    if options.action == "backup":
        return _backup(options)
    ledger = Ledger(options.ledger, create=False)
    try:
        return _act(options, ledger)
    finally:
        ledger.dispose()


def _act(options: argparse.Namespace, ledger: Ledger) -> int:
    of_all = {
        "list": _list_all,
        "verify": _verify,
        "clear-cache": _clear_cache,
        "corpora": show_corpora,
        "heads": _heads,
    }
    if options.action in of_all:
        return of_all[options.action](options, ledger)
    if not options.account:
        raise InvalidParameterError(
            f"Name an account: dpicl ledger {options.action} ACCOUNT. "
            "'dpicl ledger list' shows them."
        )
    of_one = {"close": _close, "export": _export, "renew": renew, "show": _show}
    return of_one[options.action](options, ledger)


def _list_all(options: argparse.Namespace, ledger: Ledger) -> int:
    _list(options, [_summary(ledger, name) for name in ledger.accounts()])
    return 0


def _close(options: argparse.Namespace, ledger: Ledger) -> int:
    ledger.close_account(options.account)
    summary = _summary(ledger, options.account)
    _print(json.dumps(summary) if options.json else "Closed.")
    return 0


def _export(options: argparse.Namespace, ledger: Ledger) -> int:
    lines = _units(options, ledger) if options.units else _book(options, ledger)
    for line in lines:
        _print(json.dumps(line))
    return 0


def _show(options: argparse.Namespace, ledger: Ledger) -> int:
    summary = _summary(ledger, options.account)
    rows = [_charge(stored) for stored in charges(ledger, options.account)]
    if options.json:
        _print(json.dumps({**summary, "charges": rows}, indent=2))
        return 0
    _list(options, [summary])
    table = Table("query", "charged at (UTC)", "events")
    for charge in rows:
        at = charge["at"].partition(".")[0].replace("T", " ")
        events = escape(short_events(charge["events"]))
        table.add_row(str(charge["sequence"]), at, events)
    Console().print(table)
    return 0


def _verify(options: argparse.Namespace, ledger: Ledger) -> int:
    names = [options.account] if options.account else ledger.accounts()
    rows = [_verified(ledger, name) for name in names]
    try:
        # The account alone, or the books of the ledger and its corpora, too.
        ledger.verify(options.account, heads=_kept(options.head))
    except LedgerError as error:
        if not any(row["damage"] == str(error) for row in rows):
            rows.append({"account": None, "charges": None, "damage": str(error)})
    if options.json:
        _print(json.dumps(rows, indent=2))
    else:
        table = Table("account", "charges", "book")
        for row in rows:
            count = "" if row["charges"] is None else str(row["charges"])
            account = "(ledger)" if row["account"] is None else row["account"]
            table.add_row(escape(account), count, escape(row["damage"] or "whole"))
        Console().print(table)
    return 1 if any(row["damage"] for row in rows) else 0


def _verified(ledger: Ledger, name: str) -> dict[str, Any]:
    """Check an account; one that is damaged does not hide the next."""
    try:
        ledger.verify(name)
        return {"account": name, "charges": ledger.state(name).used, "damage": None}
    except LedgerError as error:
        if name not in ledger.accounts():
            raise
        return {"account": name, "charges": None, "damage": str(error)}


def _heads(_options: argparse.Namespace, ledger: Ledger) -> int:
    """Print the heads of all books, one a line."""
    for head in ledger.heads():
        _print(head.model_dump_json())
    return 0


def _kept(path: str | None) -> list[Head]:
    """Return the heads in a file that `_heads` has printed."""
    lines = read_text(path).splitlines() if path else []
    return [Head.model_validate_json(line) for line in lines if line.strip()]


def _clear_cache(options: argparse.Namespace, ledger: Ledger) -> int:
    """Let no cached answer be given again; what charges have drawn stays."""
    names = [options.account] if options.account else ledger.accounts()
    cleared = {name: forget(ledger, name) for name in names}
    text = f"Cleared {sum(cleared.values())} cached answers; they cost a query again."
    _print(json.dumps(cleared) if options.json else text)
    return 0


def _create(options: argparse.Namespace) -> int:
    if options.account:
        raise InvalidParameterError(
            "Name the ledger by --ledger URL: 'dpicl ledger create' opens no account."
        )
    new_ledger(options.ledger)
    _print(json.dumps({"created": True}) if options.json else "Created.")
    return 0


def _backup(options: argparse.Namespace) -> int:
    if not options.account:
        raise InvalidParameterError("Name the copy: dpicl ledger backup TO.")
    accounts = backup_ledger(options.ledger, options.account)
    found = {"backup": options.account, "accounts_verified": accounts}
    text = f"Copied to {options.account}; {len(accounts)} accounts verified."
    _print(json.dumps(found) if options.json else text)
    return 0


def _book(options: argparse.Namespace, ledger: Ledger) -> Iterator[dict[str, Any]]:
    """Yield an account's terms and plan, then its entries, oldest first."""
    name = options.account
    book, plan = ledger.state(name), plan_of(ledger, name)
    terms = book.account.model_dump(mode="json")
    yield {
        "account": terms.pop("name"),
        "accounting": book.account.accounting,
        **terms,
        "plan": None if plan is None else plan.model_dump(mode="json"),
        "charges": book.used,
        "closed": not book.is_open,
    }
    for entry in ledger.entries(name):
        yield {**entry, "book": name, "at": _time(entry["at"])}


def _units(options: argparse.Namespace, ledger: Ledger) -> Iterator[dict[str, Any]]:
    """Yield what each unit has spent: private, and for the operator alone."""
    terms = ledger.state(options.account).account
    if terms.scope != "unit":
        raise InvalidParameterError(
            f"Account {terms.name!r} charges the whole corpus: it keeps no balances of "
            "units."
        )
    balances = ledger.unit_balances(terms.name)
    if not options.id_file:
        for balance in balances:
            yield {"tag": balance.tag, "share": _share(terms, balance.spent)}
        return
    lines = read_text(options.id_file).splitlines()
    wanted = {line: ledger.unit_tag(terms.name, line) for line in lines if line.strip()}
    tags = set(wanted.values())
    spent = {found.tag: found.spent for found in balances if found.tag in tags}
    for unit, tag in wanted.items():
        share = _share(terms, spent.get(tag, NOTHING))
        yield {"unit": unit, "tag": tag, "share": share}


def _share(terms: AccountTerms, spent: Cost) -> float:
    limit = terms.limit
    return max(
        spent.loss / limit.loss if limit.loss else 0.0,
        spent.failure / limit.failure if limit.failure else 0.0,
    )


def _charge(stored: Stored) -> dict[str, Any]:
    return {
        "sequence": stored.charge,
        "at": _time(stored.at),
        "events": as_json(stored.events),
        "cost": stored.cost._asdict(),
        "digest": stored.digest,
    }


def _time(at: int) -> str:
    return moment(at).isoformat(timespec="microseconds")


def _summary(ledger: Ledger, name: str) -> dict[str, Any]:
    """Return an account in figures; per unit they bound what any unit has spent."""
    book, plan = ledger.state(name), plan_of(ledger, name)
    terms = book.account
    return {
        "account": terms.name,
        "accounting": terms.accounting,
        "scope": terms.scope,
        "epsilon": terms.epsilon,
        "delta": terms.delta,
        "epsilon_spent": epsilon_spent(terms, plan, book.used, book.spent),
        "queries": terms.queries,
        "queries_spent": book.used,
        "corpus": terms.corpus,
        "period": terms.period,
        "purpose": terms.purpose,
        "closed": not book.is_open,
    }


def _list(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    if options.json:
        _print(json.dumps(rows, indent=2))
        return
    table = Table("account", "accounting", "epsilon spent", "delta", "queries", "state")
    for row in rows:
        per_unit = row["scope"] == "unit"
        limit = "" if row["queries"] is None else f" of {row['queries']}"
        table.add_row(
            escape(row["account"]),
            row["accounting"] + (" per unit" if per_unit else ""),
            # No unit has spent more, and most have spent less.
            ("\N{LESS-THAN OR EQUAL TO} " if per_unit else "")
            + f"{row['epsilon_spent']:.3f} of {row['epsilon']:g}",
            f"{row['delta']:g}",
            f"{row['queries_spent']}{'' if per_unit else limit}",
            "closed" if row["closed"] else "open",
        )
    Console().print(table)


def _print(text: str) -> None:
    print(text)  # noqa: T201 - the command's output
