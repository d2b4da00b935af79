"""Which token is taken of a noisy vector: public post-processing.

The Gaussian mechanism releases the whole noisy vector of a step, so that anything may
be made of it at no further cost. Report-noisy-max releases the winner alone: there is
nothing to decode, and truncating or tempering its scores would be another mechanism.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import current

_RESOLUTION = 2**53
_BY_CHANCE = 0.05


class Decoder(ABC):
    """Takes one token of a step's noisy probabilities."""

    @abstractmethod
    def choose(self, noisy: NDArray[np.float64], noise: float) -> int:
        """Return a place in the vector.

        What it draws is of `mechanisms.random.current()`.

        Args:
            noisy: Noisy mean of the groups' probabilities, shape `(k,)`; entries may
                be below 0 or above 1.
            noise: The noise's standard deviation, public; 0 where there is none.
        """

    def described(self) -> dict[str, Any]:
        """Return the decoder's public parameters."""
        return {"decoder": type(self).__name__}


@dataclass(frozen=True)
class Greedy(Decoder):
    """The largest entry; of equal ones the first in the public order of the tokens.

    Example:
        >>> Greedy().choose(np.array([0.1, 0.7, -0.2]), 0.1)
        1
    """

    def choose(
        self,
        noisy: NDArray[np.float64],
        noise: float,  # noqa: ARG002 - the largest entry is the largest entry
    ) -> int:
        """Return the place of the largest entry."""
        return int(np.argmax(noisy))


@dataclass(frozen=True)
class Sampling(Decoder):
    """A draw from the noisy probabilities: temperature, nucleus, noise floor.

    Entries that noise alone explains count as zero; what is left is raised to the
    power 1 / temperature, cut down to the smallest set that holds `top_p` of it, and
    drawn from. If nothing is left, the largest entry is taken.

    Args:
        temperature: Above 0. Small values come near to the largest entry.
        top_p: Share of the probability to draw from, above 0 and at most 1.
        floor: How many standard deviations of the noise an entry must have to count.
            None: so many that of entries of nothing but noise, in 95 % of all steps,
            none is above it: 3.3 for 100 tokens, 4.4 for 7,500.

    Raises:
        InvalidParameterError: If a value is out of its range.

    Privacy:
        Post-processing of the Gaussian mechanism's output (Tang et al., ICLR 2024,
        section 4.1): no unit, no event.

    Example:
        >>> nearly_sure = np.array([0.05, 0.9, -0.04])
        >>> Sampling(floor=3).choose(nearly_sure, 0.04)
        1
    """

    temperature: float = 1.0
    top_p: float = 1.0
    floor: float | None = None

    def __post_init__(self) -> None:
        if self.temperature == 0:
            raise InvalidParameterError(
                "temperature must be above 0; Greedy() takes the largest entry."
            )
        parameters.positive("temperature", self.temperature)
        parameters.sampling_rate(self.top_p, "top_p")
        if self.floor is not None:
            parameters.finite("floor", self.floor)
            if self.floor < 0:
                raise InvalidParameterError("floor must be at least 0.")

    def choose(self, noisy: NDArray[np.float64], noise: float) -> int:
        """Return a place, drawn from what stands out of the noise."""
        floor = self.floor
        if floor is None:
            floor = NormalDist().inv_cdf(1 - _BY_CHANCE / len(noisy))
        kept = np.flatnonzero((noisy > 0) & (noisy >= floor * noise))
        if not len(kept):
            return int(np.argmax(noisy))
        logs = np.log(noisy[kept])
        # Less than the largest first: then the least temperature overflows to 0 weight.
        with np.errstate(over="ignore"):
            weights = np.exp((logs - logs.max()) / self.temperature)
        # Largest first; a stable sort keeps the public order among equal ones.
        order = np.argsort(-weights, kind="stable")
        shares = np.cumsum(weights[order])
        within = int(np.searchsorted(shares, self.top_p * shares[-1] * (1 - 1e-12))) + 1
        shares = shares[: min(within, len(shares))]
        point = current().randrange(_RESOLUTION) / _RESOLUTION * shares[-1]
        place = min(int(np.searchsorted(shares, point, side="right")), len(shares) - 1)
        return int(kept[order[place]])

    def described(self) -> dict[str, Any]:
        """Return the decoder's public parameters."""
        return {**super().described(), **asdict(self)}


def noise_of_mean(noise_multiplier: float, n_groups: int) -> float:
    """Return the noise's standard deviation on a mean over the groups."""
    return noise_multiplier * math.sqrt(2.0) / n_groups
