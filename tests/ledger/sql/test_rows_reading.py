"""Rows of an account, read and written: what they must hold to be believed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from support.corpora import DECEMBER
from support.ledgers import FILTERED, NOISY, PLAN, PLANNED, RENYI, UNIT_PLANNED

from langchain_dpicl.accounting import Cost
from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import AccountTerms, Allowance, Charge, hash_chain
from langchain_dpicl.ledger.allowance import CallerLimit
from langchain_dpicl.ledger.base import AccountState
from langchain_dpicl.ledger.sql import rows
from langchain_dpicl.ledger.sql.rows import Account, Last

KEY = bytes(range(32))
AT = datetime(2026, 12, 10, 9, 30, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)
WRITTEN = hash_chain.canonical(PLAN.to_dict())
UNREAD = (
    "Account 'notes' is damaged in its terms or plan: they can't be read; another "
    "version wrote them, or somebody edited them. Nothing is released from it. Restore "
    "the ledger, or open an account with another name: a new promise."
)


def row(**changed: Any) -> SimpleNamespace:
    """Return the row of an account with three charges, under a plan."""
    columns = {
        "id": 4,
        "name": "notes",
        "epsilon": "0x1p+3",
        "delta": (1e-6).hex(),
        "queries": 5,
        "accounting": "plan",
        "scope": "corpus",
        "renyi_order": None,
        "delta0_share": None,
        "corpus": None,
        "period": None,
        "purpose": None,
        "unit_key": None,
        "plan": WRITTEN,
        "used": 3,
        "spent_loss": 3,
        "spent_failure": 0,
        "closed": False,
        "closed_at": None,
        "salt": None,
        "head": "aa",
        "balances_digest": None,
        "releases_digest": None,
    }
    return SimpleNamespace(**{**columns, **changed})


def test_a_row_is_read_into_its_own_places() -> None:
    found = rows.account_of(row(head="bb", releases_digest="cc"))
    state = AccountState(PLANNED, PLAN, 3, closed=False, spent=Cost(3, 0))
    assert found.state == state
    assert (found.number, found.head, found.releases) == (4, "bb", "cc")
    assert (found.unit_key, found.balances) == (None, None)
    assert found.opening == (
        *("notes", "0x1p+3", (1e-6).hex(), 5, "plan", "corpus", None, None),
        *(None, None, None, None, WRITTEN),
    )
    assert rows.corpus_of(found.opening) is None
    start = hash_chain.after_plan(hash_chain.after_terms(PLANNED, None), WRITTEN)
    assert found.start == start
    unplanned = rows.account_of(row(plan=None))
    assert unplanned.start == hash_chain.after_terms(PLANNED, None)
    assert unplanned.state.plan is None
    assert found.head_after("dd", state) == hash_chain.head_of(
        "dd", state, None, "cc", None
    )


@pytest.mark.parametrize(
    ("changed", "terms"),
    [
        ({"queries": 1}, replace(PLANNED, queries=1)),
        (
            {"accounting": "zcdp", "queries": None, "delta0_share": "0x1p-2"},
            FILTERED,
        ),
        (
            {
                "accounting": "renyi",
                "queries": None,
                "delta0_share": "0x0p+0",
                "renyi_order": "0x1.6p+2",
            },
            RENYI,
        ),
        ({"scope": "unit", "unit_key": KEY}, replace(PLANNED, scope="unit")),
        ({"scope": "unit", "unit_key": 3 * KEY}, replace(PLANNED, scope="unit")),
        (
            {"corpus": "clinic", "purpose": "care"},
            replace(PLANNED, corpus="clinic", purpose="care"),
        ),
        (
            {"corpus": "clinic", "period": "2026-12", "purpose": "care"},
            replace(PLANNED, corpus="clinic", period="2026-12", purpose="care"),
        ),
    ],
)
def test_all_kinds_of_terms_are_read(
    changed: dict[str, Any], terms: AccountTerms
) -> None:
    found = rows.account_of(row(**changed, plan=None))
    assert found.state.terms == terms
    assert found.unit_key == changed.get("unit_key")
    assert rows.corpus_of(found.opening) == terms.corpus


def test_what_changes_in_a_row_is_read() -> None:
    naive = AT.replace(tzinfo=None)
    found = rows.account_of(row(closed=True, closed_at=naive, salt="ee", used=7))
    state = found.state
    assert (state.closed, state.closed_at, state.salt) == (True, AT, "ee")
    assert state.used == 7
    assert rows.account_of(row(closed=0)).state.closed is False


ODD: list[dict[str, Any]] = [
    *({"accounting": odd} for odd in ("", "new", "plans", None, 1)),
    *({"scope": odd} for odd in ("", "units", None)),
    *({"epsilon": odd} for odd in ("much", None, 8.0, b"0x1p+3")),
    *({"delta": odd} for odd in ("", None)),
    *({"queries": odd} for odd in (None, 7.5, "5")),
    *({"unit_key": odd} for odd in (KEY, b"", "k")),
    {"scope": "unit"},
    *({"scope": "unit", "unit_key": odd} for odd in (b"", KEY[:31], KEY + b"0", "k")),
    *({"renyi_order": odd} for odd in ("x", 5.5)),
    {"accounting": "zcdp"},
    {"accounting": "zcdp", "delta0_share": "x"},
    *({"corpus": odd} for odd in (3, b"clinic")),
    {"period": "2026-12"},
    {"corpus": "clinic", "period": "soon"},
    *({"purpose": odd} for odd in (3, "a\nb")),
    *({"plan": odd} for odd in ("{}", "[", "x", "3", 3)),
    *({"used": odd} for odd in (None, 3.0, "3", True)),
    *({"spent_loss": odd} for odd in (None, 3.0, "3", False)),
    *({"spent_failure": odd} for odd in (None, 0.0, "0", False)),
    *({"closed_at": odd} for odd in ("2026-12-10", 3)),
    *({"salt": odd} for odd in (3, b"ee")),
]


@pytest.mark.parametrize("changed", ODD, ids=str)
def test_a_cell_that_no_ledger_wrote_is_damage(changed: dict[str, Any]) -> None:
    with pytest.raises(LedgerError) as caught:
        rows.account_of(row(**changed))
    assert str(caught.value) == UNREAD
    assert caught.value.__cause__ is None


# -- the end of a journal --------------------------------------------------------------


def account(state: AccountState, **changed: Any) -> Account:
    found = rows.account_of(row(**changed))
    return replace(found, state=state, head=found.head_after("dd", state))


def last_row(sequence: int, digest: str = "dd") -> SimpleNamespace:
    return SimpleNamespace(
        sequence=sequence, digest=digest, charged_at=AT.replace(tzinfo=None)
    )


STATE = AccountState(PLANNED, PLAN, 3, closed=False, spent=Cost(3, 0))


def test_the_end_of_a_journal_is_where_counter_and_head_say() -> None:
    assert rows.end_of(account(STATE), last_row(3)) == Last(3, "dd", AT)
    unused = replace(STATE, used=0, spent=Cost(0, 0))
    empty = rows.account_of(row())
    whole = replace(empty, state=unused, head=empty.head_after(empty.start, unused))
    assert rows.end_of(whole, None) == Last(0, empty.start, None)


@pytest.mark.parametrize(
    ("used", "ends", "where"), [(3, 2, 3), (3, 4, 4), (0, 1, 1), (3, None, 1)]
)
def test_a_counter_that_does_not_agree_names_the_first_charge_in_doubt(
    used: int, ends: int | None, where: int
) -> None:
    held = account(replace(STATE, used=used))
    with pytest.raises(LedgerError) as caught:
        rows.end_of(held, None if ends is None else last_row(ends))
    said = f"its counter says {used} charges, its journal ends at {ends or 0}"
    assert f"'notes' is damaged at charge {where}: {said}." in str(caught.value)


@pytest.mark.parametrize(
    "end",
    [last_row(3, "de"), SimpleNamespace(sequence=3, digest="dd", charged_at="x")],
)
def test_a_journal_that_ends_elsewhere_is_damage(end: SimpleNamespace) -> None:
    with pytest.raises((LedgerError, AttributeError)) as caught:
        rows.end_of(account(STATE), end)
    if end.digest == "de":
        why = "its journal does not end where its head says, or a sum was edited"
        assert f"is damaged at charge 3: {why}." in str(caught.value)


# -- the next charge -------------------------------------------------------------------


def test_what_is_written_of_a_charge() -> None:
    held = replace(account(STATE), state=replace(STATE, at=AT))
    charge, values = rows.next_charge(held, Last(3, "dd", AT - SECOND), None)
    assert (charge.sequence, charge.cost, charge.spent) == (4, (1, 0), (4, 0))
    written = hash_chain.events_text(PLAN.events)
    digest = hash_chain.after_charge("dd", "notes", 4, written, Cost(1, 0), AT)
    after = replace(STATE, used=4, spent=Cost(4, 0))
    assert values == {
        "number": 4,
        "now": 4,
        "loss": 4,
        "failure": 0,
        "digest": digest,
        "head": held.head_after(digest, after),
        "events": written,
        "cost_loss": 1,
        "cost_failure": 0,
        "charged_at": AT,
        "caller": None,
        "caller_spent": None,
    }
    assert json.loads(values["events"])[0]["noise_multiplier"] == 1 / 3


@pytest.mark.parametrize(("off", "kept"), [(-1, 0), (0, 0), (1, 1)])
def test_a_charge_is_no_older_than_the_last_one(off: int, kept: int) -> None:
    held = replace(account(STATE), state=replace(STATE, at=AT + off * SECOND))
    _, values = rows.next_charge(held, Last(3, "dd", AT), None)
    assert values["charged_at"] == AT + kept * SECOND


def test_the_first_charge_has_the_time_of_the_host() -> None:
    before = datetime.now(timezone.utc)
    _, values = rows.next_charge(account(STATE), Last(3, "dd", None), None)
    assert before <= values["charged_at"] <= datetime.now(timezone.utc)
    assert values["charged_at"].utcoffset() == timedelta(0)


def test_a_charge_of_a_caller_is_written_with_the_sum() -> None:
    within = CallerLimit(Allowance("alice", 1.0), 3)
    held = replace(account(STATE), state=replace(STATE, at=AT))
    charge, values = rows.next_charge(held, Last(3, "dd", None), None, within, 2)
    assert (charge.caller, charge.caller_spent) == ("alice", 3)
    assert (values["caller"], values["caller_spent"]) == ("alice", 3)
    written = hash_chain.events_text(PLAN.events)
    assert values["digest"] == hash_chain.after_charge(
        "dd", "notes", 4, written, Cost(1, 0), AT, "alice", 3
    )


def test_an_account_of_a_corpus_is_not_charged_without_a_plan() -> None:
    terms = replace(FILTERED, corpus="clinic")
    held = account(AccountState(terms, None, 0, closed=False))
    with pytest.raises(LedgerError, match="fix a plan that names its unit"):
        rows.next_charge(held, Last(0, "dd", None), NOISY)
    assert DECEMBER.corpus == "clinic"


@pytest.mark.parametrize("counted", [-1, 0, 1, 2])
def test_a_charge_changes_exactly_one_row(counted: int) -> None:
    charge = Charge("notes", 1, ())
    if counted == 1:
        rows.require_counted(charge, counted)
        return
    with pytest.raises(LedgerError, match="did not count the charge of account 'note"):
        rows.require_counted(charge, counted)


@pytest.mark.parametrize(
    ("row", "spent"),
    [(None, 0), ((0,), 0), ((2,), 2), ((3,), 3), ((4,), None), ((-1,), None)],
)
def test_a_callers_sum_is_at_most_the_accounts(
    row: tuple[Any] | None, spent: int | None
) -> None:
    if spent is not None:
        assert rows.spent_of(account(STATE), row) == spent
        return
    with pytest.raises(LedgerError, match="in its callers' sums"):
        rows.spent_of(account(STATE), row)


@pytest.mark.parametrize("odd", [None, 2.0, "2", True])
def test_a_callers_sum_is_an_integer(odd: Any) -> None:
    with pytest.raises(LedgerError, match="in its callers' sums"):
        rows.spent_of(account(STATE), (odd,))


@pytest.mark.parametrize("stored", ["", "[[[", "3", "[3]", '[{"kind": "cauchy"}]'])
def test_events_that_no_version_knows_are_not_read(stored: str) -> None:
    with pytest.raises(LedgerError, match="another version or damaged"):
        rows.read_events(stored)


def test_events_are_read_as_they_were_written() -> None:
    assert rows.read_events(hash_chain.events_text(NOISY)) == NOISY
    assert rows.read_events("[]") == ()


def test_terms_that_are_no_numbers_have_no_start() -> None:
    odd = replace(PLANNED, epsilon=float("nan"))
    with pytest.raises(LedgerError, match="damaged in its terms: they are no numbers"):
        rows._start(odd, None, None)


class Kept:
    """A connection that keeps what it is asked to write."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    def execute(self, statement: Any) -> None:
        self.written.append(statement.compile().params)


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        (PLANNED, {"queries": 5, "renyi_order": None, "delta0_share": None}),
        (RENYI, {"renyi_order": (5.5).hex(), "delta0_share": (0.0).hex()}),
        (replace(PLANNED, corpus="c", period="2026", purpose="care"), {"corpus": "c"}),
        (UNIT_PLANNED, {"scope": "unit", "queries": 2}),
    ],
)
def test_what_is_written_of_a_new_account(
    terms: AccountTerms, expected: dict[str, Any]
) -> None:
    kept: Any = Kept()
    rows.write_account(kept, terms)
    (values,) = kept.written
    for name, value in {
        **expected,
        "name": "notes",
        "epsilon": (8.0).hex(),
        "delta": (1e-6).hex(),
        "plan": None,
        "used": 0,
        "spent_loss": 0,
        "spent_failure": 0,
        "closed": False,
        "releases_digest": None,
        "period": terms.period,
        "purpose": terms.purpose,
    }.items():
        assert values[name] == value
    key, state = values["unit_key"], AccountState(terms, None, 0, closed=False)
    balances = hash_chain.NO_BALANCES if terms.scope == "unit" else None
    assert (key is not None) == (terms.scope == "unit")
    assert values["balances_digest"] == balances
    start = hash_chain.after_terms(terms, key)
    assert values["head"] == hash_chain.head_of(start, state, balances, None, key)


