"""How a step's distributions become a token: by which mechanism, and with what options.

`Clipped` draws a token from what each person adds to the instruction alone. `Greedy`
and `Sampling` read the Gaussian mechanism's noisy vector, which is released whole, so
that they are post-processing. `NoisyMax` releases the winner alone: there is nothing to
decode, and truncating or tempering its scores would be another mechanism.

`contrast` belongs to each slot alone, before the sum and the noise: it takes what a
group's records have added to the instruction, and leaves what the model would have said
anyway (`mechanisms.next_token.contrasted`).
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from langchain_dpicl.accounting.events import Positive, Rate
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.clipped_token import TEMPERATURES
from langchain_dpicl.mechanisms.random import current
from langchain_dpicl.public import Public

_RESOLUTION = 2**53
_BY_CHANCE = 0.05

StopText = Annotated[str, Field(min_length=1)]


def _tuple(value: Any) -> Any:
    """Return a list of texts, or a single one, as a tuple."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


class _Decoding(Public):
    stop: Annotated[tuple[StopText, ...], BeforeValidator(_tuple)] = ("\n",)
    """Texts that end an example, and are not part of it."""

    def choose(self, noisy: NDArray[np.float64], noise: float) -> int:  # noqa: ARG002
        """Return the largest entry's place; of equal ones the first in public order.

        Args:
            noisy: Noisy mean of the groups' probabilities, shape `(k,)`; entries may
                be below 0 or above 1.
            noise: The noise's standard deviation, public; 0 where there is none.
        """
        return int(np.argmax(noisy))


class Clipped(_Decoding):
    """A draw by clipped differences to what the model says without records.

    Every person is asked about alone. How far a person's differences count follows from
    the budget (`forecast` tells).

    Example:
        >>> Clipped(stop=".", temperature=0.8).stop
        ('.',)
    """

    kind: Literal["clipped"] = "clipped"

    temperature: Annotated[float, Field(ge=TEMPERATURES[0], le=TEMPERATURES[1])] = 1.0
    """Below 1, tokens are more often the likeliest, and differences count less far."""

    def choose(self, noisy: NDArray[np.float64], noise: float) -> int:
        """Return a place, drawn from probabilities without records."""
        return Sampling(temperature=self.temperature, floor=0.0).choose(noisy, noise)


class _Summed(_Decoding):
    """What decodes a noisy sum of the groups' distributions."""

    contrast: Annotated[float, Field(ge=0, le=10)] = 0.0
    """The power of the ratio of a group's distribution to the public one; 0: none."""


class Greedy(_Summed):
    """The Gaussian mechanism, and of its noisy vector the largest entry.

    Example:
        >>> Greedy(stop=".").choose(np.array([0.1, 0.7, -0.2]), 0.1)
        1
    """

    kind: Literal["gaussian"] = "gaussian"


class Sampling(_Summed):
    """The Gaussian mechanism, and a draw from its noisy vector.

    Entries that noise alone explains count as zero; what is left is raised to the
    power 1 / temperature, cut down to the smallest set that holds `top_p` of it, and
    drawn from. If nothing is left, the largest entry is taken.

    Privacy:
        Post-processing of the Gaussian mechanism's output (Tang et al., ICLR 2024,
        section 4.1): no unit, no event.

    Example:
        >>> nearly_sure = np.array([0.05, 0.9, -0.04])
        >>> Sampling(floor=3.0).choose(nearly_sure, 0.04)
        1
    """

    kind: Literal["sampling"] = "sampling"

    temperature: Positive = 1.0
    """Small values come near to the largest entry."""

    top_p: Rate = 1.0
    """Share of the probability to draw from."""

    floor: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """How many standard deviations of the noise an entry must have to count. None: so
    many that of entries of nothing but noise, in 95 % of all steps, none is above it:
    3.3 for 100 tokens, 4.4 for 7,500."""

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


class NoisyMax(_Summed):
    """Report-noisy-max (permute-and-flip): the winning token alone is released."""

    kind: Literal["noisy_max"] = "noisy_max"


Decoding: TypeAlias = Clipped | Greedy | Sampling | NoisyMax
DecoderName: TypeAlias = Literal["clipped", "gaussian", "noisy_max"]

_NAMED: dict[Any, type[Decoding]] = {
    "clipped": Clipped,
    "gaussian": Greedy,
    "noisy_max": NoisyMax,
}


def decoding_of(decoder: Any) -> Decoding:
    """Return what a decoder's name stands for, or the object that was given."""
    if isinstance(decoder, Decoding):
        return decoder
    if isinstance(decoder, str) and decoder in _NAMED:
        return _NAMED[decoder]()
    raise InvalidParameterError(
        "decoder must be 'clipped', 'gaussian' or 'noisy_max', or one of few_shot's "
        "Clipped(...), Greedy(...), Sampling(...) and NoisyMax(...), with options."
    )


def noise_of_mean(noise_multiplier: float, n_groups: int) -> float:
    """Return the noise's standard deviation on a mean over the groups."""
    return noise_multiplier * math.sqrt(2.0) / n_groups
