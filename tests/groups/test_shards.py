"""A slot is its own shard's best records; nobody else leaves a trace, to the bit."""

from __future__ import annotations

import math
import threading
from collections import Counter
from itertools import pairwise
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
    Spread,
    build,
    contents,
    note,
    retrieved,
    units_in,
)
from support.neighbor_checks import (
    M,
    Slots,
    check_disjoint,
    check_insertion_order,
    check_one_place,
    run,
)

from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.groups import RetrievedGroups, shard_of
from langchain_dpicl.groups import index as index_module


def cosine(text: str) -> float:
    own, asked = map(np.array, map(Spread().embed_query, (text, QUESTION)))
    return float(own @ asked / np.linalg.norm(own) / np.linalg.norm(asked))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=40),
    st.integers(1, 5),
    st.sampled_from([None, -1.0, -0.25, 0.0, 0.3]),
)
def test_draws_match_a_search_by_hand(units: Any, n: Any, threshold: Any) -> None:
    documents = [note(unit, f"text {i}") for i, unit in enumerate(units)]
    terms = {"docs_per_group": n, "score_threshold": threshold, "n_groups": 3}
    slots = retrieved(documents, embedding=Spread(), **terms).draw(QUESTION)
    for number, slot in enumerate(slots):
        scored = [
            (cosine(one.page_content), one.page_content)
            for one in documents
            if shard_of(one.metadata["unit"], SALT, 3) == number
        ]
        least = -1 if threshold is None else threshold
        best = sorted((one for one in scored if one[0] >= least), reverse=True)
        assert [one.page_content for one in slot] == [text for _, text in best[:n]]


def test_every_slot_is_there_even_an_empty_one() -> None:
    slots = build(NOTES[:4], n_groups=4).draw(QUESTION)
    assert len(slots) == 4
    assert sum(map(len, slots)) == 4
    assert build(score_threshold=1.0).draw("sleep") == [[], [], [], []]


def test_documents_come_back_as_given_and_as_copies() -> None:
    given_note = Document("rash", metadata={"unit": 1, "tags": ["a"]}, id="n1")
    original = given_note.model_copy(deep=True)
    groups = build([given_note], n_groups=1)
    given_note.metadata["tags"].append("changed by the caller")
    [[drawn]] = groups.draw("rash")
    assert drawn == original
    drawn.metadata["unit"] = 2
    assert groups.draw("rash") == [[original]]


# ---- order ---------------------------------------------------------------------------


def test_equal_scores_do_not_follow_insertion() -> None:
    # Many equal texts, more than a slot holds: FAISS alone keeps any of them.
    documents = [note(f"p{i}", "rash", visit=i) for i in range(60)]
    terms: dict[str, Any] = {"n_groups": 2, "docs_per_group": 3}
    expected = contents(retrieved(documents, **terms).draw("rash"))
    for order in (documents[::-1], documents[30:] + documents[:30]):
        assert contents(retrieved(order, **terms).draw("rash")) == expected
    firsts = {f"p{i}" for i in range(9)}
    assert not {unit for slot in expected for unit in units_in(slot)} <= firsts
    other = retrieved(documents, salt=bytes(32), **terms).draw("rash")
    assert contents(other) != expected


def test_rows_stand_by_the_digests_of_unit_and_record() -> None:
    index = retrieved(NOTES)._index
    shuffled = retrieved([NOTES[i] for i in np.random.default_rng(0).permutation(48)])
    for shard, other in zip(index.shards, shuffled._index.shards, strict=True):
        assert shard.vectors.tobytes() == other.vectors.tobytes()
        assert list(shard.documents) == list(other.documents)
        # A unit's rows are side by side, so that leaving units out keeps the order.
        units = [str(one.metadata["unit"]) for one in shard.documents]
        assert list(dict.fromkeys(units)) == list(shard.unit_ids)
        ends = [one != two for one, two in pairwise(units)]
        assert sum(ends) == max(len(shard.unit_ids) - 1, 0)