@pytest.mark.parametrize("part", ["epsilon", "delta", "order", "delta0_share"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "much", 10**400])
def test_terms_that_are_not_finite_are_not_written(part: str, value: Any) -> None:
    kept: Any = Kept()
    terms: Any = replace(PLANNED, **{part: value})
    with pytest.raises(LedgerError, match="its terms are not finite numbers"):
        rows.write_account(kept, terms)
    assert kept.written == []


@pytest.mark.parametrize(
    ("write", "changes"),
    [
        (
            lambda kept, held: rows.close_account(kept, held, Last(3, "dd", AT)),
            {"closed": True, "closed_at": AT},
        ),
        (
            lambda kept, held: rows.bind_salt(kept, held, Last(3, "dd", AT), "ee"),
            {"salt": "ee"},
        ),
    ],
)
def test_an_account_is_closed_and_bound_once(
    write: Callable[[Any, Account], None], changes: dict[str, Any]
) -> None:
    state = replace(STATE, terms=replace(PLANNED, scope="unit"), at=AT)
    held = account(state, scope="unit", unit_key=KEY)
    kept: Any = Kept()
    write(kept, held)
    (values,) = kept.written
    after = replace(state, **changes)
    assert changes.items() <= values.items()
    assert values["head"] == held.head_after("dd", after)
    assert values["id_1"] == 4
    if "closed" in changes:
        write(kept, replace(held, state=after))
    else:
        write(kept, replace(held, state=after))
    assert len(kept.written) == 1
