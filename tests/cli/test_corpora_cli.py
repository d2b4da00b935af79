"""`dpicl ledger corpora` and `renew`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.corpora import (
    FOR_EVER,
    PER_UNIT,
    Clock,
    clock_for,
    of_month,
    opened_in,
    pay,
)
from support.ledgers import PLANNED, opened

from langchain_dpicl.cli import main
from langchain_dpicl.ledger import Ledger

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return clock_for(monkeypatch, "2026-12-10")


@pytest.fixture
def ledger(tmp_path: Path, clock: Clock) -> Ledger:
    assert clock
    ledger = Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    opened_in(ledger)
    return ledger


@pytest.fixture
def run(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str]:
        url = f"sqlite:///{ledger.path}"
        status = main(["ledger", *arguments, "--ledger", url])
        found = capsys.readouterr()
        return status, " ".join((found.out + found.err).split())

    return call


def test_corpora_are_shown_with_what_counts_for_them(run: Run, ledger: Ledger) -> None:
    opened_in(ledger, of_month("2027", corpus="archive"), FOR_EVER)
    pay(ledger)
    status, text = run("corpora", "--json")
    archive, clinic = json.loads(text)
    assert status == 0
    assert archive["accounts"] == []
    assert archive["window_days"] is None
    assert (clinic["epsilon"], clinic["epsilon_committed"]) == (24, 8)
    assert clinic["accounts"][0]["account"] == "clinic/2026-12"
    assert clinic["accounts"][0]["counts_until"] == "2028-01-01T00:00:00+00:00"
    status, text = run("corpora")
    assert status == 0
    assert "patient" in text


def test_renewing_opens_the_next_period_once(run: Run, ledger: Ledger) -> None:
    status, text = run("renew", "clinic/2026-12", "--json")
    found = json.loads(text)
    assert (status, found["account"], found["opened"]) == (0, "clinic/2027-01", True)
    assert found["from"] == "2027-01-01T00:00:00+00:00"
    terms = ledger.state("clinic/2027-01").account
    assert (terms.epsilon, terms.queries, terms.corpus) == (8.0, 20, "clinic")
    status, text = run("renew", "clinic/2026-12")
    assert status == 0
    assert text.startswith("There is already account 'clinic/2027-01'")


def test_a_late_renewal_opens_the_period_that_is_now(run: Run, clock: Clock) -> None:
    clock.set("2027-05-10")
    assert json.loads(run("renew", "clinic/2026-12", "--json")[1])["period"] == (
        "2027-05"
    )


def test_a_renewal_without_room_says_why(
    run: Run, ledger: Ledger, clock: Clock
) -> None:
    pay(ledger)
    for month, after in (("2026-12", "2027-01"), ("2027-01", "2027-02")):
        assert run("renew", f"clinic/{month}")[0] == 0
        clock.set(f"{after}-10")
        pay(ledger, opened_in(ledger, of_month(after)))
    status, text = run("renew", "clinic/2027-02", "--json")
    found = json.loads(text)
    assert (status, found["error"]) == (1, "BudgetExhaustedError")
    assert "has a cap of epsilon 24" in found["message"]
    assert "clinic/2027-03" not in ledger.accounts()


def test_what_has_no_period_is_not_renewed(run: Run, ledger: Ledger) -> None:
    opened(ledger, PLANNED)
    opened_in(ledger, PER_UNIT)
    for name in ("notes", "each"):
        status, text = run("renew", name)
        assert status == 1
        assert "has no period" in text
    assert run("renew")[0] == 1
