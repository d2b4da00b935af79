"""Per-unit accounts: every unit pays for itself, up to its own limit."""

from __future__ import annotations

import logging
import random
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support.ledgers import (
    NOISY,
    PLANNED,
    UNIT_FILTERED,
    UNIT_PLANNED,
    Database,
    opened,
    spend,
    sqlite_database,
)

from langchain_dpicl.accounting import Cost, Exponential, Failure, Gaussian
from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import AccountTerms, Ledger, SQLLedger
from langchain_dpicl.ledger.sql import unit_charging as collecting_module

ODD_IDS = [
    "p-1",
    "'; DROP TABLE dpicl_unit; --",
    "\N{GREEK SMALL LETTER EPSILON}\N{ZERO WIDTH JOINER}",
    "\ud800",
    "\udfff\ud800",
    "\0",
    "\N{PILE OF POO}" * 1000,
    "%(tag)s ?1 :x",
    "0",
]


@pytest.mark.parametrize("terms", [UNIT_PLANNED, UNIT_FILTERED])
def test_who_can_pay_pays_and_nobody_else(ledger: Ledger, terms: AccountTerms) -> None:
    opened(ledger, terms)
    often, seldom = "p-often", "p-seldom"
    times = 0
    while times < 99 and all(ledger.charge_units(spend(ledger, terms), [often])):
        times += 1
    limit, cost = terms.limit, ledger.charges("notes")[0].charge.cost
    assert times == min(
        limit.loss // cost.loss,
        limit.failure // cost.failure if cost.failure else times,
    )
    charge = spend(ledger, terms)
    assert ledger.charge_units(charge, [often, seldom]) == [False, True]
    assert ledger.charge_units(charge, [seldom, "p-new", often]) == [True, True, False]
    ledger.verify("notes")


def test_the_answer_is_in_the_order_of_the_question(ledger: Ledger) -> None:
    opened(ledger, UNIT_PLANNED)
    ids = [f"p-{i}" for i in range(300)]
    for _ in range(UNIT_PLANNED.limit.loss):
        ledger.charge_units(spend(ledger, UNIT_PLANNED), ids[::3])
    asked = ids[::-1]
    paid = ledger.charge_units(spend(ledger, UNIT_PLANNED), asked)
    assert paid == [i % 3 != 0 for i in range(300)][::-1]
    assert all(type(answer) is bool for answer in paid)


def test_every_balance_is_what_a_dictionary_says(ledger: Ledger) -> None:
    """Random prices and units against the rule itself, in both parts of the limit."""
    terms = UNIT_FILTERED
    opened(ledger, terms)
    chosen = random.Random(7)
    prices = [
        NOISY,
        (Exponential(epsilon=2.0),),
        (Gaussian(noise_multiplier=30.0), Failure(delta0=2e-8)),
        (Failure(delta0=7e-8),),
    ]
    spent: Counter[tuple[str, str]] = Counter()
    refused = Counter({"loss": 0, "failure": 0})
    for _ in range(60):
        charge = ledger.charge("notes", chosen.choice(prices))
        units = chosen.sample([f"p-{i}" for i in range(12)], chosen.randrange(12))
        expected = []
        for unit in units:
            over = [
                part
                for part in ("loss", "failure")
                if spent[unit, part] + getattr(charge.cost, part)
                > getattr(terms.limit, part)
            ]
            refused.update(over)
            expected.append(not over)
            if not over:
                spent[unit, "loss"] += charge.cost.loss
                spent[unit, "failure"] += charge.cost.failure
        assert ledger.charge_units(charge, units) == expected
    assert min(refused.values()) > 0
    found = {balance.tag: balance.spent for balance in ledger.unit_balances("notes")}
    for i in range(12):
        unit = f"p-{i}"
        mine = Cost(spent[unit, "loss"], spent[unit, "failure"])
        assert found.get(ledger.unit_tag("notes", unit), Cost(0, 0)) == mine
    assert list(found) == sorted(found)
    ledger.verify("notes")


