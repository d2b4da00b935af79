"""An account's book: what the database refuses, what heads show, what it costs."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from ledger.book_parts import (
    EVENTS,
    charge,
    draw,
    forget,
    look_up,
    opened,
    pay,
    terms_of,
    write_charge,
)
from unit_tests.ledger.faults import listening

from langchain_dpicl.accounting import Cost
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    LedgerError,
    PlanMismatchError,
)
from langchain_dpicl.ledger import AccountTerms, Head, Ledger, Plan
from langchain_dpicl.ledger.book import CHARGED, Transaction


def test_a_charge_is_counted_and_the_limit_is_exact(ledger: Ledger) -> None:
    opened(ledger)
    assert [charge(ledger) for _ in range(5)] == [1, 2, 3, 4, 5]
    with pytest.raises(BudgetExhaustedError, match="'notes' has spent all 5 queries"):
        charge(ledger)
    assert ledger.state("notes").spent == Cost(5, 0)
    assert ledger.verify() == 2 + 2 + 5
    assert ledger.verify("notes") == 7


def test_a_filter_adds_up_what_events_cost(ledger: Ledger) -> None:
    terms = opened(ledger, queries=None).account
    charge(ledger)
    spent = ledger.state("notes").spent
    assert spent == terms.cost(EVENTS, None)
    with pytest.raises(BudgetExhaustedError, match=r"spent .* %.* costs .* %"):
        for _ in range(200):
            charge(ledger)
    book = ledger.state("notes")
    assert book.used == 2**31 // spent.loss
    ledger.verify()


def test_the_database_itself_refuses_an_overspent_account(ledger: Ledger) -> None:
    opened(ledger)

    def overspend(transaction: Transaction) -> None:
        held = transaction.load("account", "notes", "alone")
        transaction.append(held, "charge", {}, cost=Cost(6, 0), charge=1, step=CHARGED)

    with pytest.raises(LedgerError, match=r"IntegrityError|CheckViolation"):
        ledger.run(overspend)


@pytest.mark.parametrize("step", [CHARGED, 0])
def test_the_database_itself_refuses_a_second_draw(ledger: Ledger, step: int) -> None:
    opened(ledger)
    draw(ledger, charge(ledger), "first")

    def again(transaction: Transaction) -> None:
        held = transaction.load("account", "notes", "alone")
        body = {"value": "second"}
        transaction.append(held, "draw", body, charge=1, step=step)

    with pytest.raises(LedgerError, match=r"IntegrityError|UniqueViolation"):
        ledger.run(again)
    ledger.verify()


@pytest.mark.parametrize(
    "changes",
    [{"epsilon": 7.0}, {"delta": 1e-7}, {"queries": 6}, {"purpose": "another"}],
)
def test_terms_stay(ledger: Ledger, changes: dict[str, Any]) -> None:
    opened(ledger)
    with pytest.raises(PlanMismatchError, match=next(iter(changes))):
        ledger.open(terms_of("notes").model_copy(update=changes))
    assert ledger.open(terms_of("notes")).account == terms_of("notes")


@pytest.mark.parametrize(
    "terms",
    [
        *({"queries": None}, {"queries": 0}, {"order": 8.0}, {"epsilon": 0.0}),
        *({"delta": 1.0}, {"name": ""}, {"name": "a\nb"}, {"name": "a" * 201}),
        *({"period": "2026-12"}, {"period": "soon", "corpus": "a"}, {"purpose": " "}),
    ],
)
def test_terms_that_promise_nothing_are_refused(terms: dict[str, Any]) -> None:
    whole = {"name": "a", "epsilon": 8.0, "delta": 1e-6, "queries": 5}
    with pytest.raises(InvalidParameterError):
        AccountTerms(**{**whole, **terms})


def test_a_plan_is_for_its_events_alone() -> None:
    with pytest.raises(PlanMismatchError):
        terms_of("notes").cost(EVENTS, None)
    with pytest.raises(InvalidParameterError):
        Plan(events=EVENTS)


def test_a_closed_account_pays_for_nothing(ledger: Ledger) -> None:
    opened(ledger)
    charge(ledger)
    ledger.close_account("notes")
    ledger.close_account("notes")
    with pytest.raises(LedgerError, match="'notes' is closed"):
        charge(ledger)
    assert not ledger.state("notes").is_open
    ledger.verify()


def test_what_is_not_there_is_named(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="no account 'notes'"):
        ledger.state("notes")
    with pytest.raises(LedgerError, match="no corpus 'clinic'"):
        ledger.open(terms_of("notes", corpus="clinic"))
    assert ledger.accounts() == ledger.corpora() == []


def test_a_book_is_exported_and_its_digests_can_be_followed(ledger: Ledger) -> None:
    opened(ledger)
    draw(ledger, charge(ledger, key="a question"), ["yes", 3])
    forget(ledger)
    entries = list(ledger.entries("notes"))
    kinds = [entry["kind"] for entry in entries]
    assert kinds == ["opened", "plan", "charge", "draw", "forgot"]
    assert entries[3]["body"] == {"value": ["yes", 3]}
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
    opened(ledger)
    charge(ledger)
    heads = ledger.heads()
    charge(ledger)
    ledger.verify(heads=heads)
    ledger.verify("notes", heads=[Head.model_validate(dict(heads[-1]))])
    later = ledger.heads()
    other = later[-1].model_copy(update={"entries": later[-1].entries + 1})
    for head in (other, later[-1].model_copy(update={"digest": heads[-1].digest})):
        with pytest.raises(LedgerError, match="does not go on from the head"):
            ledger.verify(heads=[head])
    with pytest.raises(LedgerError, match="no account"):
        ledger.verify(heads=[heads[-1].model_copy(update={"name": "gone"})])


@given(value=st.recursive(st.text() | st.integers() | st.none(), st.lists))
def test_what_is_drawn_is_stored_whatever_it_is(value: Any) -> None:
    ledger = Ledger(":memory:")
    opened(ledger)
    draw(ledger, charge(ledger, key="key"), value)
    assert json.loads(look_up(ledger, "key")[-1]["body"]) == {"value": value}


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
    opened(ledger, "units", scope="unit")
    opened(ledger)
    draw(ledger, charge(ledger, key="key"), "yes")

    if ledger.path is None and "memory" not in repr(ledger):
        # A server would walk a small table, which it may.
        def prefer(transaction: Transaction) -> None:
            sql = "SELECT set_config('enable_seqscan', 'off', false)"
            transaction.connection.exec_driver_sql(sql)

        ledger.run(prefer)
    with plans(ledger) as found:
        number = charge(ledger, key="another")
        draw(ledger, number, "no")
        assert len(look_up(ledger, "key")) == 2
        pay(ledger, ["p1", "p2"], "units")
    walks = [
        plan
        for plan in found
        if re.match(r"\s*(->)?\s*(SCAN|Seq Scan)", plan)
        and "VIRTUAL TABLE" not in plan  # The ids that were given.
    ]
    assert len(found) > 15
    assert not walks


def test_a_charge_reads_the_same_in_a_long_book(ledger: Ledger) -> None:
    """The number of statements, and of rows that they return, is the same."""
    opened(ledger, queries=10_000)

    def fill(transaction: Transaction) -> None:
        for number in range(300):
            write_charge(transaction, "notes", f"{number}")

    counts = []
    for _ in range(2):
        count = [0]

        def after(*_: Any, count: list[int] = count) -> None:
            count[0] += 1

        with listening("after_cursor_execute", after):
            draw(ledger, charge(ledger, key="key"), "yes")
            look_up(ledger, "key")
        counts.append(count[0])
        ledger.run(fill)
    assert counts[0] == counts[1]


# ---- Threads -------------------------------------------------------------------------


def test_threads_that_fail_lose_nothing_that_was_acknowledged(
    place: Callable[[], str],
) -> None:
    ledger, turns = Ledger(place()), iter(range(10**9))
    opened(ledger, queries=60)

    def fail(_connection: object) -> None:
        if next(turns) % 3 == 0:
            raise sa.exc.OperationalError("COMMIT", None, OSError("disk full"))

    charged: list[int] = []

    def work() -> None:
        for _ in range(10):
            try:
                charged.append(charge(ledger))
            except LedgerError:
                continue
            except BudgetExhaustedError:
                return

    with listening("commit", fail), ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda _: work(), range(12)))
    assert sorted(charged) == [*range(1, 61)]
    assert ledger.verify() == 2 + 2 + 60
    ledger.dispose()


def test_a_transaction_inside_another_one_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("langchain_dpicl.ledger.engine.WAIT_SECONDS", 0.2)
    ledger = Ledger(":memory:")
    with pytest.raises(LedgerError, match="busy"):
        ledger.run(lambda _: ledger.accounts())
    assert ledger.accounts() == []
