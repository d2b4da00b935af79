"""What the groups are assumed to answer: a public guess, made into counts.

N people have something to say on a question. Each is in the sample with probability q,
by itself, and sits in one of m groups at random: about Poisson(N q / m) of them in a
group. A group of nobody says nothing. Of the groups that have somebody, each by itself,

* a part `share` names the right answer,
* a part `runner_up` names the best of the wrong ones,
* the rest is spread evenly over the other answers, as many as `choices` leaves. None of
  them gets more than the runner-up; what is left then says that it does not know.

Nothing here looks at a record: all of it are numbers that the user guesses, in public.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError

Counts = npt.NDArray[np.int64]
MAX_CHOICES = 100
_FULL = 16
"""With so many people a group, on average, no group is empty: e^-16 of them are."""


@dataclass(frozen=True)
class Crowd:
    """Who has something to say on a question, and what their groups say. Public.

    Attributes:
        people: How many people have something to say.
        share: Part of the groups with somebody that names the right answer.
        runner_up: Part of them that names the best wrong one.
        choices: How many answers there are, the right one and the runner-up included.
    """

    people: int
    share: float
    runner_up: float
    choices: int

    @classmethod
    def of(cls, people: int, share: float, runner_up: float, choices: int) -> Crowd:
        """Return a crowd of checked numbers.

        Raises:
            InvalidParameterError: If a number is out of its range, or the two parts
                are more than the whole.
        """
        people = parameters.count(people, "people_per_question")
        choices = parameters.count(choices, "choices", minimum=2)
        if choices > MAX_CHOICES:
            raise InvalidParameterError(f"choices must be at most {MAX_CHOICES}.")
        share, runner_up = (
            parameters.extended(name, value)
            for name, value in (("share", share), ("runner_up", runner_up))
        )
        if not 0 < share <= 1:
            raise InvalidParameterError(
                f"share must be greater than 0 and at most 1, not {share:g}."
            )
        if share + runner_up > 1 + 1e-9:
            raise InvalidParameterError(
                f"share and runner_up are parts of the same groups: {share:g} and "
                f"{runner_up:g} add up to more than 1."
            )
        return cls(people, share, runner_up, choices)

    @property
    def shares(self) -> npt.NDArray[np.float64]:
        """The part of each answer: right, runner-up, the others, and of no answer."""
        rest = max(0.0, 1.0 - self.share - self.runner_up)
        others = self.choices - 2
        each = min(rest / others, self.runner_up) if others else 0.0
        parts = [self.share, self.runner_up, *[each] * others]
        found = np.array([*parts, max(0.0, 1.0 - sum(parts))])
        shares: npt.NDArray[np.float64] = found / found.sum()
        return shares

    def counts(
        self,
        groups: int,
        rate: float,
        blocks: tuple[int, ...],
        runs: int,
        random: np.random.Generator,
    ) -> list[Counts]:
        """Return how many groups of each block name each answer, in each run.

        Args:
            groups: How many groups there are.
            rate: The sampling rate of people.
            blocks: How many groups each block has; together `groups`.
            runs: How many runs.
            random: Where chance comes from.

        Returns:
            For each block an array of shape `(runs, choices + 1)`, as `shares` orders
            it.
        """
        cumulative = np.cumsum(occupied(self.people, groups, rate))
        # Evenly spaced quantiles, in random order: a sample without most of the chance.
        levels = (random.permutation(runs) + 0.5) / runs * cumulative[-1]
        left = np.searchsorted(cumulative, levels)
        found, places = [], groups
        for size in blocks:
            places -= size
            here = random.hypergeometric(size, places, left) if places else left
            found.append(random.multinomial(here, self.shares))
            left = left - here
        return found


@functools.lru_cache(maxsize=512)
def occupied(people: int, groups: int, rate: float) -> npt.NDArray[np.float64]:
    """Return the probability that 0, 1, ..., m groups have somebody of the sample.

    Example:
        >>> occupied(2, groups=2, rate=1.0).tolist()
        [0.0, 0.5, 0.5]
    """
    from scipy import special

    places = np.arange(groups + 1)
    now: npt.NDArray[np.float64] = np.zeros(groups + 1)
    now[0] = 1.0
    most = min(people, _FULL * groups)
    sizes = np.arange(most + 1)
    if rate < 1:
        # The logarithm of a binomial coefficient, exact for very many people too.
        logs = -special.betaln(1.0 + people - sizes, 1.0 + sizes) - np.log1p(people)
        logs += sizes * np.log(rate) + (people - sizes) * np.log1p(-rate)
        weights = np.exp(logs)
        weights[-1] += max(0.0, 1.0 - weights.sum())
    else:
        weights = (sizes == most).astype(float)
    found: npt.NDArray[np.float64] = weights[0] * now
    stays, comes = places / groups, (groups - places + 1) / groups
    for weight in weights[1:]:
        after = now * stays
        after[1:] += now[:-1] * comes[1:]
        now = after
        found += weight * now
    found.setflags(write=False)
    return found
