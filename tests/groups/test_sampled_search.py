"""Sampling before the search, held against its claim for every coin and every neighbor.

All coins of small corpora are tried out, each with its exact probability, on the
library's own draw. Each slot says yes, no or nothing, three points of a plane that are
one apart, and what is released is their noisy sum. So a world is a mixture of
Gaussians, and its curve against the neighbor's, by numerical integration, must lie
below that of the event that is charged: the world with the unit against the one
without, and the other way round, each by itself, as they are composed. The twins are
ways to get it wrong: each exceeds the claim for some neighbors.
"""

from __future__ import annotations

import cmath
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from langchain_core.documents import Document
from scipy import stats
from support.groups_fakes import QUESTION, WordEmbedding, note, retrieved, units

from langchain_dpicl import InvalidParameterError, SampledGroups
from langchain_dpicl.groups import RetrievedGroups
from langchain_dpicl.mechanisms.random import SecureRandom, SeededRandom

Floats = npt.NDArray[np.float64]
Slots = list[list[Document]]
World = dict[complex, float]
"""A released statistic before its noise, and its probability over the coins."""

Z = 0.7
ORDERS = (-1.5, -0.5, 0.0, 0.3, 0.8, 1.5)
"""Epsilons at which curves are compared."""
STEP = 0.05
GRID = np.arange(-6.5, 6.5, STEP)


