"""The Poisson sample: its exact rate, its distribution, and twins that are caught."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support.groups_fakes import Scripted, contents, note, units_in

from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.groups import SampledGroups
from langchain_dpicl.groups.selection import deal, poisson_sample
from langchain_dpicl.mechanisms.random import SeededRandom

if TYPE_CHECKING:
    from collections.abc import Callable

SIGNIFICANCE = 1e-6
N_UNITS = 300
DRAWS = 2_000
RATE = 0.3


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


def p_values(sample: Callable[[SeededRandom], Any]) -> dict[str, float]:
    """Test draws against independent inclusion with probability `RATE`."""
    random = SeededRandom(11)
    included = np.zeros((DRAWS, N_UNITS), bool)
    for row in included:
        row[np.asarray(sample(random), int)] = True
    variance = RATE * (1 - RATE)
    per_unit = (included.sum(axis=0) - DRAWS * RATE) ** 2 / (DRAWS * variance)
    sizes = (included.sum(axis=1) - N_UNITS * RATE) ** 2 / (N_UNITS * variance)
    total = (included.sum() - included.size * RATE) / np.sqrt(included.size * variance)
    repeats = (included[1:] & included[:-1]).sum()
    pairs = included[1:].size
    repeat_rate = RATE**2
    repeat = (repeats - pairs * repeat_rate) / np.sqrt(pairs * repeat_rate)
    return {
        "each unit": float(stats.chi2.sf(per_unit.sum(), N_UNITS)),
        "all units": float(2 * stats.norm.sf(abs(total))),
        "size, too wide": float(stats.chi2.sf(sizes.sum(), DRAWS)),
        "size, too narrow": float(stats.chi2.cdf(sizes.sum(), DRAWS)),
        "fresh": float(2 * stats.norm.sf(abs(repeat))),
    }


def test_units_are_included_independently_at_the_rate() -> None:
    found = p_values(lambda random: poisson_sample(random, N_UNITS, RATE))
    assert min(found.values()) > SIGNIFICANCE, found


def fixed_size(random: SeededRandom) -> list[int]:
    return random.sample(range(N_UNITS), round(RATE * N_UNITS))


def same_again(_: SeededRandom) -> Any:
    return poisson_sample(SeededRandom(5), N_UNITS, RATE)


def in_pairs(random: SeededRandom) -> Any:
    half = poisson_sample(random, N_UNITS // 2, RATE)
    return np.concatenate([half, half + N_UNITS // 2])


def too_often(random: SeededRandom) -> Any:
    return poisson_sample(random, N_UNITS, 1.02 * RATE)


def seven_bits_only(random: SeededRandom) -> Any:
    heads = random.words(-(-N_UNITS // 8)).view(np.uint8)[:N_UNITS]
    return np.flatnonzero(heads >> 1 <= int(RATE * 128))


@pytest.mark.parametrize(
    ("twin", "caught_by"),
    [
        (fixed_size, "size, too narrow"),
        (same_again, "each unit"),
        (same_again, "fresh"),
        (in_pairs, "size, too wide"),
        (too_often, "all units"),
        (seven_bits_only, "all units"),
    ],
)
def test_other_samples_are_caught(twin: Any, caught_by: Any) -> None:
    assert p_values(twin)[caught_by] < SIGNIFICANCE


def test_a_fixed_size_sample_passes_every_test_but_the_size() -> None:
    # So that it is the size test that tells them apart.
    found = p_values(fixed_size)
    assert found["each unit"] > SIGNIFICANCE


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


def test_a_draw_is_fresh() -> None:
    groups = sources(random=None)
    draws = {str(contents(groups.draw("q"))) for _ in range(10)}
    assert len(draws) == 10


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


def test_a_sampled_unit_brings_all_its_documents() -> None:
    for slot in contents(sources().draw("q")):
        counts = Counter(unit for unit, _ in slot)
        assert set(counts.values()) <= {3}


def test_at_rate_one_everybody_is_there() -> None:
    slots = contents(sources(sampling_rate=1).draw("q"))
    assert len(slots) == 5
    assert sum(map(len, slots)) == 60


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
    groups = sources(n_groups=1, sampling_rate=1.0)
    first_units, first_texts = Counter(), Counter()
    for _ in range(2_000):
        slot = groups.draw("q")[0]
        first_units[slot[0].metadata["unit"]] += 1
        first_texts[slot[0].page_content[-1]] += 1
    for counts, n in ((first_units, 20), (first_texts, 3)):
        assert len(counts) == n
        assert stats.chisquare(list(counts.values())).pvalue > SIGNIFICANCE


def test_units_are_dealt_evenly() -> None:
    groups = sources(sampling_rate=1.0)
    counts = Counter()
    for _ in range(2_000):
        for number, slot in enumerate(contents(groups.draw("q"))):
            counts[number] += len(units_in(slot))
    assert stats.chisquare(list(counts.values())).pvalue > SIGNIFICANCE


def test_deal_nothing() -> None:
    empty = np.empty(0, np.int64)
    assert deal(empty, empty, np.empty(0, np.uint64), 2, 1) == [[], []]


def test_adding_and_deleting() -> None:
    groups = sources(sampling_rate=1.0)
    assert groups.n_units == 20
    assert groups.add_documents([note(20, "new"), note(3, "more")]) == 2
    assert groups.n_units == 21
    assert groups.delete_unit(3) == 4
    assert groups.n_units == 20
    with pytest.raises(UnitError):
        groups.delete_unit(3)
    slots = contents(groups.draw("q"))
    assert "3" not in {unit for slot in slots for unit in units_in(slot)}
    for unit in [*range(3), *range(4, 21)]:
        groups.delete_unit(unit)
    assert groups.n_units == 0
    assert groups.draw("q") == [[]] * 5


async def test_async_draw() -> None:
    slots = contents(await sources(sampling_rate=1.0).adraw("q"))
    assert sum(map(len, slots)) == 60


def test_rate_for() -> None:
    assert SampledGroups.rate_for(1000, 10, 5) == 0.05
    assert SampledGroups.rate_for(50, 10, 5) == 1.0
    with pytest.raises(InvalidParameterError, match=r"sampling rate of 1\.02"):
        SampledGroups.rate_for(49, 10, 5)


@pytest.mark.parametrize("arguments", [(0, 1, 1), (1, 0, 1), (9, 1, 0), (9, 1, "a")])
def test_rate_for_refuses(arguments: Any) -> None:
    with pytest.raises(InvalidParameterError):
        SampledGroups.rate_for(*arguments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampling_rate": 0}, "sampling_rate"),
        ({"sampling_rate": 1.01}, "sampling_rate"),
        ({"sampling_rate": float("nan")}, "sampling_rate"),
        ({"sampling_rate": "half"}, "sampling_rate"),
        ({"n_groups": 0}, "n_groups"),
        ({"n_groups": 2.0}, "n_groups"),
        ({"docs_per_unit": 0}, "docs_per_unit"),
        ({"unit_key": ""}, "unit_key"),
        ({"unit_key": None}, "unit_key"),
        ({"random": np.random.default_rng(0)}, "SecureRandom"),
    ],
)
def test_bad_parameters(changes: Any, message: Any) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        sources(**changes)


def test_too_few_units() -> None:
    with pytest.raises(UnitError, match="n_groups is 21 and there are 20 units"):
        sources(n_groups=21)
    with pytest.raises(UnitError, match="no documents"):
        SampledGroups.from_documents([], unit_key="u", n_groups=1, sampling_rate=0.5)


def test_description_is_public() -> None:
    groups = sources(random=None)
    assert groups.description == {
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
    assert "NOT SECURE" not in repr(groups)
