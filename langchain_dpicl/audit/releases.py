"""Worst-case neighbors of every release, run through the shipped function.

There is one entry for each row of ARCHITECTURE.md's table of proofs. Its template says
what is charged, and the noise is read back from those events. A law is exact where one
64-bit word, or finitely many draws, decide the outcome. Otherwise outcomes are drawn;
those of a vector's coordinates side by side, as the noise of each is its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_dpicl.accounting import Event, EventTemplate
from langchain_dpicl.audit.exact import Law, exact_law, product
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.mechanisms import (
    agreement,
    embedding,
    keyword_joint,
    keyword_ptr,
    keyword_threshold,
    next_token,
    ptr_curve,
    randomized_response,
    selection,
    sensitivity,
    table_statistics,
    threshold_curve,
    voting,
)
from langchain_dpicl.mechanisms.source import SecureRandom

Floats = npt.NDArray[np.float64]

DELTA0 = 1e-3
_ORDER, _DIVERGENCE = 32.0, 0.5
_SIDE_BY_SIDE = 10  # Draws for the price of one, where coordinates are drawn together.
_WIDTH = 250
"""Pairs of coordinates that one call of a vector's release draws."""

_REPLACE, _ADD = Relation.REPLACE, Relation.ADD_REMOVE


@dataclass(frozen=True, repr=False)
class Exact:
    """Two neighbors' laws, computed."""

    laws: tuple[Law, Law]


@dataclass(frozen=True, repr=False)
class Sampled:
    """Two neighbors' statistic, drawn.

    Attributes:
        draw: From the world (0 or 1) and a number of draws to that many figures. Those
            of world 1 tend to be larger.
        cuts: Thresholds, chosen beforehand.
        times: How many times the usual number of draws are cheap.
    """

    draw: Callable[[int, int], Floats]
    cuts: tuple[float, ...]
    times: int = _SIDE_BY_SIDE


@dataclass(frozen=True, repr=False)
class Claim:
    """What a release is charged, and neighbors to hold it against.

    Attributes:
        events: What the template charges.
        delta: At which delta the two are compared.
        pairs: The neighbors.
    """

    events: tuple[Event, ...]
    delta: float
    pairs: Sequence[Exact | Sampled]


def _charged(template: EventTemplate[Any]) -> tuple[tuple[Event, ...], dict[str, Any]]:
    """Return what a release is charged, and the noise that this pays for."""
    events = template.events(1.0, DELTA0 if template.needs_delta0 else 0.0)
    return events, {k: v for k, v in vars(template.read(events)).items() if v}


def _cuts(middle: float, deviation: float) -> tuple[float, ...]:
    return tuple(middle + deviation * at for at in (-1.5, -1, -0.5, 0.5, 1, 1.5))


