"""`dpicl ledger`: accounts and charges, for the operator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from langchain_dpicl.accounting import Cost
from langchain_dpicl.budget import charges, plan_of
from langchain_dpicl.budget.pricing import epsilon_spent
from langchain_dpicl.cli.loading import read_text
from langchain_dpicl.errors import InvalidParameterError, LedgerError
from langchain_dpicl.ledger import (
    AccountTerms,
    CorpusState,
    Head,
    Ledger,
    backup_ledger,
    new_ledger,
)
from langchain_dpicl.ledger.terms import NOTHING, moment
from langchain_dpicl.operate.charges import as_json as events_as_json
from langchain_dpicl.operate.charges import opened, short_events
from langchain_dpicl.operate.pages import table

_NEVER = "for all time"


def list_(*, ledger: str, corpora: bool, heads: bool, as_json: bool) -> int:
    """List the accounts, the corpora, or the heads of all books."""
    with opened(ledger) as book:
        if heads:
            for head in book.heads():
                click.echo(head.model_dump_json())
        elif corpora:
            _show_corpora([_corpus(book.corpus(n)) for n in book.corpora()], as_json)
        else:
            _show_accounts([_summary(book, name) for name in book.accounts()], as_json)
    return 0


def show(*, account: str, ledger: str, as_json: bool) -> int:
    """Show an account and its charges."""
    with opened(ledger) as book:
        summary = _summary(book, account)
        found: list[dict[str, Any]] = [
            {
                "sequence": stored.charge,
                "at": _time(stored.at),
                "events": events_as_json(stored.events),
                "cost": stored.cost._asdict(),
                "digest": stored.digest,
            }
            for stored in charges(book, account)
        ]
    if as_json:
        click.echo(json.dumps({**summary, "charges": found}, indent=2))
        return 0
    _show_accounts([summary], as_json=False)
    rows = [
        (one["sequence"], one["at"][:19].replace("T", " "), short_events(one["events"]))
        for one in found
    ]
    click.echo("\n" + table(("query", "charged at (UTC)", "events"), rows))
    return 0


def verify(*, account: str | None, ledger: str, head: str | None, as_json: bool) -> int:
    """Check an account, or the whole ledger; return 1 where it is damaged."""
    lines = read_text(head).splitlines() if head else []
    kept = [Head.model_validate_json(line) for line in lines if line.strip()]
    with opened(ledger) as book:
        names = [account] if account else book.accounts()
        found = [_verified(book, name) for name in names]
        try:
            # The account alone, or the books of the ledger and its corpora, too.
            book.verify(account, heads=kept)
        except LedgerError as error:
            if not any(one["damage"] == str(error) for one in found):
                found.append({"account": None, "charges": None, "damage": str(error)})
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        rows = [
            (one["account"] or "(ledger)", one["charges"], one["damage"] or "whole")
            for one in found
        ]
        click.echo(table(("account", "charges", "book"), rows))
    return 1 if any(one["damage"] for one in found) else 0


def export(
    *, account: str, ledger: str, units: bool, id_file: str | None, **_json: bool
) -> int:
    """Print an account's book, or its units' balances, as JSON Lines."""
    if id_file and not units:
        raise InvalidParameterError("--id-file goes with --units: it looks people up.")
    with opened(ledger) as book:
        lines = _units(book, account, id_file) if units else _book(book, account)
        for line in lines:
            click.echo(json.dumps(line))
    return 0


def close(*, account: str, ledger: str, as_json: bool) -> int:
    """Close an account for good."""
    with opened(ledger) as book:
        book.close_account(account)
        summary = _summary(book, account)
    click.echo(json.dumps(summary) if as_json else "Closed.")
    return 0


def renew(*, account: str, ledger: str, as_json: bool) -> int:
    """Open the account of the next period, on the same terms."""
    with opened(ledger) as book:
        before = book.accounts()
        terms = book.renew(account).account
    is_new = terms.name not in before
    start, end = (moment(time).isoformat() for time in terms.span)
    found = {
        **terms.model_dump(include={"corpus", "period", "epsilon", "delta"}),
        "account": terms.name,
        "from": start,
        "until": end,
        "opened": is_new,
    }
    text = (
        f"{'Opened' if is_new else 'There is already'} account {terms.name!r} "
        f"(epsilon {terms.epsilon:g}, delta {terms.delta:g}) for {terms.period}: "
        "what it releases adds to what the people of the corpus have lost."
    )
    click.echo(json.dumps(found) if as_json else text)
    return 0


def backup(*, to: str, ledger: str, as_json: bool) -> int:
    """Copy a SQLite ledger, while it is in use."""
    verified = backup_ledger(ledger, to)
    found = {"backup": to, "accounts_verified": verified}
    text = f"Copied to {to}; {len(verified)} accounts verified."
    click.echo(json.dumps(found) if as_json else text)
    return 0


def create(*, ledger: str, as_json: bool) -> int:
    """Make a ledger without accounts."""
    new_ledger(ledger)
    click.echo(json.dumps({"created": True}) if as_json else "Created.")
    return 0


# ---- what is read --------------------------------------------------------------------


def _summary(ledger: Ledger, name: str) -> dict[str, Any]:
    """Return an account in figures; per unit they bound what any unit has spent."""
    book, plan = ledger.state(name), plan_of(ledger, name)
    terms = book.account
    return {
        "account": terms.name,
        "accounting": terms.accounting,
        **terms.model_dump(exclude={"name", "order", "delta0_share"}),
        "epsilon_spent": epsilon_spent(terms, plan, book.used, book.spent),
        "queries_spent": book.used,
        "closed": not book.is_open,
    }


def _corpus(corpus: CorpusState) -> dict[str, Any]:
    epsilon, delta = corpus.committed
    counted = []
    for book in corpus.counted:
        until = corpus.counts_until(book)
        terms = book.account.model_dump(
            include={"period", "purpose", "epsilon", "delta"}
        )
        end = None if until is None else moment(until).isoformat()
        counted.append({"account": book.name, **terms, "counts_until": end})
    return {
        "corpus": corpus.terms.name,
        **corpus.terms.model_dump(exclude={"name"}),
        "epsilon_committed": epsilon,
        "delta_committed": delta,
        "accounts": counted,
    }


def _verified(ledger: Ledger, name: str) -> dict[str, Any]:
    """Check an account; one that is damaged does not hide the next."""
    try:
        ledger.verify(name)
        return {"account": name, "charges": ledger.state(name).used, "damage": None}
    except LedgerError as error:
        if name not in ledger.accounts():
            raise
        return {"account": name, "charges": None, "damage": str(error)}


def _book(ledger: Ledger, name: str) -> Iterator[dict[str, Any]]:
    """Yield an account's terms and plan, then its entries, oldest first."""
    book, plan = ledger.state(name), plan_of(ledger, name)
    yield {
        "account": name,
        "accounting": book.account.accounting,
        **book.account.model_dump(mode="json", exclude={"name"}),
        "plan": None if plan is None else plan.model_dump(mode="json"),
        "charges": book.used,
        "closed": not book.is_open,
    }
    for entry in ledger.entries(name):
        yield {**entry, "book": name, "at": _time(entry["at"])}


