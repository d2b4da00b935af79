"""Each token is drawn by the law that was charged, of fresh samples, groups and noise.

The sum of M distributions gets the charged noise, and its largest entry comes out; or
the token is drawn by noisy max at the charged epsilon. At every token each person is in
the sample by a fresh coin, in one group of those that are dealt afresh. What a group
does not say counts for nothing, and decides nothing.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import pytest
from faces import InvalidParameterError, Words, few_shot, generator
from scipy.stats import chisquare, expon, norm

WORDS = ("none", "red", "green", "blue", "one")
LIKES = [0.02, 0.33, 0.30, 0.20, 0.15]
GROUPS = 20
TOKENS = 400
LEAST = 1e-6
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def people(count: int) -> list[dict[str, str]]:
    """Return a record of each of so many people, who are told apart in a prompt."""
    return [{"text": f"red p{number}.", "label": "color"} for number in range(count)]


class Text:
    """One long text that is written of so many people, and how it was written."""

    def __init__(self, count: int, likes: Any, seed: int = 5, **terms: Any) -> None:
        self.model = Words(WORDS, likes)
        terms = {"n_groups": GROUPS, "max_tokens": TOKENS, "top_k_public": 5, **terms}
        # Everybody is in every sample, unless terms say so.
        terms.setdefault("records_per_group", count / terms["n_groups"])
        made = generator(self.model, ["color"], seed=seed, **terms)
        self.examples = made.generate(people(count), progress=False)
        (self.event,) = self.examples.record["events"]
        assert self.event["count"] == terms["max_tokens"]
        # All tokens but the last, which was never asked behind.
        self.tokens = max((tokens for _, tokens, _ in self.model.asked), key=len)
        self.found = Counter(self.tokens)


def gaussian_law(sums: Any, z: float) -> Any:
    """Return how often each sum is the largest, with noise for a distance of sqrt 2."""
    sigma = z * math.sqrt(2)
    return largest(sums, norm(scale=sigma), np.linspace(-9, 9, 4001) * sigma)


def noisy_max_law(sums: Any, epsilon: float) -> Any:
    """Return the same with exponential noise of scale 2 / epsilon."""
    scale = 2 / epsilon
    return largest(sums, expon(scale=scale), np.linspace(0, 40, 40_001) * scale)


def largest(sums: Any, noise: Any, grid: Any) -> Any:
    """Return how often each sum is the largest after noise, by integration."""
    below = [[noise.cdf(grid + a - b) for b in sums if b != a] for a in sums]
    density = noise.pdf(grid)
    return np.array([np.trapezoid(density * np.prod(row, 0), grid) for row in below])


def check_law(found: Counter[int], law: Any) -> None:
    """Check tokens against the probabilities of their law."""
    wanted = np.array(law) * found.total()
    seen = np.array([found[token] for token in range(len(law))])
    rare = wanted < 5
    if rare.any():
        seen = np.append(seen[~rare], seen[rare].sum())
        wanted = np.append(wanted[~rare], wanted[rare].sum())
    assert sum(law) == pytest.approx(1, abs=1e-3)
    assert chisquare(seen, wanted, sum_check=False).pvalue > LEAST


@cache
def equal_groups(mechanism: str) -> Text:
    """Write a text where all groups like the same words."""
    epsilon = 200.0 if mechanism == "gaussian" else 400.0
    return Text(GROUPS, lambda *_: LIKES, mechanism=mechanism, epsilon=epsilon)


def charged_law(mechanism: str, factor: float = 1.0) -> Any:
    """Return the law at the noise that was charged, or a multiple of it."""
    event = equal_groups(mechanism).event
    if mechanism == "gaussian":
        sums = [GROUPS * p for p in LIKES]
        return gaussian_law(sums, factor * event["noise_multiplier"])
    sums = [GROUPS * p / max(LIKES) for p in LIKES]
    return noisy_max_law(sums, event["epsilon"] / factor)


@pytest.mark.promise("token-law", "noise-by-charge")
@pytest.mark.parametrize("mechanism", ["gaussian", "noisy_max"])
def test_tokens_have_the_law_of_the_charged_noise(mechanism: str) -> None:
    check_law(equal_groups(mechanism).found, charged_law(mechanism))


@pytest.mark.promise("token-law", twin=True)
@pytest.mark.parametrize("mechanism", ["gaussian", "noisy_max"])
@pytest.mark.parametrize("factor", [0.5, 2])
def test_twin_of_another_noise(mechanism: str, factor: float) -> None:
    with pytest.raises(AssertionError):
        check_law(equal_groups(mechanism).found, charged_law(mechanism, factor))


MISSING: dict[str, Any] = {
    "none": None,
    "all impossible": [0.0] * 5,
    "not numbers": [math.nan] * 5,
    "above one": [0.9] * 5,
}


@pytest.mark.promise("token-missing")
@pytest.mark.parametrize(
    ("mechanism", "answer"),
    [*(("gaussian", answer) for answer in MISSING.values()), ("noisy_max", None)],
    ids=[*MISSING, "none, by noisy max"],
)
def test_where_no_group_says_anything_noise_alone_chooses(
    mechanism: str, answer: Any
) -> None:
    def likes(text: str, _tokens: Any) -> Any:
        return answer if re.search(r"p\d+\.", text) else LIKES

    # So many people that no group is empty: that would say what the public prompt does.
    terms = {"n_groups": 4, "max_tokens": 200, "epsilon": 60.0}
    text = Text(100, likes, mechanism=mechanism, **terms)
    check_law(text.found, [0.2] * 5)


@pytest.mark.promise("token-missing", twin=True)
def test_twin_whose_missing_figures_are_an_argmax() -> None:
    with pytest.raises(AssertionError):
        check_law(Counter({0: 399}), [0.2] * 5)


@pytest.mark.promise("token-missing")
def test_a_group_that_says_nothing_has_no_say() -> None:
    def likes(text: str, _tokens: Any) -> Any:
        found = re.search(r"p(\d+)\.", text)
        return None if found and int(found[1]) % 3 else LIKES

    text = Text(5 * GROUPS, likes, epsilon=60.0)
    z = text.event["noise_multiplier"]
    # One of those that answer is the public prompt.
    rows = Counter(
        len(tokens) for held, tokens, _ in text.model.asked if likes(held, 0)
    )
    sizes = Counter(rows[step] - 1 for step in range(TOKENS))
    law = sum(
        times / TOKENS * gaussian_law([n * p for p in LIKES], z)
        for n, times in sizes.items()
    )
    check_law(text.found, law)


@pytest.mark.promise("vocabulary-public")
@pytest.mark.promise("vocabulary-public", twin=True)
def test_what_is_chosen_among_follows_from_public_prompts() -> None:
    def likes(text: str, _tokens: Any) -> Any:
        return [0.0, 0.0, 0.0, 0.0, 1.0] if re.search(r"p\d+\.", text) else LIKES

    terms = {"n_groups": 5, "top_k_public": 3, "max_tokens": 30, "epsilon": 60.0}
    text = Text(10, likes, **terms)
    assert "one" not in text.examples[0]["text"].split()
    asked = [tuple(wanted) for _, _, wanted in text.model.asked]
    check_public(asked)
    # The twin: a vocabulary of what the groups like.
    private = [tuple(np.argsort(likes(held, 0))[-3:]) for held, *_ in text.model.asked]
    with pytest.raises(AssertionError):
        check_public(private)


def check_public(asked: list[tuple[int, ...]]) -> None:
    """Each step chooses among what the public prompt likes best."""
    assert {tuple(sorted(wanted)) for wanted in asked} == {(1, 2, 3)}


@pytest.mark.promise("no-truncation-after-selection")
def test_no_other_decoder_goes_with_noisy_max() -> None:
    terms = {"n_groups": 5, "records_per_group": 2, "max_tokens": 3}
    with pytest.raises(InvalidParameterError):
        generator(
            Words(WORDS, lambda *_: LIKES),
            ["color"],
            mechanism="noisy_max",
            decoder=few_shot.Sampling(top_p=0.5),
            **terms,
        )


@pytest.mark.promise("no-truncation-after-selection", twin=True)
def test_twin_that_drops_what_few_like() -> None:
    law = charged_law("noisy_max")
    # The likeliest token of each step, as a decoder with top_k=1 takes it.
    cut = Counter({int(np.argmax(law)): 4_000})
    with pytest.raises(AssertionError):
        check_law(cut, law)


# --- freshness ------------------------------------------------------------------------

PEOPLE, RATE, STEPS = 100, 0.2, 160
Groups = list[list[list[int]]]
SIGMAS = 5.2


@cache
def dealt() -> tuple[Groups, tuple[int, ...]]:
    """Return who is in which group at each token, and the tokens."""
    terms = {"n_groups": 10, "records_per_group": 2, "max_tokens": STEPS}
    text = Text(PEOPLE, lambda *_: [0.2] * 5, epsilon=100.0, **terms)
    steps: Groups = [[] for _ in range(STEPS)]
    for held, tokens, _ in text.model.asked:
        if group := [int(number) for number in re.findall(r"p(\d+)\.", held)]:
            steps[len(tokens)].append(group)
    return steps, text.tokens


def check_fresh(steps: Groups) -> None:
    """Check that samples and groups are those of independent coins."""
    for groups in steps:
        held = [person for group in groups for person in group]
        assert len(held) == len(set(held)), "somebody is in two groups"
    sizes = np.array([sum(map(len, groups)) for groups in steps])
    spread = PEOPLE * RATE * (1 - RATE)
    near(sizes.mean(), PEOPLE * RATE, spread / len(steps))
    near(((sizes - PEOPLE * RATE) ** 2).mean(), spread, 2.1 * spread**2 / len(steps))
    # Each group's size is that of a coin a person: places are not dealt in turn.
    each = [len(group) for groups in steps for group in groups]
    squares = sum((size - 2) ** 2 for size in each) + 4 * (10 * len(steps) - len(each))
    near(squares / (10 * len(steps)), 1.96, 1 / len(steps))
    pairs = list(zip(steps[::2], steps[1::2], strict=True))
    common = [len(set(chain(*a)) & set(chain(*b))) for a, b in pairs]
    near(np.mean(common), PEOPLE * RATE**2, PEOPLE * RATE**2 / len(pairs))
    # Of two people who are in both samples, as many are together twice as by chance.
    both = together = 0
    for a, b in pairs:
        place, next_place = (
            {person: n for n, group in enumerate(step) for person in group}
            for step in (a, b)
        )
        stay = sorted(place.keys() & next_place.keys())
        for i, first in enumerate(stay):
            for second in stay[i + 1 :]:
                both += 1
                together += (place[first], next_place[first]) == (
                    place[second],
                    next_place[second],
                )
    near(together / both, 0.01, 0.01 / both)


def near(found: float, expected: float, variance: float) -> None:
    """Check a mean by its variance."""
    assert abs(found - expected) < SIGMAS * math.sqrt(variance)


def check_noise_fresh(tokens: tuple[int, ...]) -> None:
    """Check that equal figures give different tokens."""
    assert max(Counter(tokens).values()) < len(tokens) / 2


@pytest.mark.promise("token-fresh")
def test_samples_groups_and_noise_are_fresh_for_every_token() -> None:
    steps, tokens = dealt()
    check_fresh(steps)
    check_noise_fresh(tokens)


def simulated(kind: str) -> Groups:
    """Deal people as a generator might, right or wrong."""
    random, steps, kept = np.random.default_rng(3), [], None
    for _ in range(STEPS):
        sample = np.flatnonzero(random.random(PEOPLE) < RATE)
        if kind == "fixed size":
            sample = random.choice(PEOPLE, int(RATE * PEOPLE), replace=False)
        if kind == "one sample":
            kept = sample if kept is None else kept
            sample = kept
        place = random.integers(0, 10, PEOPLE)
        if kind == "groups that stay":
            place = np.arange(PEOPLE) % 10
        if kind == "places in turn":
            place[sample] = np.arange(len(sample)) % 10
        groups = [[int(x) for x in sample if place[x] == group] for group in range(10)]
        if kind == "in two groups":
            groups[0] = [*groups[0], groups[1][0]] if groups[1] else groups[0]
        steps.append(groups)
    return steps


@pytest.mark.promise("token-fresh", twin=True)
@pytest.mark.parametrize(
    "kind",
    ["one sample", "fixed size", "groups that stay", "in two groups", "places in turn"],
)
def test_twin_that_deals_otherwise(kind: str) -> None:
    check_fresh(simulated("as it should"))
    with pytest.raises(AssertionError):
        check_fresh(simulated(kind))


@pytest.mark.promise("token-fresh", twin=True)
def test_twin_of_noise_that_is_seeded_anew_for_each_token() -> None:
    same = [int(np.random.default_rng(1).normal(size=5).argmax()) for _ in range(99)]
    with pytest.raises(AssertionError):
        check_noise_fresh(tuple(same))