def _chunks(number: int) -> int:
    return -(-number // _WIDTH)


def _votes_replaced() -> Claim:
    events, noise = _charged(voting.vote_template("audit", 1.0))

    def draw(world: int, number: int) -> Floats:
        counts = [19 + world, 21 - world] * number
        noisy = voting.noisy_counts(counts, relation=_REPLACE, **noise)
        return noisy[::2] - noisy[1::2]

    return Claim(events, 0.05, [Sampled(draw, _cuts(-1.0, 2.0))])


def _votes_added() -> Claim:
    events, noise = _charged(voting.vote_template("audit", 1.0))

    def law(world: int, cut: float) -> Law:
        def draw(source: SecureRandom) -> bool:
            [noisy] = voting.noisy_counts(
                [10 + world], relation=_ADD, random=source, **noise
            )
            return bool(noisy >= cut)

        return exact_law(draw)

    return Claim(events, 2 * DELTA0, _at_cuts(law))


def _at_cuts(law: Callable[[int, float], Law]) -> list[Exact]:
    """Return the laws of whether a noisy 10 or 11 reaches a cut, for several cuts."""
    return [Exact((law(0, cut), law(1, cut))) for cut in (11.0, 12.0, 13.4)]


def _flip() -> Claim:
    events, noise = _charged(selection.flip_template("audit", 1.0))
    reach = sensitivity.vote_linf(_REPLACE)

    def law(world: int) -> Law:
        return exact_law(
            lambda source: selection.permute_and_flip(
                [4.0 + world, 7.0 - world], sensitivity=reach, random=source, **noise
            )
        )

    return Claim(events, DELTA0, [Exact((law(0), law(1)))])


def _sum() -> Claim:
    events, noise = _charged(embedding.sum_template("audit", 1.0))

    def draw(world: int, number: int) -> Floats:
        rows = np.eye(_WIDTH) * (2 * world - 1)
        found = [
            embedding.noisy_sum(rows, radius=1.0, relation=_REPLACE, **noise)
            for _ in range(_chunks(number))
        ]
        return np.concatenate(found)[:number]

    return Claim(events, 0.05, [Sampled(draw, _cuts(0.0, 2.0))])


def _ptr() -> Claim:
    events, noise = _charged(keyword_ptr.ptr_template("audit", 1.0))

    def law(counts: Mapping[str, int]) -> Law:
        return exact_law(
            lambda source: keyword_ptr.ptr_top_k(
                counts, 1, relation=_REPLACE, random=source, **noise
            )
        )

    return Claim(events, 2 * DELTA0, _top_one(law, wide=4))


def _ptr_curve() -> Claim:
    template = ptr_curve.ptr_curve_template(
        "audit", order=_ORDER, divergence=_DIVERGENCE
    )
    events, noise = _charged(template)

    def law(counts: Mapping[str, int]) -> Law:
        return exact_law(
            lambda source: ptr_curve.curve_top_k(
                counts, 1, relation=_REPLACE, random=source, **noise
            )
        )

    return Claim(events, 2 * DELTA0, _top_one(law, wide=12))


def _top_one(law: Callable[[Mapping[str, int]], Law], wide: int) -> list[Exact]:
    """Return neighbors with the same word on top, one gap 2 wider; and with another."""
    near = [(gap, {"a": gap + 5, "b": 5}) for gap in range(2, wide + 1, 2)]
    pairs = [Exact((law(counts), law({"a": gap + 6, "b": 4}))) for gap, counts in near]
    return [*pairs, Exact((law({"a": 60, "b": 61}), law({"a": 61, "b": 60})))]


def _choose() -> Claim:
    events, noise = _charged(
        keyword_ptr.ptr_range_template("audit", 1.0, selection_epsilon=1.0)
    )
    epsilon = noise["selection_epsilon"]

    def law(counts: Mapping[str, int]) -> Law:
        return exact_law(
            lambda source: keyword_ptr.choose_k(
                counts, (1, 2), epsilon=epsilon, relation=_REPLACE, random=source
            )
        )

    # The choice alone, so that the test that follows hides nothing.
    laws = law({"a": 20, "b": 19, "c": 4}), law({"a": 21, "b": 18, "c": 5})
    return Claim(events[:1], DELTA0, [Exact(laws)])


def _threshold(relation: Relation) -> Claim:
    events, noise = _charged(keyword_threshold.threshold_template("audit", 1.0))

    def law(count: int) -> Law:
        return exact_law(
            lambda source: bool(
                keyword_threshold.threshold_words(
                    {"a": count}, 1, relation=relation, random=source, **noise
                )
            )
        )

    return Claim(events, 2 * DELTA0, _words(law, relation, range(1, 9)))


def _words(
    law: Callable[[int], Law], relation: Relation, counts: Sequence[int]
) -> list[Exact]:
    """Return neighbors with one count 1 lower, and the other one's 1 higher."""
    laws = [law(count) for count in (0, *counts)]
    if relation is _ADD:
        return [Exact(pair) for pair in itertools.pairwise(laws)]
    return [
        Exact((product(low, other), product(high, laws[at])))
        for low, high in itertools.pairwise(laws)
        for at, other in enumerate(laws[1:])
    ]


def _threshold_curve() -> Claim:
    template = threshold_curve.threshold_curve_template(
        "audit", order=_ORDER, divergence=_DIVERGENCE
    )
    events, noise = _charged(template)

    def law(count: int) -> Law:
        return exact_law(
            lambda source: bool(
                threshold_curve.curve_words(
                    {"a": count}, 1, relation=_REPLACE, random=source, **noise
                )
            )
        )

    return Claim(events, 2 * DELTA0, _words(law, _REPLACE, range(1, 24)))


def _joint() -> Claim:
    events, noise = _charged(keyword_joint.joint_template("audit", 1.0))

    def law(counts: Sequence[int]) -> Law:
        return exact_law(
            lambda source: tuple(
                keyword_joint.joint_top_k(
                    counts, 2, relation=_REPLACE, random=source, **noise
                )
            )
        )

    return Claim(events, 1e-4, [Exact((law([9, 3, 1]), law([10, 2, 2])))])


def _agreement() -> Claim:
    events, noise = _charged(agreement.agreement_template("audit", 1.0))

    def law(world: int, cut: float) -> Law:
        return exact_law(
            lambda source: agreement.exceeds(
                10 + world, cut, relation=_REPLACE, random=source, **noise
            )
        )

    return Claim(events, 2 * DELTA0, _at_cuts(law))


def _token() -> Claim:
    events, noise = _charged(next_token.next_token_template("audit", 1.0))

    def draw(world: int, number: int) -> Floats:
        rows = np.zeros((_WIDTH, 2 * _WIDTH))
        rows[np.arange(_WIDTH), 2 * np.arange(_WIDTH) + 1 - world] = 1.0
        found = [
            next_token.noisy_next_token(rows, relation=_REPLACE, **noise)
            for _ in range(_chunks(number))
        ]
        return np.concatenate([one[::2] - one[1::2] for one in found])[:number]

    return Claim(events, 0.05, [Sampled(draw, _cuts(0.0, 2.0), times=2)])


def _max_token() -> Claim:
    events, noise = _charged(next_token.max_token_template("audit", 1.0))

    def law(world: int) -> Law:
        # The second token leads in both worlds, so that one word decides on the first.
        rows: list[list[float]] = [[0, 1], [0, 1], [world, 1 - world]]
        return exact_law(
            lambda source: next_token.noisy_max_next_token(
                rows, relation=_REPLACE, random=source, **noise
            )
        )

    return Claim(events, DELTA0, [Exact((law(0), law(1)))])


def _tallies() -> Claim:
    events, noise = _charged(table_statistics.tallies_template("audit", 1.0))

    def draw(world: int, number: int) -> Floats:
        [found] = table_statistics.noisy_tallies(
            [np.full(number, 2 * world)],
            epsilons=[noise["epsilon"]],
            bounds=[1],
            rows_per_unit=2,
        )
        return found.astype(np.float64)

    return Claim(events, DELTA0, [Sampled(draw, (-2, 0, 1, 2, 4))])


def _histograms() -> Claim:
    events, noise = _charged(table_statistics.histograms_template("audit", 1.0))

    def draw(world: int, number: int) -> Floats:
        tables = [np.full(number, 2 * world)] * 2
        one, other = table_statistics.noisy_histograms(tables, rows_per_unit=2, **noise)
        both: Floats = (one + other).astype(np.float64)
        return both

    return Claim(events, 0.05, [Sampled(draw, _cuts(2.0, 4.0))])


def _reports() -> Claim:
    events, noise = _charged(randomized_response.reports_template("audit", 1.0))

    def draw(world: int, number: int) -> Floats:
        codes = np.full(number, world)
        found = randomized_response.randomize(codes, domain_size=3, **noise)
        ones: Floats = (found == 1).astype(np.float64)
        return ones

    return Claim(events, DELTA0, [Sampled(draw, (0.5,))])


RELEASES: dict[tuple[str, str, str], Callable[[], Claim]] = {
    ("VoteOutputParser", "noisy_counts", "vote_template"): _votes_replaced,
    ("VoteOutputParser", "permute_and_flip", "flip_template"): _flip,
    ("ESAOutputParser", "noisy_sum", "sum_template"): _sum,
    ("ESAOutputParser", "noisy_counts", "vote_template"): _votes_replaced,
    ("KSAPTROutputParser", "ptr_top_k", "ptr_template"): _ptr,
    ("KSAPTROutputParser", "curve_top_k", "ptr_curve_template"): _ptr_curve,
    ("KSAPTROutputParser", "choose_k", "ptr_range_template"): _choose,
    ("KSAThresholdOutputParser", "threshold_words", "threshold_template"): (
        lambda: _threshold(_REPLACE)
    ),
    ("KSAThresholdOutputParser", "curve_words", "threshold_curve_template"): (
        _threshold_curve
    ),
    ("KSAJointOutputParser", "joint_top_k", "joint_template"): _joint,
    ("PublicFirstGate", "exceeds", "agreement_template"): _agreement,
    ("NoisyThreshold", "noisy_counts", "vote_template"): _votes_added,
    ("DPFewShotGenerator", "noisy_next_token", "next_token_template"): _token,
    ("DPFewShotGenerator", "noisy_max_next_token", "max_token_template"): _max_token,
    ("GDPTable", "noisy_tallies", "tallies_template"): _tallies,
    ("GDPTable", "noisy_histograms", "histograms_template"): _histograms,
    ("GDPTable", "threshold_words", "threshold_template"): lambda: _threshold(_ADD),
    ("LDPTable", "randomize", "reports_template"): _reports,
}
"""Who makes a release, by which function, charged by which template."""