def _units(ledger: Ledger, name: str, id_file: str | None) -> Iterator[dict[str, Any]]:
    """Yield what each unit has spent: private, and for the operator alone."""
    terms = ledger.state(name).account
    if terms.scope != "unit":
        raise InvalidParameterError(
            f"Account {name!r} charges the whole corpus: it keeps no balances of units."
        )
    balances = ledger.unit_balances(name)
    if not id_file:
        for balance in balances:
            yield {"tag": balance.tag, "share": _share(terms, balance.spent)}
        return
    ids = [line for line in read_text(id_file).splitlines() if line.strip()]
    wanted = {unit: ledger.unit_tag(name, unit) for unit in ids}
    tags = set(wanted.values())
    spent = {found.tag: found.spent for found in balances if found.tag in tags}
    for unit, tag in wanted.items():
        share = _share(terms, spent.get(tag, NOTHING))
        yield {"unit": unit, "tag": tag, "share": share}


def _share(terms: AccountTerms, spent: Cost) -> float:
    pairs = zip(spent, terms.limit, strict=True)
    return max(lost / limit if limit else 0.0 for lost, limit in pairs)


def _time(at: int) -> str:
    return moment(at).isoformat(timespec="microseconds")


# ---- what is shown -------------------------------------------------------------------


def _show_accounts(found: list[dict[str, Any]], as_json: bool) -> None:  # noqa: FBT001 - the option
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    rows = []
    for one in found:
        per_unit = one["scope"] == "unit"
        most = "" if one["queries"] is None or per_unit else f" of {one['queries']}"
        # No unit has spent more, and most have spent less.
        sign = "\N{LESS-THAN OR EQUAL TO} " if per_unit else ""
        rows.append(
            (
                one["account"],
                one["accounting"] + (" per unit" if per_unit else ""),
                f"{sign}{one['epsilon_spent']:.3f} of {one['epsilon']:g}",
                f"{one['delta']:g}",
                f"{one['queries_spent']}{most}",
                "closed" if one["closed"] else "open",
            )
        )
    columns = ("account", "accounting", "epsilon spent", "delta", "queries", "state")
    click.echo(table(columns, rows))


def _show_corpora(found: list[dict[str, Any]], as_json: bool) -> None:  # noqa: FBT001 - the option
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    rows = []
    for one in found:
        days = one["window_days"]
        window = _NEVER if days is None else f"within any {days} days"
        cells: tuple[str, ...] = (
            one["corpus"],
            one["unit_key"] or "each record",
            f"epsilon {one['epsilon']:g}, delta {one['delta']:g} {window}",
            f"epsilon {one['epsilon_committed']:g}, delta {one['delta_committed']:g}",
        )
        for account in one["accounts"] or [{"account": "", "counts_until": ""}]:
            until = account["counts_until"]
            until = _NEVER if until is None else until[:16].replace("T", " ")
            rows.append((*cells, account["account"], until))
            cells = ("",) * len(cells)
    columns = ("corpus", "unit", "cap", "committed", "account", "counts until (UTC)")
    click.echo(table(columns, rows))
