"""Events to and from dp-accounting's `DpEvent` classes, where they fit.

Fails closed: a class that is unknown here, or that would be accounted for wrongly, is
refused. dp-accounting is imported only when one of these functions is called.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from langchain_dpicl.accounting.events import (
    Event,
    Exponential,
    Gaussian,
    Pure,
    ZCDPEvent,
    repeat,
)
from langchain_dpicl.accounting.gaussian import gdp_mu
from langchain_dpicl.accounting.sampling import sampled_epsilon
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError

if TYPE_CHECKING:
    from dp_accounting import DpEvent


def to_dp_event(event: Event) -> DpEvent:
    """Return the `DpEvent`, for add/remove, that states the same as an event, or less.

    Gaussian: `GaussianDpEvent`, inside `PoissonSampledDpEvent` if sampled. Exponential
    and zCDP: `ZCDpEvent`. A count above 1: `SelfComposedDpEvent` around it.

    Raises:
        InvalidParameterError: If dp-accounting has no class that fits. Pure events have
            none: `LaplaceDpEvent` promises more than pure epsilon-DP, and the count of
            `RandomizedResponseDpEvent` is ignored there. A `Failure` has none.

    Example:
        >>> to_dp_event(Gaussian(2.0, 0.5))  # doctest: +ELLIPSIS
        PoissonSampledDpEvent(sampling_probability=0.5, event=Gaussian...(...=2.0))
    """
    from dp_accounting import dp_event

    single: DpEvent
    if isinstance(event, Gaussian):
        single = dp_event.GaussianDpEvent(event.noise_multiplier)
        if event.sampling_rate < 1:
            single = dp_event.PoissonSampledDpEvent(event.sampling_rate, single)
    elif isinstance(event, Exponential):
        single = dp_event.ZCDpEvent(event.epsilon * event.epsilon / 8)
    elif isinstance(event, ZCDPEvent):
        single = dp_event.ZCDpEvent(event.rho)
    else:
        raise InvalidParameterError(f"No DpEvent states a {type(event).__name__}.")
    if event.count == 1:
        return single
    return dp_event.SelfComposedDpEvent(single, event.count)


def from_dp_event(dp_event: DpEvent) -> list[Event]:
    """Return events that state the same as a `DpEvent` for add/remove, or less.

    Gaussian, zCDP (xi = 0) and no-op events; Laplace and discrete Laplace as pure
    events; Poisson samples of Gaussians (several on one sample count as one with their
    combined noise) and of pure events (amplified to log(1 + q (exp(epsilon) - 1)));
    compositions of all of these.

    Raises:
        InvalidParameterError: If the event is unknown, not private, unbounded (noise
            0), or of a class that is not accounted for here (among them randomized
            response, whose count dp-accounting ignores, and samples without
            replacement).

    Example:
        >>> from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
        >>> from_dp_event(SelfComposedDpEvent(GaussianDpEvent(2.0), 5))
        [Gaussian(noise_multiplier=2.0, sampling_rate=1.0, count=5)]
    """
    from dp_accounting import dp_event as known

    # Exact classes: a subclass may mean another mechanism.
    readers: dict[type, Callable[[Any], list[Event]]] = {
        known.NoOpDpEvent: lambda _: [],
        known.GaussianDpEvent: lambda e: [Gaussian(e.noise_multiplier)],
        known.LaplaceDpEvent: _laplace,
        known.DiscreteLaplaceDpEvent: _discrete_laplace,
        known.ZCDpEvent: _zcdp,
        known.SelfComposedDpEvent: _self_composed,
        known.ComposedDpEvent: _composed,
        known.PoissonSampledDpEvent: _poisson_sampled,
    }
    cls = type(dp_event)
    if cls not in readers:
        raise InvalidParameterError(
            f"Events of class {cls.__name__} can't be accounted for."
        )
    return readers[cls](dp_event)


def _laplace(event: Any) -> list[Event]:
    scale = parameters.positive("noise_multiplier", event.noise_multiplier)
    return [Pure(_rounded_up(1 / scale))]


def _discrete_laplace(event: Any) -> list[Event]:
    parameter = parameters.positive("noise_parameter", event.noise_parameter)
    sensitivity = parameters.count(event.sensitivity, "sensitivity")
    return [Pure(_rounded_up(parameter * sensitivity))]


def _zcdp(event: Any) -> list[Event]:
    if event.xi != 0:
        raise InvalidParameterError("A ZCDpEvent must have xi = 0.")
    return [] if event.rho == 0 else [ZCDPEvent(event.rho)]


def _self_composed(event: Any) -> list[Event]:
    uses = parameters.count(event.count, "count", minimum=0)
    inner = from_dp_event(event.event)
    return list(repeat(inner, uses)) if uses else []


def _composed(event: Any) -> list[Event]:
    return [own for part in event.events for own in from_dp_event(part)]


def _poisson_sampled(event: Any) -> list[Event]:
    """Return the events of one Poisson sample, seen by everything in it."""
    events = from_dp_event(event.event)
    if not events or event.sampling_probability == 0:
        return []
    q = parameters.sampling_rate(event.sampling_probability)
    gaussians = [e for e in events if isinstance(e, Gaussian) and e.sampling_rate == 1]
    pure = [e for e in events if isinstance(e, Pure)]
    if len(gaussians) == len(events):
        if len(events) == 1 and gaussians[0].count == 1:
            return [Gaussian(gaussians[0].noise_multiplier, q)]
        # Several Gaussians on one sample are one Gaussian on it.
        return [Gaussian(1 / _rounded_up(gdp_mu(gaussians)), q)]
    if len(pure) == len(events):
        total = math.fsum(e.epsilon * e.count for e in pure)
        return [Pure(sampled_epsilon(_rounded_up(total), q))]
    raise InvalidParameterError(
        "A Poisson sample may hold Gaussians without further sampling, or pure events."
    )


def _rounded_up(value: float) -> float:
    return value * (1 + 1e-13)