class Coins(SecureRandom):
    """Tosses what the test planned: for the coins of units one byte each."""

    is_seeded = True

    def __init__(self) -> None:
        super().__init__()
        self.coins: tuple[bool, ...] = ()

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        own = bytes(0 if coin else 255 for coin in self.coins)
        if not count:  # No unit's first byte leaves it open.
            return np.empty(0, np.uint64)
        assert count == -(-len(own) // 8)
        return np.frombuffer(own.ljust(8 * count, b"\xff"), "<u8").astype(np.uint64)


def statistic(slots: Slots) -> complex:
    """What groups say, added up: one slot changes it by 1."""
    found = sum(says(slot) for slot in slots)
    return complex(round(found.real, 9), round(found.imag, 9))


def says(slot: list[Document]) -> complex:
    third = 0 if not slot else 1 if "yes" in slot[0].page_content else 2
    return cmath.exp(2j * math.pi * third / 3) / math.sqrt(3)


Draw = Callable[[RetrievedGroups, Coins, int, float], World]


def by_units(groups: RetrievedGroups, coins: Coins, n: int, rate: float) -> World:
    """Return the world of a draw, over the coins of all units."""
    world: World = {}
    for tossed in itertools.product([False, True], repeat=n):
        coins.coins = tossed
        found = statistic(groups.draw(QUESTION))
        chance = math.prod(rate if coin else 1 - rate for coin in tossed)
        world[found] = world.get(found, 0.0) + chance
    return world


def masked(groups: RetrievedGroups, coins: Coins, n: int, rate: float) -> World:
    """The twin that masks who is not sampled, with ties by places among everybody.

    A person who is not sampled moves the places of others.
    """
    records = everybody(groups, coins, n)
    question = np.array(WordEmbedding().embed_query(QUESTION))
    rows = np.array([WordEmbedding().embed_query(d.page_content) for d in records])
    scores = rows @ question / np.linalg.norm(rows, axis=1)
    places = [(3 * row) % len(records) for row in range(len(records))]
    order = np.lexsort((places, -scores.round(4)))
    world: World = {}
    for tossed in itertools.product([False, True], repeat=n):
        kept = {f"u{i}" for i, coin in enumerate(tossed) if coin}
        best = [records[row] for row in order if records[row].metadata["unit"] in kept]
        value = statistic([best[:1]])
        chance = math.prod(rate if coin else 1 - rate for coin in tossed)
        world[value] = world.get(value, 0.0) + chance
    return world


def everybody(groups: RetrievedGroups, coins: Coins, n: int) -> list[Document]:
    """Return all records of n units, found one unit at a time."""
    found = []
    for unit in range(n):
        coins.coins = tuple(other == unit for other in range(n))
        found += [one for slot in groups.draw(QUESTION) for one in slot]
    return sorted(found, key=lambda one: one.metadata["unit"])


def search_first(groups: RetrievedGroups, coins: Coins, n: int, rate: float) -> World:
    """The twin that searches everybody, and samples whom it found."""
    records = everybody(groups, coins, n)
    whole = retrieved(records, n_groups=groups.n_groups, docs_per_group=1)
    slots = whole.draw(QUESTION)
    found = sorted({d.metadata["unit"] for slot in slots for d in slot})
    world: World = {}
    for tossed in itertools.product([False, True], repeat=len(found)):
        kept = {unit for unit, coin in zip(found, tossed, strict=True) if coin}
        left = [[d for d in slot if d.metadata["unit"] in kept] for slot in slots]
        chance = math.prod(rate if coin else 1 - rate for coin in tossed)
        value = statistic(left)
        world[value] = world.get(value, 0.0) + chance
    return world


def curves(one: World, other: World) -> list[float]:
    """Return the hockey-stick divergences of two released worlds."""
    own, others = density(frozenset(one.items())), density(frozenset(other.items()))
    return [
        float(np.maximum(own - math.exp(epsilon) * others, 0).sum()) * STEP**2
        for epsilon in ORDERS
    ]


@functools.lru_cache(64)
def density(world: frozenset[tuple[complex, float]]) -> Floats:
    """Return the density of a world; most corpora share theirs with others."""
    found = np.zeros((len(GRID), len(GRID)))
    for at, chance in world:
        one = chance * stats.norm.pdf(GRID, at.real, Z)[:, None]
        found += one * stats.norm.pdf(GRID, at.imag, Z)
    return found


@functools.cache
def claim(rate: float) -> tuple[list[float], list[float]]:
    """Return the curves of the event, with the unit against without, and back."""
    plain, mixed = {0j: 1.0}, {0j: 1 - rate, 1 + 0j: rate}
    return curves(mixed, plain), curves(plain, mixed)


def excess(with_unit: World, without: World, rate: float) -> float:
    """Return by how much the worlds exceed the claim, at most."""
    there, back = claim(rate)
    found = [*curves(with_unit, without), *curves(without, with_unit)]
    return max(np.subtract(found, [*there, *back]))


TEXTS = ("cough yes", "cough no", "fever yes")


def corpora(units: int) -> Iterator[list[Document]]:
    names = [f"u{i}" for i in range(units)]
    for texts in itertools.product(TEXTS, repeat=units):
        yield [
            note(name, text, ward=name in ("u0", "u2", "u3"))
            for name, text in zip(names, texts, strict=True)
        ]


def neighbors(
    draw: Draw,
    rate: float,
    *,
    n_groups: int,
    units: int = 4,
    only: Any = None,
) -> Iterator[tuple[World, World]]:
    """Yield the worlds with and without the last unit, for all small corpora."""
    for corpus in corpora(units):
        worlds = []
        for own in (corpus, corpus[:-1]):
            coins = Coins()
            groups = retrieved(
                own,
                n_groups=n_groups,
                docs_per_group=1,
                sampling_rate=rate,
                random=coins,
            )
            if only is not None:
                groups = groups.where(only)
            worlds.append(draw(groups, coins, len(own), rate))
        yield worlds[0], worlds[1]


TINY = 1e-4
"""Errors of the numerical integration."""


@pytest.mark.parametrize(
    ("rate", "n_groups"),
    [
        (0.25, 1),
        (0.5, 2),
        pytest.param(0.25, 2, marks=pytest.mark.whole),
        pytest.param(0.5, 1, marks=pytest.mark.whole),
    ],
)
def test_every_neighbor_is_within_the_sampled_gaussian(
    rate: float, n_groups: int
) -> None:
    found = [excess(*w, rate) for w in neighbors(by_units, rate, n_groups=n_groups)]
    assert max(found) < TINY
    # The claim is reached: it is no loose bound that anything would satisfy.
    assert max(found) > -TINY


@pytest.mark.parametrize("ward", [True, False])
def test_every_neighbor_is_within_it_with_a_filter(ward: bool) -> None:
    worlds = list(neighbors(by_units, 0.25, n_groups=1, only={"ward": ward}))
    found = [excess(*w, 0.25) for w in worlds]
    assert max(found) < TINY
    if ward:
        assert max(found) > -TINY
    else:
        # The last unit does not match: its coming changes nothing.
        assert all(within == without for within, without in worlds)


@pytest.mark.parametrize("twin", [search_first, masked])
def test_twins_of_the_sampling_exceed_the_claim(twin: Draw) -> None:
    found = [excess(*w, 0.25) for w in neighbors(twin, 0.25, n_groups=1)]
    assert max(found) > 30 * TINY


def test_a_sensitivity_of_one_is_no_claim() -> None:
    """The twin takes the change of a slot for 1 where an answer becomes another."""
    narrow = {0j: 0.75, complex(1 / math.sqrt(2)): 0.25}
    claimed = [*curves(narrow, {0j: 1.0}), *curves({0j: 1.0}, narrow)]
    found = [
        max(np.subtract([*curves(*pair), *curves(*pair[::-1])], claimed))
        for pair in neighbors(by_units, 0.25, n_groups=1, units=2)
    ]
    assert max(found) > 100 * TINY


def test_two_draws_on_one_sample_are_no_two_sampled_releases() -> None:
    """The twin shares its coins between two releases, such as a gate and the answer."""
    corpus = [note("u0", "cough yes")]
    twice = {}
    for own in (corpus, []):
        coins = Coins()
        groups = retrieved(
            own, n_groups=1, docs_per_group=1, sampling_rate=0.25, random=coins
        )
        twice[len(own)] = by_units(groups, coins, len(own), 0.25)
    # Two draws, each with noise of its own: with shared coins both move together.
    alone = {z - 0j: p for z, p in twice[1].items()}
    (nothing,) = twice[0]
    together = {nothing + (z - nothing) * math.sqrt(2): p for z, p in alone.items()}
    shared = curves(together, {nothing: 1.0})
    # Two Poisson samples: the density ratio of the sum of two independent losses.
    apart: list[float] = []
    one, plain = (density(frozenset(w.items())) for w in (alone, twice[0]))
    losses = np.log(one) - np.log(plain)
    weights = one * STEP**2
    edges = np.linspace(losses.min(), losses.max() + 1e-9, 400)
    mass, _ = np.histogram(losses, edges, weights=weights)
    middle = (edges[1:] + edges[:-1]) / 2
    total = middle[:, None] + middle[None, :]
    both = mass[:, None] * mass[None, :]
    for epsilon in ORDERS:
        kept = np.maximum(1 - np.exp(epsilon - total), 0)
        apart.append(float((both * kept).sum()))
    assert max(np.subtract(shared, apart)) > 0.01


# ---- what a sampled search is --------------------------------------------------------


def test_a_sampled_search_finds_what_a_search_of_the_sample_would() -> None:
    # Ties are broken by content: equal texts, in any sample.
    corpus = [note(f"u{i}", "cough" if i % 3 else f"cough {i}") for i in range(90)]
    terms: dict[str, Any] = {"n_groups": 2, "docs_per_group": 4}
    for seed in range(20):
        given = {**terms, "sampling_rate": 0.5}
        groups = retrieved(corpus, random=SeededRandom(seed), **given)
        given["docs_per_group"] = 1000
        sample = units(retrieved(corpus, random=SeededRandom(seed), **given).draw("q"))
        rest = [one for one in corpus if one.metadata["unit"] in sample]
        assert groups.draw(QUESTION) == retrieved(rest, **terms).draw(QUESTION)


def test_the_rate_is_saved_and_told(tmp_path: Any) -> None:
    groups = retrieved([note(1, "rash")], n_groups=1, sampling_rate=0.25)
    assert "sampling_rate=0.25" in repr(groups)
    groups.save(tmp_path / "saved")
    loaded = RetrievedGroups.load(tmp_path / "saved", WordEmbedding())
    assert loaded.sampling_rate == loaded.description["sampling_rate"] == 0.25


def test_rates_for_people_per_question() -> None:
    assert RetrievedGroups.rate_for(1600, n_groups=100) == 0.125
    assert RetrievedGroups.rate_for(100, n_groups=100) == 1.0
    assert RetrievedGroups.rate_for(3000, 100, people_per_group=3) == 0.1
    for wrong in ((0, 100, 2), (100, 0, 2), (100, 10, 0), ("a", 10, 2)):
        with pytest.raises(InvalidParameterError):
            SampledGroups.rate_for(*wrong)  # type: ignore[arg-type] # what is tested
