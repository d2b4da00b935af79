"""What an account's figures mean: at other deltas, and for several people at once.

Everything follows from the account's terms, its plan and its charges, which are public.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from langchain_dpicl.accounting import UNITS, Cost, Event, compose, merge
from langchain_dpicl.ledger import AccountTerms, Book, Plan

DECADES = range(3, 11)
"""The powers of ten of the curve's deltas: 1e-3 to 1e-10."""
HOUSEHOLD = 5
_TICKS = 6
_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True)
class CurvePoint:
    """Epsilon at one delta: of the whole account, and of what is spent.

    Attributes:
        delta: The failure probability.
        promised: Epsilon of everything that the account will ever release; None where
            there is no bound.
        spent: Epsilon of what was released so far; None where there is no bound.
    """

    delta: float
    promised: float | None
    spent: float | None


@dataclass(frozen=True)
class Household:
    """What the account promises for several units together.

    Attributes:
        people: How many units.
        epsilon: `people` times the account's epsilon.
        delta: The failure probability at that epsilon; None where it is no bound.
    """

    people: int
    epsilon: float
    delta: float | None


def curve(book: Book, plan: Plan | None) -> tuple[CurvePoint, ...]:
    """Return epsilon over delta, large deltas first; nothing before a release.

    Under a filter what is spent is a report, and what is promised is the filter's
    limit: a bound on the sum of the losses, whatever delta they are stated at.

    Example:
        >>> from langchain_dpicl.accounting import Charge, Gaussian, noise_multiplier
        >>> from langchain_dpicl.ledger import Ledger
        >>> z = noise_multiplier(2.0, 1e-6, uses=5)
        >>> events = (Gaussian(noise_multiplier=z),)
        >>> plan = Plan(charge=Charge(name="vote", parts=events), events=events)
        >>> terms = AccountTerms(name="notes", epsilon=2, delta=1e-6, queries=5)
        >>> points = curve(Ledger(":memory:").open(terms), plan)
        >>> [round(p.promised, 1) for p in points if p.delta in (1e-3, 1e-6, 1e-9)]
        [1.2, 2.0, 2.6]
    """
    if plan is None:
        return ()
    deltas = sorted({*(10.0**-power for power in DECADES), book.account.delta})
    promised, spent = _functions(book, plan)
    points = [CurvePoint(d, _finite(promised, d), _finite(spent, d)) for d in deltas]
    return tuple(
        point
        for point in reversed(points)
        if (point.promised, point.spent) != (None, None)
    )


def households(terms: AccountTerms) -> tuple[Household, ...]:
    """Return what the account promises for 1 to `HOUSEHOLD` units together.

    The promise for n units is (n epsilon, delta (e^(n epsilon) - 1) / (e^epsilon - 1)),
    by walking from one corpus to the other unit by unit.

    Example:
        >>> terms = AccountTerms(name="a", epsilon=1, delta=1e-6, queries=9)
        >>> [(h.epsilon, round(h.delta * 1e6, 1)) for h in households(terms)][:2]
        [(1.0, 1.0), (2.0, 3.7)]
    """
    return tuple(
        Household(
            people,
            people * terms.epsilon,
            group_delta(terms.epsilon, terms.delta, people),
        )
        for people in range(1, HOUSEHOLD + 1)
    )


def group_delta(epsilon: float, delta: float, people: int) -> float | None:
    """Return the delta of several units at `people * epsilon`; None from 1 on.

    Example:
        >>> group_delta(8.0, 1e-6, 3) is None
        True
    """
    largest = (people - 1) * epsilon
    if largest > _LARGEST_EXPONENT:
        return None
    total = delta * math.fsum(math.exp(k * epsilon) for k in range(people))
    return total if total < 1 else None


def certainty(epsilon: float) -> float:
    """Return how sure somebody can get who was 50 % sure, but for delta.

    Example:
        >>> round(certainty(1.0), 3)
        0.731
    """
    return 1 / (1 + math.exp(-epsilon))


def svg(points: Sequence[CurvePoint], delta: float, epsilon: float) -> str:
    """Return the curve as a drawing; `(delta, epsilon)` is marked. All of it numbers.

    Delta is on a logarithmic scale, and gets smaller to the right.
    """
    width, height, left, bottom = 640, 300, 48, 40
    values = [v for p in points for v in (p.promised, p.spent) if v is not None]
    top = max([*values, epsilon]) * 1.1
    logs = [math.log10(p.delta) for p in points] or [math.log10(delta)]
    first, last = max(logs), min(logs)

    def x(at: float) -> float:
        return left + (first - math.log10(at)) / ((first - last) or 1) * (width - 96)

    def y(at: float) -> float:
        return (height - bottom) * (1 - at / top) + 8

    def line(name: str, found: list[tuple[float, float]]) -> str:
        path = " ".join(f"{x(d):.1f},{y(e):.1f}" for d, e in found)
        return f'<polyline class="{name}" points="{path}"/>'

    parts = [
        f'<svg viewBox="0 0 {width} {height + 12}" role="img">',
        f"<title>epsilon over delta; {epsilon:g} at {delta:g}</title>",
    ]
    tens = 10.0 ** math.floor(math.log10(top / _TICKS))
    step = next(k * tens for k in (1, 2, 5, 10) if top <= _TICKS * k * tens)
    for k in range(int(top / step) + 1):
        at, text = y(k * step), f"{k * step:g}"
        parts.append(f'<path class="grid" d="M{left} {at:.1f}H{width - 48}"/>')
        parts.append(f'<text x="{left - 8}" y="{at + 4:.1f}" class="y">{text}</text>')
    for point in points:
        power = math.log10(point.delta)
        if math.isclose(power, round(power)):
            parts.append(
                f'<text x="{x(point.delta):.1f}" y="{height - 5}" class="x">'
                f'10<tspan dy="-.4em" font-size=".75em">{round(power)}</tspan></text>'
            )
    for name in ("promised", "spent"):
        found = [(p.delta, v) for p in points if (v := getattr(p, name)) is not None]
        parts.append(line(name, found))
    parts += [
        f'<circle cx="{x(delta):.1f}" cy="{y(epsilon):.1f}" r="4"/>',
        f'<text x="{left}" y="14" class="name">ε</text>',
        f'<text x="{width - 12}" y="{height - 5}" class="name">δ</text></svg>',
    ]
    return "".join(parts)


def _functions(
    book: Book, plan: Plan
) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """Return epsilon at a delta of the whole account, and of what is spent."""
    terms, events, spent = book.account, plan.events, book.spent
    if (limit := terms.filter) is None:
        most = terms.queries or 1
        used = min(book.used, most)
        return partial(_composed, events, most), partial(_composed, events, used)
    lost = Cost(min(spent.loss, UNITS), min(spent.failure, UNITS))
    return partial(limit.epsilon_spent, Cost(UNITS, UNITS)), partial(
        limit.epsilon_spent, lost
    )


def _composed(events: tuple[Event, ...], uses: int, delta: float) -> float:
    return compose(merge(events, uses), delta) if uses else 0.0


def _finite(function: Callable[[float], float], delta: float) -> float | None:
    found = function(delta)
    return found if math.isfinite(found) else None
