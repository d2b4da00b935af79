r"""From counts of reports to shares, to a distribution, and to rows drawn from it.

*Shares.* Column f of domain size d reports its true value with chance
e^eps / (e^eps + d - 1) and each other value with 1 / (e^eps + d - 1). As a matrix

    P_f = a I + b 1 1^T,   a = (e^eps - 1) / (e^eps + d - 1),   b = 1 / (e^eps + d - 1),

and since a + d b = 1 its inverse is (I - b 1 1^T) / a. Columns are randomized
independently, so the matrix of a whole row is the Kronecker product of the columns'
matrices, and so is its inverse. It is applied axis by axis, and never built (Carey,
Bhaila, Edemacu and Wu, *DP-TabICL*, 2024, Algorithm 1, with a closed inverse).

*Rows.* The first row of each label is its *telling* row: in every column it has the
value whose share among the label's rows is furthest above its share among all rows. Few
examples of a label can't show how its rows vary, and rows drawn at random would mostly
show chance; telling rows show how labels differ. Each of their values rests on a table
of two columns, which reports know far better than a whole row. All further rows are
drawn.

Everything here is post-processing of reports: any number of rows, at no cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from langchain_dpicl.tabular.distribution import (
    Codes,
    Distribution,
    Floats,
    JointDistribution,
    LabelDistribution,
    project_to_simplex,
    shares_by_label,
)
from langchain_dpicl.tabular.ldp.reports import ReportCounts

Model: TypeAlias = Literal["label", "joint"]


def reconstruct(frequencies: Any, epsilons: Sequence[float]) -> Floats:
    """Return the unbiased estimate of the true frequencies behind randomized reports.

    pi = (P_1 x ... x P_F)^-1 lambda, where lambda are the reports' frequencies. The
    estimate sums to what `frequencies` sums to. Single cells may be negative, and stay
    so: `project_to_simplex` makes a distribution of it.

    The table has one axis per column, each with its epsilon (`math.inf` for a column
    that was not randomized). Counts do as well: the map is linear.

    Example:
        >>> reports = np.array([0.6, 0.4])  # Of a column that is always 0.
        >>> reconstruct(reports, [math.log(1.5)]).round(6) + 0
        array([1., 0.])
    """
    table = np.array(frequencies, np.float64)
    for axis, epsilon in enumerate(epsilons):
        agree, other = response_terms(table.shape[axis], epsilon)
        table = (table - other * table.sum(axis=axis, keepdims=True)) / agree
    return table


def share_errors(frequencies: Floats, epsilon: float, n: int) -> Floats:
    """Return the standard errors of the shares of one column's values.

    The frequencies lambda of a column sum to 1, so pi = (lambda - b) / a. The reports
    of n independent rows are multinomial: Var(pi) = lambda (1 - lambda) / (n a^2). It
    holds both the randomness of the responses and that of which rows were met.

    Example:
        >>> share_errors(np.array([0.5, 0.5]), math.inf, 100)
        array([0.05, 0.05])
    """
    agree, _ = response_terms(frequencies.size, epsilon)
    # One that is 1 may be rounded to more.
    variance = np.maximum(frequencies * (1 - frequencies), 0) / n
    return np.asarray(np.sqrt(variance) / agree)


def response_terms(size: int, epsilon: float) -> tuple[float, float]:
    """Return a and b of P = a I + b 11^T, without overflow for any epsilon.

    Example:
        >>> response_terms(4, math.inf)
        (1.0, 0.0)
    """
    shrink = math.exp(-epsilon)
    whole = 1 + (size - 1) * shrink
    return -math.expm1(-epsilon) / whole, shrink / whole


def fit(
    counts: ReportCounts, epsilons: Sequence[float], *, model: Model = "label"
) -> Distribution:
    """Estimate the distribution of the rows behind randomized reports.

    * `"label"`: the label's shares, and each column's shares among the rows of each
      label. Each rests on the reports of two columns.
    * `"joint"`: the reconstructed table of whole rows. It leaves out no dependence, but
      every column multiplies its noise (a binary one at epsilon 1 by 2.4). It exists
      where that table has at most `MAX_CELLS` cells.

    Estimates below 0 are projected onto the simplex.

    Example:
        >>> counts = ReportCounts([2, 2], label=1)
        >>> counts.add(np.array([[0, 0], [1, 1]] * 50))
        >>> fitted = fit(counts, [2.0, 2.0])
        >>> fitted.marginal(0).tolist()
        [0.5, 0.5]
    """
    label = counts.label
    if model == "joint" and (joint := counts.joint) is not None:
        return JointDistribution(reconstruct(joint / counts.n, epsilons), label)
    weights = project_to_simplex(_shares(counts, epsilons, label))
    columns = {
        column: shares_by_label(_pair_shares(counts, epsilons, column), weights)
        for column in range(len(epsilons))
        if column != label
    }
    return LabelDistribution(weights, columns, label)


def estimates(
    counts: ReportCounts, epsilons: Sequence[float]
) -> list[list[tuple[float, float]]]:
    """Return each value's unbiased share, perhaps below 0, and its standard error.

    Errors are taken at the reports' frequencies that the fitted shares imply, not at
    those seen: these may be such that no table has them, and a few reports that are
    all the same would pass for certainty.
    """
    pairs = []
    for column, epsilon in enumerate(epsilons):
        shares = _shares(counts, epsilons, column)
        agree, other = response_terms(shares.size, epsilon)
        expected = agree * project_to_simplex(shares) + other
        errors = share_errors(expected, epsilon, counts.n)
        pairs.append(list(zip(shares.tolist(), errors.tolist(), strict=True)))
    return pairs


def draw_rows(
    distribution: Distribution,
    counts: ReportCounts,
    epsilons: Sequence[float],
    k: int,
    *,
    balanced: bool,
) -> Codes:
    """Return k rows of codes.

    `balanced`: labels take turns, the most frequent first, each with its telling row
    and then with drawn ones; a label that the reports give no weight does not come.
    Otherwise all rows are drawn, labels as often as in the table.
    """
    if not balanced:
        return distribution.sample(k)
    weights = distribution.marginal(counts.label)
    return distribution.balanced(k, _telling_rows(counts, epsilons, weights))


def _telling_rows(
    counts: ReportCounts, epsilons: Sequence[float], weights: Floats
) -> Codes:
    """Return the telling row of each label.

    Whatever model was fitted, it rests on the reports of two columns at a time.
    """
    rows = np.zeros((len(weights), len(epsilons)), np.int64)
    for column in range(len(epsilons)):
        if column != counts.label:
            pairs = _pair_shares(counts, epsilons, column)
            shares = shares_by_label(pairs, weights)
            if np.count_nonzero(weights) > 1:
                # Weighted: of a label that is rare, reports say little but chance.
                shares = shares - weights @ shares
            rows[:, column] = np.argmax(shares, axis=1)
    return rows


def _shares(counts: ReportCounts, epsilons: Sequence[float], column: int) -> Floats:
    """Return the unbiased shares of a column's values."""
    return reconstruct(counts.single(column) / counts.n, [epsilons[column]])


def _pair_shares(
    counts: ReportCounts, epsilons: Sequence[float], column: int
) -> Floats:
    """Return the unbiased shares of each label with each value of a column."""
    pair = [epsilons[counts.label], epsilons[column]]
    return reconstruct(counts.pairs[column] / counts.n, pair)
