"""From a total (epsilon, delta) and a number of queries to each query's events."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from langchain_dpicl import accounting
from langchain_dpicl.accounting import (
    Event,
    Gaussian,
    repeat,
    unsampled_epsilon,
)
from langchain_dpicl.accounting.parts import PurePart
from langchain_dpicl.accounting.template import EventsAt, EventTemplate, Template
from langchain_dpicl.budget.charge import require_template
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError, PlanMismatchError


def plan_queries(
    template: Template[Any],
    *,
    epsilon: float,
    delta: float,
    queries: int,
) -> tuple[Event, ...]:
    """Return the events that each of `queries` equal releases may spend.

    What the user left open is set to the least noise that keeps all queries together
    within (epsilon, delta). What the user fixed is only checked.

    Args:
        template: The shape of one release, or of several in a bundle.
        epsilon: Total privacy loss bound.
        delta: Total failure probability.
        queries: Number of releases.

    Returns:
        The events of one release. Of a disjoint bundle each branch is planned by
        itself for all of (epsilon, delta); equal ones are planned once.

    Privacy:
        All releases are fixed before the first is made, so any composition theorem
        for non-adaptive events applies: closed form for unsampled Gaussians (Balle and
        Wang 2018), privacy loss distributions for sampled ones, Renyi curves where an
        exponential mechanism takes part. A sampled plan is computed twice, by
        dp-accounting and by prv-accountant; where the two contradict each other it is
        refused. Where the second can't judge a case a warning says so: the first is an
        upper bound.

    Raises:
        PlanMismatchError: If no noise, or not the fixed one, keeps within the budget,
            or the two accountants contradict each other.
        InvalidParameterError: If an argument is out of its range or no template.

    Example:
        >>> from langchain_dpicl.mechanisms import vote_template
        >>> events = plan_queries(
        ...     vote_template("vote"), epsilon=8, delta=1e-6, queries=20
        ... )
        >>> round(events[0].noise_multiplier, 2)
        2.92
    """
    require_template(template)
    rule = _Plan(
        parameters.epsilon(epsilon),
        parameters.delta(delta),
        parameters.count(queries, "queries"),
    )
    return template.filled(rule)


@dataclass(frozen=True)
class _Plan:
    """The rule by which a plan sets noise: the least that all queries can afford."""

    epsilon: float
    delta: float
    queries: int

    def delta0(self, template: EventTemplate[Any], sharing: int) -> float:
        delta, uses = self.delta, self.queries * template.uses
        delta0 = template.delta0_for(delta, self.queries * sharing)
        charged = delta0 * template.sampling_rate * uses
        if charged >= delta:
            raise PlanMismatchError(
                f"{uses} releases with delta0 {delta0:g} each use up a delta of "
                f"{charged:g}, and the account has {delta:g}. Leave delta0 to the plan "
                f"or give less than {delta / uses / template.sampling_rate:.2g}."
            )
        return delta0

    def events(self, template: Template[Any], events_at: EventsAt) -> tuple[Event, ...]:
        epsilon, delta, queries = self.epsilon, self.delta, self.queries
        if template.is_fixed:
            events = events_at(1.0)
            cost = _cost(events, delta, queries)
            if not cost <= epsilon:
                raise PlanMismatchError(
                    f"{queries} releases by {template.mechanism} with the noise you "
                    f"fixed cost epsilon {cost:.4g} at delta {delta:g}; the account "
                    f"has {epsilon:g}. Leave the noise to the plan, or give more noise "
                    "or fewer queries."
                )
        else:
            try:
                scale = accounting.calibrate(events_at, epsilon, delta, uses=queries)
            except InvalidParameterError as error:
                raise PlanMismatchError(
                    f"No amount of noise lets {template.mechanism} answer {queries} "
                    f"queries within epsilon {epsilon:g} and delta {delta:g} ({error})."
                ) from None
            events = events_at(min(scale, self._pure_scale(template, scale)))
        _require_second_opinion(events, delta, queries)
        return events

    def _pure_scale(self, template: Template[Any], scale: float) -> float:
        """Return the scale at which pure releases add up to epsilon, if it is private.

        For one release, or few, basic composition is exact, where calibration stops a
        little before.
        """
        if not isinstance(template, EventTemplate) or template.needs_delta0:
            return scale
        if not isinstance(template.parts[0], PurePart):
            return scale
        each = self.epsilon / (self.queries * template.uses)
        found = 1.0 / unsampled_epsilon(each, template.sampling_rate)
        fits = is_affordable(
            template.events(found, 0.0),
            epsilon=self.epsilon,
            delta=self.delta,
            queries=self.queries,
        )
        return found if fits else scale


def _require_second_opinion(
    events: tuple[Event, ...], delta: float, queries: int
) -> None:
    in_doubt = [
        event
        for event in events
        if isinstance(event, Gaussian) and event.sampling_rate < 1
    ]
    if not in_doubt:
        return
    check = accounting.cross_check(repeat(events, queries), delta)
    if check.agrees is None:
        warnings.warn(
            f"The second accountant can't judge this plan: {check.reason}. Its epsilon "
            f"of {check.pld:.3g} is the first accountant's upper bound, unconfirmed.",
            stacklevel=2,
        )
    elif not check.agrees:
        raise PlanMismatchError(
            f"Two independent accountants disagree on this plan: {check}. Nothing is "
            "released on a figure that is in doubt; change the sampling rate, the "
            "noise or the number of queries."
        )


def _cost(events: tuple[Event, ...], delta: float, queries: int) -> float:
    try:
        return accounting.spent(events, queries, delta)
    except InvalidParameterError as error:
        raise PlanMismatchError(f"No plan adds up so many releases: {error}") from None


def is_affordable(
    events: tuple[Event, ...], *, epsilon: float, delta: float, queries: int
) -> bool:
    """Return whether `queries` such releases stay within (epsilon, delta)."""
    return _cost(events, delta, queries) <= epsilon
