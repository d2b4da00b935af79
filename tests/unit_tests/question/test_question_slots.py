"""One person changes one slot, and no bit of any other slot.

Two worlds, with and without a person, are drawn with the same salt and the same coins
of everybody else. The twins are the groupings and searches that get this wrong; they
stand in this file, and the same checks must fail on them.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from faces import PlannedCoins, RetrievedGroups, SampledGroups
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from questions import (
    ASKED,
    EMBEDDING,
    UNITS,
    WORDS,
    Bits,
    Draw,
    counted,
    embedded,
    note,
    saved,
    slots,
    stored,
    worlds,
)
from scripted import ScriptedEmbeddings
from suite import pairs
from worlds import UNIT, without

WAYS: dict[str, Callable[..., RetrievedGroups]] = {
    "embeddings": embedded,
    "store": stored,
    "saved": saved,
}
TERMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "threshold": {"score_threshold": 0.7},
    "one each": {"docs_per_group": 1},
}


def check_one_slot(
    draw: Draw, world: tuple[list[Document], list[Document], Any]
) -> None:
    """Without the person at most one slot is another, whatever the order of records."""
    documents, rest, _ = world
    for order in (1, -1):
        before, after = draw(documents), draw(rest[::order])
        assert len(before) == len(after)
        assert sum(one != other for one, other in zip(before, after, strict=True)) <= 1


def check_property(draw: Draw) -> None:
    """Check random worlds; for twins, which need no smallest example."""
    seeded = random.Random(3)
    for _ in range(200):
        units = [*UNITS, *(seeded.choice(UNITS) for _ in range(16))]
        seeded.shuffle(units)
        documents = [
            note(unit, " ".join(seeded.choices(WORDS, k=seeded.randint(1, 3))), number)
            for number, unit in enumerate(units)
        ]
        gone = seeded.choice(UNITS)
        check_one_slot(draw, (documents, without(documents, gone), gone))


@pytest.mark.promise("one-unit-one-slot", "ties-without-order")
@pytest.mark.parametrize(("way", "terms"), pairs(WAYS, TERMS))
@given(world=worlds())
def test_a_person_changes_one_slot(way: str, terms: str, world: Any) -> None:
    """Nobody else's slot changes a bit; the person's is the shard of the id."""
    check_one_slot(lambda d: slots(WAYS[way](d, **TERMS[terms]), ASKED), world)


@pytest.mark.promise("one-unit-one-slot")
@given(world=worlds())
def test_a_person_sits_in_one_slot_alone(world: Any) -> None:
    """All records of one person are in one slot; so are two spellings of one id."""
    documents = [*world[0], note("1", "rash", 99)]
    held: dict[str, set[int]] = {}
    drawn = stored(documents, docs_per_group=99).draw(ASKED)
    for place, slot in enumerate(drawn):
        for one in slot:
            held.setdefault(str(one.metadata[UNIT]), set()).add(place)
    assert len(held) == len(UNITS)
    assert all(len(places) == 1 for places in held.values())
    assert sum(map(len, drawn)) == len(documents)


@pytest.mark.promise("one-unit-one-slot", "deleted-is-gone")
@given(world=worlds())
def test_adding_and_deleting_a_person_changes_that_slot_alone(world: Any) -> None:
    """A person who comes and goes leaves every slot as it was."""
    documents, rest, gone = world
    own = [one for one in documents if one.metadata[UNIT] == gone]
    groups = RetrievedGroups.from_documents(
        rest, EMBEDDING, unit_key=UNIT, n_groups=3, docs_per_group=2
    )
    before = slots(groups, ASKED)
    groups.add_documents(own)
    check_one_slot(_turns(slots(groups, ASKED), before), world)
    groups.delete_unit(gone)
    assert slots(groups, ASKED) == before


def _turns(*found: Bits) -> Draw:
    """Return a draw that gives these slots in turn."""
    turns = itertools.cycle(found)
    return lambda _documents: next(turns)


@pytest.mark.promise("filter-first")
@pytest.mark.parametrize("threshold", [None, 0.7])
@given(world=worlds())
def test_a_filter_leaves_nobody_elses_trace(threshold: Any, world: Any) -> None:
    """Groups of a ward are those of a corpus without all others."""

    def draw(documents: list[Document]) -> Bits:
        groups = stored(documents, docs_per_group=1, score_threshold=threshold)
        return slots(groups.where({"ward": "3"}), ASKED)

    check_one_slot(draw, world)
    inside = [one for one in world[0] if one.metadata["ward"] == "3"]
    assert draw([*inside, note("other", "cough", ward="4")]) == draw(world[0])


# ---- the sample ----------------------------------------------------------------------

SampledDraw = Callable[[list[Document], dict[str, bool]], Bits]


def by_coins(make: Callable[..., Any]) -> SampledDraw:
    """Return a draw with each unit's own coins, slot and rank.

    Which coin is whose is found by drawing each unit alone.
    """

    def draw(documents: list[Document], tossed: dict[str, bool]) -> Bits:
        coins = PlannedCoins()
        groups = make(documents, random=coins)
        count = len({str(one.metadata[UNIT]) for one in documents})
        rows = [99] * count
        order = []
        for place in range(count):
            coins.plan([n == place for n in range(count)], [0] * count, rows)
            (unit,) = {
                str(one.metadata[UNIT]) for slot in groups.draw(ASKED) for one in slot
            }
            order.append(unit)
        held = [sum(str(d.metadata[UNIT]) == unit for d in documents) for unit in order]
        coins.plan([tossed[unit] for unit in order], [word(u) for u in order], held)
        return slots(groups, ASKED)

    return draw


def word(unit: str) -> int:
    """Return a number of the unit's own."""
    return int.from_bytes(hashlib.sha256(unit.encode()).digest()[:6], "big")


