"""An account's book: what the database refuses, what heads show, what it costs."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.ledgers import PLANNED, UNIT_PLANNED, account_of, spend
from unit_tests.ledger.faults import listening

from langchain_dpicl.accounting import Cost
from langchain_dpicl.errors import (
    InvalidParameterError,
    LedgerError,
)
from langchain_dpicl.ledger import AccountTerms, Head, Ledger
from langchain_dpicl.ledger.book import CHARGED, Transaction

MANY = PLANNED.model_copy(update={"queries": 10_000})
UNITS = UNIT_PLANNED.model_copy(update={"name": "units"})


@pytest.mark.parametrize(
    ("kind", "entry"),
    [
        ("charge", {"charge": 2, "step": CHARGED, "cost": Cost(6, 0)}),
        ("draw", {"charge": 1, "step": 0}),
        ("charge", {"charge": 1, "step": CHARGED}),
    ],
    ids=["too much", "a second draw", "a second charge of one number"],
)
def test_the_database_itself_refuses(
    ledger: Ledger, kind: str, entry: dict[str, Any]
) -> None:
    spend(ledger)

    def write(transaction: Transaction) -> None:
        held = transaction.load("account", "notes", "alone")
        transaction.append(held, kind, {"value": "second"}, **entry)

    with pytest.raises(LedgerError, match=r"IntegrityError|Violation"):
        ledger.run(write)
    ledger.verify()


@pytest.mark.parametrize(
    "terms",
    [
        *({"queries": None}, {"queries": 0}, {"order": 8.0}, {"epsilon": 0.0}),
        *({"delta": 1.0}, {"name": ""}, {"name": "a\nb"}, {"name": "a" * 201}),
        *({"period": "2026-12"}, {"period": "soon", "corpus": "a"}, {"purpose": " "}),
    ],
)
def test_terms_that_promise_nothing_are_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError):
        AccountTerms(**{**PLANNED.model_dump(), **terms})


def test_what_is_not_there_is_named(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="no account 'notes'"):
        ledger.state("notes")
    with pytest.raises(LedgerError, match="no corpus 'clinic'"):
        ledger.open(PLANNED.model_copy(update={"corpus": "clinic"}))
    assert ledger.accounts() == ledger.corpora() == []


def test_a_book_is_exported_and_its_digests_can_be_followed(ledger: Ledger) -> None:
    spend(ledger, key="a question")
    account_of(ledger, PLANNED).forget()
    entries = list(ledger.entries("notes"))
    kinds = [entry["kind"] for entry in entries]
    assert kinds == ["opened", "plan", "charge", "draw", "forgot"]
    before = ""
    root = list(ledger.entries("ledger", "ledger"))
    promise = root[-1]["body"]["promise"]
    for entry in entries:
        body = json.dumps(entry["body"], sort_keys=True, separators=(",", ":"))
        places = [entry[name] for name in ("charge", "step", "key")]
        sums = [entry[name] for name in ("used", "loss", "failure", "at")]
        parts = [promise, before, entry["number"], entry["kind"], body, *sums, *places]
        data = json.dumps(parts, separators=(",", ":")).encode()
        before = hashlib.blake2b(data, digest_size=32, person=b"dpicl").hexdigest()
        assert entry["digest"] == before


def test_a_head_that_was_kept_shows_a_ledger_that_went_back(ledger: Ledger) -> None:
    spend(ledger)
    heads = ledger.heads()
    spend(ledger)
    ledger.verify(heads=heads)
    ledger.verify("notes", heads=[Head.model_validate(dict(heads[-1]))])
    later = ledger.heads()
    other = later[-1].model_copy(update={"entries": later[-1].entries + 1})
    for head in (other, later[-1].model_copy(update={"digest": heads[-1].digest})):
        with pytest.raises(LedgerError, match="does not go on from the head"):
            ledger.verify(heads=[head])
    with pytest.raises(LedgerError, match="no account"):
        ledger.verify(heads=[heads[-1].model_copy(update={"name": "gone"})])


# ---- Units ---------------------------------------------------------------------------


def test_who_paid_changes_nothing_that_a_reader_of_the_book_sees(
    ledger: Ledger,
) -> None:
    for people in ([], ["p1"], ["p1", "p2", "p3", "p4"]):
        spend(ledger, UNITS, people)
    entries = [e for e in ledger.entries("units") if e["kind"] == "units"]
    digests = [entry["body"].pop("balances") for entry in entries]
    assert len({*digests}) == 3
    assert {len(digest) for digest in digests} == {64}
    assert all(entry["body"] == {} for entry in entries)
    assert [entry["step"] for entry in entries] == [-2] * 3


def test_keys_and_tags_are_in_no_log(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        spend(ledger, UNITS, ["p1"])
        assert list(ledger.unit_balances("units"))
    key, tag = str(ledger.state("units").unit_key), ledger.unit_tag("units", "p1")
    assert len(key) == 64
    for secret in (key, tag):
        assert secret not in caplog.text
        assert secret not in repr(ledger.state("units"))
    assert key not in repr(list(ledger.entries("units")))


# ---- Costs ---------------------------------------------------------------------------


@contextmanager
def plans(ledger: Ledger) -> Iterator[list[str]]:
    """Yield how the database finds the rows of each statement that is run."""
    found: list[str] = []
    explain = {"sqlite": "EXPLAIN QUERY PLAN", "postgresql": "EXPLAIN"}
    is_asking = threading.local()

    def before(
        connection: Any, _cursor: Any, text: str, given: Any, context: Any, many: Any
    ) -> None:
        is_row = re.match(r"\s*(SELECT|UPDATE|INSERT|WITH)", text)
        if not is_row or "dpicl_" not in text or getattr(is_asking, "now", False):
            return
        is_asking.now = True
        try:
            start = explain[connection.dialect.name]
            rows = connection.exec_driver_sql(f"{start} {text}", given).all()
            found.extend(f"{row[-1]}  <  {text}" for row in rows)
        finally:
            is_asking.now = False

    with listening("before_cursor_execute", before):
        yield found


def test_no_statement_walks_a_book(ledger: Ledger) -> None:
    spend(ledger, UNITS, ["p1"])
    spend(ledger, key="key")

    if ledger.path is None and "memory" not in repr(ledger):
        # A server would walk a small table, which it may.
        def prefer(transaction: Transaction) -> None:
            sql = "SELECT set_config('enable_seqscan', 'off', false)"
            transaction.connection.exec_driver_sql(sql)

        ledger.run(prefer)
    with plans(ledger) as found:
        spend(ledger, key="another")
        assert spend(ledger, key="key") == 1
        spend(ledger, UNITS, ["p1", "p2"])
    walks = [
        plan
        for plan in found
        if re.match(r"\s*(->)?\s*(SCAN|Seq Scan)", plan)
        and "VIRTUAL TABLE" not in plan  # The ids that were given.
    ]
    assert len(found) > 15
    assert not walks


def test_a_charge_and_a_look_up_read_the_same_in_a_long_book(ledger: Ledger) -> None:
    counts = []
    spend(ledger, MANY)
    for turn in range(2):
        count = [0]

        def after(*_: Any, count: list[int] = count) -> None:
            count[0] += 1

        with listening("after_cursor_execute", after):
            spend(ledger, MANY, key=f"turn {turn}")
            spend(ledger, MANY, key=f"turn {turn}")
        counts.append(count[0])
        for number in range(20):
            spend(ledger, MANY, key=f"{number}")
    assert counts[0] == counts[1]


# ---- Threads -------------------------------------------------------------------------


def test_a_transaction_inside_another_one_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("langchain_dpicl.ledger.engine.WAIT_SECONDS", 0.2)
    ledger = Ledger(":memory:")
    with pytest.raises(LedgerError, match="busy"):
        ledger.run(lambda _: ledger.accounts())
    assert ledger.accounts() == []
