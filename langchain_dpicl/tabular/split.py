"""How a row's epsilon is divided among its columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Literal, TypeAlias

from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError

Split: TypeAlias = Literal["even", "domain"] | Mapping[str, float]
"""Equal parts, equal chances of keeping a value, or each column's epsilon."""

TOLERANCE = 1e-9
"""How far a given split may miss epsilon, relatively: decimals don't add up exactly."""


def split_epsilon(
    epsilon: float, sizes: Mapping[str, int], how: Split = "even"
) -> dict[str, float]:
    """Return each column's epsilon; together they are at most `epsilon`.

    Args:
        epsilon: What one row may cost, all columns together.
        sizes: Each column's name and number of public values (or bins).
        how: `"even"`: all columns get the same epsilon. `"domain"`: all columns keep
            their value with the same chance. Or a mapping from each column to its
            epsilon, which sum to `epsilon`.

    Returns:
        The columns' epsilons, in the order of `sizes`.

    Raises:
        InvalidParameterError: If an argument is out of its range, or a given split
            leaves out a column, names one that isn't there, or sums to something else.

    Example:
        >>> split_epsilon(3.0, {"smokes": 2, "job": 12, "label": 2})
        {'smokes': 1.0, 'job': 1.0, 'label': 1.0}
        >>> by_domain = split_epsilon(3.0, {"smokes": 2, "job": 12}, "domain")
        >>> {name: round(part, 2) for name, part in by_domain.items()}
        {'smokes': 0.83, 'job': 2.17}
        >>> split_epsilon(3.0, {"smokes": 2, "job": 12}, {"smokes": 1, "job": 2})
        {'smokes': 1.0, 'job': 2.0}

    Privacy:
        A row's columns are randomized independently, so that their epsilons add up
        (basic composition; Carey et al., *DP-TabICL*, 2024, Algorithm 1). The parts
        are rounded so that their exact sum is never above `epsilon`. Only public
        things go in: sizes of declared domains, not of what the rows hold.

        `"domain"`: k-ary randomized response with epsilon_f keeps a value with chance
        a = (exp(epsilon_f) - 1) / (exp(epsilon_f) + d - 1), and otherwise says a
        uniformly random one of the d values. At equal epsilon, a falls with d: a
        column with many values is nearly all noise while one with two is nearly
        clean, and every pair of the two is spoiled. Equal a gives each column
        epsilon_f = ln((1 + (d - 1) a) / (1 - a)).
    """
    total = parameters.epsilon(epsilon)
    _check_sizes(sizes)
    if isinstance(how, Mapping):
        parts = _given(total, sizes, how)
    elif how == "even":
        parts = dict.fromkeys(sizes, total / len(sizes))
    elif how == "domain":
        parts = _by_domain(total, sizes)
    else:
        raise InvalidParameterError(
            "split must be 'even', 'domain', or a mapping from each column's name to "
            "its epsilon."
        )
    return _rounded_down(total, parts)


def share_epsilon(epsilon: float, shares: int) -> float:
    """Return what one of so many equal shares may cost, rounded down.

    Args:
        epsilon: What all of them may cost together.
        shares: How many there are.

    Example:
        >>> share_epsilon(3.0, 2)
        1.5
    """
    count = parameters.count(shares, "shares")
    whole = Fraction(parameters.epsilon(epsilon))
    # As fractions: a count may be larger than any float.
    part = float(whole / count)
    while Fraction(part) * count > whole:
        part = math.nextafter(part, 0.0)
    if part <= 0:
        raise _too_small(f"{count} equal shares")
    return part


def _check_sizes(sizes: Mapping[str, int]) -> None:
    if not sizes:
        raise InvalidParameterError("There are no columns to divide epsilon among.")
    for name, size in sizes.items():
        parameters.count(size, f"the number of values of {name!r}", minimum=2)


def _given(
    epsilon: float, sizes: Mapping[str, int], how: Mapping[str, float]
) -> dict[str, float]:
    wanted = ", ".join(map(repr, sizes))
    missing = [name for name in sizes if name not in how]
    if missing:
        raise InvalidParameterError(
            f"split gives no epsilon for {missing[0]!r}. What takes a share here is: "
            f"{wanted:.500}."
        )
    unknown = [name for name in how if name not in sizes]
    if unknown:
        raise InvalidParameterError(
            f"split names {unknown[0]!r}, which takes no share here. What does is: "
            f"{wanted:.500}."
        )
    parts = {name: parameters.epsilon(how[name], f"split[{name!r}]") for name in sizes}
    try:
        total = math.fsum(parts.values())
    except OverflowError:
        total = math.inf
    if not abs(total - epsilon) <= TOLERANCE * epsilon:
        raise InvalidParameterError(
            f"split sums to {total:.12g}, and epsilon is {epsilon:.12g}: each column's "
            "loss adds up for the row it is in. Make them sum to epsilon."
        )
    return parts


def _by_domain(epsilon: float, sizes: Mapping[str, int]) -> dict[str, float]:
    """Solve sum ln(1 + d x) = epsilon for x = a / (1 - a), on a logarithmic scale.

    (1 + (d - 1) a) / (1 - a) = 1 + d x, and x runs from 0 to infinity where a runs from
    0 to 1: nothing cancels where a is close to 1, and nothing overflows in ln x.
    """
    logs = {name: math.log(size) for name, size in sizes.items()}
    # ln(1 + d x) <= d x bounds x from below, ln(1 + d x) >= ln(d x) from above.
    low = math.log(epsilon) - math.log(sum(sizes.values()))
    high = epsilon / len(sizes) - min(logs.values())

    def parts_at(log_x: float) -> dict[str, float]:
        return {name: _softplus(log_x + log) for name, log in logs.items()}

    while low < (middle := (low + high) / 2) < high:
        if math.fsum(parts_at(middle).values()) <= epsilon:
            low = middle
        else:
            high = middle
    return parts_at(low)


def _softplus(value: float) -> float:
    """Return ln(1 + exp(value)), without overflow."""
    return max(value, 0.0) + math.log1p(math.exp(-abs(value)))


def _rounded_down(epsilon: float, parts: dict[str, float]) -> dict[str, float]:
    """Return the parts, made smaller until they fit: by units in the last place."""
    while _exceeds(epsilon, list(parts.values())):
        excess = epsilon / math.fsum(parts.values())
        parts = {
            name: math.nextafter(min(part, part * excess), 0.0)
            for name, part in parts.items()
        }
    for name, part in parts.items():
        if part <= 0:
            raise _too_small(f"column {name!r}")
    return parts


def _exceeds(epsilon: float, parts: list[float]) -> bool:
    """Return whether the parts' exact sum, or their sum in floats, is too large."""
    exact = sum(map(Fraction, parts), Fraction(0))
    return exact > Fraction(epsilon) or sum(parts) > epsilon


def _too_small(whose: str) -> InvalidParameterError:
    return InvalidParameterError(
        f"epsilon is so small that nothing of it is left for {whose}. Give more."
    )