def sampled_search(documents: list[Document], random: Any) -> RetrievedGroups:
    return stored(documents, sampling_rate=0.5, random=random, docs_per_group=1)


def sampled_groups(documents: list[Document], random: Any) -> SampledGroups:
    return SampledGroups.from_documents(
        documents, unit_key=UNIT, n_groups=3, sampling_rate=0.5, random=random
    )


def check_sampled(draw: SampledDraw, world: Any, tossed: dict[str, bool]) -> None:
    """A person out of the sample leaves no trace; one in it changes one slot."""
    documents, rest, gone = world
    before = draw(rest, tossed)
    assert draw(documents, {**tossed, str(gone): False}) == before
    after = draw(documents, {**tossed, str(gone): True})
    assert sum(one != other for one, other in zip(before, after, strict=True)) <= 1


TOSSED = st.fixed_dictionaries({str(unit): st.booleans() for unit in UNITS})


@pytest.mark.promise("sample-then-search", "sampled-out-no-trace")
@pytest.mark.parametrize("make", [sampled_search, sampled_groups])
@given(world=worlds(), tossed=TOSSED)
def test_a_person_who_is_not_sampled_leaves_no_trace(
    make: Any, world: Any, tossed: dict[str, bool]
) -> None:
    """With everybody else's coins the same, nothing tells that there is one more."""
    check_sampled(by_coins(make), world, tossed)


@pytest.mark.promise("poisson-rate", "fresh-sample")
@pytest.mark.promise("poisson-rate", "fresh-sample", twin=True)
@pytest.mark.parametrize("rate", [0.1, 0.5])
@pytest.mark.parametrize("source", ["search", "sampled"])
def test_each_person_is_sampled_alone_and_anew(source: str, rate: float) -> None:
    """Each draw tosses fresh coins: rates, pairs and runs are those of the binomial."""
    documents = [note(f"p{n}", "rash", ward="3") for n in range(40)]
    terms: dict[str, Any] = {"n_groups": 2, "sampling_rate": rate}
    groups: Any = stored(documents, docs_per_group=99, **terms)
    if source == "sampled":
        groups = SampledGroups.from_documents(documents, unit_key=UNIT, **terms)
    draws = 600
    held = np.zeros((draws, 40), bool)
    for number in range(draws):
        for slot in groups.draw(ASKED):
            for one in slot:
                held[number, int(one.metadata[UNIT][1:])] = True
    check_coins(held, rate)
    # The twin: a sample of a fixed size, which is no Poisson sample.
    fixed = np.zeros_like(held)
    coins = np.random.default_rng(3)
    for row in fixed:
        row[coins.choice(40, round(40 * rate), replace=False)] = True
    with pytest.raises(AssertionError):
        check_coins(fixed, rate)
    with pytest.raises(AssertionError):
        check_coins(np.repeat(held[:1], draws, axis=0), rate)


