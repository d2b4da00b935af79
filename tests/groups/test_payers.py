"""Who is asked to pay, and what a draw makes of the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from langchain_core.documents import Document
from support.groups_fakes import QUESTION, SALT, Till, contents, note, retrieved
from support.neighbor_checks import M, Slots, run

from langchain_dpicl.errors import InvalidParameterError, LedgerError
from langchain_dpicl.groups import (
    Collect,
    GroupSource,
    RetrievedGroups,
    SampledGroups,
    charging_units,
    shard_of,
)
from langchain_dpicl.mechanisms.random import SeededRandom

TERMS: dict[str, Any] = {"score_threshold": 0.5}
Asked = tuple[Slots, list[str]]
"""What a draw returns: the slots, and who was asked to pay."""


def paid(documents: list[Document], poor: Iterable[str]) -> Asked:
    groups = retrieved(documents, n_groups=M, **TERMS)
    till = Till(poor)
    slots = contents(groups.draw_prepared(groups.prepare(QUESTION), collect=till))
    (asked,) = till.asked
    return slots, asked


def pays_if_on_top(documents: list[Document], poor: Iterable[str]) -> Asked:
    """Defect: who is in a slot pays, and who found no room in it does not."""
    groups = retrieved(documents, n_groups=M, docs_per_group=1, **TERMS)
    slots = contents(groups.draw(QUESTION))
    asked = sorted({unit for slot in slots for unit, _ in slot})
    return [tuple(one for one in slot if one[0] not in poor) for slot in slots], asked


def dropped_last(documents: list[Document], poor: Iterable[str]) -> Asked:
    """Defect: who can't pay is dropped after the search, and has taken a place."""
    groups = retrieved(documents, n_groups=M, docs_per_group=1, **TERMS)
    slots = contents(groups.draw(QUESTION))
    asked = sorted(groups._index.units(groups.prepare(QUESTION)))
    return [tuple(one for one in slot if one[0] not in poor) for slot in slots], asked


def pays_if_sampled(documents: list[Document], poor: Iterable[str]) -> Asked:
    """Defect: only who is in the sample pays."""
    terms = {"sampling_rate": 0.5, "random": SeededRandom(2), **TERMS}
    groups = retrieved(documents, n_groups=M, docs_per_group=99, **terms)
    slots = contents(groups.draw(QUESTION))
    asked = sorted({unit for slot in slots for unit, _ in slot})
    return slots, asked


def check_payers(draw: Callable[..., Asked]) -> Any:
    """Check that others decide nothing about a unit, and that who is poor is absent."""

    def check(case: Any, words: dict[str, int]) -> None:
        documents, rest, gone = case
        poor = {unit for unit in words if words[unit] % 3 == 0}
        slots, asked = draw(documents, poor)
        without, others = draw(rest, poor)
        # Everybody else is asked as before: eligible is a function of own records.
        assert [unit for unit in asked if unit != gone] == others
        if gone not in asked or gone in poor:
            assert slots == without
        alone = draw([one for one in documents if one.metadata["unit"] == gone], poor)
        assert (gone in alone[1]) == (gone in asked)
        assert not {unit for slot in slots for unit, _ in slot} & poor

    return check


def test_payers_are_those_who_are_eligible_by_themselves() -> None:
    run(check_payers(paid))


@pytest.mark.parametrize("twin", [pays_if_on_top, dropped_last, pays_if_sampled])
def test_the_wrong_payers_are_caught(twin: Callable[..., Asked]) -> None:
    with pytest.raises(AssertionError):
        run(check_payers(twin), twin=True)


def test_a_unit_is_asked_under_its_one_spelling_also_if_nobody_is_eligible() -> None:
    documents = [note(7, "rash"), note(" 7 ", "cough"), note("7", QUESTION)]
    groups = retrieved(documents, n_groups=1, **TERMS)
    till = Till()
    groups.draw_prepared(groups.prepare(QUESTION), collect=till)
    assert groups.draw_prepared(groups.prepare("sleep"), collect=till) == [[]]
    assert till.asked == [["7"], []]


