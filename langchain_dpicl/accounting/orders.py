"""The order of a Renyi filter that suits an expected mix of releases."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from langchain_dpicl.accounting import limits
from langchain_dpicl.accounting.composition import AnyEvent, own_events
from langchain_dpicl.accounting.events import Event, Failure, Parallel
from langchain_dpicl.accounting.filters import PrivacyFilter
from langchain_dpicl.accounting.renyi import Floats, divergence
from langchain_dpicl.errors import InvalidParameterError

_SPREAD = np.geomspace(1e-4, 1e4, 401)
_NEAR = np.geomspace(0.95, 1.05, 41)
_WHOLE = np.arange(1.0, 257.0)


def best_order(
    events: Iterable[AnyEvent],
    epsilon: float,
    delta: float,
    *,
    delta0_share: float = 0.5,
) -> float:
    """Return the order at which a mix of events can be repeated most often.

    Args:
        events: What a typical release is expected to cost; failures don't matter.
        epsilon: Total privacy loss bound of the account; above 0.
        delta: Its total failure probability, strictly between 0 and 1.
        delta0_share: The part of delta that pays for failures.

    Returns:
        An order above 1, for `PrivacyFilter("renyi", ..., order=...)`.

    Raises:
        InvalidParameterError: If a parameter is out of its range, an event is unknown,
            or none of the events has a loss.

    Privacy: choose the order before the account is opened, from the expected mix and
    never from answers. Another mix than the expected one costs a smaller number of
    releases, not privacy.

    Example:
        >>> from langchain_dpicl.accounting import Gaussian
        >>> mix = [Gaussian(2.0, sampling_rate=0.01), Failure(1e-12)]
        >>> order = best_order(mix, epsilon=1.0, delta=1e-6)
        >>> account = PrivacyFilter("renyi", 1.0, 1e-6, order=order)
        >>> default = PrivacyFilter("renyi", 1.0, 1e-6)
        >>> account.cost(mix).loss < default.cost(mix).loss
        True
    """
    terms = PrivacyFilter("renyi", epsilon, delta, delta0_share=delta0_share)
    mix = [event for event in own_events(events) if _has_loss(event)]
    if not mix or terms.order is None:
        raise InvalidParameterError("The mix holds no event with a privacy loss.")
    start, delta = terms.order - 1, terms.delta_left

    def best_of(x: Floats) -> float:
        orders = np.maximum(1 + x, limits.LEAST_ORDER)
        budgets = [limits.renyi_budget(a, terms.epsilon, delta) for a in orders]
        room = np.array(budgets)
        with np.errstate(all="ignore"):
            loss = sum(event.count * divergence(event, orders - 1) for event in mix)
            repeats = np.where((room > 0) & (loss > 0), room / loss, 0.0)
        return float(x[np.argmax(np.nan_to_num(repeats, nan=0.0))])

    # The loss of a sampled Gaussian has its kinks at whole orders.
    best = best_of(np.concatenate([[start], start * _SPREAD, _WHOLE]))
    best = best_of(np.concatenate([[best], best * _NEAR]))
    return max(limits.LEAST_ORDER, 1 + best)


def _has_loss(event: Event) -> bool:
    if isinstance(event, Parallel):
        return any(_has_loss(inner) for branch in event.branches for inner in branch)
    return not isinstance(event, Failure)
