"""Who fills which slots; thresholds, margins and targets on 300 people, replayed.

Each figure is held against an exact law, or counted over seeded releases of the people
of `support.insurance_chats`. The twins break the counting's side.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats
from suite import WHOLE
from support.insurance_chats import names, people, reply_of

from langchain_dpicl.accounting import Failure, Gaussian, Pure
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.insights import Insights
from langchain_dpicl.insights.reading import Reading, TopicReader
from langchain_dpicl.insights.run import forecast
from langchain_dpicl.insights.table import Layout, least, margin, threshold
from langchain_dpicl.insights.topics import Topics
from langchain_dpicl.mechanisms.random import seeded
from langchain_dpicl.mechanisms.slots import SlotNoise, noisy_slots
from langchain_dpicl.release.record import release_record
from langchain_dpicl.tabular.gdp.margins import SummedNoise

RELEASES = 600 if WHOLE else 200
EPSILONS = (1.0, 3.0, 8.0)

# ---- slots ---------------------------------------------------------------------------

LISTED = ["refunds", "fees", "login", "delay"]
READINGS = [
    None,
    *(
        Reading(topics, other)
        for size in range(5)
        for topics in itertools.permutations(range(4), size)
        for other in (None, "parking")
    ),
    Reading((1, 1, 0)),
]


@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_everybody_fills_as_many_different_rows(m: int) -> None:
    layout = Layout.of(LISTED, m)
    for reading in READINGS:
        found = layout.filled(reading)
        assert len(found) == len(set(found)) == m
        assert set(found) <= set(range(layout.shape[0]))
        if reading is None:
            assert found[0] == layout.not_read
        elif reading.other and m > 1:
            # An own topic has the last slot, and no third listed one stands beside it.
            assert found[-1] == layout.other
            assert found[: m - 1] == [*dict.fromkeys(reading.topics)][: m - 1] + [
                layout.other + slot for slot in range(len(reading.topics) + 1, m)
            ]
        elif reading.topics:
            assert found[0] == reading.topics[0]


def test_a_person_has_one_value_of_an_attribute_by_the_own_records() -> None:
    layout = Layout.of(LISTED, 2, {"plan": ["basic", "plus"], "month": ["may"]})
    assert layout.by == {"plan": ("basic", "plus", "other"), "month": ("may", "other")}

    def column(*plans: Any, month: str = "may") -> int:
        return layout.column({"plan": plan, "month": month} for plan in plans)

    assert column("plus", " BASIC ", "plus") == 1
    assert column("plus", "basic") == 0
    assert column(None, 7, "gold", "Ada's own") == 2
    assert column("plus", month="june") == 4
    # JSON may hold integers that have no text, and one person's must stop nobody.
    assert column(10**5_000, "plus") == 1
    assert (column(), layout.shape[1]) == (5, 6)


@pytest.mark.parametrize(
    ("terms", "named"),
    [
        ({"slots": 0}, "max_topics"),
        ({"slots": 9}, "max_topics"),
        ({"by": {"plan": []}}, "by must"),
        ({"by": {"plan": "basic"}}, "by must"),
        ({"by": ["plan"]}, "by must"),
        ({"by": {"plan": ["a", "A"]}}, "twice"),
        ({"by": {name: list("abcdefghij") for name in "qrstuv"}}, "cells"),
    ],
)
def test_tables_that_make_no_sense_are_refused(terms: Any, named: str) -> None:
    with pytest.raises(InvalidParameterError, match=named):
        Layout.of(**{"topics": LISTED, "slots": 2, **terms})


# ---- thresholds and margins ----------------------------------------------------------


def tail(a: float, t: int) -> float:
    """Return P(K >= t) of geometric noise, for t of 1 or more."""
    return math.exp(-a * t) / (1 + math.exp(-a))


@pytest.mark.parametrize("among", [1, 30, 500])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_thresholds_are_the_least_whole_ones(epsilon: float, among: int) -> None:
    a = epsilon / 2
    law = SummedNoise(SlotNoise.of([Pure(epsilon=epsilon)], 2).cell, 1)

    def false(t: int) -> float:
        return -math.expm1(among * math.log1p(-tail(a, t)))

    t = threshold(law, among)
    assert false(t) <= 0.01
    assert t == 1 or false(t - 1) > 0.01
    needed = least(law, among)
    assert 1 - tail(a, needed - t + 1) >= 0.95 > 1 - tail(a, needed - t)
    for told in (1, math.ceil(among / 4), among):
        error, rate = margin(law, told, among), 0.05 * told / among
        assert 2 * tail(a, error + 1) <= rate
        assert error == 1 or 2 * tail(a, error) > rate


def test_twin_thresholds_of_a_real_law_tell_topics_that_nobody_has() -> None:
    """The quantile of a Gaussian, held against whole noise, is passed too often."""
    rates = []
    for among in (30, 60, 120):
        for z in (0.5, 0.8, 1.0, 2.0, 4.0):
            sigma = SlotNoise.of([Gaussian(noise_multiplier=z)], 2).cell.scale
            each = -math.expm1(math.log1p(-0.01) / among)
            real = math.ceil(float(stats.norm.isf(each)) * float(sigma))
            law = SummedNoise(SlotNoise.of([Gaussian(noise_multiplier=z)], 2).cell, 1)
            whole = threshold(law, among)
            assert -math.expm1(among * math.log1p(-law.reached(whole))) <= 0.01
            rates.append(-math.expm1(among * math.log1p(-law.reached(real))))
    assert max(rates) > 0.011


def figures(**terms: Any) -> list[tuple[int, ...]]:
    listed = [f"topic {n}" for n in range(terms.pop("among", 30))]
    found = [forecast(listed, epsilon=e, delta=1e-6, **terms) for e in EPSILONS]
    return list(
        zip(
            *[(f.threshold, f.least, f.error, f.least_other) for f in found],
            strict=True,
        )
    )


def test_the_figures_that_are_promised_for_two_topics_a_person() -> None:
    # least counts that are told; that come out in 95 %; margins; "other".
    assert figures() == [(16, 6, 2), (21, 7, 2), (9, 3, 1), (14, 4, 2)]
    assert figures(among=60)[0] == (17, 6, 3)
    assert figures(among=120)[0] == (18, 7, 3)
    assert figures(max_topics=3)[1] == (30, 10, 4)
    declared = [
        forecast(LISTED, epsilon=e, delta=1e-6, people_at_most=10_000) for e in EPSILONS
    ]
    assert [f.least_word for f in declared] == [63, 22, 9]
    assert [f.least_other for f in declared] == [26, 9, 4]
    crossed = [
        forecast(names(), epsilon=e, delta=1e-6, by={"plan": ["basic", "plus"]})
        for e in EPSILONS
    ]
    assert [f.least for f in crossed] == [30, 10, 4]
    assert [f.least_by["plan"] for f in crossed] == [23, 7, 3]


def test_words_are_on_where_enough_are_declared_and_never_by_the_records() -> None:
    for epsilon, least_people in ((1.0, 1_400), (3.0, 480), (8.0, 180)):
        terms: Any = {"epsilon": epsilon, "delta": 1e-6}
        found = forecast(LISTED, people_at_most=least_people, **terms)
        assert found.least_word is not None
        below = forecast(LISTED, people_at_most=least_people // 2, **terms)
        assert below.least_word is forecast(LISTED, **terms).least_word is None


# ---- 300 people, replayed ------------------------------------------------------------


@cache
def readings(m: int = 2) -> list[Reading | None]:
    """Return what replies of many forms say of the 300 people."""
    reader = TopicReader(Topics.of(names()), m)
    return [reader.reading([reader.parse(reply_of(person))]) for person in people()]


def record_of(layout: Layout, paid: Any) -> dict[str, Any]:
    parameters = {
        "topics": layout.topics.model_dump(mode="json"),
        "max_topics": layout.slots,
        "by": {name: list(values) for name, values in layout.by.items()},
        "people_at_most": None,
    }
    return release_record(
        kind="table",
        status="released",
        mechanism="insights",
        parameters=parameters,
        unit="a person",
        unit_key="user",
        relation="add_remove",
        neighbors="one person",
        events=paid,
        epsilon=99.0,
        delta=1e-6,
    )


@cache
def released(
    epsilon: float, m: int = 2, unused: int = 0, *, by: bool = False
) -> tuple[list[Insights], Counter[Any]]:
    """Return seeded releases of the 300 people, and the true number of each topic."""
    listed = [*names(), *(f"unused {n}" for n in range(unused))]
    layout = Layout.of(
        {"a": listed[:10], "b": listed[10:]},
        m,
        {"half": ["odd", "even"]} if by else {},
    )
    rows = [layout.filled(reading) for reading in readings(m)]
    columns = [n % 2 if by else 0 for n in range(len(rows))]
    paid = [Pure(epsilon=epsilon)]
    truth: Counter[Any] = Counter(
        pair
        for row, column in zip(rows, columns, strict=True)
        for place in row
        for pair in (place, (place, column))
    )
    record = record_of(layout, paid)
    found = []
    with seeded(int(epsilon) + 10 * m):
        for _ in range(RELEASES):
            table, words = noisy_slots(
                np.array(rows),
                columns,
                [None] * len(rows),
                paid,
                shape=layout.shape,
                other=layout.other,
            )
            found.append(Insights(record, table, words))
    return found, truth


def test_replies_of_all_forms_are_read_as_they_were_meant() -> None:
    places = {name: place for place, name in enumerate(names())}
    for person, reading in zip(people(), readings(), strict=True):
        assert reading is not None
        assert [*reading.topics] == [places[topic] for topic in person["yes"]]


@pytest.mark.parametrize(
    ("epsilon", "needed", "told", "unused"),
    [(1.0, 25, 6, 30), (3.0, 9, 21, 30), (8.0, 4, 29, 30), (3.0, 9, 21, 90)],
)
def test_targets_of_listed_topics(
    epsilon: float, needed: int, told: int, unused: int
) -> None:
    found, truth = released(epsilon, unused=unused)
    often = Counter(topic.name for one in found for topic in one.topics)
    listed = found[0].listed.names
    for place, name in enumerate(listed[:30]):
        if truth[place] >= needed:
            assert often[name] >= 0.95 * RELEASES
    assert sum(truth[place] >= needed for place in range(30)) >= 3
    # Those that nobody has: each in 1 % at most, and all together as well.
    false = sum(
        any(topic.name.startswith("unused") for topic in one.topics) for one in found
    )
    assert stats.binom.sf(false - 1, RELEASES, 0.01) > 1e-6
    if unused == 30:
        fewer, _ = released(epsilon)
        assert sum(len(one.topics) for one in fewer) / RELEASES >= told - 0.5


def held(found: list[Insights], truth: Any, error: Callable[..., float]) -> float:
    """Return how many of the stated margins hold."""
    stated = [
        abs(topic.count - truth[one.listed.names.index(topic.name)])
        <= error(one, topic)
        for one in found
        for topic in one.topics
    ]
    return sum(stated) / len(stated)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_margins_hold_for_what_is_told(epsilon: float) -> None:
    found, truth = released(epsilon)
    assert held(found, truth, lambda _one, topic: topic.error) >= 0.95
    for one in found[:20]:
        assert all(topic.error >= 1 for topic in one.topics)
        ranked = [topic.count for topic in one.topics]
        assert ranked == sorted(ranked, reverse=True)
        assert set(one.too_few) == set(one.listed.names) - {t.name for t in one.topics}
    sizes = [abs(one.people.count - 300) <= one.people.error for one in found]
    assert sum(sizes) >= 0.93 * RELEASES
    empty = [abs(one.empty[1].count - truth[32]) <= one.empty[1].error for one in found]
    assert sum(empty) >= 0.93 * RELEASES


def test_twins_of_margins_hold_too_seldom() -> None:
    found, truth = released(1.0)
    law = SummedNoise(SlotNoise.of([Pure(epsilon=1.0)], 2).cell, 1)
    two = 2 * law.standard_deviation
    assert held(found, truth, lambda _one, _topic: two) < 0.95
    # Whatever was told: the margin of a single number.
    assert held(found, truth, lambda _one, _topic: law.margin(0.05)) < 0.95


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_groups_are_sums_of_all_their_topics(epsilon: float) -> None:
    found, truth = released(epsilon)
    for group, places in (("a", range(10)), ("b", range(10, 30))):
        true = sum(truth[place] for place in places)
        stated = [one for each in found for one in each.groups if one.name == group]
        assert len(stated) >= 0.99 * RELEASES
        assert np.mean([abs(one.count - true) <= one.error for one in stated]) >= 0.93
        mean = np.mean([one.count for one in stated])
        assert mean == pytest.approx(true, abs=4 * stated[0].error / RELEASES**0.5)
    if epsilon == 1.0:
        # The twin: told topics alone.
        told = np.mean(
            [sum(t.count for t in one.topics if t.group == "b") for one in found]
        )
        assert told < 0.8 * sum(truth[place] for place in range(10, 30))


@pytest.mark.parametrize("epsilon", EPSILONS if WHOLE else (3.0,))
def test_crossed_topics_add_up_and_their_margins_hold(epsilon: float) -> None:
    found, truth = released(epsilon, by=True)
    places = {name: place for place, name in enumerate(names())}
    stated = [
        abs(topic.count - truth[places[topic.name], column]) <= topic.error
        for one in found
        for column, value in enumerate(("odd", "even", "other"))
        for topic in one.by["half"][value].topics
    ]
    assert np.mean(stated) >= 0.95
    assert held(found, truth, lambda _one, topic: topic.error) >= 0.95
    sizes = [abs(one.by["half"]["odd"].people.count - 150) for one in found]
    error = found[0].by["half"]["odd"].people.error
    assert np.mean([size <= error for size in sizes]) >= 0.93
    assert all(
        topic.name.startswith("unused") or truth[places[topic.name]]
        for one in found
        for topic in one.topics
    )


@pytest.mark.parametrize(("epsilon", "needed"), [(1.0, 67), (3.0, 23), (8.0, 9)])
def test_a_word_that_enough_people_share_comes_out(epsilon: float, needed: int) -> None:
    paid = [Pure(epsilon=epsilon), Failure(delta0=0.99e-6)]
    with seeded(int(epsilon)):
        drawn = [
            noisy_slots(
                [[0, 3]] * needed + [[0, 3]],
                [0] * (needed + 1),
                ["parking"] * needed + ["Ada"],
                paid,
                shape=(6, 1),
                other=3,
            )[1]
            for _ in range(RELEASES)
        ]
    assert sum("parking" in words for words in drawn) >= 0.95 * RELEASES
    assert not any("Ada" in words for words in drawn)
