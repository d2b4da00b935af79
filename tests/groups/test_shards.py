"""A slot is its own shard's best records, by exact scores, with any other people."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from support.groups_fakes import (
    NOTES,
    QUESTION,
    SALT,
    Given,
    Till,
    WordEmbedding,
    bits,
    build,
    contents,
    note,
    retrieved,
    units,
)

from langchain_dpicl.errors import InvalidParameterError, LedgerError, UnitError
from langchain_dpicl.groups import (
    GroupSource,
    RetrievedGroups,
    SampledGroups,
    charging_units,
    shard_of,
)

ROWS = np.random.default_rng(7).normal(size=(300, 24))
ASKED = np.random.default_rng(8).normal(size=24)
THRESHOLD: dict[str, Any] = {"score_threshold": 0.5}


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=40),
    st.integers(1, 5),
    st.sampled_from([None, -1.0, -0.25, 0.0, 0.3]),
)
def test_draws_match_a_search_by_hand(owners: Any, n: Any, threshold: Any) -> None:
    documents = [note(unit, f"text {i}") for i, unit in enumerate(owners)]
    terms = {"docs_per_group": n, "score_threshold": threshold, "n_groups": 3}
    embedding = Given(ROWS.tolist(), ASKED.tolist())
    slots = retrieved(documents, embedding=embedding, **terms).draw(QUESTION)
    lengths = np.linalg.norm(ROWS, axis=1) * np.linalg.norm(ASKED)
    scores, least = ROWS @ ASKED / lengths, -1 if threshold is None else threshold
    for number, slot in enumerate(slots):
        passing = [
            i
            for i, unit in enumerate(owners)
            if shard_of(unit, SALT, 3) == number and scores[i] >= least
        ]
        best = sorted(passing, key=lambda i: -scores[i])[:n]
        assert [one.page_content for one in slot] == [f"text {i}" for i in best]


def test_documents_come_back_as_given_and_as_copies() -> None:
    given_note = Document("rash", metadata={"unit": 1, "tags": ["a"]}, id="n1")
    original = given_note.model_copy(deep=True)
    groups = build([given_note], n_groups=1)
    given_note.metadata["tags"].append("changed by the caller")
    [[drawn]] = groups.draw("rash")
    assert drawn == original
    drawn.metadata["unit"] = 2
    assert groups.draw("rash") == [[original]]


@pytest.mark.parametrize("gone", range(0, 12, 3))
def test_a_person_who_goes_changes_no_bit_of_another(gone: int) -> None:
    """Not the vectors, nor the order in which a shard's records stand."""
    shuffled = [NOTES[i] for i in np.random.default_rng(gone).permutation(48)]
    rest = [one for one in shuffled if one.metadata["unit"] != gone]
    groups = retrieved(NOTES)
    whole = bits(groups)
    assert bits(retrieved(shuffled)) == whole
    left = [record for record in whole if record[0] != str(gone)]
    assert bits(retrieved(rest)) == left
    assert groups.delete_unit(gone) == 4
    assert bits(groups) == left
    groups.add_documents([one for one in NOTES if one.metadata["unit"] == gone])
    assert bits(groups) == whole
    numbers = [shard_of(unit, SALT, 4) for unit, *_ in whole]
    assert numbers == sorted(numbers)


# ---- eligibility is decided exactly --------------------------------------------------


def exactly(row: Any, vector: Any) -> float:
    return math.fsum(float(a) * float(b) for a, b in zip(row, vector, strict=True))