def test_everybody_eligible_pays_and_the_sample_is_drawn_of_those_who_paid() -> None:
    documents = [note(f"u{i}", f"cough {i} {k}") for i in range(60) for k in range(2)]
    groups = retrieved(
        documents, n_groups=3, docs_per_group=99, sampling_rate=0.5, score_threshold=-1
    )
    till = Till(poor=[f"u{i}" for i in range(30)])
    slots = groups.draw_prepared(groups.prepare(QUESTION), collect=till)
    assert till.asked == [sorted(f"u{i}" for i in range(60))]
    drawn = {one.metadata["unit"] for slot in slots for one in slot}
    assert drawn < {f"u{i}" for i in range(30, 60)}
    assert 5 < len(drawn) < 25


def test_a_failing_ledger_stops_the_draw() -> None:
    def down(unit_ids: Iterable[str]) -> set[str]:
        raise LedgerError("The ledger is down.")

    groups = retrieved([note(i, QUESTION) for i in range(6)], **TERMS)
    with pytest.raises(LedgerError, match="is down"):
        groups.draw_prepared(groups.prepare(QUESTION), collect=down)


def test_a_draw_sees_one_state_of_the_records() -> None:
    documents = [note(f"p{i}", f"rash {i}") for i in range(6)]
    expected = retrieved(documents, docs_per_group=9, **TERMS).draw(QUESTION)
    groups = retrieved(documents, docs_per_group=9, **TERMS)

    def meanwhile(unit_ids: Iterable[str]) -> set[str]:
        groups.add_documents([note("new", QUESTION), note("p1", QUESTION)])
        groups.delete_unit("p2")
        return {*unit_ids}

    assert groups.draw_prepared(groups.prepare(QUESTION), collect=meanwhile) == expected
    assert groups.n_units == 6


# ---- which sources can charge units --------------------------------------------------


class Own(GroupSource):
    """Somebody else's source, which says of itself that it can."""

    relation = None  # type: ignore[assignment]  # as short as a source can be
    n_groups = 1  # type: ignore[assignment]
    unit_key = "unit"  # type: ignore[assignment]
    description: dict[str, Any] = {}  # type: ignore[assignment]  # noqa: RUF012
    charges_units = True

    def prepare(self, question: str) -> str:
        return question

    def draw_prepared(
        self, prepared: Any, *, collect: Collect | None = None
    ) -> list[list[Document]]:
        return [[Document(prepared)]]


class Mine(RetrievedGroups):
    """A subclass of ours, whose draw may be anything."""

    charges_units = True


def test_no_source_of_somebody_else_can_say_that_it_charges_units() -> None:
    assert charging_units(retrieved([note(i, "rash") for i in range(6)], **TERMS))
    assert not charging_units(Own())
    documents = [note(i, "rash") for i in range(6)]
    made = retrieved(documents, **TERMS)
    assert not charging_units(Mine(made._terms, made._records))
    assert Own().draw("q") == [[Document("q")]]


def test_sources_that_cannot_charge_units_refuse() -> None:
    documents = [note(i, "rash") for i in range(6)]
    sampled = SampledGroups.from_documents(
        documents, unit_key="unit", n_groups=2, sampling_rate=0.5
    )
    till = Till()
    for groups in (retrieved(documents), sampled):
        assert not charging_units(groups)
        prepared: Any = groups.prepare(QUESTION)
        with pytest.raises(InvalidParameterError, match="cannot charge units"):
            groups.draw_prepared(prepared, collect=till)
        assert len(groups.draw_prepared(prepared, collect=None)) == groups.n_groups
    assert till.asked == []


def test_units_are_asked_in_the_order_of_their_ids() -> None:
    documents = [note(f"p{i}", QUESTION) for i in range(9)]
    asked = paid(documents, ())[1]
    assert asked == sorted(asked)
    assert len({shard_of(unit, SALT, M) for unit in asked}) > 1
