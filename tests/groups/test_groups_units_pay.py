"""Under per-unit accounts every eligible unit pays, and only payers take part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from support.groups_fakes import (
    QUESTION,
    Till,
    WordEmbedding,
    contents,
    corpora,
    note,
    retrieved,
    slots_changed,
    units_in,
)
from support.paying_parts import NAMES, SHARD, Slots, Spread, draw

from langchain_dpicl.mechanisms.random import SeededRandom


def charges_the_kept(
    documents: Sequence[Document],
    poor: Any,
    terms: dict[str, Any],
) -> tuple[Slots, list[str]]:
    """Twin: ranks and caps first, then charges those that made the list."""
    slots, _ = draw(documents, (), terms)
    asked = sorted({unit for slot in slots for unit in units_in(slot)})
    paid = [tuple(doc for doc in slot if doc[0] not in poor) for slot in slots]
    return paid, asked


def skips_the_poor_late(
    documents: Sequence[Document],
    poor: Any,
    terms: dict[str, Any],
) -> tuple[Slots, list[str]]:
    """Twin: charges everybody rightly, but lets who did not pay take a place."""
    slots, _ = charges_the_kept(documents, poor, terms)
    return slots, draw(documents, poor, terms)[1]


def run(check: Callable[..., None], *, twin: bool = False) -> None:
    given(corpora(), st.sets(st.sampled_from(NAMES)))(
        settings(
            deadline=None,
            max_examples=300 if twin else 60,
            database=None,
            derandomize=True,
            phases=[Phase.generate] if twin else list(Phase),
            suppress_health_check=list(HealthCheck),
        )(check)
    )()


def check_asked(drawer: Any, terms: Any) -> Callable[..., None]:
    def check(case: Any, poor: Any) -> None:
        documents, rest, gone = case
        _, asked = drawer(documents, poor, terms)
        groups = retrieved(documents, **SHARD, docs_per_group=99)
        eligible = {
            unit for slot in contents(groups.draw(QUESTION)) for unit in units_in(slot)
        }
        assert asked == sorted(eligible)
        # Nobody's being asked depends on anybody else.
        _, without = drawer(rest, poor, terms)
        assert without == [unit for unit in asked if unit != gone]

    return check


def check_poor_change_nothing(drawer: Any, terms: Any) -> Callable[..., None]:
    def check(case: Any, poor: Any) -> None:
        documents, rest, gone = case
        slots, _ = drawer(documents, {*poor, gone}, terms)
        assert slots == drawer(rest, poor, terms)[0]
        solvent = [doc for doc in rest if doc.metadata["unit"] not in poor]
        assert slots == drawer(solvent, (), terms)[0]

    return check


def check_payer_changes_one_slot(terms: Any) -> Callable[..., None]:
    def check(case: Any, poor: Any) -> None:
        documents, rest, gone = case
        after, _ = draw(documents, poor - {gone}, terms)
        before, _ = draw(rest, poor - {gone}, terms)
        assert slots_changed(before, after) <= 1

    return check


@pytest.mark.parametrize("terms", [SHARD])
def test_exactly_the_eligible_units_are_asked_once(terms: Any) -> None:
    run(check_asked(draw, terms))


@pytest.mark.parametrize("terms", [SHARD])
def test_a_unit_that_cannot_pay_changes_nothing(terms: Any) -> None:
    run(check_poor_change_nothing(draw, terms))


@pytest.mark.parametrize("terms", [SHARD])
def test_a_unit_that_pays_changes_one_slot(terms: Any) -> None:
    run(check_payer_changes_one_slot(terms))


@pytest.mark.parametrize("terms", [SHARD])
def test_charging_the_kept_asks_too_few(terms: Any) -> None:
    with pytest.raises(AssertionError):
        run(check_asked(charges_the_kept, terms), twin=True)


@pytest.mark.parametrize("twin", [charges_the_kept, skips_the_poor_late])
@pytest.mark.parametrize("terms", [SHARD])
def test_who_takes_a_place_and_does_not_pay_is_seen(terms: Any, twin: Any) -> None:
    with pytest.raises(AssertionError):
        run(check_poor_change_nothing(twin, terms), twin=True)


@pytest.mark.parametrize("terms", [SHARD])
def test_units_left_out_by_a_cap_pay_as_well(terms: Any) -> None:
    documents = [note(f"p{i}", f"rash cough {i}") for i in range(8)]
    slots, asked = draw(documents, (), {**terms, "n_groups": 2, "docs_per_group": 1})
    assert asked == NAMES
    assert sum(map(len, slots)) == 2


@settings(deadline=None, max_examples=60)
@given(
    corpora(),
    st.sampled_from([-1.0, 0.0, 0.4, 0.5, 1.0]),
    st.integers(1, 5),
    st.booleans(),
)
def test_a_draw_that_everybody_pays_for_is_the_plain_draw(
    case: Any, threshold: Any, n: Any, spread: Any
) -> None:
    embedding = Spread() if spread else WordEmbedding()
    terms = {"score_threshold": threshold, "docs_per_group": n}
    plain, charged = (
        retrieved(case[0], embedding=embedding, random=SeededRandom(1), **terms)
        for _ in range(2)
    )
    drawn = charged.draw_prepared(charged.prepare(QUESTION), collect=Till())
    assert drawn == plain.draw(QUESTION)


@pytest.mark.parametrize("terms", [SHARD])
def test_nobody_is_eligible_and_the_ledger_is_asked(terms: Any) -> None:
    documents = [note(i, "sleep") for i in range(6)]
    slots, asked = draw(documents, (), {**terms, "score_threshold": 1.0})
    assert asked == []
    assert not any(slots)


@pytest.mark.parametrize("terms", [SHARD])
def test_nobody_pays(terms: Any) -> None:
    documents = [note(name, QUESTION) for name in NAMES]
    slots, asked = draw(documents, NAMES, terms)
    assert asked == NAMES
    assert slots == [()] * 4


def test_the_order_of_who_is_asked_says_nothing_of_insertion_or_scores() -> None:
    documents = [
        note(f"p{n:02}", "cough " * (1 + n % 3) + "rash " * (n % 2)) for n in range(40)
    ]
    orders = []
    for given_in in (documents, documents[::-1], documents[7:] + documents[:7]):
        groups = retrieved(given_in, **SHARD)
        order: list[str] = []

        def charge(units: Iterable[str], order: list[str] = order) -> set[str]:
            order.extend(units)
            return {*order}

        groups.draw_prepared(groups.prepare(QUESTION), collect=charge)
        orders.append(order)
    assert len(orders[0]) > 10
    assert orders[0] == orders[1] == orders[2]
