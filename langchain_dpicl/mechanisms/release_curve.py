"""Release curves: the best probability to release something, by how safe it is.

Whether something comes out (a set of words, one word) is one bit. Let n be how many
steps the data are from those on which it may never come out: n changes by at most 1
between neighbors, and where n = 0 nothing comes out. The bit is drawn with probability
pi(n):

    pi(0) = 0, pi(1) = first, and pi(n+1) is the largest p for which the Renyi
    divergence of one order a between the bits of n and n + 1 is at most r, in both
    orders of the two.

No rule with that divergence releases more, at any n, and no noise is added to a number
that nobody wants (Harrison, Manurangsi, *Optimal Partition Selection with Renyi
Differential Privacy*, 2026; Desfontaines, Voss, Gipson, Mandayam, *Differentially
Private Partition Selection*, PoPETs 2022, for (epsilon, delta)).

**Without sampling** the bits are Bern(pi(n)) and Bern(pi(n')), n' in {n-1, n, n+1}.

**On a Poisson sample of rate q** the unit is in the sample with probability q and then
changes n to n'. The bits are Bern(pi(n)) and Bern((1-q) pi(n) + q pi(n')). With a =
pi(n) and p = pi(n+1) there are four divergences, all at most r:

    the unit adds a step       (1-q) a + q p against a, and a against it
    the unit takes one away    (1-q) p + q a against p, and p against it

*The others' coins.* n and n' depend on who else is in the sample, and n' on the slot
that the unit gets. Each outcome of those coins gives one such pair. exp((a-1) D_a(P ||
Q)) is jointly convex in (P, Q) for a > 1 (van Erven, Harremoes 2014, Theorem 13), so
the mixtures over the coins, which have the same weights in both worlds, are no further
apart than the worst pair. A unit's bit mixes by itself here: *one* bit. Bits of one
unit that switch together (several words of one answer) do not mix each by itself, and
are not covered.

**On a sample of fixed size** (`accounting.FixedSampleGaussianEvent`) another part of
the units is chosen instead of the unit's, where that is not. The worlds are (1-q) A + q
B and (1-q) A + q B'. Any two of A, B and B' are neighbors, so that their n are m or m +
1, for one m. B and B' differ, and A is like one of them: the same four divergences, and
the same table.

**At 0 beside 1** no divergence bounds the pair, as pi(0) = 0. That is the failure: with
probability first (q first on a sample) it is taken out of both worlds, and what is left
is the same in both. On a sample, n' = 1 beside n = 0: the world without the unit never
releases, and the other one does with probability q first. n' = 0 beside n = 1: the
worlds are Bern(first) and Bern((1-q) first). Taking q first from the ones of the first
and from the zeros of the second leaves (1-q) first ones and 1 - first zeros in both.
On a sample of fixed size it is q first of B and of B', beside the same (1-q) A.

**In integers.** An entry is an integer t, and the bit is whether 64 bits of the source
are below t: its probability is t / 2^64, exactly. Floating point proposes an entry. It
is taken once decimal arithmetic of 40 digits, with correctly rounded logarithms and
exponentials, has shown the divergences of the *integers'* bits to be at most r by a
margin of 1e-30, far more than its rounding; until then it is lowered. The table ends
where an entry misses 1 by less than 2^-40, or after `MAX_STEPS`. Beyond the end pi
stays at the last entry, and two equal bits have divergence 0.
"""

from __future__ import annotations

import decimal
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.source import SecureRandom

MAX_STEPS = 4096
"""Most entries of a table: nobody has as many groups."""

LEAST_FIRST = 2.0**-54
"""Least first probability: below it 64 bits are too few, and nothing is released."""

_MOST = 50  # Largest divergence that is made use of; less is always allowed.

_WORD = 1 << 64
_END = _WORD - (1 << 24)
_DIGITS = 40
_MARGIN = Decimal("1e-30")
_ARITHMETIC = decimal.Context(
    prec=_DIGITS,
    rounding=decimal.ROUND_HALF_EVEN,
    Emin=decimal.MIN_EMIN,
    Emax=decimal.MAX_EMAX,
    traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow],
)
_SEARCHES = 60
_LOWERINGS = 60
_LARGEST_LOG = 600.0

Bit = tuple[float, float]
"""The probabilities of 1 and of 0, each with its own precision."""


