"""A noisy threshold test: do enough slots agree with something public?

The public-first gate: where the groups agree with the public answer, releasing that
answer costs this test and nothing else. (In the literature, one step of the sparse
vector technique, with Gaussian noise; here each step is charged.)

1. *Sensitivity.* The tested number is how many slots agree with something that was
   fixed before any record was read. One unit touches one slot. Under `ADD_REMOVE` a
   slot that agrees, or one that does not, appears or vanishes: the number moves by at
   most 1. Under `REPLACE` a slot changes from any answer to any other: from agreeing to
   not agreeing, or back, or neither: also by at most 1. There is one number, so the
   L2 sensitivity is 1 under both, not sqrt(2) as for a histogram of several labels.
2. *Noise.* A rounded Gaussian of scale z on a public grid: exactly post-processing of
   a Gaussian mechanism.
3. *Event* (`agreement_template`). Gaussian(z). The comparison with a public threshold
   is post-processing.

*What the price covers.* The one bit, and so the public answer when it is true. Whatever
is released after a false is charged on its own. Testing again, of another answer or of
the same one with fresh noise, is another release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from langchain_dpicl.accounting.parts import GaussianPart
from langchain_dpicl.accounting.template import EventTemplate
from langchain_dpicl.common import parameters
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import sensitivity
from langchain_dpicl.mechanisms.inputs import MAX_COUNT
from langchain_dpicl.mechanisms.noise import GaussianNoise
from langchain_dpicl.mechanisms.rounded_gaussian import RoundedGaussian, count_grid
from langchain_dpicl.mechanisms.source import SecureRandom, checked_source


def agreement_template(
    mechanism: str,
    noise_multiplier: float | None = None,
    *,
    sampling_rate: float = 1.0,
    share: float = 1.0,
) -> EventTemplate[GaussianNoise]:
    """Return what `exceeds` is charged: Gaussian(z)."""
    part = GaussianPart(noise_multiplier)
    return EventTemplate(mechanism, (part,), GaussianNoise, sampling_rate, share=share)


def exceeds(
    count: int,
    threshold: float,
    *,
    noise_multiplier: float,
    relation: Relation | str,
    random: SecureRandom | None = None,
) -> bool:
    """Release whether a count of slots reaches a threshold, after noise.

    Args:
        count: How many slots agree with something public. A slot counts once.
        threshold: What the noisy count must reach, in slots, public.
        noise_multiplier: z = sigma / sensitivity, and so sigma in slots.
        relation: How the slots of neighbors differ.
        random: Source of the noise; None is the operating system's.

    Returns:
        Whether count + N(0, z^2) >= threshold.

    Raises:
        InvalidParameterError: If an argument is malformed. Messages do not hold the
            count.

    Privacy:
        Unit and relation: one slot, as `relation` says. Sensitivity: 1 under both
        relations. Noise: rounded Gaussian, sigma = z, exact. Event: Gaussian(z).
        Source: the Gaussian mechanism and post-processing.

    Example:
        >>> exceeds(90, 50, noise_multiplier=2.0, relation="replace")
        True
    """
    number = _checked_count(count)
    test = _agreement_test(threshold, noise_multiplier, relation)
    return test.passes(number, test.noise.draw_one(checked_source(random)))


def exceeds_pass_rate(
    count: float,
    threshold: float,
    *,
    noise_multiplier: float,
    relation: Relation | str,
) -> float:
    """Return the exact probability that `exceeds` is true at a given true count.

    For planning, on a count that is assumed or public: the count of real data is
    private. The arguments are those of `exceeds`; one that is out of its range is a
    `InvalidParameterError`.

    Example:
        >>> rate = exceeds_pass_rate(55, 50, noise_multiplier=3.0, relation="replace")
        >>> round(rate, 3)
        0.952
    """
    test = _agreement_test(threshold, noise_multiplier, relation)
    number = parameters.finite("count", count)
    if not 0 <= number <= MAX_COUNT:
        raise InvalidParameterError(
            f"count must be between 0 and {MAX_COUNT}, not {number:g}."
        )
    return test.pass_rate(number)


@dataclass(frozen=True)
class _AgreementTest:
    """The test in grid steps, `weight` a slot; everything in it is public."""

    threshold: float
    weight: int
    noise: RoundedGaussian

    def passes(self, count: int, noise: int) -> bool:
        return self.weight * count + noise >= self.threshold

    def pass_rate(self, count: float) -> float:
        return self.noise.tail(math.ceil(self.threshold - self.weight * count) - 1)


def _agreement_test(
    threshold: float, noise_multiplier: float, relation: Relation | str
) -> _AgreementTest:
    z = parameters.noise_multiplier(noise_multiplier)
    reach = parameters.finite("threshold", threshold)
    if abs(reach) > MAX_COUNT:
        raise InvalidParameterError(
            f"threshold must be between -{MAX_COUNT} and {MAX_COUNT}, not {reach:g}."
        )
    sigma = sensitivity.noise_scale(z, sensitivity.agreement_count(relation))
    weight, noise = count_grid(sigma)
    # Exact: the weight is a power of two, and Python compares int and float exactly.
    return _AgreementTest(weight * reach, weight, noise)


def _checked_count(count: Any) -> int:
    if isinstance(count, bool) or not isinstance(count, Integral):
        raise InvalidParameterError("count must be an integer: it counts slots.")
    if not 0 <= int(count) <= MAX_COUNT:
        raise InvalidParameterError(f"count must be between 0 and {MAX_COUNT}.")
    return int(count)
