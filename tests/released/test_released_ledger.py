"""Released examples against the ledger that was charged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.ledgers import account_of, bought
from support.released_parts import (
    EVENTS,
    as_json,
    public_record,
    record,
    signed,
    store,
    stored,
)

from langchain_dpicl.accounting import Charge, Gaussian
from langchain_dpicl.errors import InvalidParameterError, LedgerError
from langchain_dpicl.ledger import AccountTerms, Ledger, open_ledger
from langchain_dpicl.released import ReleasedExamples

PLANNED = AccountTerms(name="notes", epsilon=8.0, delta=1e-5, queries=1)
TERMS: Any = {"epsilon": 50.0, "delta": 1e-5, "order": 2.0, "delta0_share": 0.0}
FILTERED = AccountTerms(name="filter", **TERMS)
ACCOUNT = {"name": "notes", "accounting": "plan", "epsilon": 8.0, "delta": 1e-5}


def gaussian(z: float, count: int) -> Gaussian:
    return Gaussian(noise_multiplier=z, count=count)


def charged(ledger: Ledger) -> Ledger:
    filtered = account_of(ledger, FILTERED)
    for budget, parts in (
        (account_of(ledger, PLANNED), EVENTS),
        (filtered, (Gaussian(noise_multiplier=9.0),)),
        (filtered, EVENTS),
    ):
        charge = Charge(name="examples", parts=parts)
        bought(budget, charge, unit_key="patient_id")
    return ledger


@pytest.fixture(scope="module")
def ledger() -> Ledger:
    return charged(Ledger(":memory:"))


def saved(tmp_path: Path, **fields: Any) -> Path:
    path = tmp_path / "examples.json"
    made = {**record(account=ACCOUNT), **fields}
    ReleasedExamples([{"text": "Who?", "label": "person"}], made).save(path)
    return path


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"account": {"name": "notes"}},
        {"account": {"name": "filter", "accounting": "renyi"}, "charge": 2},
        {"events": as_json(*(gaussian(4.0, n) for n in (10, 20)))},
        public_record(),
    ],
)
def test_a_charge_that_the_ledger_has_is_confirmed(
    ledger: Ledger, tmp_path: Path, fields: dict[str, Any]
) -> None:
    path = saved(tmp_path, **fields)
    assert ReleasedExamples.load(path, ledger=ledger)[0]["text"] == "Who?"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"charge": None}, "'charge' names no charge"),
        ({"charge": None, "account": None}, "'charge' names no charge"),
        ({"charge": 2}, "'charge' is number 2, which the ledger does not have"),
        ({"account": {**ACCOUNT, "delta": 0.5}}, "'account' has another delta"),
        ({"account": {**ACCOUNT, "scope": "unit"}}, "'account' has another scope"),
        ({"account": {**ACCOUNT, "queries": 3}}, "'account' has another queries"),
        ({"account": {"name": "filter"}, "charge": 1}, "'events' are not those"),
        ({"events": as_json(gaussian(4.0, 29))}, "'events' are not those"),
        ({"events": as_json(gaussian(4.5, 30))}, "'events' are not those"),
    ],
)
def test_a_charge_that_the_ledger_does_not_have_is_refused(
    ledger: Ledger, tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    path = saved(tmp_path, **fields)
    ReleasedExamples.load(path)
    with pytest.raises(InvalidParameterError, match=message):
        ReleasedExamples.load(path, ledger=ledger)


def test_a_ledger_is_named_by_its_url_and_none_is_made(tmp_path: Path) -> None:
    path = saved(tmp_path)
    url = f"sqlite:///{tmp_path / 'clinic.db'}"
    with pytest.raises(LedgerError, match=r"no ledger at .*clinic\.db"):
        ReleasedExamples.load(path, ledger=url)
    assert not (tmp_path / "clinic.db").exists()
    ledger = open_ledger(url)
    assert isinstance(ledger, Ledger)
    charged(ledger).close_account("notes")
    ledger.dispose()
    assert ReleasedExamples.load(path, ledger=url).record["charge"] == 1
    for other in (":memory:", "clinic.db", 7):
        with pytest.raises(LedgerError):
            ReleasedExamples.load(path, ledger=other)  # type: ignore[arg-type] # wrong on purpose


def test_a_forged_file_is_found_out_by_the_ledger(
    ledger: Ledger, tmp_path: Path
) -> None:
    # Fewer steps than were paid for, the smaller epsilon and a digest that fits.
    content = stored(saved(tmp_path))
    content["record"] |= record((gaussian(4.0, 3),), account=ACCOUNT)
    path = store(tmp_path / "forged.json", signed(content))
    claimed = ReleasedExamples.load(path).record["epsilon"]
    assert claimed < record()["epsilon"] / 2
    with pytest.raises(InvalidParameterError, match="'events' are not those"):
        ReleasedExamples.load(path, ledger=ledger)


def test_the_account_knows_whose_records_it_protects(
    ledger: Ledger, tmp_path: Path
) -> None:
    path = saved(tmp_path, unit_key="hospital", unit="all records of one hospital")
    with pytest.raises(InvalidParameterError, match="'unit_key' is not what"):
        ReleasedExamples.load(path, ledger=ledger)