def check_coins(held: Any, rate: float) -> None:
    """Check sizes of samples, persons and neighbors in time, within 5.5 deviations."""
    draws, people = held.shape
    variance = rate * (1 - rate)
    total = held.sum()
    assert abs(total - rate * held.size) <= 5.5 * (variance * held.size) ** 0.5
    each = held.sum(axis=0)
    assert np.all(np.abs(each - rate * draws) <= 5.5 * (variance * draws) ** 0.5)
    # The size of a sample varies as that of independent coins.
    spread = held.sum(axis=1).var() / (variance * people)
    assert abs(spread - 1) <= 5.5 * (2 / draws) ** 0.5 + 0.05
    again = (held[1:] & held[:-1]).mean()
    assert abs(again - rate**2) <= 5.5 * (rate**2 / held.size) ** 0.5


# ---- scores of one's own -------------------------------------------------------------

REAL = np.random.default_rng(7).normal(size=(400, 24)).astype(np.float32)
ASKED_VECTOR = np.random.default_rng(8).normal(size=24).astype(np.float32)


def placed(kept: list[int], threshold: float | None = None) -> list[list[str]]:
    """Return the slots of people with real vectors, one record each."""
    vectors = ScriptedEmbeddings(lambda text: ASKED_VECTOR)
    columns = {
        "text": [f"note {n}" for n in kept],
        "embedding": REAL[kept],
        UNIT: [f"p{n}" for n in kept],
    }
    groups = RetrievedGroups.from_embeddings(
        columns,
        vectors,
        unit_key=UNIT,
        n_groups=3,
        docs_per_group=400,
        score_threshold=threshold,
        salt=bytes(32),
    )
    return slots(groups, "any")


def cosines(rows: Any) -> Any:
    """Return cosines as a matrix product gives them: others change the last bits."""
    scaled = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return scaled @ (ASKED_VECTOR / np.linalg.norm(ASKED_VECTOR))


def by_product(kept: list[int], threshold: float) -> list[list[str]]:
    """The twin: one product over all shards."""
    scores = cosines(REAL[kept])
    passed = [n for n, score in zip(kept, scores, strict=True) if score >= threshold]
    return [[f"note {n}" for n in passed if n % 3 == shard] for shard in range(3)]


def check_edges(
    draw: Callable[[list[int], float], list[list[str]]], count: int
) -> None:
    """A threshold on the edge of a score decides the same with and without a person."""
    seeded = np.random.default_rng(9)
    for _ in range(count):
        kept = sorted(
            seeded.choice(400, int(seeded.integers(30, 60)), replace=False).tolist()
        )
        gone, other = map(int, seeded.choice(kept, 2, replace=False))
        rest = [n for n in kept if n != gone]
        edge = cosines(REAL[kept])[kept.index(other)]
        for towards in (edge, np.float32(2), np.float32(-2)):
            threshold = float(np.nextafter(edge, towards))
            before, after = draw(kept, threshold), draw(rest, threshold)
            mine = [
                [text for text in slot if text != f"note {gone}"] for slot in before
            ]
            assert mine == after


@pytest.mark.promise("own-score-alone")
def test_nobody_elses_record_moves_a_score_over_an_edge() -> None:
    """An asker may put a threshold on the edge: each score is a function of its own."""
    check_edges(placed, 60)


@pytest.mark.promise("own-score-alone", twin=True)
def test_a_product_over_all_shards_is_caught() -> None:
    with pytest.raises(AssertionError):
        check_edges(by_product, 3000)


# ---- twins ---------------------------------------------------------------------------


def near(document: Document) -> float:
    """Return a document's score."""
    own, asked = np.array(counted(document.page_content)), np.array(counted(ASKED))
    return float(own @ asked / np.linalg.norm(own) / np.linalg.norm(asked))


