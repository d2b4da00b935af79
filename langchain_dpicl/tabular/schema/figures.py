"""Public numbers of a schema: bounds and edges, checked, and written as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from langchain_dpicl.common.parameters import count, finite
from langchain_dpicl.errors import InvalidParameterError

MAX_SPAN = 1 << 30
"""Largest distance of an integer column's bounds: a value fits 32 bits, and the sum of
2^31 rows fits 64."""

_EXACT = 1 << 53
_MAX_BINS = 1 << 20
_SIGNIFICANT = 4
_MOST_DECIMALS = 15


def sensible_decimals(half: float) -> int:
    """Return how many decimals show a column's range to four digits.

    Args:
        half: Half the distance of the column's public bounds, which may be too large
            for a float itself.

    Returns:
        A number of decimals from 0 to 15.

    Example:
        >>> [sensible_decimals(half) for half in (1.25, 35, 50, 1e6)]
        [3, 2, 1, 0]
    """
    decimals = _SIGNIFICANT - 1 - math.floor(math.log10(half) + math.log10(2))
    return min(max(decimals, 0), _MOST_DECIMALS)


def figure(value: float, decimals: int, *, fixed: bool = False) -> str:
    """Write a number.

    Args:
        value: A finite number.
        decimals: At most so many decimals.
        fixed: Whether to write zeros at the end too.

    Returns:
        Its text, without an exponent.

    Example:
        >>> figure(33.6, 2), figure(33.6, 2, fixed=True), figure(-0.001, 2)
        ('33.6', '33.60', '0')
    """
    text = f"{value:.{decimals}f}"
    if "." in text and not fixed:
        text = text.rstrip("0").rstrip(".")
    return text[1:] if text.startswith("-") and not text.strip("-0.") else text


def bin_names(edges: Sequence[float], decimals: int, span: float) -> tuple[str, ...]:
    """Name the bins between public edges.

    A bin holds its lower edge and not its upper one.

    Args:
        edges: The inner edges, increasing.
        decimals: How many decimals the column's values have.
        span: The distance of the column's bounds.

    Returns:
        One name more than there are edges.

    Example:
        >>> bin_names((30, 40), 0, 100)
        ('below 30', '30 to 40', '40 or more')
    """
    for more in range(_MOST_DECIMALS + 3):
        texts = [figure(edge, decimals + more) for edge in edges]
        exact = all(
            abs(float(text) - edge) <= 1e-9 * span
            for text, edge in zip(texts, edges, strict=True)
        )
        # Two decimals more than the values have are enough, unless edges look alike.
        if len(set(texts)) == len(texts) and (exact or more >= 2):  # noqa: PLR2004
            break
    else:
        texts = [repr(edge) for edge in edges]
    between = [f"{low} to {high}" for low, high in pairwise(texts)]
    return (f"below {texts[0]}", *between, f"{texts[-1]} or more")


def declared(name: str, given: Any, *, whole: bool) -> float:
    """Read a number that a schema declares.

    Args:
        name: Which number it is, for the message.
        given: What somebody gave.
        whole: Whether it must be an integer, and is returned as one.

    Returns:
        The number.

    Raises:
        InvalidParameterError: If it is no finite number, or no exact integer where it
            must be.

    Example:
        >>> declared("lower", 17.0, whole=True)
        17
    """
    try:
        number = finite(name, given)
    except OverflowError:
        number = math.inf
    if math.isinf(number):
        raise InvalidParameterError(f"{name} must be finite, and fit into a float")
    if not whole:
        return number
    if not number.is_integer() or abs(number) >= _EXACT:
        raise InvalidParameterError(
            f"{name} of an integer column must be an integer below 2^53; make the "
            'column kind="number"'
        )
    return int(given)


def check_span(lower: float, upper: float, *, whole: bool) -> None:
    """Refuse bounds without a number between them, or too far apart for integers.

    Args:
        lower: The lower bound.
        upper: The upper bound.
        whole: Whether they are those of an integer column.

    Raises:
        InvalidParameterError: If the bounds are reversed, equal, too close or too far
            apart.

    Example:
        >>> check_span(1, 1, whole=True)
        Traceback (most recent call last):
        langchain_dpicl.errors.InvalidParameterError: the upper bound must be ...
    """
    if lower >= upper:
        raise InvalidParameterError(
            "the upper bound must be above the lower one "
            f"(lower={lower!r}, upper={upper!r})"
        )
    if whole and upper - lower > MAX_SPAN:
        raise InvalidParameterError(
            'the bounds are more than 2^30 apart; make the column kind="number"'
        )
    if not lower < lower / 2 + upper / 2 < upper and not whole:
        raise InvalidParameterError("no number lies between the bounds; widen them")


def equal_edges(
    given: Any, lower: float, upper: float, *, whole: bool
) -> tuple[float, ...]:
    """Return the inner edges of bins of one width.

    Args:
        given: How many bins, as somebody gave it.
        lower: The lower bound.
        upper: The upper bound.
        whole: Whether edges must be integers, each bin holding equally many or one
            more.

    Returns:
        One edge less than there are bins.

    Raises:
        InvalidParameterError: If `given` is no number of bins, or there can't be so
            many.

    Example:
        >>> equal_edges(4, 0, 1, whole=False), equal_edges(4, 0, 9, whole=True)
        ((0.25, 0.5, 0.75), (3, 5, 8))
    """
    if isinstance(given, (str, bytes)) or not hasattr(given, "__index__"):
        raise InvalidParameterError("give a list of edges, or a number of bins")
    number = count(given, "the number of bins", minimum=2)
    if number > _MAX_BINS:
        raise InvalidParameterError(f"at most {_MAX_BINS} bins can be made")
    if whole:
        places = int(upper) - int(lower) + 1
        if number > places:
            raise InvalidParameterError(
                f"there are {places} integers only between the bounds"
            )
        return tuple(int(lower) - (-i * places // number) for i in range(1, number))
    shares = [i / number for i in range(1, number)]
    if math.isfinite(span := upper - lower):
        return tuple(lower + span * share for share in shares)
    return tuple(lower * (1 - share) + upper * share for share in shares)
