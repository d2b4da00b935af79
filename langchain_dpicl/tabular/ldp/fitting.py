"""From counts of randomized reports to a distribution that rows can be drawn from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.ldp.counts import ReportCounts
from langchain_dpicl.tabular.ldp.dependence import (
    independence_p_value,
    mutual_information,
    noise_share,
    rake,
)
from langchain_dpicl.tabular.ldp.distribution import Distribution
from langchain_dpicl.tabular.ldp.joint import JointDistribution
from langchain_dpicl.tabular.ldp.reconstruction import (
    checked_epsilons,
    randomization_noise,
    reconstruct,
    response_terms,
    standard_errors,
)
from langchain_dpicl.tabular.ldp.tree import TreeDistribution
from langchain_dpicl.tabular.simplex import project_to_simplex

__all__ = ["EDGE_SIGNIFICANCE", "MAX_JOINT_NOISE", "Distribution", "fit"]

MAX_JOINT_NOISE = 0.25
"""Expected total variation distance up to which `model="auto"` takes a joint table."""

EDGE_SIGNIFICANCE = 0.01
"""About the chance of one edge or more where all columns are independent."""

_Floats = npt.NDArray[np.float64]
_Edge = tuple[int, int]


def fit(
    counts: ReportCounts,
    epsilons: Sequence[float],
    *,
    model: Literal["auto", "joint", "tree"] = "auto",
) -> Distribution:
    """Estimate the distribution of the rows behind randomized reports.

    * `"joint"`: the reconstructed table of whole rows, projected onto the simplex.
      It exists where that table has at most `MAX_CELLS` cells.
    * `"tree"`: each column depends on one other at most. The tables of pairs are
      reconstructed, projected and raked to the columns' marginals. The edges are
      those of a maximum spanning tree by mutual information, among the pairs whose
      reports are dependent by a test at `EDGE_SIGNIFICANCE` over all pairs.
    * `"auto"`: the joint table if it exists and its `noise` is at most
      `MAX_JOINT_NOISE`, else the tree. A joint table leaves out no dependence, but
      every column multiplies its noise (a binary one at epsilon 1 by 2.4); a tree
      leaves some out, and has the noise of pairs only. At 1/4, three in four sampled
      rows are still as the table itself would give them. Beyond, one or two columns
      more make it useless, and what it tells that pairs don't is lost first.

    Without any report the result is a tree without edges, of uniform marginals with
    infinite standard errors and a noise of 1 (for `"joint"`, a uniform table).

    Args:
        counts: Counts of the reports.
        epsilons: What each column was randomized with; `math.inf` for not at all.
        model: Which model.

    Returns:
        A `JointDistribution` or a `TreeDistribution`.

    Raises:
        InvalidParameterError: If the epsilons do not match, the model is unknown, or a
            joint table is asked for that would be too large.

    Privacy:
        Post-processing of reports: fit as often as you like, it costs nothing.

    Example:
        >>> counts = ReportCounts([2, 2])
        >>> counts.add(np.array([[0, 0], [1, 1]] * 50))
        >>> fitted = fit(counts, [2.0, 2.0])
        >>> fitted.kind, fitted.marginal(0).tolist()
        ('joint', [0.5, 0.5])
    """
    budgets = checked_epsilons(epsilons, len(counts.domain_sizes))
    if model not in ("auto", "joint", "tree"):
        raise InvalidParameterError('model must be "auto", "joint" or "tree".')
    joint = None if model == "tree" else counts.joint
    if joint is None and model == "joint":
        raise InvalidParameterError(
            "the joint table of these columns is too large to be kept: use the model "
            '"tree", or fewer columns.'
        )
    if counts.n == 0:
        return _without_reports(counts.domain_sizes, joint=model == "joint")
    if joint is not None:
        noise = _noise(joint, budgets, counts.n)
        if model == "joint" or noise <= MAX_JOINT_NOISE:
            errors = _errors(counts.singles, budgets, counts.n)
            return JointDistribution(_estimate(joint, budgets), errors, noise)
    return _fit_tree(counts, budgets)


def _without_reports(sizes: tuple[int, ...], *, joint: bool) -> Distribution:
    errors = [np.full(size, math.inf) for size in sizes]
    if joint:
        return JointDistribution(np.zeros(sizes), errors, 1.0)
    marginals = [np.full(size, 1 / size) for size in sizes]
    return TreeDistribution(marginals, {}, errors, 1.0)


def _fit_tree(counts: ReportCounts, epsilons: Sequence[float]) -> TreeDistribution:
    singles, pairs = counts.singles, counts.pairs
    marginals = [
        project_to_simplex(_estimate(single, [epsilon]))
        for single, epsilon in zip(singles, epsilons, strict=True)
    ]
    tables: dict[_Edge, _Floats] = {}
    weights: dict[_Edge, float] = {}
    for (i, j), reports in pairs.items():
        if independence_p_value(reports) * len(pairs) > EDGE_SIGNIFICANCE:
            continue
        estimate = project_to_simplex(_estimate(reports, (epsilons[i], epsilons[j])))
        tables[i, j] = rake(estimate, marginals[i], marginals[j])
        # Chance adds to the information seen, most for columns of many values.
        shrink = 1 - noise_share(reports)
        weights[i, j] = shrink * mutual_information(tables[i, j])
    edges = heaviest_forest(weights, len(marginals))
    # Per column without an edge, and per edge.
    linked = {column for edge in edges for column in edge}
    noises = [
        _noise(singles[i], [epsilons[i]], counts.n)
        for i in range(len(singles))
        if i not in linked
    ]
    noises += [
        _noise(pairs[i, j], (epsilons[i], epsilons[j]), counts.n) for i, j in edges
    ]
    return TreeDistribution(
        marginals,
        {edge: tables[edge] for edge in edges},
        _errors(singles, epsilons, counts.n),
        _added(noises),
    )


def heaviest_forest(weights: dict[_Edge, float], columns: int) -> list[_Edge]:
    """Return the edges of a maximum spanning forest of the weighted pairs.

    Args:
        weights: The pairs that may be edges, by their weights, 0 or more.
        columns: Number of columns.

    Returns:
        Edges (i, j), i < j, in order.

    Example:
        >>> heaviest_forest({(0, 1): 0.5, (0, 2): 0.0, (1, 2): 0.3}, 4)
        [(0, 1), (1, 2)]
    """
    if not weights:
        return []
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import minimum_spanning_tree

    # SciPy takes a 0 for no edge and looks for the lightest tree: costs are what
    # misses to the heaviest weight, and one more, so that none is 0.
    heights = np.array(list(weights.values()))
    # Older versions of SciPy read indices of 32 bits only.
    heads, tails = np.array(list(weights), dtype=np.int32).T
    graph = coo_array((heights.max() - heights + 1, (heads, tails)), (columns, columns))
    found = minimum_spanning_tree(graph.tocsr()).tocoo()
    return sorted(
        (min(i, j), max(i, j))
        for i, j in zip(found.row.tolist(), found.col.tolist(), strict=True)
    )


def _added(noises: Sequence[float]) -> float:
    """Return the expected total variation distance of a forest, from its factors'.

    To first order the distance is half the mean absolute value of the sum of the
    factors' relative errors: of the marginal of a lone column, or the conditional of
    an edge. Under the model these are uncorrelated, so they add as squares do. A
    pair's whole error stands for its conditional's and its root's.
    """
    return min(1.0, math.hypot(*noises))


def _estimate(reports: npt.NDArray[np.int64], epsilons: Sequence[float]) -> _Floats:
    return reconstruct(reports / reports.sum(), epsilons)


def _noise(reports: npt.NDArray[np.int64], epsilons: Sequence[float], n: int) -> float:
    try:
        return randomization_noise(reports, epsilons, n)
    except InvalidParameterError:
        return 1.0  # A budget so small that the figures overflow: nothing but noise.


def _errors(
    singles: Sequence[npt.NDArray[np.int64]], epsilons: Sequence[float], n: int
) -> list[_Floats]:
    """Return the standard errors of the columns' marginals.

    They are taken at the reports' frequencies that the fitted marginal implies, not at
    those seen: these may be such that no table has them, and a few reports that are
    all the same would pass for certainty.
    """
    errors = []
    for single, epsilon in zip(singles, epsilons, strict=True):
        agree, other = response_terms(single.size, epsilon)
        implied = agree * project_to_simplex(_estimate(single, [epsilon])) + other
        errors.append(standard_errors(implied, [epsilon], n))
    return errors
