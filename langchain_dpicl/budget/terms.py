"""From a handler's arguments to the terms of an account."""

from __future__ import annotations

import warnings
from typing import Any

from langchain_dpicl import accounting
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError

DELTA0_SHARE = 0.2
"""The part of a filter's delta set aside for failure probabilities.

Unlike a plan, a filter does not know which releases will come. Setting aside a fifth
costs those without a delta0 one percent of epsilon, and those with one a threshold that
is three percent further out than that of half of delta.
"""

LARGEST_QUIET_DELTA = 1e-5
"""The largest delta that is no reason for a warning where no size is declared.

It is below one over the number of people in corpora of fewer than 100,000.
"""


def check_delta(delta: float, people_at_most: int | None) -> None:
    """Compare delta with the number of people that the operator declares.

    Without such a number a delta above `LARGEST_QUIET_DELTA` is warned of.

    Raises:
        InvalidParameterError: If delta is 1 / people_at_most or more.

    Privacy:
        Delta below one over the number of people is advice on a parameter, and no part
        of the theorem. Compared with the records themselves it would tell how many
        people there are, so nothing here looks at them.
    """
    if people_at_most is None:
        if delta > LARGEST_QUIET_DELTA:
            warnings.warn(
                f"delta {delta:g} means little to {1 / delta:.3g} people or more: to "
                "publish the records of one of them at random would satisfy it. Give "
                "people_at_most=, the largest number of people that the account may "
                "protect, or a smaller delta.",
                stacklevel=3,
            )
        return
    least = 1 / parameters.count(people_at_most, "people_at_most")
    if delta >= least:
        raise InvalidParameterError(
            f"delta {delta:g} is too large for people_at_most={people_at_most}: to "
            "publish the records of one of them at random would satisfy it. Open the "
            f"account with delta below {least:.2g}."
        )


def filter_terms(
    method: str | None,
    queries: int | None,
    epsilon: float,
    delta: float,
    share: float | None,
    order: float | None,
) -> dict[str, Any]:
    """Return the terms of a filter; none under a plan."""
    if method is None:
        if queries is None:
            raise InvalidParameterError(
                "How is the budget to be spent? Give queries=, the number of answers "
                "it should last for (in a per-unit account: for each person), or "
                "accounting='renyi', which takes any release, and parsers with noise "
                "of their own."
            )
        if share is not None or order is not None:
            raise InvalidParameterError(
                "delta0_share and order go with accounting=; a plan needs neither."
            )
        return {}
    if method != "renyi":
        raise InvalidParameterError(
            "accounting must be 'renyi', or left out for a plan of queries= equal "
            "releases."
        )
    share = DELTA0_SHARE if share is None else share
    if order is None:
        order = accounting.best_order(epsilon, delta * (1 - share))
    return {"order": order, "delta0_share": share}
