"""From counts of randomized reports to a distribution that rows can be drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.distribution import (
    Distribution,
    JointDistribution,
    LabelDistribution,
    shares_by_label,
)
from langchain_dpicl.tabular.ldp.counts import ReportCounts
from langchain_dpicl.tabular.ldp.reconstruction import (
    checked_epsilons,
    reconstruct,
    response_terms,
    standard_errors,
)
from langchain_dpicl.tabular.simplex import project_to_simplex

Model = Literal["label", "joint"]

_Floats = npt.NDArray[np.float64]


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

    Args:
        counts: Counts of one report or more.
        epsilons: What each column was randomized with; `math.inf` for not at all.
        model: Which model.

    Raises:
        InvalidParameterError: If the epsilons do not match, the model is unknown, or a
            joint table is asked for that would be too large.

    Privacy:
        Post-processing of reports: fit as often as you like, it costs nothing.

    Example:
        >>> counts = ReportCounts([2, 2], label=1)
        >>> counts.add(np.array([[0, 0], [1, 1]] * 50))
        >>> fitted = fit(counts, [2.0, 2.0])
        >>> fitted.kind, fitted.marginal(0).tolist()
        ('label', [0.5, 0.5])
    """
    budgets = checked_epsilons(epsilons, len(counts.domain_sizes))
    if model not in ("label", "joint"):
        raise InvalidParameterError('model must be "label" or "joint".')
    label = counts.label
    if model == "joint":
        if (joint := counts.joint) is None:
            raise InvalidParameterError(
                "the joint table of these columns is too large to be kept: use the "
                'model "label", or fewer columns.'
            )
        return JointDistribution(reconstruct(joint / counts.n, budgets), label)
    weights = project_to_simplex(
        reconstruct(counts.singles[label] / counts.n, [budgets[label]])
    )
    columns = {
        column: shares_by_label(pair_shares(counts, budgets, column), weights)
        for column in range(len(budgets))
        if column != label
    }
    return LabelDistribution(weights, columns, label)


def pair_shares(
    counts: ReportCounts, epsilons: Sequence[float], column: int
) -> _Floats:
    """Return the unbiased shares of each label with each value of a column.

    Args:
        counts: Counts of one report or more.
        epsilons: What each column was randomized with.
        column: The column.
    """
    pair = [epsilons[counts.label], epsilons[column]]
    return reconstruct(counts.pairs[column] / counts.n, pair)


def share_errors(counts: ReportCounts, epsilons: Sequence[float]) -> list[_Floats]:
    """Return the standard errors of the shares of each column's values.

    They are taken at the reports' frequencies that the fitted shares imply, not at
    those seen: these may be such that no table has them, and a few reports that are
    all the same would pass for certainty.
    """
    errors = []
    for single, epsilon in zip(counts.singles, epsilons, strict=True):
        agree, other = response_terms(single.size, epsilon)
        shares = project_to_simplex(reconstruct(single / counts.n, [epsilon]))
        errors.append(standard_errors(agree * shares + other, [epsilon], counts.n))
    return errors