@dataclass(frozen=True)
class ReleaseCurve:
    """The probabilities to release, by the number of steps.

    Attributes:
        entries: pi(1), pi(2), ... in units of 2^-64; beyond the end it is the last one.

    Example:
        >>> curve = release_curve(8.0, Fraction(1, 4), Fraction(1, 10**6))
        >>> curve.probability(0), float(curve.probability(1)) <= 1e-6
        (Fraction(0, 1), True)
        >>> curve.steps(0.95)
        21
    """

    entries: tuple[int, ...]

    def probability(self, steps: int) -> Fraction:
        """Return pi(n), exactly."""
        if steps < 1:
            return Fraction(0)
        return Fraction(self.entries[min(steps, len(self.entries)) - 1], _WORD)

    def draw(self, steps: Sequence[int], source: SecureRandom) -> npt.NDArray[np.bool_]:
        """Return one independent bit for each number of steps, shape as `steps`."""
        known = np.array((0, *self.entries), np.uint64)
        places = np.clip(np.array(steps, np.int64), 0, len(self.entries))
        drawn: npt.NDArray[np.bool_] = source.words(len(places)) < known[places]
        return drawn

    def steps(self, rate: float) -> int | float:
        """Return the least n with pi(n) >= rate; infinity if there is none."""
        least = math.ceil(Fraction(rate) * _WORD)
        reached = (n for n, t in enumerate(self.entries, 1) if t >= least)
        return next(reached, math.inf)


@functools.lru_cache(maxsize=256)
def release_curve(
    order: float,
    divergence: Fraction,
    first: Fraction,
    sampling_rate: float = 1.0,
) -> ReleaseCurve:
    """Return the best table for one bit.

    All arguments are public, and so is the table.

    Args:
        order: The order of the divergence, above 1.
        divergence: Its bound r, for one bit; above 0.
        first: The most that pi(1) may be; above 0 and below 1. Below `LEAST_FIRST`
            nothing is ever released.
        sampling_rate: The rate q of the Poisson sample of units that the bit sees.

    Raises:
        InvalidParameterError: If an argument is out of its range.
    """
    order = parameters.renyi_order(order)
    rate = parameters.sampling_rate(sampling_rate)
    if not 0 < first < 1:
        raise InvalidParameterError("The first probability must be between 0 and 1.")
    if divergence <= 0:
        raise InvalidParameterError("divergence must be greater than 0.")
    if first < LEAST_FIRST:
        return ReleaseCurve((0,))
    divergence = min(divergence, Fraction(_MOST))
    bound = _Bound(order, divergence, rate)
    entries = [int(first * _WORD)]
    for proposed in _proposals(order, float(divergence), rate, lambda: entries[-1]):
        found = bound.lowered(entries[-1], proposed)
        if found <= entries[-1]:
            break
        entries.append(found)
        if found >= _END or len(entries) >= MAX_STEPS:
            break
    return ReleaseCurve(tuple(entries))


@functools.lru_cache(maxsize=4096)
def expected_steps(
    order: float,
    divergence: float,
    first: float,
    rate: float,
    sampling_rate: float = 1.0,
) -> float:
    """Return roughly at how many steps a curve releases with probability `rate`.

    For choosing an order: floating point alone, and a fraction of a step between two
    entries. Infinity if `MAX_STEPS` are too few, or nothing can be built.

    Example:
        >>> round(expected_steps(8.0, 0.25, 1e-6, 0.95), 2)
        20.21
    """
    if not LEAST_FIRST <= first < 1 or not 0 < divergence < math.inf:
        return math.inf
    wanted = _log_odds(rate)
    before, divergence = _log_odds(first), min(divergence, float(_MOST))
    if before >= wanted:
        return 1.0
    width = 1.0
    for steps in range(1, MAX_STEPS):
        width = _widest(before, order, divergence, sampling_rate, width, 1e-6)
        if before + width >= wanted:
            return steps + (wanted - before) / width
        if width < 1e-9:  # noqa: PLR2004 - floating point sees no growth any more.
            return math.inf
        before += width
    return math.inf


# -- proposals, in floating point ------------------------------------------------------


def _proposals(
    order: float, divergence: float, rate: float, last: Callable[[], int]
) -> Iterator[int]:
    """Yield what floating point takes for the entry after the last one."""
    width = 1.0
    while True:
        t = last()
        before = math.log(t / (_WORD - t))
        width = _widest(before, order, divergence, rate, width, 1e-13)
        one, zero = _bit(before + width)
        yield int(one * _WORD) if one < 0.5 else _WORD - math.ceil(zero * _WORD)  # noqa: PLR2004


def _log_odds(p: float) -> float:
    return math.log(p) - math.log1p(-p)


def _bit(log_odds: float) -> Bit:
    """Return the probabilities of 1 and 0."""
    if log_odds < 0:
        odds = math.exp(log_odds)
        return odds / (1 + odds), 1 / (1 + odds)
    odds = math.exp(-log_odds)
    return 1 / (1 + odds), odds / (1 + odds)


def _mixed(rate: float, bit: Bit, other: Bit) -> Bit:
    return (
        (1 - rate) * bit[0] + rate * other[0],
        (1 - rate) * bit[1] + rate * other[1],
    )


def _pairs(low: Bit, high: Bit, rate: float) -> list[tuple[Bit, Bit]]:
    """Return the pairs of worlds whose divergences are bounded, in both orders."""
    if rate == 1:
        return [(low, high)]
    return [(low, _mixed(rate, low, high)), (high, _mixed(rate, high, low))]


