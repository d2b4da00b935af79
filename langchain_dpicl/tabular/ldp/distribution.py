"""What can be asked of a distribution over table rows, whatever its model.

`JointDistribution` and `TreeDistribution` answer it; `fit` makes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_dpicl.common.parameters import count
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.source import SecureRandom, checked_source

_Floats = npt.NDArray[np.float64]
_Codes = npt.NDArray[np.int64]


class Distribution(ABC):
    """A distribution over rows of codes, with what is known of its error.

    Args:
        errors: Standard errors of each column's marginal, one array per column.
        noise: By how much randomized response, or the noise on counts, is expected to
            have moved it, in total variation distance.

    Attributes:
        kind: "joint" or "tree".
        edges: The pairs of columns that depend on each other directly, as the tree
            has them; empty for a joint table, which holds every dependence.
    """

    kind: str
    edges: tuple[tuple[int, int], ...] = ()

    def __init__(self, errors: Sequence[_Floats], noise: float) -> None:
        self._errors = tuple(errors)
        self._noise = noise

    def __repr__(self) -> str:
        sizes = "x".join(str(size) for size in self.domain_sizes)
        return f"{type(self).__name__}({sizes}, noise={self._noise:.3g})"

    @property
    def noise(self) -> float:
        """Expected total variation distance due to the noise, 0 to 1.

        How far sampled rows are, as a population, from those that the same model would
        give for the rows themselves. It is a function of what was released: show it.
        """
        return self._noise

    @property
    def domain_sizes(self) -> tuple[int, ...]:
        """Number of values of each column."""
        return tuple(error.size for error in self._errors)

    def standard_errors(self, column: int) -> _Floats:
        """Return the standard errors of one column's frequencies, shape `(d,)`.

        They are those of the estimates before they were projected onto the simplex,
        and infinite where there is no report.
        """
        errors = self._errors[self._checked_column(column)]
        return np.array(errors)

    @abstractmethod
    def marginal(self, column: int) -> _Floats:
        """Return the probabilities of one column's values, shape `(d,)`."""

    def sample(
        self,
        k: int,
        random: SecureRandom | None = None,
        *,
        given: tuple[int, int] | None = None,
    ) -> _Codes:
        """Draw rows independently of each other.

        Args:
            k: How many; 0 gives an empty array.
            random: The source to draw from; the operating system's by default.
            given: A column and a code that all rows shall have there; the rest is
                drawn from the exact conditional distribution. Drawing for each label
                gives a balanced set.

        Returns:
            Codes of shape `(k, columns)`.

        Raises:
            InvalidParameterError: If `k` is negative, the column or code does not
                exist, or the distribution gives that code no weight.

        Privacy:
            Post-processing of reports: any number of rows, any number of times.
        """
        k = count(k, "k", minimum=0)
        source = checked_source(random)
        if given is not None:
            given = self._checked_given(given)
        if k == 0:
            return np.empty((0, len(self.domain_sizes)), dtype=np.int64)
        return self._draw(k, source, given)

    @abstractmethod
    def _draw(
        self, k: int, source: SecureRandom, given: tuple[int, int] | None
    ) -> _Codes: ...

    def _checked_column(self, column: Any) -> int:
        number = count(column, "column", minimum=0)
        if number >= len(self._errors):
            raise InvalidParameterError(
                f"column must be below the number of columns, {len(self._errors)}."
            )
        return number

    def _checked_given(self, given: Any) -> tuple[int, int]:
        if not isinstance(given, tuple) or len(given) != 2:  # noqa: PLR2004  # A pair.
            raise InvalidParameterError("given must be a pair: a column and a code.")
        column = self._checked_column(given[0])
        code = count(given[1], "given's code", minimum=0)
        if code >= self.domain_sizes[column]:
            raise InvalidParameterError(
                f"given's code must be below column {column}'s domain size, "
                f"{self.domain_sizes[column]}."
            )
        if not self.marginal(column)[code] > 0:
            raise InvalidParameterError(
                f"given: by the reports, column {column} hardly ever has this code, "
                "and the distribution gives it no weight. Draw without it, or collect "
                "more reports."
            )
        return column, code


def draw_codes(weights: _Floats, k: int, source: SecureRandom) -> _Codes:
    """Draw codes with probabilities proportional to `weights`, by inversion.

    Each code takes one 64-bit word, of which 53 bits are used. Codes of weight 0 never
    come up.

    Args:
        weights: Nonnegative, not all 0, shape `(d,)`.
        k: How many.
        source: Where the bits come from.

    Returns:
        Codes of shape `(k,)`.

    Example:
        >>> draw_codes(np.array([0.0, 1.0, 0.0]), 3, SecureRandom()).tolist()
        [1, 1, 1]
    """
    steps = np.cumsum(weights)
    heights = (source.words(k) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    found = np.searchsorted(steps, heights * steps[-1], side="right")
    # Rounding can lift a height to the very top, which is past the last code.
    last = int(np.flatnonzero(weights)[-1])
    drawn: _Codes = np.minimum(found, last).astype(np.int64)
    return drawn
