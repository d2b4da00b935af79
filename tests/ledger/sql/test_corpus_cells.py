"""A corpus's row: what is read of it, and the time that it keeps."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from support.corpora import CLINIC, FOR_EVER, clock_for

from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import AccountTerms, CorpusTerms, SQLLedger, hash_chain
from langchain_dpicl.ledger import clock as ledger_clock
from langchain_dpicl.ledger.base import AccountState
from langchain_dpicl.ledger.sql import corpus_rows, postgres_pipeline, rows
from langchain_dpicl.ledger.sql.corpus_rows import Corpus, corpus_of

AT = datetime(2026, 12, 10, 9, 30, tzinfo=timezone.utc)
SAID = (
    "Corpus 'clinic' is damaged: its cap, its window, its unit or its last time was "
    "edited. Nothing is opened in it and nothing is charged. Restore the ledger."
)


def row(terms: CorpusTerms = CLINIC, **changed: Any) -> SimpleNamespace:
    first = hash_chain.corpus_digest(terms)
    columns = {
        "id": 7,
        "name": terms.name,
        "unit_key": terms.unit_key,
        "epsilon": float(terms.epsilon).hex(),
        "delta": terms.delta.hex(),
        "window_days": terms.window_days,
        "last_at": AT.replace(tzinfo=None),
        "head": hash_chain.corpus_head(first, AT),
    }
    return SimpleNamespace(**{**columns, **changed})


@pytest.mark.parametrize("terms", [CLINIC, FOR_EVER, replace(CLINIC, unit_key=None)])
def test_a_row_holds_what_was_promised(terms: CorpusTerms) -> None:
    found = corpus_of(row(terms))
    assert found == Corpus(7, terms, hash_chain.corpus_digest(terms), AT)
    now = AT + timedelta(days=1)
    assert corpus_rows.kept_time(found, now) == {
        "corpus_number": 7,
        "seen": now,
        "corpus_head": hash_chain.corpus_head(found.first, now),
    }


@pytest.mark.parametrize(
    "changed",
    [
        *({"epsilon": odd} for odd in ("0x1p+5", "much", None, "inf", "-0x1p+3")),
        *({"delta": odd} for odd in ("0x1p-3", "", None, "0x1p+3")),
        *({"window_days": odd} for odd in (None, 364, 365.0, "365", 0, True)),
        *({"unit_key": odd} for odd in (None, "note", 3)),
        *({"last_at": odd} for odd in (AT - timedelta(days=1), "x", None)),
        *({"id": odd} for odd in (None, 7.0, "7")),
        {"head": "aa"},
        {"head": None},
    ],
    ids=str,
)
def test_a_cell_that_was_edited_is_damage(changed: dict[str, Any]) -> None:
    with pytest.raises(LedgerError) as caught:
        corpus_of(row(**changed))
    assert str(caught.value) == SAID


@pytest.mark.parametrize("length", [199, 200, 201])
def test_a_name_is_shown_up_to_its_longest(length: int) -> None:
    name = "".join(chr(0x4E00 + n) for n in range(length))
    with pytest.raises(LedgerError) as caught:
        corpus_of(row(name=name))
    assert str(caught.value).startswith(f"Corpus '{name[:200]}' is damaged: its cap")


@pytest.mark.parametrize(("clock", "kept"), [(-1, 0), (0, 0), (1, 1)])
def test_the_time_of_a_corpus_never_goes_back(
    monkeypatch: pytest.MonkeyPatch, clock: int, kept: int
) -> None:
    second = timedelta(seconds=1)
    clock_for(monkeypatch, (AT + clock * second).replace(tzinfo=None).isoformat())
    unused: Any = None
    assert corpus_rows._now(unused, corpus_of(row())) == AT + kept * second


@pytest.mark.parametrize("dialect", [None, "sqlite"])
def test_a_file_has_the_time_of_this_machine(dialect: str | None) -> None:
    connection: Any = dialect and SimpleNamespace(dialect=SimpleNamespace(name=dialect))
    before = datetime.now(timezone.utc)
    found = ledger_clock.database_time(connection)
    assert before <= found <= datetime.now(timezone.utc)
    assert found.utcoffset() == timedelta(0)


def test_a_server_has_a_time_of_its_own() -> None:
    there = AT.astimezone(timezone(timedelta(hours=-7)))
    answer = SimpleNamespace(one=lambda: (there,))
    connection: Any = SimpleNamespace(
        dialect=SimpleNamespace(name="postgresql"),
        exec_driver_sql=lambda statement: answer if "clock" in statement else None,
    )
    found = ledger_clock.database_time(connection)
    assert (found, found.utcoffset()) == (AT, timedelta(0))


VALUES: list[Any] = [
    rows.Last(0, "aa", None),
    Corpus(7, CLINIC, "aa", AT),
    rows.Account(
        *(1, AccountState(AccountTerms("a", 1.0, 0.0, 1), None, 0, closed=False)),
        *((), "aa", b"5ec3e7", None, None),
    ),
]
VALUES.append(postgres_pipeline._Found(VALUES[-1], VALUES[0], 4321, None))


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_was_read_of_a_row_stays_what_was_checked(value: Any) -> None:
    for name in [field.name for field in fields(value)]:
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, getattr(value, name))


def test_what_a_charge_has_found_is_in_no_repr() -> None:
    assert "5ec3e7" not in repr(VALUES[-1])
    assert "4321" not in repr(VALUES[-1])


def test_a_state_that_is_read_moves_no_time(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = clock_for(monkeypatch, "2026-12-10")
    ledger = SQLLedger(f"sqlite:///{tmp_path / 'a.db'}")
    ledger.create_corpus(CLINIC)
    ledger.open(AccountTerms("a", 1.0, 1e-7, 5, corpus="clinic"))
    ledger.open(AccountTerms("b", 1.0, 1e-7, 5))
    opened_at = clock.now
    clock.wait(days=5)
    assert ledger.state("a").at == ledger.corpus("clinic").at == clock.now
    assert ledger.state("b").at is None
    clock.set("2026-12-11")
    assert ledger.corpus("clinic").at == clock.now
    clock.set("2026-12-01")
    assert ledger.state("a").at == ledger.corpus("clinic").at == opened_at
    ledger.dispose()