def test_ids_of_any_unicode_are_different_units(ledger: Ledger) -> None:
    opened(ledger, replace(UNIT_PLANNED, queries=1))
    charge = spend(ledger, UNIT_PLANNED)
    assert ledger.charge_units(charge, ODD_IDS) == [True] * len(ODD_IDS)
    assert ledger.charge_units(charge, ODD_IDS) == [False] * len(ODD_IDS)
    assert len(list(ledger.unit_balances("notes"))) == len(ODD_IDS)


def test_an_id_has_one_spelling(ledger: Ledger) -> None:
    opened(ledger, UNIT_PLANNED)
    assert ledger.unit_tag("notes", 7) == ledger.unit_tag("notes", " 7 ")
    assert len(ledger.unit_tag("notes", 7)) == 32
    for odd in ("", "  ", None, 1.5):
        with pytest.raises(LedgerError, match="unit id"):
            ledger.unit_tag("notes", odd)  # type: ignore[arg-type] # the mistake


def test_nobody_is_a_charge_too(ledger: Ledger) -> None:
    opened(ledger, UNIT_PLANNED)
    charge = spend(ledger, UNIT_PLANNED)
    assert ledger.charge_units(charge, []) == []
    ledger.verify("notes")
    ledger.close_account("notes")
    for units in ([], ["p-1"]):
        with pytest.raises(LedgerError, match="closed"):
            ledger.charge_units(charge, units)


def test_a_unit_that_is_named_twice_is_an_error(ledger: Ledger) -> None:
    opened(ledger, UNIT_PLANNED)
    charge = spend(ledger, UNIT_PLANNED)
    with pytest.raises(LedgerError, match="twice"):
        ledger.charge_units(charge, ["p-1", "p-2", "p-1"])
    assert list(ledger.unit_balances("notes")) == []


def test_a_corpus_account_has_no_units(ledger: Ledger) -> None:
    opened(ledger, PLANNED)
    with pytest.raises(LedgerError, match="whole corpus"):
        ledger.charge_units(spend(ledger), ["p-1"])
    with pytest.raises(LedgerError, match="whole corpus"):
        ledger.unit_tag("notes", "p-1")
    assert list(ledger.unit_balances("notes")) == []


def test_accounts_keep_balances_apart(ledger: Ledger) -> None:
    for name in ("a", "b"):
        opened(ledger, replace(UNIT_PLANNED, name=name, queries=1))
    first, second = ledger.charge("a"), ledger.charge("b")
    assert ledger.charge_units(first, ["p-1"]) == [True]
    assert ledger.charge_units(second, ["p-1"]) == [True]
    assert ledger.charge_units(first, ["p-1"]) == [False]


