"""Templates of releases for tests, of whatever parts a test asks for."""

from __future__ import annotations

from typing import Any

from langchain_dpicl.accounting import (
    EventTemplate,
    ExponentialPart,
    GaussianPart,
    PurePart,
)
from langchain_dpicl.mechanisms import (
    ExponentialNoise,
    GaussianNoise,
    PTRNoise,
    PureNoise,
    ThresholdNoise,
    ptr_range_template,
)

ALONE = {
    GaussianPart: GaussianNoise,
    PurePart: PureNoise,
    ExponentialPart: ExponentialNoise,
}


def values(*found: float) -> tuple[float, ...]:
    """Stand for the noise of a release that no mechanism makes."""
    return found


def template(
    mechanism: str, parts: tuple[Any, ...], sampling_rate: float = 1.0, **terms: Any
) -> EventTemplate[Any]:
    """Return a template with the noise that a mechanism of these parts takes."""
    kinds: Any = tuple(map(type, parts)) if isinstance(parts, tuple) else ()
    noise: Any = values
    if not terms.get("needs_delta0"):
        noise = ALONE.get(kinds[0], values) if len(kinds) == 1 else values
    elif kinds == (GaussianPart,):
        noise = ThresholdNoise if mechanism == "ksa/threshold" else PTRNoise
    elif kinds == (ExponentialPart, GaussianPart):
        noise = ptr_range_template(mechanism).noise
    return EventTemplate(mechanism, parts, noise, sampling_rate, **terms)
