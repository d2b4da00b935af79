"""The Poisson sample: its exact rate, and how it is dealt to slots."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support.groups_fakes import note, units

from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.groups import SampledGroups
from langchain_dpicl.groups.sampling import poisson_sample
from langchain_dpicl.mechanisms.random import SecureRandom, SeededRandom

SIGNIFICANCE = 1e-6


class Scripted(SecureRandom):
    """Hands out the words that the test planned, call by call."""

    is_seeded = True

    def __init__(self, *calls: list[int]) -> None:
        super().__init__()
        self.calls = [np.array(call, dtype=np.uint64) for call in calls]

    def words(self, count: int) -> np.ndarray:
        words = self.calls.pop(0)
        assert len(words) == count
        return words


def sources(**changes: Any) -> SampledGroups:
    terms = {
        "unit_key": "unit",
        "n_groups": 5,
        "sampling_rate": 0.5,
        "random": SeededRandom(3),
        **changes,
    }
    documents = [note(i, f"text {i} {j}") for j in range(3) for i in range(20)]
    return SampledGroups.from_documents(documents, **terms)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.integers(0, 2**64 - 1), max_size=40),
    st.one_of(
        st.floats(2.0**-70, 1), st.sampled_from([0.5, 1.0, 2.0**-64, 1 - 2.0**-53])
    ),
)
def test_a_unit_is_in_when_its_word_is_below_the_threshold(
    words: Any, rate: Any
) -> None:
    threshold = int(rate * 2.0**64)
    assert threshold / 2**64 <= rate
    heads = np.zeros(-(-len(words) // 8) * 8, np.uint8)
    heads[: len(words)] = [word >> 56 for word in words]
    undecided = [word for word in words if word >> 56 == threshold >> 56]
    # A tail is 56 bits; the source hands out 64, of which the lowest eight are unused.
    tails = [(word << 8) % 2**64 for word in undecided]
    random = Scripted(heads.view(np.uint64).tolist(), tails)
    expected = [i for i, word in enumerate(words) if word < threshold]
    assert poisson_sample(random, len(words), rate).tolist() == expected


def test_a_shared_draw_is_the_same_draw_without_the_copies() -> None:
    copied = sources().draw_prepared(None)
    groups = sources()
    shared = groups.draw_shared()
    assert copied == shared
    assert sum(map(len, shared)) > 10
    again = [note for slot in groups.draw_shared() for note in slot]
    own = {id(note) for slot in shared for note in slot}
    assert own & {id(note) for note in again}, "the corpus's own documents"
    handed_out = [note for slot in groups.draw_prepared(None) for note in slot]
    assert not own & {id(note) for note in handed_out}


def test_documents_of_a_unit_can_be_capped() -> None:
    groups = sources(sampling_rate=1.0, docs_per_unit=2, n_groups=20)
    kept = Counter()
    for _ in range(300):
        slots = groups.draw("q")
        counts = Counter(doc.metadata["unit"] for slot in slots for doc in slot)
        assert set(counts.values()) == {2}
        kept.update(doc.page_content for slot in slots for doc in slot)
    # A fresh random subset: each of a unit's three documents two times in three.
    assert stats.chisquare(list(kept.values())).pvalue > SIGNIFICANCE
    assert len(kept) == 60


def test_order_and_slots_are_random() -> None:
    groups = sources(sampling_rate=1.0)
    slots, first = Counter(), Counter()
    for _ in range(1_000):
        for number, slot in enumerate(groups.draw("q")):
            held = Counter(doc.metadata["unit"] for doc in slot)
            assert set(held.values()) <= {3}, "all documents of a unit, or none"
            slots[number] += len(held)
            first.update(doc.page_content[-1] for doc in slot[:1])
    for counts, n in ((slots, 5), (first, 3)):
        assert len(counts) == n
        assert stats.chisquare(list(counts.values())).pvalue > SIGNIFICANCE


def test_adding_and_deleting() -> None:
    groups = sources(sampling_rate=1.0)
    assert groups.n_units == 20
    assert groups.add_documents([note(20, "new"), note(3, "more")]) == 2
    assert groups.n_units == 21
    assert groups.delete_unit(3) == 4
    assert groups.n_units == 20
    with pytest.raises(UnitError):
        groups.delete_unit(3)
    assert 3 not in units(groups.draw("q"))
    for unit in [*range(3), *range(4, 21)]:
        groups.delete_unit(unit)
    assert groups.n_units == 0
    assert groups.draw("q") == [[]] * 5


def test_what_is_refused_and_what_is_public() -> None:
    for changes, named in (
        ({"sampling_rate": 1.01}, "sampling_rate"),
        ({"n_groups": 2.0}, "n_groups"),
        ({"docs_per_unit": 0}, "docs_per_unit"),
        ({"unit_key": None}, "unit_key"),
        ({"random": np.random.default_rng(0)}, "SecureRandom"),
    ):
        with pytest.raises(InvalidParameterError, match=named):
            sources(**changes)
    with pytest.raises(UnitError, match="fewer units than n_groups=21"):
        sources(n_groups=21)
    with pytest.raises(UnitError, match="no documents"):
        SampledGroups.from_documents([], unit_key="u", n_groups=1, sampling_rate=0.5)
    assert sources(random=None).description == {
        "source": "SampledGroups",
        "retrieval": "poisson",
        "unit_key": "unit",
        "n_groups": 5,
        "sampling_rate": 0.5,
        "docs_per_unit": None,
        "relation": "replace",
        "random": "operating system",
    }
    assert "NOT SECURE" in repr(sources())
