"""The tree: each column depends on one other at most, for tables of any width.

Chow and Liu, *Approximating Discrete Probability Distributions with Dependence Trees*,
1968: of all distributions in which the columns form a tree, the one on the heaviest
tree, weighted by mutual information, is nearest to the truth. It needs the tables of
pairs only, and these can be estimated well where a joint table is all noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.source import SecureRandom
from langchain_dpicl.tabular.ldp.distribution import Distribution, draw_codes

_Floats = npt.NDArray[np.float64]
_Codes = npt.NDArray[np.int64]


class TreeDistribution(Distribution):
    """Columns that form a forest; columns in different trees are independent.

    Args:
        marginals: Each column's probabilities.
        tables: For every edge (i, j), i < j, the probabilities of the pair, shape
            `(d_i, d_j)`, which agree with the marginals.
        errors: Standard errors of each marginal.
        noise: Expected total variation distance due to randomized response.

    Raises:
        InvalidParameterError: If the edges form a cycle.

    Example:
        >>> half, errors = np.full(2, 0.5), [np.zeros(2)] * 3
        >>> tables = {(0, 2): np.array([[0.0, 0.5], [0.5, 0.0]])}
        >>> tree = TreeDistribution([half] * 3, tables, errors, 0.0)
        >>> tree.edges
        ((0, 2),)
        >>> tree.sample(1, given=(2, 0))[0, [0, 2]].tolist()
        [1, 0]
    """

    kind = "tree"

    def __init__(
        self,
        marginals: Sequence[_Floats],
        tables: Mapping[tuple[int, int], _Floats],
        errors: Sequence[_Floats],
        noise: float,
    ) -> None:
        super().__init__(errors, noise)
        self._marginals = tuple(marginals)
        self._tables = dict(tables)
        self.edges = tuple(sorted(self._tables))
        # Every edge is walked exactly once, unless some close a cycle.
        walked = sum(parent is not None for _, parent in self._order(0))
        if walked != len(self.edges):
            raise InvalidParameterError("edges must not form a cycle.")

    def marginal(self, column: int) -> _Floats:
        """Return the probabilities of one column's values, shape `(d,)`."""
        return np.array(self._marginals[self._checked_column(column)])

    def _draw(
        self, k: int, source: SecureRandom, given: tuple[int, int] | None
    ) -> _Codes:
        rows = np.empty((k, len(self._marginals)), dtype=np.int64)
        # A forest has the same distribution from whichever root it is drawn. From the
        # given column, everything else follows by conditionals.
        for column, parent in self._order(given[0] if given else 0):
            if given and column == given[0]:
                rows[:, column] = given[1]
            elif parent is None:
                rows[:, column] = draw_codes(self._marginals[column], k, source)
            else:
                rows[:, column] = self._draw_child(
                    column, parent, rows[:, parent], source
                )
        return rows

    def _draw_child(
        self, column: int, parent: int, above: _Codes, source: SecureRandom
    ) -> _Codes:
        backward = (column, parent) in self._tables
        table = (
            self._tables[column, parent].T if backward else self._tables[parent, column]
        )
        codes = np.empty(above.size, dtype=np.int64)
        for code in np.unique(above):
            here = above == code
            # A code of the parent so rare that its row of the table is rounded away.
            weights = table[code] if table[code].sum() > 0 else self._marginals[column]
            codes[here] = draw_codes(weights, int(here.sum()), source)
        return codes

    def _order(self, root: int) -> list[tuple[int, int | None]]:
        """Return the columns with their parents, every parent before its children."""
        near: dict[int, list[int]] = {i: [] for i in range(len(self._marginals))}
        for i, j in self.edges:
            near[i].append(j)
            near[j].append(i)
        order: list[tuple[int, int | None]] = []
        seen: set[int] = set()
        for start in (root, *near):
            waiting: list[tuple[int, int | None]] = [(start, None)]
            while waiting:
                column, parent = waiting.pop()
                if column not in seen:
                    seen.add(column)
                    order.append((column, parent))
                    waiting += [(child, column) for child in near[column]]
        return order
