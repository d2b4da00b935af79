"""The joint table: every dependence between columns, where it fits and is not noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from langchain_dpicl.mechanisms.source import SecureRandom
from langchain_dpicl.tabular.ldp.distribution import Distribution, draw_codes
from langchain_dpicl.tabular.simplex import project_to_simplex

_Floats = npt.NDArray[np.float64]


class JointDistribution(Distribution):
    """A table of probabilities, one axis per column.

    Args:
        estimate: The reconstructed table, unprojected: the nearest distribution to it
            is taken.
        errors: Standard errors of each column's marginal.
        noise: Expected total variation distance due to randomized response.

    Example:
        >>> errors = [np.zeros(2), np.zeros(2)]
        >>> diagonal = JointDistribution(np.array([[0.5, 0], [0, 0.5]]), errors, 0.0)
        >>> diagonal.marginal(1).tolist()
        [0.5, 0.5]
        >>> diagonal.sample(2, given=(0, 1)).tolist()
        [[1, 1], [1, 1]]
    """

    kind = "joint"

    def __init__(
        self, estimate: _Floats, errors: Sequence[_Floats], noise: float
    ) -> None:
        super().__init__(errors, noise)
        self._table = project_to_simplex(estimate)

    @property
    def table(self) -> _Floats:
        """The probabilities, one axis per column."""
        return np.array(self._table)

    def marginal(self, column: int) -> _Floats:
        """Return the probabilities of one column's values, shape `(d,)`."""
        column = self._checked_column(column)
        rest = tuple(j for j in range(self._table.ndim) if j != column)
        probabilities: _Floats = self._table.sum(axis=rest)
        return probabilities

    def _draw(
        self, k: int, source: SecureRandom, given: tuple[int, int] | None
    ) -> npt.NDArray[np.int64]:
        if given is None:
            cells = draw_codes(self._table.reshape(-1), k, source)
            return np.stack(np.unravel_index(cells, self._table.shape), axis=1)
        # The row of the table that has the code, scaled to 1, is the conditional.
        column, code = given
        part = np.take(self._table, [code], axis=column)
        cells = draw_codes(part.reshape(-1), k, source)
        rows = np.stack(np.unravel_index(cells, part.shape), axis=1)
        rows[:, column] = code
        return rows
