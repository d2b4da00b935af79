"""How clear a picture reports will give, before anything is read or paid for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.randomized_response import response_chances
from langchain_dpicl.tabular.ldp.counts import MAX_CELLS
from langchain_dpicl.tabular.ldp.fitting import MAX_JOINT_NOISE
from langchain_dpicl.tabular.ldp.summary import ROUGH, conclusion, verdict

_PAIR = 2


@dataclass(frozen=True)
class ColumnForecast:
    """What is to be known about one column.

    Attributes:
        name: The column.
        size: Its number of values d.
        epsilon: Its epsilon for one row.
        kept: The chance that a report is the true value on purpose; else it is any of
            the d values, at random.
        error: The standard error of a share, of a value of average share.
    """

    name: str
    size: int
    epsilon: float
    kept: float
    error: float

    @property
    def share(self) -> float:
        """The average share of a value."""
        return 1.0 / self.size


@dataclass(frozen=True)
class LDPForecast:
    """What so many reports would show.

    Attributes:
        n_rows: How many rows are reported.
        epsilon: What all reports about one unit cost.
        columns: What is to be known about each column, in the schema's order.
        model: What the distribution will be: `joint` or `tree`.
        noise: By how much randomizing moves it, as an expected total variation
            distance, if all rows were equally likely; of a tree, an average one.
    """

    n_rows: int
    epsilon: float
    columns: tuple[ColumnForecast, ...]
    model: str
    noise: float

    def __str__(self) -> str:
        return self.advice()

    def rows_for(self, name: str) -> int:
        """Return how many rows make a column's error half of its average share.

        Args:
            name: The column.

        Raises:
            InvalidParameterError: If there is no such column.
        """
        column = next((c for c in self.columns if c.name == name), None)
        if column is None:
            raise InvalidParameterError(f"The table has no column {name!r}.")
        ratio = column.error / (ROUGH * column.share)
        return max(1, math.ceil(self.n_rows * ratio * ratio))

    def advice(self) -> str:
        """Return the forecast in plain words."""
        lines = [
            f"{self.n_rows} rows at epsilon {self.epsilon:g}:",
        ]
        for column in self.columns:
            line = f"* {verdict(column.name, column.size, column.error)}"
            if column.error >= ROUGH * column.share:
                line += f" {self.rows_for(column.name)} rows would make it readable."
            lines.append(line)
        errors = {column.name: (column.size, column.error) for column in self.columns}
        return "\n".join([*lines, *conclusion(errors, self.model, self.noise)])


def forecast(
    sizes: Mapping[str, int],
    epsilons: Mapping[str, float],
    *,
    n_rows: int,
    epsilon: float,
    model: str,
) -> LDPForecast:
    """Return what to expect of so many reports; it needs no data.

    Args:
        sizes: Each column's number of values.
        epsilons: Each column's epsilon for one row.
        n_rows: How many rows would be reported.
        epsilon: What all reports about one unit cost.
        model: `joint`, `tree`, or `auto`, as for `fit`.

    Privacy:
        All arguments are public, so is the forecast: it takes every column's values as
        equally likely.

    Example:
        >>> found = forecast(
        ...     {"job": 12, "smokes": 2},
        ...     {"job": 1.0, "smokes": 1.0},
        ...     n_rows=2000,
        ...     epsilon=2.0,
        ...     model="joint",
        ... )
        >>> [round(column.error, 3) for column in found.columns]
        [0.049, 0.024]
        >>> found.advice().splitlines()[1]  # doctest: +ELLIPSIS
        "* 'job': the error of a share is 0.049, and a share 0.083 on average: ..."
    """
    columns, gains = [], {}
    for name, size in sizes.items():
        true, other = response_chances(epsilons[name], size)
        # p - q, without the difference of near numbers where epsilon is small.
        agree = -true * math.expm1(-epsilons[name])
        gains[name] = _log_gain(size, agree, other)
        moment = _exp(gains[name] - math.log(size))
        error = math.sqrt(max(moment - 1.0 / size**2, 0.0) / n_rows)
        columns.append(ColumnForecast(name, size, epsilons[name], true - other, error))
    found = {
        tuple(group): _noise(
            math.fsum(math.log(sizes[name]) for name in group),
            math.fsum(gains[name] for name in group),
            n_rows,
        )
        for group in [tuple(sizes), *combinations(sizes, 2)]
    }
    joint = found[tuple(sizes)]
    is_small = math.prod(sizes.values()) <= MAX_CELLS
    if model == "auto":
        model = "joint" if is_small and joint <= MAX_JOINT_NOISE else "tree"
    noise = joint if model == "joint" else _tree_noise(found, len(sizes))
    return LDPForecast(n_rows, epsilon, tuple(columns), model, noise)


def _tree_noise(found: Mapping[tuple[str, ...], float], columns: int) -> float:
    """Return the noise of a tree that is not known yet.

    Squares of its edges' noise add up. A tree on F columns has F - 1 of the
    F (F - 1) / 2 pairs for edges; of all trees alike, each pair is in 2 / F of them.
    """
    squares = [noise**2 for group, noise in found.items() if len(group) == _PAIR]
    if not squares:
        return max(found.values())
    return min(1.0, math.sqrt(2.0 / columns * math.fsum(squares)))


def _log_gain(size: int, agree: float, other: float) -> float:
    """Return ln of the inverse's squared entries, summed over a row of it.

    The inverse is (I - b 11^T) / a, so they are (1 - b)^2 / a^2 and (d - 1) times
    b^2 / a^2. This is how much reconstructing multiplies the variance of a cell.
    """
    return math.log((1.0 - other) ** 2 + (size - 1) * other**2) - 2.0 * math.log(agree)


def _noise(log_cells: float, log_gain: float, n_rows: int) -> float:
    """Return the expected total variation distance on a uniform table, at most 1.

    Each of C cells has variance (gain / C - 1 / C) / n due to randomizing; a normal's
    mean absolute value is sqrt(2 / pi) of its standard deviation.
    """
    spread = math.sqrt(_exp(log_cells) * math.expm1(min(log_gain, 600.0)) / n_rows)
    return min(1.0, 0.5 * math.sqrt(2.0 / math.pi) * spread)


def _exp(value: float) -> float:
    """Return exp(value), or a number beyond all sense where it overflows."""
    return math.exp(min(value, 600.0))