def test_threads_share_what_is_left_of_a_unit(ledger: Ledger) -> None:
    opened(ledger, replace(UNIT_PLANNED, queries=10))
    paid: Counter[str] = Counter()
    lock = threading.Lock()
    failures: list[Exception] = []

    def collect(seed: int) -> None:
        chosen = random.Random(seed)
        for _ in range(6):
            units = chosen.sample([f"p-{i}" for i in range(8)], 6)
            try:
                answers = ledger.charge_units(ledger.charge("notes"), units)
            except LedgerError as error:
                failures.append(error)
                return
            with lock:
                paid.update(u for u, ok in zip(units, answers, strict=True) if ok)

    threads = [threading.Thread(target=collect, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert set(paid.values()) == {10}
    spent = [balance.spent for balance in ledger.unit_balances("notes")]
    assert spent == [Cost(10, 0)] * 8
    ledger.verify("notes")


def test_more_units_than_one_statement_holds(
    connect: Callable[[], SQLLedger], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(connect(), replace(UNIT_PLANNED, queries=1))
    monkeypatch.setattr(collecting_module, "CHUNK", 7)
    ids = [f"p-{i}" for i in range(100)]
    charge = ledger.charge("notes")
    assert all(ledger.charge_units(charge, ids[::2]))
    assert ledger.charge_units(charge, ids) == [i % 2 == 1 for i in range(100)]
    ledger.verify("notes")


def test_a_real_chunk_fits_the_databases_limits(
    connect: Callable[[], SQLLedger],
) -> None:
    ledger = opened(connect(), UNIT_PLANNED)
    ids = [f"p-{i}" for i in range(collecting_module.CHUNK + 1)]
    assert all(ledger.charge_units(ledger.charge("notes"), ids))


def test_export_pages_join_up(
    connect: Callable[[], SQLLedger], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(connect(), UNIT_PLANNED)
    ids = [f"p-{i}" for i in range(20)]
    ledger.charge_units(ledger.charge("notes"), ids)
    monkeypatch.setattr("langchain_dpicl.ledger.sql.ledger._PAGE", 7)
    found = [balance.tag for balance in ledger.unit_balances("notes")]
    assert found == sorted(ledger.unit_tag("notes", unit) for unit in ids)


def test_a_price_that_is_not_in_the_journal_is_not_collected(
    connect: Callable[[], SQLLedger],
) -> None:
    ledger = opened(connect(), UNIT_PLANNED)
    charge = ledger.charge("notes")
    for wrong in (
        replace(charge, sequence=2),
        replace(charge, cost=Cost(2, 0)),
        replace(charge, cost=Cost(-1, 0)),
        replace(charge, cost=Cost(0, 0)),
    ):
        with pytest.raises(LedgerError, match="no charge"):
            ledger.charge_units(wrong, ["p-1"])
    assert list(ledger.unit_balances("notes")) == []


@pytest.mark.parametrize("part", ["loss", "failure"])
def test_a_price_with_a_negative_part_refunds_nobody(
    database: Database, connect: Callable[[], SQLLedger], part: str
) -> None:
    """A price that somebody edited after the journal was checked gives nothing back."""
    ledger = opened(connect(), UNIT_FILTERED)
    charge = spend(ledger, UNIT_FILTERED)
    assert min(charge.cost) > 0
    assert all(ledger.charge_units(charge, ["p-1"]))
    # A later charge, for only the last entry is checked again each time.
    later = spend(ledger, UNIT_FILTERED)
    database.execute(f"UPDATE dpicl_charge SET cost_{part} = -1 WHERE sequence = 1")
    forged = replace(charge, cost=charge.cost._replace(**{part: -1}))
    with pytest.raises(LedgerError, match="no unit was charged"):
        ledger.charge_units(forged, ["p-1", "p-2"])
    assert all(ledger.charge_units(later, ["p-1"]))
    (balance,) = ledger.unit_balances("notes")
    assert balance.spent == Cost(2 * charge.cost.loss, 2 * charge.cost.failure)


def test_units_that_another_account_knows_have_spent_nothing(ledger: Ledger) -> None:
    """Also where they are too many for the first block of an account's balances."""
    for name in ("many", "few"):
        opened(ledger, replace(UNIT_PLANNED, name=name))
    ids = [f"p-{i}" for i in range(1_500)]
    assert all(ledger.charge_units(ledger.charge("many"), ids))
    assert list(ledger.unit_balances("few")) == []
    late = ledger.charge("few")
    assert ledger.charge_units(late, ids[:2]) == [True, True]
    assert [b.spent for b in ledger.unit_balances("few")] == [Cost(1, 0)] * 2
    assert ledger.charge_units(late, ids[-2:]) == [True, True]
    assert [b.spent for b in ledger.unit_balances("few")] == [Cost(1, 0)] * 4
    assert len(list(ledger.unit_balances("many"))) == len(ids)


def test_a_price_of_nothing_is_paid_by_all(ledger: Ledger) -> None:
    opened(ledger, UNIT_FILTERED)
    charge = ledger.charge("notes", [Failure(delta0=0.0)])
    assert charge.cost == Cost(0, 0)
    assert ledger.charge_units(charge, ["p-1", "p-2"]) == [True, True]
    ledger.verify("notes")


def test_balances_outlive_the_process(connect: Callable[[], SQLLedger]) -> None:
    ledger = opened(connect(), replace(UNIT_PLANNED, queries=1))
    ledger.charge_units(ledger.charge("notes"), ["p-1"])
    tag = ledger.unit_tag("notes", "p-1")
    ledger.dispose()
    again = connect()
    assert again.unit_tag("notes", "p-1") == tag
    assert again.charge_units(again.charge("notes"), ["p-1", "p-2"]) == [False, True]


def test_no_unit_id_is_ever_in_the_database(
    database: Database, connect: Callable[[], SQLLedger]
) -> None:
    ledger = opened(connect(), UNIT_PLANNED)
    ids = [f"canary-{i}-7f3a" for i in range(50)]
    for _ in range(3):
        ledger.charge_units(ledger.charge("notes"), ids)
    tag = ledger.unit_tag("notes", ids[0])
    ledger.dispose()
    kept = database.dump().lower()
    assert tag.encode() in kept
    assert b"canary" not in kept
    assert b"canary".hex().encode() not in kept


@pytest.mark.parametrize("units", [[], ["p-1"], ["p-1", "p-2"]])
@pytest.mark.parametrize("table", ["dpicl_unit", "dpicl_account"])
def test_a_database_that_takes_no_balances_says_so_whoever_is_eligible(
    tmp_path: Path, units: list[str], table: str
) -> None:
    """Otherwise an error would tell that somebody was, and an answer that nobody."""
    database = sqlite_database(tmp_path / "ledger.db")
    ledger = SQLLedger(database.url)
    opened(ledger, UNIT_PLANNED)
    charge = ledger.charge("notes")
    for event in ("INSERT", "UPDATE"):
        database.execute(
            f"CREATE TRIGGER full_{event} BEFORE {event} ON {table} "
            "BEGIN SELECT RAISE(ABORT, 'disk full'); END"
        )
    with pytest.raises(LedgerError, match="can't be used"):
        ledger.charge_units(charge, units)
    ledger.dispose()


def test_nobody_is_in_no_export(connect: Callable[[], SQLLedger]) -> None:
    ledger = opened(connect(), UNIT_PLANNED)
    assert ledger.charge_units(ledger.charge("notes"), []) == []
    assert list(ledger.unit_balances("notes")) == []
    ledger.verify("notes")


def test_a_charge_that_was_never_written_collects_nothing(ledger: Ledger) -> None:
    opened(ledger, UNIT_PLANNED)
    charge = ledger.charge("notes")
    for forged in (
        replace(charge, sequence=2),
        replace(charge, sequence=0),
        replace(charge, cost=Cost(0, 0)),
        replace(charge, cost=Cost(-1, 0)),
    ):
        with pytest.raises(LedgerError, match="no unit was charged"):
            ledger.charge_units(forged, ["p-1"])
    assert ledger.charge_units(charge, ["p-1"]) == [True]


def test_the_key_of_the_tags_is_in_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "ledger.db"
    with caplog.at_level(logging.DEBUG, logger="sqlalchemy"):
        ledger = opened(SQLLedger(f"sqlite:///{path}"), UNIT_PLANNED)
        ledger.charge_units(spend(ledger, UNIT_PLANNED), ["p-1"])
        ledger.verify("notes")
    with closing(sqlite3.connect(path)) as connection:
        [(key,)] = connection.execute("SELECT unit_key FROM dpicl_account")
    # Whole rows are logged at this level, and the key is in one of them.
    assert "<secret>" in caplog.text
    assert repr(key) not in caplog.text
    assert key.hex() not in caplog.text