def _renyi(p: Bit, q: Bit, order: float) -> float:
    """Return the Renyi divergence of two bits, rounded either way."""
    ones, zeros = order * math.log(p[0] / q[0]), order * math.log(p[1] / q[1])
    if max(ones, zeros) > _LARGEST_LOG:
        return math.inf
    excess = q[0] * math.expm1(ones) + q[1] * math.expm1(zeros)
    return math.log1p(max(excess, 0.0)) / (order - 1)


def _widest(
    before: float,
    order: float,
    divergence: float,
    rate: float,
    guess: float,
    tolerance: float,
) -> float:
    """Return the largest step of log odds within a divergence, nearly.

    The divergence is about a power of the step, so that the secant on logarithms
    comes near in a few rounds.
    """
    low = _bit(before)

    def excess(log_width: float) -> float:
        high = _bit(before + math.exp(log_width))
        worst = max(
            max(_renyi(one, other, order), _renyi(other, one, order))
            for one, other in _pairs(low, high, rate)
        )
        return math.log(worst / divergence) if worst > 0 else -_LARGEST_LOG

    x = math.log(guess)
    value = excess(x)
    bottom, top = -math.inf, math.inf
    values: dict[float, float] = {}
    for _ in range(_SEARCHES):
        values[x] = value
        bottom, top = (x, top) if value <= 0 else (bottom, x)
        if top - bottom <= tolerance or (value <= 0 and value > -tolerance):
            break
        following = x - value / 2 if math.isfinite(value) else x - 1.0
        if math.isfinite(bottom) and math.isfinite(top):
            rise = values[top] - values[bottom]
            following = bottom - (top - bottom) * values[bottom] / rise
            inside = tolerance / 3 + (top - bottom) * 1e-3
            following = min(
                max(following - tolerance / 3, bottom + inside), top - inside
            )
            if not math.isfinite(rise) or len(values) % 4 == 0:
                following = (bottom + top) / 2
        else:
            # A little beyond the root, so that it comes between two points.
            following += tolerance / 3 if value <= 0 else -tolerance / 3
        x = min(following, math.log(200.0))
        value = excess(x)
    return math.exp(bottom) if math.isfinite(bottom) else 0.0


# -- what is taken, in decimal arithmetic ----------------------------------------------


class _Bound:
    """Whether two entries' bits are within a divergence, for certain.

    Every operation is rounded by less than a part in 1e39. Logarithms are below 50 in
    size, and their products with an order (1e6 at most) below 1e8; so the sums of
    exponentials below are right to a part in 1e31.
    """

    def __init__(self, order: float, divergence: Fraction, rate: float) -> None:
        do = _ARITHMETIC
        self._order = Decimal(order)
        self._rest = do.subtract(1, self._order)
        loss = do.divide(Decimal(divergence.numerator), Decimal(divergence.denominator))
        limit = do.exp(do.multiply(do.minus(self._rest), loss))
        self._limit = do.multiply(limit, do.subtract(1, _MARGIN))
        self._rate = Decimal(rate)
        self._other = do.subtract(1, self._rate)
        self._logs = functools.lru_cache(maxsize=8)(self._log_bit)

    def lowered(self, low: int, proposed: int) -> int:
        """Return the largest entry found that is certain, or the one before."""
        high = min(max(proposed, low), _WORD - 1)
        for attempt in range(_LOWERINGS):
            if high <= low or self.holds(low, high):
                return max(high, low)
            high -= max(1, (min(high - low, _WORD - high) >> 50) << attempt)
        return low

    def holds(self, low: int, high: int) -> bool:
        """Return whether all divergences of two entries' bits are within the bound."""
        if self._rate == 1:
            return self._both(self._logs(low), self._logs(high))
        return self._both(self._logs(low), self._mixture(low, high)) and self._both(
            self._logs(high), self._mixture(high, low)
        )

    def _both(self, one: tuple[Decimal, ...], other: tuple[Decimal, ...]) -> bool:
        return self._within(one, other) and self._within(other, one)

    def _within(self, p: tuple[Decimal, ...], q: tuple[Decimal, ...]) -> bool:
        do, total = _ARITHMETIC, Decimal(0)
        for of_p, of_q in zip(p, q, strict=True):
            exponent = do.fma(self._order, of_p, do.multiply(self._rest, of_q))
            total = do.add(total, do.exp(exponent))
        return total <= self._limit

    def _mixture(self, own: int, other: int) -> tuple[Decimal, ...]:
        do = _ARITHMETIC
        return tuple(
            do.ln(do.add(do.multiply(self._other, a), do.multiply(self._rate, b)))
            for a, b in zip(_decimal_bit(own), _decimal_bit(other), strict=True)
        )

    def _log_bit(self, entry: int) -> tuple[Decimal, ...]:
        return tuple(_ARITHMETIC.ln(value) for value in _decimal_bit(entry))


def _decimal_bit(entry: int) -> tuple[Decimal, Decimal]:
    do, whole = _ARITHMETIC, Decimal(_WORD)
    return do.divide(Decimal(entry), whole), do.divide(Decimal(_WORD - entry), whole)
