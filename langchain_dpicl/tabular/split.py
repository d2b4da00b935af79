"""How a row's epsilon is divided among its columns."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import Literal, TypeAlias

from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError

Split: TypeAlias = Literal["even"] | Mapping[str, float]
"""Equal parts, or each column's epsilon."""

TOLERANCE = 1e-9
"""How far a given split may miss epsilon, relatively: decimals don't add up exactly."""


def split_epsilon(
    epsilon: float, names: Collection[str], how: Split = "even"
) -> dict[str, float]:
    """Return each column's epsilon; together they are at most `epsilon`.

    Args:
        epsilon: What one row may cost, all columns together.
        names: The columns.
        how: `"even"`: all columns get the same epsilon. Or a mapping from each column
            to its epsilon, which sum to `epsilon`.

    Returns:
        The columns' epsilons, in the order of `names`.

    Raises:
        InvalidParameterError: If an argument is out of its range, or a given split
            leaves out a column, names one that isn't there, or sums to something else.

    Example:
        >>> split_epsilon(3.0, ["smokes", "job", "label"])
        {'smokes': 1.0, 'job': 1.0, 'label': 1.0}
        >>> split_epsilon(3.0, ["smokes", "job"], {"smokes": 1, "job": 2})
        {'smokes': 1.0, 'job': 2.0}

    Privacy:
        A row's columns are randomized independently, so that their epsilons add up
        (basic composition; Carey et al., *DP-TabICL*, 2024, Algorithm 1). The parts
        are rounded so that their exact sum is never above `epsilon`.
    """
    total = parameters.epsilon(epsilon)
    if not names:
        raise InvalidParameterError("There are no columns to divide epsilon among.")
    if isinstance(how, Mapping):
        parts = _given(total, names, how)
    elif how == "even":
        parts = dict.fromkeys(names, total / len(names))
    else:
        raise InvalidParameterError(
            "split must be 'even', or a mapping from each column's name to its epsilon."
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


def _given(
    epsilon: float, names: Collection[str], how: Mapping[str, float]
) -> dict[str, float]:
    wanted = ", ".join(map(repr, names))
    missing = [name for name in names if name not in how]
    if missing:
        raise InvalidParameterError(
            f"split gives no epsilon for {missing[0]!r}. What takes a share here is: "
            f"{wanted:.500}."
        )
    unknown = [name for name in how if name not in names]
    if unknown:
        raise InvalidParameterError(
            f"split names {unknown[0]!r}, which takes no share here. What does is: "
            f"{wanted:.500}."
        )
    parts = {name: parameters.epsilon(how[name], f"split[{name!r}]") for name in names}
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