def shard(document: Document) -> int:
    return word(str(document.metadata[UNIT])) % 3


def texts(found: Any) -> Bits:
    return [[one.page_content for one in slot] for slot in found]


def sliced(documents: list[Document]) -> Bits:
    """Slice the ranked list into groups."""
    ranked = sorted(documents, key=lambda d: (-near(d), word(str(d.metadata[UNIT]))))
    return texts(ranked[n * 3 : n * 3 + 3] for n in range(3))


def independent(documents: list[Document]) -> Bits:
    """Draw each group by itself: a person may sit in several."""
    return texts(
        [d for d in documents if word(f"{slot} {d.metadata[UNIT]}") % 2]
        for slot in range(3)
    )


def top_first(documents: list[Document]) -> Bits:
    """Take the best of the whole corpus, then send them to shards."""
    best = sorted(documents, key=lambda d: (-near(d), word(str(d.metadata[UNIT]))))[:6]
    return texts([d for d in best if shard(d) == n] for n in range(3))


def ties_by_row(documents: list[Document]) -> Bits:
    """Break ties by the number of the row in the whole corpus."""
    rows = sorted(
        enumerate(documents), key=lambda row: (-near(row[1]), word(str(row[0])))
    )
    return texts([d for _, d in rows if shard(d) == n][:1] for n in range(3))


def first_copies(documents: list[Document]) -> Bits:
    """Keep the first copy of each text."""
    kept: dict[str, Document] = {}
    for document in sorted(documents, key=lambda d: word(str(d.metadata[UNIT]))):
        kept.setdefault(document.page_content, document)
    return texts([d for d in kept.values() if shard(d) == n] for n in range(3))


@pytest.mark.promise("one-unit-one-slot", "ties-without-order", twin=True)
@pytest.mark.parametrize(
    "wrong", [sliced, independent, top_first, ties_by_row, first_copies]
)
def test_wrong_groups_are_caught(wrong: Draw) -> None:
    with pytest.raises(AssertionError):
        check_property(wrong)


def best_of(documents: list[Document]) -> list[list[Document]]:
    """Return each shard's best record, by a sound rule."""
    ranked = sorted(documents, key=lambda d: (-near(d), word(str(d.metadata[UNIT]))))
    return [[d for d in ranked if shard(d) == n][:1] for n in range(3)]


def search_first(documents: list[Document], tossed: dict[str, bool]) -> Bits:
    """Search everybody, then sample whom the search has found."""
    found = best_of(documents)
    return texts([d for d in slot if tossed[str(d.metadata[UNIT])]] for slot in found)


def masked(documents: list[Document], tossed: dict[str, bool]) -> Bits:
    """Mask who is not sampled, and break ties by places among all."""
    rows = sorted(
        enumerate(documents), key=lambda row: (-near(row[1]), word(str(row[0])))
    )
    left = [d for _, d in rows if tossed[str(d.metadata[UNIT])]]
    return texts([d for d in left if shard(d) == n][:1] for n in range(3))


def filter_last(documents: list[Document], tossed: dict[str, bool]) -> Bits:
    """Filter after the search: the "coin" is a public attribute of the person."""
    return search_first(documents, tossed)


@pytest.mark.promise(
    "sample-then-search", "sampled-out-no-trace", "filter-first", twin=True
)
@pytest.mark.parametrize("wrong", [search_first, masked, filter_last])
def test_wrong_samples_are_caught(wrong: SampledDraw) -> None:
    def check(draw: SampledDraw) -> None:
        seeded = random.Random(4)
        for _ in range(200):
            documents = [
                note(unit, " ".join(seeded.choices(WORDS, k=2)), number)
                for number, unit in enumerate([*UNITS, *UNITS])
            ]
            gone = seeded.choice(UNITS)
            tossed = {str(unit): seeded.random() < 0.5 for unit in UNITS}
            check_sampled(draw, (documents, without(documents, gone), gone), tossed)

    with pytest.raises(AssertionError):
        check(wrong)

    def right(documents: list[Document], tossed: dict[str, bool]) -> Bits:
        return texts(best_of([d for d in documents if tossed[str(d.metadata[UNIT])]]))

    check(right)
