"""Who holds two worlds, asks both the same, and looks for what tells them apart."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from support.audit.two_worlds import (
    ANSWERS,
    Account,
    Answer,
    Query,
    Step,
    Unit,
    World,
)

SLACK = 1e-9
"""Relative: claims are held against figures that a float can hold."""

Pair = tuple[float, float]
"""An outcome's probability in either world."""

Figure = Callable[[float, float], float]
"""What a transcript of probability p here and q there adds to a figure."""


class PrivacyViolationError(AssertionError):
    """Two worlds can be told apart better than the account claims."""


def hockey_stick(epsilon: float) -> Figure:
    """Return what adds up to the hockey-stick divergence."""
    factor = math.exp(epsilon)
    return lambda p, q: max(p - factor * q, 0.0)


def renyi_moment(order: float) -> Figure:
    """Return what adds up to exp((order - 1) times the Renyi divergence)."""

    def moment(p: float, q: float) -> float:
        if p == 0:
            return 0.0
        return math.inf if q == 0 else p * (p / q) ** (order - 1)

    return moment


class Moment:
    """A world after some steps, and all that can come next, each driven once."""

    def __init__(self, world: World, answer: Answer | str = "") -> None:
        self.world, self.answer = world, answer
        self._next: dict[Step, Moment] = {}

    def then(self, step: Step) -> Moment:
        """Return the moment after one more step."""
        if step not in self._next:
            self._next[step] = Moment(*self.world.after(step))
        return self._next[step]


Moments = tuple[Moment, Moment]
"""The same moment with x and without."""


@dataclass
class Adversary:
    """Two worlds that differ by x, and who asks both the same.

    Attributes:
        others: The other units.
        x: The unit by which the worlds differ.
        position: Where x stands among the others.
        account: What is claimed.
        depth: The number of steps.
        n_groups: The number of groups.
        kind: The system under test.
    """

    others: tuple[Unit, ...]
    x: Unit
    position: int
    account: Account
    depth: int
    n_groups: int = 1
    kind: type[World] = World

    def __post_init__(self) -> None:
        at = self.position
        units = (*self.others[:at], self.x, *self.others[at:])
        self.start: Moments = (
            Moment(self.kind(units, self.account, self.n_groups)),
            _without_x(self.kind, self.others, self.account, self.n_groups),
        )

    def answers(self, path: Sequence[Step]) -> tuple[Answer | str, Answer | str]:
        """Return what both worlds answer at the end of a path."""
        one, other = self.start
        for step in path:
            one, other = one.then(step), other.then(step)
        return one.answer, other.answer

    def adaptive(self, queries: Sequence[Step], figure: Figure) -> float:
        """Return the largest figure that any adaptive strategy reaches.

        Args:
            queries: What may be asked at each step.
            figure: What a transcript of given probabilities adds to the figure.
        """
        return _Search(queries, self.depth).largest(figure, self.start)

    def check_adaptive(self, queries: Sequence[Step]) -> tuple[float, ...]:
        """Hold the best strategies against the claims.

        Returns:
            How much of each claim they use: of delta at the claimed epsilon, and
            (unless releases may fail) of the Renyi divergence at each order that the
            account holds something for.

        Raises:
            PrivacyViolationError: If a claim is not kept.
        """
        search = _Search(queries, self.depth)
        figure = hockey_stick(self.account.epsilon)
        found = [(search.largest(figure, self.start), self.account.delta)]
        first = self.answers(queries[:1])[0]
        orders = self.account.renyi_claims(
            first.events if isinstance(first, Answer) else ()
        )
        if any(isinstance(query, Query) and query.delta0 for query in queries):
            orders = []
        for order, claimed in orders:
            moment = search.largest(renyi_moment(order), self.start)
            found.append((math.log(moment) / (order - 1), claimed))
        for measured, claimed in found:
            if measured > claimed * (1 + SLACK):
                raise PrivacyViolationError(
                    f"{measured:.4g} > {claimed:.4g}: "
                    f"{self.others, self.x, self.position}"
                )
        return tuple(measured / claimed for measured, claimed in found)


class _Search:
    """The best adaptive strategy, by going through all of them.

    The balances depend on what was asked, not on what was released. So both worlds are
    driven once along each path, and the best next query is found for each transcript,
    from the last one backwards.
    """

    def __init__(self, queries: Sequence[Step], depth: int) -> None:
        self._queries, self._depth = queries, depth
        self._options: dict[Moments, list[tuple[Moments, tuple[Pair, ...]]]] = {}

    def largest(self, figure: Figure, start: Moments) -> float:
        """Return the largest figure, of either world against the other."""
        return max(
            self._best(figure, start, 1.0, 1.0, self._depth),
            self._best(lambda p, q: figure(q, p), start, 1.0, 1.0, self._depth),
        )

    def _best(
        self, figure: Figure, now: Moments, p: float, q: float, left: int
    ) -> float:
        if not left:
            return figure(p, q)
        return max(
            math.fsum(
                self._best(figure, then, p * a, q * b, left - 1) for a, b in outcomes
            )
            for then, outcomes in self._next(now)
        )

    def _next(self, now: Moments) -> list[tuple[Moments, tuple[Pair, ...]]]:
        """Return for each next query (and rule) where it leads, and its outcomes."""
        if now not in self._options:
            found: dict[tuple[Moments, tuple[Pair, ...]], None] = {}
            for query in self._queries:
                then = now[0].then(query), now[1].then(query)
                for rule in ANSWERS:
                    found[then, tuple(_outcomes(then, query, rule))] = None
            self._options[now] = list(found)
        return self._options[now]


def _outcomes(moments: Moments, query: Step, rule: str) -> list[Pair]:
    one, other = (moment.answer for moment in moments)
    if isinstance(one, str) or isinstance(other, str):
        # The asker sees an error.
        return [(1.0, 1.0)] if one == other else [(1.0, 0.0), (0.0, 1.0)]
    assert isinstance(query, Query)
    p, q, d = one.yes(rule), other.yes(rule), query.delta0
    outcomes = [(p * (1 - d), q * (1 - d)), ((1 - p) * (1 - d), (1 - q) * (1 - d))]
    if d:
        p, q = float(one.lead(rule) > 0), float(other.lead(rule) > 0)
        outcomes += [(p * d, q * d), ((1 - p) * d, (1 - q) * d)]
    return outcomes


def neighbors(
    corpora: Sequence[tuple[Unit, ...]],
    xs: Sequence[Unit],
    *terms: Any,
    **more: Any,
) -> Iterator[Adversary]:
    """Yield all pairs of worlds: each corpus, each x, at each position."""
    for others in corpora:
        for x in xs:
            for position in range(len(others) + 1):
                yield Adversary(others, x, position, *terms, **more)


@functools.lru_cache(maxsize=8)
def _without_x(kind: type[World], *given: Any) -> Moment:
    """Return a world that many others are compared with."""
    return Moment(kind(*given))
