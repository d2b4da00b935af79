"""What a release leaves in the ledger, and what becomes of damaged storage."""

from __future__ import annotations

from typing import Any

import pytest
from support.few_shot_fakes import budget_of

from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.errors import LedgerError
from langchain_dpicl.mechanisms import voting
from langchain_dpicl.release.store import Entry, ReleaseStore

KIND = "a kind"
MAKER = "a maker"


@pytest.fixture
def budget() -> PrivacyBudgetHandler:
    made = budget_of(accounting="renyi", epsilon=50)
    for _ in range(2):
        made.charge(voting.charge(name="test", noise_multiplier=9.0), unit_key="who")
    return made


def header(charge: int) -> dict[str, Any]:
    return {"charge": charge, "rates": {"\u00e9": 0.25}}


def started(store: ReleaseStore, header: dict[str, Any]) -> Entry:
    """Store a header for a charge that was made before."""
    charge, text = header["charge"], store.header_text(header)
    store.budget.ledger.start_release(store.budget.account, charge, store.kind, text)
    return Entry(store, charge, header)


def test_two_releases_of_one_kind_are_kept_apart(
    budget: PrivacyBudgetHandler,
) -> None:
    store = ReleaseStore(budget, KIND, MAKER)
    one, two = started(store, header(1)), started(store, header(2))
    assert (one.charge, two.charge) == (1, 2)
    assert one.release(0, [1, 2]) == [1, 2]
    assert two.release(0, [3]) == [3]
    assert two.release(1, []) == []
    again = ReleaseStore(budget, KIND, MAKER).entries()
    assert [entry.header for entry in again] == [header(1), header(2)]
    assert [entry.step(0) for entry in again] == [[1, 2], [3]]
    assert [entry.step(1) for entry in again] == [None, []]


def test_other_kinds_and_other_accounts_see_nothing_of_it(
    budget: PrivacyBudgetHandler,
) -> None:
    started(ReleaseStore(budget, KIND, MAKER), header(1)).release(0, [1])
    assert ReleaseStore(budget, "another", MAKER).entries() == []
    assert ReleaseStore(budget, KIND, "another").entries() == []
    other = PrivacyBudgetHandler(
        epsilon=50,
        delta=1e-5,
        queries=1,
        accounting="renyi",
        ledger=budget.ledger,
        account="other",
    )
    other.charge(voting.charge(name="test", noise_multiplier=9.0), unit_key="who")
    assert ReleaseStore(other, KIND, MAKER).entries() == []


def test_the_first_draw_that_is_stored_is_the_released_one(
    budget: PrivacyBudgetHandler,
) -> None:
    entry = started(ReleaseStore(budget, KIND, MAKER), header(1))
    assert entry.release(0, [4, 5]) == [4, 5]
    assert entry.release(0, [6, 7]) == [4, 5]
    # What was read before is not read again; whatever is stored is found by storing.
    assert entry.step(0) is None
    (again,) = ReleaseStore(budget, KIND, MAKER).entries()
    assert again.step(0) == [4, 5]


def test_one_charge_starts_one_release(budget: PrivacyBudgetHandler) -> None:
    store = ReleaseStore(budget, KIND, MAKER)
    started(store, header(1)).release(0, [1])
    for other in (store, ReleaseStore(budget, "another", MAKER)):
        with pytest.raises(LedgerError, match="started a release before"):
            started(other, header(1))
        with pytest.raises(LedgerError, match="no charge 3"):
            started(other, header(3))
    assert [entry.steps for entry in store.entries()] == [("[1]",)]


def test_no_two_kinds_share_a_name(budget: PrivacyBudgetHandler) -> None:
    kinds = [
        ReleaseStore(budget, kind, maker).kind
        for maker in ("m", "n", "ma")
        for kind in ("a", "b", "a0", "aa")
    ]
    assert len(set(kinds)) == len(kinds)
    assert {len(kind) for kind in kinds} == {64}


@pytest.mark.parametrize(
    "damage",
    ["", "nonsense", "[", "[" * 50_000, "null", "7", "[1]", "{}", '{"format": 2}'],
)
def test_damaged_starts_are_refused(damage: str, budget: PrivacyBudgetHandler) -> None:
    store = ReleaseStore(budget, KIND, MAKER)
    started(store, header(1))
    budget.ledger.start_release(budget.account, 2, store.kind, damage)
    with pytest.raises(LedgerError, match="can't be read") as caught:
        store.entries()
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "damage",
    ["", "nonsense", "{}", "7", "null", "[1.0]", '["1"]', "[true]", "[[1]]", "[null]"],
)
def test_damaged_steps_are_refused(damage: str, budget: PrivacyBudgetHandler) -> None:
    store = ReleaseStore(budget, KIND, MAKER)
    entry = started(store, header(1))
    budget.ledger.store_step(budget.account, 1, 0, damage)
    (again,) = store.entries()
    for read in (lambda: again.step(0), lambda: entry.release(0, [1])):
        with pytest.raises(LedgerError, match="can't be read"):
            read()


def test_a_ledger_that_keeps_nothing_releases_nothing(
    budget: PrivacyBudgetHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = started(ReleaseStore(budget, KIND, MAKER), header(1))
    monkeypatch.setattr(budget.ledger, "store_step", lambda *_: None)
    with pytest.raises(LedgerError, match="did not keep"):
        entry.release(0, [1])