def test_a_threshold_on_the_edge_is_decided_by_the_exact_cosine() -> None:
    """Also where float32 rounds to the other side: the own score has no neighbors."""
    columns: dict[str, Any] = {
        "embedding": np.vstack([ROWS, ASKED]),
        "unit": range(301),
    }
    columns["text"] = [str(n) for n in range(301)]

    def made(threshold: float | None) -> RetrievedGroups:
        terms: Any = {"unit_key": "unit", "n_groups": 1, "docs_per_group": 301}
        return RetrievedGroups.from_embeddings(
            columns, Given([], ASKED), score_threshold=threshold, **terms
        )

    held = bits(made(None))
    rows = {int(unit): np.frombuffer(vector, np.float32) for unit, _, vector in held}
    exact = {n: exactly(row, rows[300]) for n, row in rows.items()}
    differing = 0
    for n in range(0, 300, 20):
        edge = exact[n]
        for threshold in (edge, np.nextafter(edge, 2), np.nextafter(edge, -2)):
            groups = made(float(threshold))
            expected = {m for m, score in exact.items() if score >= threshold}
            till = Till()
            drawn = groups.draw_prepared(groups.prepare("q"), collect=till)
            assert units(drawn) == units(groups.draw("q")) == expected
            assert set(map(int, till.asked[0])) == expected
            rounded = {m for m, row in rows.items() if row @ rows[300] >= threshold}
            differing += rounded != expected
    assert differing > 0, "the twin decides by the rounded score"


def test_the_threshold_itself_passes() -> None:
    embedding = Given([[0.6, 0.8], [0.6, -0.8], [0.5, 0.9]])
    documents = [note(i, str(i)) for i in range(3)]
    score = float(np.float32(0.6))
    for threshold, n in ((score, 2), (np.nextafter(score, 1), 0), (-1, 3), (-0.0, 3)):
        groups = build(documents, embedding, n_groups=1, score_threshold=threshold)
        assert sum(map(len, groups.draw("q"))) == n


def test_opposite_vectors_pass_minus_one() -> None:
    """Rounding takes some of these cosines just below -1."""
    documents = [note(i, str(i)) for i in range(30)]
    terms = {"n_groups": 1, "score_threshold": -1, "docs_per_group": 30}
    for vector in np.random.default_rng(0).standard_normal((30, 7)):
        groups = build(documents, Given([vector] * 30, -vector), **terms)
        till = Till()
        [slot] = groups.draw_prepared(groups.prepare("q"), collect=till)
        assert len(slot) == len(till.asked[0]) == 30


# ---- who pays ------------------------------------------------------------------------


def test_units_are_asked_once_in_order_and_by_their_one_spelling() -> None:
    documents = [note(7, "rash"), note(" 7 ", "cough"), note("7", QUESTION)]
    documents += [note(f"p{i}", QUESTION) for i in range(9)]
    groups = retrieved(documents, **THRESHOLD)
    till = Till()
    groups.draw_prepared(groups.prepare(QUESTION), collect=till)
    assert groups.draw_prepared(groups.prepare("sleep"), collect=till) == [[]] * 4
    assert till.asked == [["7", *(f"p{i}" for i in range(9))], []]


def test_everybody_eligible_pays_and_the_sample_is_drawn_of_those_who_paid() -> None:
    documents = [note(f"u{i}", f"cough {i} {k}") for i in range(60) for k in range(2)]
    terms = {"n_groups": 3, "docs_per_group": 99}
    groups = retrieved(documents, sampling_rate=0.5, score_threshold=-1, **terms)
    till = Till(poor=[f"u{i}" for i in range(30)])
    slots = groups.draw_prepared(groups.prepare(QUESTION), collect=till)
    assert till.asked == [sorted(f"u{i}" for i in range(60))]
    assert units(slots) < {f"u{i}" for i in range(30, 60)}
    # Of 30 coins; outside of this once in a million draws.
    assert 2 <= len(units(slots)) <= 28


def test_a_draw_sees_one_state_of_the_records() -> None:
    documents = [note(f"p{i}", f"rash {i}") for i in range(6)]
    groups = retrieved(documents, docs_per_group=9, **THRESHOLD)
    expected = groups.draw(QUESTION)

    def meanwhile(unit_ids: Iterable[str]) -> set[str]:
        groups.add_documents([note("new", QUESTION), note("p1", QUESTION)])
        groups.delete_unit("p2")
        return {*unit_ids}

    def down(unit_ids: Iterable[str]) -> set[str]:
        raise LedgerError("The ledger is down.")

    assert groups.draw_prepared(groups.prepare(QUESTION), collect=meanwhile) == expected
    assert groups.n_units == 6
    with pytest.raises(LedgerError, match="is down"):
        groups.draw_prepared(groups.prepare(QUESTION), collect=down)