# ---- one person more or less ---------------------------------------------------------


def by_shard(documents: list[Document], words: Any) -> Slots:
    return contents(retrieved(documents, n_groups=M).draw(QUESTION))


def by_threshold(documents: list[Document], words: Any) -> Slots:
    groups = retrieved(documents, n_groups=M, score_threshold=0.5)
    return contents(groups.draw(QUESTION))


@pytest.mark.parametrize("drawer", [by_shard, by_threshold])
@pytest.mark.parametrize(
    "check", [check_disjoint, check_one_place, check_insertion_order]
)
def test_one_unit_changes_one_numbered_slot(drawer: Any, check: Any) -> None:
    run(check(drawer), examples=60)


def ties_by_row(documents: list[Document], words: Any) -> Slots:
    """Defect: equal scores are told apart by a hash of the row in the whole corpus."""
    index = retrieved(documents, n_groups=M)._index
    prepared = retrieved(documents, n_groups=M).prepare(QUESTION)
    rows = {one.page_content: hash((i, 7)) for i, one in enumerate(documents)}
    slots = []
    for shard in index.shards:
        scores = (shard.vectors @ prepared.vector[0]).round(4)
        places = [rows[one.page_content] for one in shard.documents]
        order = np.lexsort((places, -scores))[:2]
        slots.append([shard.documents[row] for row in order.tolist()])
    return contents(slots)


def global_best(documents: list[Document], words: Any) -> Slots:
    """Defect: the best of the corpus go to their shards."""
    (best,) = retrieved(documents, n_groups=1, docs_per_group=6).draw(QUESTION)
    return contents(
        [d for d in best if shard_of(d.metadata["unit"], SALT, M) == number]
        for number in range(M)
    )


@pytest.mark.parametrize("drawer", [ties_by_row, global_best])
def test_twins_of_order_and_of_search_are_caught(drawer: Any) -> None:
    with pytest.raises(AssertionError):
        run(check_one_place(drawer), twin=True)


def bits(groups: RetrievedGroups) -> list[tuple[bytes, list[Document]]]:
    """Return everything that an index holds, shard by shard."""
    return [
        (shard.vectors.tobytes(), list(shard.documents))
        for shard in groups._index.shards
    ]


@pytest.mark.parametrize("gone", range(12))
def test_a_person_who_goes_changes_no_bit_of_another_shard(gone: int) -> None:
    rest = [one for one in NOTES if one.metadata["unit"] != gone]
    groups, without = retrieved(NOTES), retrieved(rest)
    own = shard_of(gone, SALT, 4)
    whole, shards = bits(groups), groups._index.shards
    assert [i for i in range(4) if whole[i] != bits(without)[i]] == [own]
    assert groups.delete_unit(gone) == 4
    assert bits(groups) == bits(without)
    for number in set(range(4)) - {own}:
        assert groups._index.shards[number] is shards[number]
    groups.add_documents([one for one in NOTES if one.metadata["unit"] == gone])
    assert bits(groups) == whole


SIZE = 24
ROWS = np.random.default_rng(7).normal(size=(300, SIZE))
ASKED = np.random.default_rng(8).normal(size=SIZE)


def scores_of(kept: list[int], *, at_once: bool) -> dict[int, float]:
    """Return scores: of each shard by itself, or by one product over all shards."""
    documents = [note(n, str(n)) for n in kept]
    groups = retrieved(
        documents, n_groups=3, embedding=Given(ROWS.tolist(), ASKED.tolist())
    )
    vector = groups.prepare("q").vector
    found: dict[int, float] = {}
    index = groups._index
    if at_once:
        rows = np.concatenate([shard.vectors for shard in index.shards])
        order = [int(d.page_content) for shard in index.shards for d in shard.documents]
        return dict(zip(order, (rows @ vector[0]).tolist(), strict=True))
    for shard in index.shards:
        scores, rows = index_module._nearest(
            shard.vectors, vector, 1000, lambda scores: False
        )
        for score, row in zip(scores.tolist(), rows.tolist(), strict=True):
            found[int(shard.documents[row].page_content)] = score
    return found


