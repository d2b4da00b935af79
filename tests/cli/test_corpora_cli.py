"""`dpicl ledger corpora`, `renew` and `alert`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.corpora import (
    CLINIC,
    DECEMBER,
    FOR_EVER,
    PER_UNIT,
    Clock,
    clock_for,
    of_month,
    opened_in,
    pay,
)
from support.ledgers import PLANNED, opened, spend

from langchain_dpicl.cli import main
from langchain_dpicl.ledger import SQLLedger

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return clock_for(monkeypatch, "2026-12-10")


@pytest.fixture
def ledger(tmp_path: Path, clock: Clock) -> SQLLedger:
    assert clock
    ledger = SQLLedger(f"sqlite:///{tmp_path / 'ledger.db'}")
    ledger.create_corpus(CLINIC)
    opened_in(ledger)
    return ledger


@pytest.fixture
def run(ledger: SQLLedger, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str]:
        url = str(ledger._database.engine.url)
        status = main(["ledger", *arguments, "--ledger", url])
        found = capsys.readouterr()
        return status, " ".join((found.out + found.err).split())

    return call


def test_corpora_are_shown_with_what_counts_for_them(
    run: Run, ledger: SQLLedger
) -> None:
    ledger.create_corpus(FOR_EVER)
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


def test_renewing_opens_the_next_period_once(run: Run, ledger: SQLLedger) -> None:
    status, text = run("renew", "clinic/2026-12", "--json")
    found = json.loads(text)
    assert (status, found["account"], found["opened"]) == (0, "clinic/2027-01", True)
    assert found["from"] == "2027-01-01T00:00:00+00:00"
    terms = ledger.state("clinic/2027-01").terms
    assert (terms.epsilon, terms.queries, terms.corpus) == (8.0, 20, "clinic")
    status, text = run("renew", "clinic/2026-12")
    assert status == 0
    assert text.startswith("There is already account 'clinic/2027-01'")


def test_a_late_renewal_opens_the_period_that_is_now(run: Run, clock: Clock) -> None:
    clock.set("2027-05-10")
    assert json.loads(run("renew", "clinic/2026-12", "--json")[1])["period"] == (
        "2027-05"
    )


def test_a_renewal_without_room_says_why_and_from_when_on(
    run: Run, ledger: SQLLedger, clock: Clock
) -> None:
    pay(ledger)
    for month, after in (("2026-12", "2027-01"), ("2027-01", "2027-02")):
        assert run("renew", f"clinic/{month}")[0] == 0
        clock.set(f"{after}-10")
        pay(ledger, opened_in(ledger, of_month(after)))
    status, text = run("renew", "clinic/2027-02", "--json")
    found = json.loads(text)
    assert (status, found["error"]) == (1, "BudgetExhaustedError")
    assert "There is room after 2028-01-01 00:00 UTC" in found["message"]
    assert "clinic/2027-03" not in ledger.accounts()


def test_what_has_no_period_is_not_renewed(run: Run, ledger: SQLLedger) -> None:
    opened(ledger, PLANNED)
    opened_in(ledger, PER_UNIT)
    for name in ("notes", "each"):
        status, text = run("renew", name)
        assert status == 1
        assert "has no period" in text
    assert run("renew")[0] == 1


def test_an_alert_ends_with_a_status_of_its_own(run: Run, ledger: SQLLedger) -> None:
    opened(ledger, PLANNED)
    assert run("alert")[0] == 0
    for _ in range(4):
        spend(ledger)
    # One of five queries is left: not below 20 percent.
    assert run("alert", "notes", "--below", "20%")[0] == 0
    status, text = run("alert", "--below", "0.21", "--json")
    assert status == 3
    rows = {row["account"]: row for row in json.loads(text)}
    assert rows["notes"] == {"account": "notes", "share_left": 0.2, "low": True}
    assert not rows["clinic/2026-12"]["low"]
    assert run("alert", "clinic/2026-12", "--below", "21%")[0] == 0
    assert "below 21%" in run("alert", "--below", "21%")[1]


def test_accounts_that_are_over_give_no_alert(
    run: Run, ledger: SQLLedger, clock: Clock
) -> None:
    for _ in range(20):
        pay(ledger)
    opened(ledger, PLANNED)
    for _ in range(5):
        spend(ledger)
    assert run("alert")[0] == 3
    clock.set("2027-01-01")
    ledger.close_account("notes")
    assert run("alert")[0] == 0
    assert run("alert", DECEMBER.name)[0] == 3


@pytest.mark.parametrize("share", ["", "0", "101%", "-1", "20%%", "much", "nan"])
def test_a_share_is_a_share(run: Run, share: str) -> None:
    status, text = run("alert", f"--below={share}")
    assert status == 1
    assert "--below takes a share" in text
