"""Who holds two worlds, asks both the same, and looks for what tells them apart."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from support.audit.exact_losses import (
    Figure,
    Pair,
    hockey_stick,
    renyi_moment,
    require,
)
from support.audit.small_corpora import Unit
from support.audit.two_worlds import (
    ANSWERS,
    NOTHING,
    Answer,
    Query,
    Setting,
    Step,
    World,
)

Path = Sequence[tuple[Step, tuple[int, ...]]]
"""What was asked, and what chance decided before each release."""


class Moment:
    """A world after some steps, and all that can come next, each driven once."""

    def __init__(self, world: World, left: int, answer: Answer = NOTHING) -> None:
        self.answer = answer
        self._left = left
        self._world = world if left else None
        self._next: dict[tuple[Step, tuple[int, ...]], Moment] = {}

    def then(self, step: Step, script: tuple[int, ...] = ()) -> Moment:
        """Return the moment after one more step."""
        key = step, script
        if key not in self._next:
            assert self._world is not None
            world = self._world.fork()
            answer = world.take(step, script)
            self._next[key] = Moment(world, self._left - 1, answer)
        return self._next[key]


Moments = tuple[Moment, Moment]
"""The same moment with x and without."""


@dataclass
class Adversary:
    """Two worlds that differ by x, and who asks both the same.

    Attributes:
        others: The other units.
        x: The unit by which the worlds differ.
        position: Where x stands among the others.
        setting: What is public.
        depth: The number of steps.
        kind: The system under test.
    """

    others: tuple[Unit, ...]
    x: Unit
    position: int
    setting: Setting
    depth: int
    kind: type[World] = World

    def __post_init__(self) -> None:
        at = self.position
        units = (*self.others[:at], self.x, *self.others[at:])
        self.start: Moments = (
            Moment(self.kind(units, self.setting), self.depth),
            _without_x(self.kind, self.others, self.setting, self.depth),
        )

    def answers(self, path: Path) -> tuple[Answer, Answer]:
        """Return what both worlds answer at the end of a path."""
        one, other = self.start
        for step, script in path:
            one, other = one.then(step, script), other.then(step, script)
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
        [account] = self.setting.accounts
        search = _Search(queries, self.depth)
        found = [search.largest(hockey_stick(account.epsilon), self.start)]
        claims = [account.delta]
        paid = self.answers([(queries[0], queries[0].scripts[0])])[0].paid
        orders = account.renyi_claims(paid.events if paid else ())
        if any(isinstance(query, Query) and query.delta0 for query in queries):
            orders = []
        for order, claimed in orders:
            moment = search.largest(renyi_moment(order), self.start)
            found.append(math.log(moment) / (order - 1))
            claims.append(claimed)
        for one, claimed in zip(found, claims, strict=True):
            require(one, claimed, self._described)
        return tuple(one / claimed for one, claimed in zip(found, claims, strict=True))

    def _described(self) -> Any:
        return self.others, self.x, self.position


class _Search:
    """The best adaptive strategy, by going through all of them.

    The balances depend on what was asked and on what happened before the releases, not
    on what was released. So both worlds are driven once along each path, and the best
    next query is found for each transcript, from the last one backwards.
    """

    def __init__(self, queries: Sequence[Step], depth: int) -> None:
        self._queries, self._depth = queries, depth
        self._options: dict[Moments, list[list[tuple[Moments, Pair]]]] = {}

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
                self._best(figure, then, p * a, q * b, left - 1)
                for then, (a, b) in outcomes
            )
            for outcomes in self._next(now)
        )

    def _next(self, now: Moments) -> list[list[tuple[Moments, Pair]]]:
        """Return for each next query (and rule) its outcomes and where they lead."""
        if now not in self._options:
            found: dict[Any, list[tuple[Moments, Pair]]] = {}
            for query in self._queries:
                then = [
                    (now[0].then(query, script), now[1].then(query, script))
                    for script in query.scripts
                ]
                for rule in ANSWERS if isinstance(query, Query) else [""]:
                    outcomes = [
                        (moments, pair)
                        for moments in then
                        for pair in _outcomes(moments, query, rule)
                    ]
                    found[tuple(outcomes)] = outcomes
            self._options[now] = list(found.values())
        return self._options[now]


def neighbors(
    corpora: Sequence[tuple[Unit, ...]],
    xs: Sequence[Unit],
    setting: Setting,
    depth: int,
    kind: type[World] = World,
) -> Iterator[Adversary]:
    """Yield all pairs of worlds: each corpus, each x, at each position."""
    for others in corpora:
        for x in xs:
            for position in range(len(others) + 1):
                yield Adversary(others, x, position, setting, depth, kind)


def _outcomes(moments: Moments, query: Step, rule: str) -> list[Pair]:
    one, other = (moment.answer for moment in moments)
    if one.error != other.error:
        return [(one.reach, 0.0), (0.0, other.reach)]
    if not (one.released and isinstance(query, Query)):
        return [(one.reach, other.reach)]
    p, q = one.yes(rule, query.part), other.yes(rule, query.part)
    d = query.delta0
    outcomes = [(p * (1 - d), q * (1 - d)), ((1 - p) * (1 - d), (1 - q) * (1 - d))]
    if d:
        p, q = float(one.lead(rule) > 0), float(other.lead(rule) > 0)
        outcomes += [(p * d, q * d), ((1 - p) * d, (1 - q) * d)]
    return [(one.reach * a, other.reach * b) for a, b in outcomes]


@functools.lru_cache(maxsize=8)
def _without_x(
    kind: type[World], others: tuple[Unit, ...], setting: Setting, depth: int
) -> Moment:
    """Return a world that many others are compared with."""
    return Moment(kind(others, setting), depth)