def moved_scores(*, at_once: bool) -> int:
    """Return how many scores in *other shards* change when one person goes."""
    seeded, count = np.random.default_rng(9), 0
    for _ in range(40):
        kept = seeded.choice(300, 60, replace=False).tolist()
        gone = kept[0]
        before = scores_of(kept, at_once=at_once)
        after = scores_of(kept[1:], at_once=at_once)
        count += sum(
            before[n] != after[n]
            for n in kept[1:]
            if shard_of(n, SALT, 3) != shard_of(gone, SALT, 3)
        )
    return count


def test_no_score_of_another_shard_changes_a_bit() -> None:
    assert moved_scores(at_once=False) == 0
    assert moved_scores(at_once=True) > 0, "the twin is one product over all shards"


# ---- eligibility is decided exactly --------------------------------------------------


def exactly(row: Any, vector: Any) -> float:
    return math.fsum(float(a) * float(b) for a, b in zip(row, vector, strict=True))


def test_a_threshold_on_the_edge_is_decided_by_the_exact_cosine() -> None:
    """Also where float32 rounds to the other side: the own score has no neighbors."""
    groups = retrieved(
        [note(n, str(n)) for n in range(300)],
        n_groups=1,
        docs_per_group=300,
        embedding=Given(ROWS.tolist(), ASKED.tolist()),
    )
    (shard,) = groups._index.shards
    vector = groups.prepare("q").vector
    exact = np.array([exactly(row, vector[0]) for row in shard.vectors])
    rounded = scores_of(list(range(300)), at_once=False)
    names = [one.metadata["unit"] for one in shard.documents]
    differing = 0
    for row in range(0, 300, 7):
        edge = exact[row]
        for threshold in (edge, np.nextafter(edge, 2), np.nextafter(edge, -2)):
            terms = groups._terms.model_copy(
                update={"score_threshold": float(threshold)}
            )
            only = RetrievedGroups(terms, groups._records)
            asked = only.prepare("q")
            expected = {str(names[i]) for i in np.flatnonzero(exact >= threshold)}
            assert set(groups._index.units(asked)) == expected
            assert {str(d.metadata["unit"]) for d in only.draw("q")[0]} == expected
            differing += {str(n) for n in names if rounded[n] >= threshold} != expected
    assert differing > 0, "the twin decides by the rounded score"


def test_the_threshold_itself_passes() -> None:
    embedding = Given([[0.6, 0.8], [0.6, -0.8], [0.5, 0.9]])
    documents = [note(i, str(i)) for i in range(3)]
    score = float(np.float32(0.6))
    for threshold, n in ((score, 2), (np.nextafter(score, 1), 0), (-1, 3), (-0.0, 3)):
        groups = build(documents, embedding, n_groups=1, score_threshold=threshold)
        assert sum(map(len, groups.draw("q"))) == n


def test_opposite_vectors_pass_minus_one() -> None:
    # Rounding takes some of these cosines just below -1.
    documents = [note(i, str(i)) for i in range(30)]
    below = 0
    for vector in np.random.default_rng(0).standard_normal((30, 7)):
        groups = build(
            documents,
            Given([vector] * 30, -vector),
            n_groups=1,
            score_threshold=-1,
            docs_per_group=30,
        )
        asked = groups.prepare("q")
        below += exactly(groups._index.shards[0].vectors[0], asked.vector[0]) < -1
        assert sum(map(len, groups.draw_prepared(asked))) == 30
        assert len(groups._index.units(asked)) == 30
    assert below > 0


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
    for unit in {doc.metadata["unit"] for doc in NOTES} - {3}:
        groups.delete_unit(unit)
    groups.delete_unit("new")
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
        for _ in range(100):
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