class Own(GroupSource):
    """Somebody else's source, which says of itself that it can charge units."""

    relation = None  # type: ignore[assignment]  # as short as a source can be
    n_groups = 1  # type: ignore[assignment]
    unit_key = "unit"  # type: ignore[assignment]
    description: dict[str, Any] = {}  # type: ignore[assignment]  # noqa: RUF012
    charges_units = True

    def prepare(self, question: str) -> str:
        return question

    def draw_prepared(self, prepared: Any, **_: Any) -> list[list[Document]]:
        return [[Document(prepared)]]


class Mine(RetrievedGroups):
    """A subclass of ours, whose draw may be anything."""

    charges_units = True


def test_who_can_charge_units() -> None:
    """Ours that retrieve by a threshold; no other can say so of itself."""
    assert charging_units(build(**THRESHOLD))
    mine = Mine.from_documents(NOTES, WordEmbedding(), unit_key="unit", n_groups=4)
    sampled = SampledGroups.from_documents(
        NOTES, unit_key="unit", n_groups=2, sampling_rate=0.5
    )
    till = Till()
    for groups in (build(), sampled, mine):
        assert not charging_units(groups)
        prepared: Any = groups.prepare(QUESTION)
        with pytest.raises(InvalidParameterError, match="cannot charge units"):
            groups.draw_prepared(prepared, collect=till)
        assert len(groups.draw_prepared(prepared)) == groups.n_groups
    assert till.asked == []
    assert not charging_units(Own())
    assert Own().draw("q") == [[Document("q")]]
    with pytest.raises(InvalidParameterError, match="Own can't be limited"):
        Own().where({"ward": 1})


# ---- changes -------------------------------------------------------------------------


def test_adding_and_deleting() -> None:
    groups = build()
    assert groups.add_documents([]) == 0
    assert groups.add_documents([note("new", "rash"), note("3", "rash")]) == 2
    assert groups.n_units == 13
    assert groups.delete_unit(3) == 5
    for unknown in (3, "3", "nobody", "", None, 3.0):
        with pytest.raises(UnitError, match="nothing was deleted"):
            groups.delete_unit(unknown)
    for unit in units([NOTES]) - {3} | {"new"}:
        groups.delete_unit(unit)
    assert groups.n_units == 0
    assert groups.draw(QUESTION) == [[], [], [], []]
    assert groups.add_documents(NOTES) == 48


def test_document_ids_are_unique() -> None:
    first = Document("rash", metadata={"unit": 1}, id="n1")
    again = Document("fever", metadata={"unit": 2}, id="n1")
    with pytest.raises(InvalidParameterError, match=r"id of document 1 .* is taken"):
        build([first, again], n_groups=1)
    groups = build([first], n_groups=1)
    with pytest.raises(InvalidParameterError, match=r"id of document 0 .* is taken"):
        groups.add_documents([again])
    assert groups.n_units == 1
    groups.delete_unit(1)
    assert groups.add_documents([again]) == 1


def test_drawing_while_others_write() -> None:
    groups = build(n_groups=3, docs_per_group=100)
    stop = threading.Event()
    problems: list[BaseException] = []

    def write(unit: str) -> None:
        while not stop.is_set():
            groups.add_documents([note(unit, "rash one"), note(unit, "rash two")])
            groups.delete_unit(unit)

    def read() -> None:
        for _ in range(50):
            slots = contents(groups.draw(QUESTION))
            counts = Counter(unit for slot in slots for unit, _ in slot)
            assert {counts[str(unit)] for unit in range(12)} == {4}
            assert {counts[unit] for unit in ("a", "b")} <= {0, 2}

    def guarded(work: Any, *arguments: str) -> None:
        try:
            work(*arguments)
        except BaseException as error:  # noqa: BLE001  # reported by the main thread
            problems.append(error)

    readers = [threading.Thread(target=guarded, args=(read,)) for _ in range(2)]
    writers = [threading.Thread(target=guarded, args=(write, u)) for u in ("a", "b")]
    for thread in [*readers, *writers]:
        thread.start()
    for thread in readers:
        thread.join()
    stop.set()
    for thread in writers:
        thread.join()
    assert problems == []
    assert groups.n_units == 12
