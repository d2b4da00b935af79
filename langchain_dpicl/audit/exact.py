"""The exact law of a release, by running it on all that its randomness can be."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction

from langchain_dpicl.mechanisms.source import SecureRandom

Law = Mapping[Hashable, float]
"""The probability of each outcome."""

_HALF = 1 << 63
_NOTHING = 1e-9
"""A chance below which a branch is not followed."""


class _Rejected(Exception):  # noqa: N818 - not an error: a draw begins anew
    """So many draws were not accepted that what is left of the law is nothing."""


class _Given(SecureRandom):
    """A source whose first word is given, and which takes given branches.

    What comes after the first word is zeros. It notes how likely its branches are.
    """

    def __init__(self, word: int, script: Sequence[int] = ()) -> None:
        super().__init__()
        self._next = word
        self._script = iter(script)
        self.taken: list[tuple[int, int]] = []
        self.chance = 1.0

    def _entropy(self, size: int) -> bytes:
        word, self._next = self._next, 0
        return word.to_bytes(8, "little") + bytes(size - 8)

    def _branch(self, chances: Sequence[float]) -> int:
        if self.chance < _NOTHING:
            raise _Rejected
        taken = next(self._script, 0)
        self.taken.append((taken, len(chances)))
        self.chance *= chances[taken]
        return taken

    def below(self, bound: int) -> int:
        return self._branch([1 / bound] * bound)

    def permutation(self, count: int) -> list[int]:
        orders = list(itertools.permutations(range(count)))
        return list(orders[self._branch([1 / len(orders)] * len(orders))])

    def bernoulli_exp(self, gamma: Fraction) -> bool:
        chance = math.exp(-gamma)
        return gamma == 0 or not self._branch([chance, 1 - chance])


Draw = Callable[[SecureRandom], Hashable]
"""A release, but for the source of its randomness."""


def exact_law(release: Draw) -> Law:
    """Return the law of a release that draws one word at most, and then branches.

    Its outcome is constant between the words where it turns, which are found by
    bisection. In each half of the words it never turns back: their highest bit is the
    sign of noise and the rest its size, or the word is compared with thresholds.
    """
    law: dict[Hashable, float] = {}
    for start in (0, _HALF):
        for word, share in _pieces(release, start, start + _HALF - 1):
            for outcome, chance in _branches(release, word):
                law[outcome] = law.get(outcome, 0.0) + share * chance
    total = math.fsum(law.values())
    return {outcome: mass / total for outcome, mass in law.items()}


def _pieces(release: Draw, first: int, last: int) -> Iterator[tuple[int, float]]:
    """Yield a word of each piece where the outcome is one, and the piece's share."""

    def outcome(word: int) -> Hashable:
        return next(_branches(release, word))[0]

    while first <= last:
        here, low, high = outcome(first), first, last
        if outcome(last) == here:
            low = last
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (middle, high) if outcome(middle) == here else (low, middle)
        yield first, (low + 1 - first) / (2 * _HALF)
        first = low + 1


def _branches(release: Draw, word: int) -> Iterator[tuple[Hashable, float]]:
    """Yield the outcomes that follow a word, and how likely each is."""
    script: list[int] | None = []
    while script is not None:
        source = _Given(word, script)
        with suppress(_Rejected):
            yield release(source), source.chance
        script = _next_script(source.taken)


def _next_script(taken: Sequence[tuple[int, int]]) -> list[int] | None:
    for at in range(len(taken) - 1, -1, -1):
        branch, branches = taken[at]
        if branch + 1 < branches:
            return [*(one for one, _ in taken[:at]), branch + 1]
    return None


def product(*laws: Law) -> Law:
    """Return the law of independent outcomes together."""
    return {
        tuple(o for o, _ in each): math.prod(mass for _, mass in each)
        for each in itertools.product(*(law.items() for law in laws))
    }
