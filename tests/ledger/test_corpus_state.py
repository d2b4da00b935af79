"""What counts for a corpus's cap, until when, and what is said of the room."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.corpora import CLINIC, DECEMBER, FOR_EVER, PATIENTS

from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    LedgerError,
    PlanMismatchError,
)
from langchain_dpicl.ledger import AccountTerms, CorpusState, CorpusTerms, Plan
from langchain_dpicl.ledger.base import AccountState
from langchain_dpicl.ledger.corpus import renewed, require_corpus_terms

DAY, MOMENT = timedelta(days=1), timedelta(microseconds=1)
NOW = datetime(2026, 12, 10, tzinfo=timezone.utc)
YEAR_END = datetime(2027, 1, 1, tzinfo=timezone.utc)


def day(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


def account(
    name: str = "a",
    epsilon: float = 8.0,
    delta: float = 1e-6,
    *,
    period: str | None = None,
    used: int = 1,
    closed_at: datetime | None = None,
) -> AccountState:
    terms = AccountTerms(name, epsilon, delta, 20, corpus="clinic", period=period)
    closed = closed_at is not None
    return AccountState(terms, None, used, closed=closed, closed_at=closed_at)


def corpus(
    *accounts: AccountState, at: datetime = NOW, window: int | None = 10
) -> CorpusState:
    return CorpusState(replace(CLINIC, window_days=window), at, accounts)


# -- which accounts count --------------------------------------------------------------

UNTIL: list[tuple[dict[str, Any], int | None, datetime | None]] = [
    ({}, 10, None),
    ({}, None, None),
    ({"period": "2026-12"}, None, None),
    ({"period": "2026-12"}, 10, YEAR_END + 10 * DAY),
    ({"period": "2026-12"}, 1, YEAR_END + DAY),
    ({"closed_at": NOW}, 10, NOW + 10 * DAY),
    ({"closed_at": NOW}, None, None),
    ({"closed_at": NOW, "period": "2026-12"}, 10, NOW + 10 * DAY),
    ({"closed_at": YEAR_END + 5 * DAY, "period": "2026-12"}, 10, YEAR_END + 10 * DAY),
]


@pytest.mark.parametrize(("ended", "window", "until"), UNTIL)
def test_an_account_counts_to_a_window_after_its_last_possible_charge(
    ended: dict[str, Any], window: int | None, until: datetime | None
) -> None:
    one = account(**ended)
    assert corpus(one, window=window).counts_until(one) == until
    late = datetime(2900, 1, 1, tzinfo=timezone.utc)
    if until is None:
        assert corpus(one, at=late, window=window).counted == (one,)
        return
    for off, counts in ((-MOMENT, True), (0 * DAY, True), (MOMENT, False)):
        assert corpus(one, at=until + off, window=window).counted == (one,) * counts


@pytest.mark.parametrize("ended", [{}, {"period": "2026-12"}, {"closed_at": NOW + DAY}])
@pytest.mark.parametrize("window", [10, None])
def test_an_account_without_a_charge_counts_for_nothing(
    ended: dict[str, Any], window: int | None
) -> None:
    unused, used = account(used=0, **ended), account(**ended)
    assert corpus(unused, used, at=NOW, window=window).counted == (used,)


def test_what_is_committed_is_the_sum_of_those_that_count() -> None:
    accounts = [account("a", 0.1, 1e-7), account("b", 0.2, 2e-7), account("c", 3, 0.0)]
    over = account("d", 9.0, 1e-6, closed_at=NOW - 11 * DAY)
    assert corpus(*accounts, over).committed == (3.3, 3e-7)
    assert corpus(over).committed == (0.0, 0.0)
    assert corpus().committed == (0.0, 0.0)


# -- room ------------------------------------------------------------------------------


def new(epsilon: float = 8.0, delta: float = 1e-6, **terms: Any) -> AccountTerms:
    return AccountTerms("new", epsilon, delta, 20, corpus="clinic", **terms)


def refusal(state: CorpusState, terms: AccountTerms) -> str:
    with pytest.raises(BudgetExhaustedError) as caught:
        state.require_opening(terms)
    return str(caught.value)


def test_the_cap_is_reached_and_not_passed_in_either_part() -> None:
    held = corpus(account("a", 16.0, 1e-6), account("b", 4.0, 1e-6))
    held.require_room(new(4.0, 1e-6))
    assert "has no room: " in refusal(held, new(4.0000001, 1e-6))
    assert "has no room: " in refusal(held, new(4.0, 1.0000001e-6))
    assert "has no room: " in refusal(held, new(4.1, 1.1e-6))


def test_a_refusal_says_all_that_an_operator_needs() -> None:
    held = corpus(
        account("a", 16.0, 1e-6, period="2026-12"),
        account("b", 6.5, 0.5e-6),
        window=365,
    )
    assert refusal(held, new(2.0)) == (
        "Account 'new' (epsilon 2, delta 1e-06) has no room: corpus 'clinic' has a cap "
        "of epsilon 24 and delta 3e-06 within any 365 days, and 2 accounts "
        "('a', 'b') have committed epsilon 22.5 and delta 1.5e-06 of it. There is room "
        "after 2028-01-01 00:00 UTC."
    )


@pytest.mark.parametrize("number", [1, 2, 9, 10, 11, 12])
def test_a_refusal_names_ten_accounts_and_counts_the_others(number: int) -> None:
    held = [account(f"n{place}", 24.0 / 12, 1e-7) for place in range(number)]
    said = refusal(corpus(*held), new(24.0))
    names = ", ".join(f"'n{place}'" for place in range(min(number, 10)))
    more = f" and {number - 10} more" if number > 10 else ""
    assert f"{number} accounts ({names}{more}) have committed" in said
    assert said.endswith("There will never be room, for they count for ever.")


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (5.0, None),
        (5.5, "There is room after 2026-12-11 00:00 UTC."),
        (10.0, "There is room after 2026-12-11 00:00 UTC."),
        (15.0, "There is room after 2026-12-12 06:45 UTC."),
        (20.0, "There is room after 2026-12-13 00:00 UTC."),
        (20.5, "There will never be room, for they count for ever."),
        (24.0, "There will never be room, for they count for ever."),
        (24.5, "It alone is more than the cap."),
    ],
)
def test_room_comes_when_enough_accounts_have_ceased_to_count(
    wanted: float, said: str | None
) -> None:
    ends = {
        "a": day("2026-12-13"),
        "b": day("2026-12-11"),
        "c": day("2026-12-12T06:45"),
        "d": None,
    }
    held = [
        account(name, 5.0 if end else 4.0, 1e-7, closed_at=end and end - 10 * DAY)
        for name, end in ends.items()
    ]
    state = corpus(*held)
    assert len(state.counted) == 4
    terms = new(wanted, 1e-7)
    if said is None:
        state.require_room(terms)
        return
    assert refusal(state, terms).endswith(f" of it. {said}")


def test_an_end_that_several_accounts_share_frees_all_of_them() -> None:
    held = [account(name, 8.0, 1e-7, closed_at=NOW - 9 * DAY) for name in "abc"]
    said = refusal(corpus(*held), new(24.0, 1e-7))
    assert said.endswith("There is room after 2026-12-11 00:00 UTC.")


def test_a_period_that_is_over_is_not_opened() -> None:
    for at, is_over in ((YEAR_END - MOMENT, False), (YEAR_END, True)):
        state = corpus(at=at)
        if not is_over:
            state.require_opening(new(period="2026-12"))
            continue
        assert refusal(state, new(period="2026-12")) == (
            "Account 'new' can't be opened: its period 2026-12 is over, for the "
            "ledger's time is 2027-01-01 00:00 UTC."
        )
    corpus(at=YEAR_END).require_opening(new())


AMOUNTS = st.sampled_from([0.1, 0.2, 0.3, 0.7, 1.0])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(AMOUNTS, st.integers(0, 12)), max_size=6), AMOUNTS)
def test_there_is_room_exactly_when_the_sum_in_decimals_is_within_the_cap(
    held: list[tuple[float, int]], wanted: float
) -> None:
    terms = CorpusTerms("clinic", None, 1.0, 1e-6, window_days=5)
    accounts = tuple(
        account(f"n{place}", epsilon, 1e-9, closed_at=NOW - days * DAY)
        for place, (epsilon, days) in enumerate(held)
    )
    counted = [Fraction(str(epsilon)) for epsilon, days in held if days <= 5]
    state = CorpusState(terms, NOW, accounts)
    if sum(counted) + Fraction(str(wanted)) <= 1:
        state.require_room(new(wanted, 1e-9))
    else:
        refusal(state, new(wanted, 1e-9))


# -- terms -----------------------------------------------------------------------------


@pytest.mark.parametrize("days", [1, 36_525, 36_526])
def test_a_window_has_at_most_a_hundred_years(days: int) -> None:
    if days <= 36_525:
        assert replace(CLINIC, window_days=days).window_days == days
        return
    with pytest.raises(
        InvalidParameterError, match="window_days must be at most 36525"
    ):
        replace(CLINIC, window_days=days)


def test_a_cap_in_words() -> None:
    assert CLINIC.promise == "epsilon 24 and delta 3e-06 within any 365 days"
    assert FOR_EVER.promise == "epsilon 24 and delta 3e-06 for ever"


@pytest.mark.parametrize("name", ["", "x" * 201, None])
def test_a_corpus_has_a_name(name: Any) -> None:
    with pytest.raises(LedgerError, match="name must be a printable string"):
        replace(CLINIC, name=name)


@pytest.mark.parametrize("key", [b"patient", 0, ["patient"]])
def test_a_unit_key_is_a_word(key: Any) -> None:
    with pytest.raises(InvalidParameterError, match="unit_key must be a metadata key"):
        replace(CLINIC, unit_key=key)


def test_a_corpus_is_used_under_its_own_terms() -> None:
    CLINIC.require_same(replace(CLINIC))
    with pytest.raises(PlanMismatchError) as caught:
        replace(CLINIC, epsilon=25.0, unit_key=None).require_same(CLINIC)
    said = (
        "is there with other terms: unit_key is patient, not None; epsilon is 24, not"
    )
    assert said in str(caught.value)


def test_a_plan_is_for_the_unit_of_the_corpus() -> None:
    CLINIC.require_unit("a", PATIENTS)
    no_unit = replace(CLINIC, unit_key=None)
    no_unit.require_unit("a", Plan({}, ()))
    no_unit.require_unit("a", Plan({"unit_key": None}, ()))
    for terms, plan, said in (
        (CLINIC, Plan({}, ()), "the unit None: corpus 'clinic' protects 'patient'"),
        (no_unit, PATIENTS, "the unit 'patient': corpus 'clinic' protects None"),
    ):
        with pytest.raises(PlanMismatchError, match=said):
            terms.require_unit("a", plan)


HALF, NEXT_HALF = "2026-12-01/2026-12-15", "2026-12-31/2027-01-14"


@pytest.mark.parametrize(
    ("name", "period", "at", "expected"),
    [
        ("clinic/2026-12", "2026-12", day("2026-12-10"), ("clinic/2027-01", "2027-01")),
        ("clinic", "2026-12", day("2026-12-31"), ("clinic/2027-01", "2027-01")),
        ("a", "2026-12", day("2027-02-01") - MOMENT, ("a/2027-01", "2027-01")),
        ("a", "2026-12", day("2027-02-01"), ("a/2027-02", "2027-02")),
        ("a", "2026-12", day("2027-05-09"), ("a/2027-05", "2027-05")),
        ("2026 x 2026", "2026", day("2028-01-01"), ("2028 x 2028", "2028")),
        ("a", HALF, day("2026-12-31"), (f"a/{NEXT_HALF}", NEXT_HALF)),
    ],
)
def test_the_next_account_pays_for_the_next_period_that_is_not_over(
    name: str, period: str, at: datetime, expected: tuple[str, str]
) -> None:
    old = replace(DECEMBER, name=name, period=period)
    found = renewed(old, at)
    assert (found.name, found.period) == expected
    assert replace(found, name=name, period=period) == old


@pytest.mark.parametrize("missing", ["corpus", "period", "at"])
def test_nothing_follows_an_account_without_a_period(missing: str) -> None:
    terms = DECEMBER if missing == "at" else replace(DECEMBER, **{missing: None})  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="has no period, so that none foll"):
        renewed(terms, None if missing == "at" else NOW)


def test_terms_of_a_corpus_are_checked_once_and_others_are_left() -> None:
    assert require_corpus_terms(DECEMBER) == DECEMBER
    plain = AccountTerms("a", float("nan"), 2.0, 5)
    assert require_corpus_terms(plain) is not None
    assert require_corpus_terms(replace(DECEMBER, period=None)).period is None
    with pytest.raises(LedgerError, match="has a period and no corpus"):
        require_corpus_terms(replace(DECEMBER, corpus=None))
    for part in ({"epsilon": 0.0}, {"delta": 1.0}, {"delta": float("nan")}):
        with pytest.raises(InvalidParameterError):
            require_corpus_terms(replace(DECEMBER, **part))  # type: ignore[arg-type]


@pytest.mark.parametrize("purpose", ["a\nb", 3, b"research", "\x07"])
def test_a_purpose_is_a_printable_string(purpose: Any) -> None:
    for terms in (DECEMBER, AccountTerms("a", 1.0, 1e-6, 5)):
        with pytest.raises(LedgerError, match="purpose must be a printable string"):
            require_corpus_terms(replace(terms, purpose=purpose))
        assert require_corpus_terms(replace(terms, purpose="")).purpose == ""
