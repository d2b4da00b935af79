"""Every token has a fresh Poisson sample, fresh groups and fresh noise.

Each test has a twin: the same check must find out what a plausible mistake does.
"""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from langchain_core.documents import Document
from support.few_shot_fakes import WordModel, budget_of, generator_of

from langchain_dpicl import SampledGroups
from langchain_dpicl.few_shot import Greedy, step
from langchain_dpicl.mechanisms import SecureRandom, SeededRandom, noisy_next_token

PEOPLE, GROUPS, BUDGET_UNITS = 100, 10, 300
RATE = 0.2
RECORDS = [{"text": f"red p{n}.", "label": "color"} for n in range(PEOPLE)]
SIGMAS = 5.2
"""Two-sided probability 2e-7 for a normal variable."""


class Undecided(WordModel):
    """Likes all tokens the same, so that noise alone chooses, and never ends."""

    @property
    def end_tokens(self) -> frozenset[int]:
        return frozenset()

    def probabilities(self, prompt: Any) -> Any:
        weights = super().probabilities(prompt) * 0 + 1.0
        return weights / weights.sum()


def run(monkeypatch: pytest.MonkeyPatch | None = None, draw: Any = None) -> Any:
    """Return, for each step, the people of each group, and the tokens."""
    if monkeypatch is not None:
        monkeypatch.setattr(SampledGroups, "draw_shared", draw)
    model = Undecided(ending=None)
    generator_of(
        model,
        labels=["color"],
        n_groups=GROUPS,
        records_per_group=RATE * PEOPLE / GROUPS,
        max_tokens=BUDGET_UNITS,
        random=SeededRandom(17),
        noise_multiplier=2.0,
        budget=budget_of(epsilon=500, accounting="renyi", queries=None),
    ).generate(RECORDS)
    tokens = model.calls[-1][-1].generated
    groups = [
        [[int(n) for n in re.findall(r"p(\d+)\.", prompt.text)] for prompt in call[:-1]]
        for call in model.calls
    ]
    return groups, tokens


def test_the_decoder_is_told_the_noise_of_the_mean() -> None:
    told: list[float] = []

    class Curious(Greedy):
        def choose(self, noisy: Any, noise: float, random: SecureRandom) -> int:
            told.append(noise)
            return super().choose(noisy, noise, random)

    generator_of(
        WordModel(),
        labels=["color"],
        n_groups=GROUPS,
        records_per_group=RATE * PEOPLE / GROUPS,
        max_tokens=3,
        noise_multiplier=2.0,
        decoder=Curious(),
        budget=budget_of(epsilon=500, accounting="renyi", queries=None),
    ).generate(RECORDS)
    # Replacing an answer moves the sum by sqrt 2 at most.
    assert told == [pytest.approx(2.0 * math.sqrt(2) / GROUPS)] * len(told) != []


def sizes_are_poisson(groups: Any) -> bool:
    """Whether the samples' sizes vary as those of independent coins do."""
    sizes = [sum(map(len, step)) for step in groups]
    mean, variance = PEOPLE * RATE, PEOPLE * RATE * (1 - RATE)
    average = sum(sizes) / len(sizes)
    spread = sum((size - mean) ** 2 for size in sizes) / len(sizes)
    # The variance of a squared deviation of a binomial is close to 2 variance^2.
    return abs(average - mean) < SIGMAS * math.sqrt(variance / len(sizes)) and abs(
        spread - variance
    ) < SIGMAS * variance * math.sqrt(2.1 / len(sizes))


def samples_are_fresh(groups: Any) -> bool:
    """Whether who is in a sample says nothing of who is in the next one."""
    held = [{person for group in step for person in group} for step in groups]
    common = [len(a & b) for a, b in zip(held[::2], held[1::2], strict=True)]
    rate = RATE**2
    mean, variance = PEOPLE * rate, PEOPLE * rate * (1 - rate)
    average = sum(common) / len(common)
    return abs(average - mean) < SIGMAS * math.sqrt(variance / len(common))


def groups_are_fresh(groups: Any) -> bool:
    """Whether a person's group says nothing of their group in the next sample."""
    place = [
        {person: at for at, group in enumerate(step) for person in group}
        for step in groups
    ]
    same = total = 0
    for a, b in zip(place[::2], place[1::2], strict=True):
        for person in a.keys() & b.keys():
            total += 1
            same += a[person] == b[person]
    rate = 1 / GROUPS
    return abs(same - total * rate) < SIGMAS * math.sqrt(total * rate * (1 - rate))


def noise_is_fresh(tokens: tuple[int, ...]) -> bool:
    """Whether equal figures give different tokens: no one in more than half of all."""
    return max(map(tokens.count, set(tokens))) < len(tokens) / 2


def test_samples_groups_and_noise_are_fresh_for_every_token() -> None:
    groups, tokens = run()
    assert len(groups) == len(tokens) + 1 == BUDGET_UNITS
    for one in groups:
        people = [person for group in one for person in group]
        assert len(one) == GROUPS
        assert len(people) == len(set(people)), "nobody is in two groups"
    assert sizes_are_poisson(groups)
    assert samples_are_fresh(groups)
    assert groups_are_fresh(groups)
    assert noise_is_fresh(tokens)


REAL = SampledGroups.draw_shared


def test_twin_one_sample_for_all_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []

    def draw(self: Any) -> Any:
        kept.append(kept[0] if kept else REAL(self))
        return kept[-1]

    groups, _ = run(monkeypatch, draw)
    assert not samples_are_fresh(groups)
    assert not groups_are_fresh(groups)


def test_twin_a_sample_re_seeded_for_every_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def draw(self: Any) -> Any:
        self._random = SeededRandom(99)
        return REAL(self)

    groups, _ = run(monkeypatch, draw)
    assert not samples_are_fresh(groups)


def test_twin_fixed_size_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    random = SeededRandom(5)

    def draw(self: Any) -> Any:
        people = random.sample(PEOPLE, int(RATE * PEOPLE))
        slots: list[list[Document]] = [[] for _ in range(GROUPS)]
        for at, person in enumerate(people):
            text = RECORDS[person]["text"]
            slots[at % GROUPS].append(Document(text, metadata={"label": "color"}))
        return slots

    groups, _ = run(monkeypatch, draw)
    assert samples_are_fresh(groups), "it looks right, but for its size"
    assert not sizes_are_poisson(groups)


def test_twin_groups_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(self: Any) -> Any:
        slots: list[list[Document]] = [[] for _ in range(GROUPS)]
        for slot in REAL(self):
            for document in slot:
                person = int(re.findall(r"p(\d+)\.", document.page_content)[0])
                slots[person % GROUPS].append(document)
        return slots

    groups, _ = run(monkeypatch, draw)
    assert sizes_are_poisson(groups)
    assert not groups_are_fresh(groups)


def test_twin_noise_re_seeded_for_every_token(monkeypatch: pytest.MonkeyPatch) -> None:
    def same(rows: Any, **more: Any) -> Any:
        return noisy_next_token(rows, **{**more, "random": SeededRandom(1)})

    monkeypatch.setattr(step, "noisy_next_token", same)
    _, tokens = run()
    assert not noise_is_fresh(tokens)
