"""Parallel composition: what releases from disjoint classes of units cost.

Privacy:
    **Claim.** The cost of a `Parallel` is the largest cost of any branch: the
    maximum over the branches, not their sum (McSherry 2009, "Privacy Integrated
    Queries", Theorem 4, there for pure epsilon).

    **Proof, for add/remove.** D' is D plus the records of a unit u. A public rule puts
    each unit into a class by its own records alone, so the classes of all others are
    the same in D and D', and u adds to one class, c. Take the transcript of all
    branches in the order in which they were released. Given what was released before,
    a step of another branch than c sees the same units in D and D' and so has the same
    distribution: its factor cancels from the likelihood ratio of the transcript. What
    is left are the steps of branch c, each of which may depend on everything released
    before, as the steps of any adaptive composition may, while their events are fixed.
    So each bound for the composition of branch c's events bounds the whole: (epsilon,
    delta), Renyi divergence, trade-off curve. c is unknown, hence the maximum.

    **Uses.** In all uses of equal events u is in the same class c, which is what such
    an event says. So `count` uses cost the maximum over c of `count` uses of branch c;
    other events of the list are added to it. In events that differ u may be in any
    class of each: the maximum is over all ways to take one branch from each of them.

    Without that promise the figure is *not* a bound. Of a branch that is pure with
    epsilon 2 and a Gaussian of noise 0.5 on a sample of rate 0.01, two uses alike cost
    at most 5.7 at delta 1e-7, and one of each costs 7.3: common small losses lift rare
    large ones. `PrivacyFilter` needs no such promise: its losses are numbers, and the
    sum of the largest is not below any other.

Beyond `MAX_COMBINATIONS` ways the largest Renyi divergence at each order is composed
instead, which bounds every way at once and is looser.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from langchain_dpicl.accounting.events import (
    Event,
    Parallel,
    PlainEvent,
    merge,
    repeat,
)

MAX_COMBINATIONS = 1_000
"""Most ways to take one branch of each parallel event that are computed one by one."""


def ways(events: Sequence[Event]) -> int:
    """Return in how many different ways a unit may take part in merged events.

    Example:
        >>> from langchain_dpicl.accounting import Gaussian, Pure
        >>> labels = ((Pure(0.1),), (Pure(0.2),), (Pure(0.1),))
        >>> ways([Parallel(labels), Gaussian(1.0)])
        2
    """
    return math.prod(len(set(e.branches)) for e in events if isinstance(e, Parallel))


def one_by_one(events: Sequence[Event]) -> Iterator[tuple[PlainEvent, ...]]:
    """Yield the plain events of each such way; equal branches once.

    Example:
        >>> from langchain_dpicl.accounting import Gaussian, Pure
        >>> labels = ((Pure(0.1),), (Pure(0.2),))
        >>> for plain in one_by_one([Parallel(labels, count=3)]):
        ...     print(plain)
        (Pure(epsilon=0.1, count=3),)
        (Pure(epsilon=0.2, count=3),)
    """
    shared = [e for e in events if not isinstance(e, Parallel)]
    choices = [
        [repeat(branch, event.count) for branch in dict.fromkeys(event.branches)]
        for event in events
        if isinstance(event, Parallel)
    ]
    for chosen in itertools.product(*choices):
        yield merge([*shared, *itertools.chain.from_iterable(chosen)])
