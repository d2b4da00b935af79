r"""A table of people's topics, each person filling the same number of slots; own words.

Input         For each person m different rows of a public table, and one column. For
              some, whose last row is the row "other", a word of their own.
Neighbors     One person is added or removed (`add_remove`).
Sensitivity   A person adds 1 to each of m cells of one column: m in L1, sqrt(m) in L2,
              exactly, as *every* person fills all slots. With words: one of the m cells
              may be in the row "other", and then the person adds 1 to the count of one
              word.
Noise         On every cell a K of its own. *Geometric:* discrete Laplace of scale m /
              epsilon or more. *Gaussian:* rounded Gaussian, sigma = z sqrt(m), rounded
              up. With words the cells of "other", and the words, have scale 2 m /
              epsilon or sigma = z sqrt(2 m). Of the words that somebody has, each is
              released if H + K > 1 + t, t the least quantile with P(K > t) <= delta0.
Event         Pure(epsilon) or Gaussian(z); with words Failure(delta0) besides.
What is free  All that is computed of the noisy table and the released words: the number
              of people (the sum over m), totals, groups, the order, thresholds, and
              margins by the law of the noise.
Tested by     `tests/mechanisms/test_slots.py`: the realized loss of the worst pairs by
              exact enumeration, the law of the draws, and the twins: a part of a slot,
              a further unit, both halves at the full rate, one bin for all empty slots.

*Pure.* Let x be the person who is added. Without words, log P / Q is at most epsilon /
m for each of the m cells: epsilon. With words and no word of x, the same, or less.
With one, m - 1 cells at epsilon / m, one at epsilon / (2 m), and the word, where others
have it too, at epsilon / (2 m): epsilon again.

*Gaussian.* Divided by their sigmas, the cells (and the shared word) move by a vector of
squared length m / (z^2 m), or (m - 1) / (z^2 m) + 2 / (2 z^2 m): 1 / z^2 either way.

*A new word.* A word that x alone has occurs in one world alone, with the count 1, and
comes out with probability P(K > t) <= delta0. Table and shared words are the release of
the pure or Gaussian mechanism above, under its curve at every epsilon, and the new word
is independent of them. That is the situation of `keyword_threshold`, with at most c = 1
new word: its proof, in which the table is a part of what both worlds release, gives the
curve of Pure(epsilon) or Gaussian(z), and Failure(delta0), in both directions.

*Why full slots.* A person with one topic who filled one cell, beside a count of the
people, would move m + 1 cells; scale m / epsilon would not be epsilon. Here the number
of people needs no cell of its own. Each empty slot has a row of its own: were there one
for all, a person with nothing to say would move it by m, which is m in L2 as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from langchain_dpicl.accounting.events import Charge, Event, Failure, Gaussian, Pure
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import inputs
from langchain_dpicl.mechanisms.exact import DiscreteLaplace, Integers, RoundedGaussian
from langchain_dpicl.mechanisms.gate import Gate

Paid: TypeAlias = Sequence[Event]
"""A Pure or Gaussian event; with words a Failure behind it."""


def charge(
    *,
    epsilon: float | None = None,
    delta0: float | None = None,
    words: bool = False,
    name: str = "slots",
) -> Charge:
    """Return what `noisy_slots` costs with geometric noise.

    Args:
        epsilon: The loss; None leaves it to the account.
        delta0: With words, how often a word of one person comes out.
        words: Whether words are released.
        name: The release's public name.

    Example:
        >>> [part.kind for part in charge(words=True).parts]
        ['pure', 'failure']
    """
    failure = (Failure(delta0=delta0),) if words else ()
    return Charge(name=name, parts=(Pure(epsilon=epsilon), *failure))


def gaussian_charge(
    *,
    noise_multiplier: float | None = None,
    delta0: float | None = None,
    words: bool = False,
    name: str = "slots",
) -> Charge:
    """Return what `noisy_slots` costs with Gaussian noise; see `charge`."""
    failure = (Failure(delta0=delta0),) if words else ()
    first = Gaussian(noise_multiplier=noise_multiplier)
    return Charge(name=name, parts=(first, *failure))


@dataclass(frozen=True)
class SlotNoise:
    """The noise of a release, by what was paid for it. Public.

    Attributes:
        cell: On every cell but those of "other".
        other: On the cells of "other".
        gate: The threshold for words; None: none are released.

    Example:
        >>> SlotNoise.of([Pure(epsilon=1.0)], slots=2).cell
        DiscreteLaplace(scale=Fraction(2, 1))
        >>> with_words = SlotNoise.of([Pure(epsilon=1.0), Failure(delta0=1e-6)], 2)
        >>> with_words.other, with_words.gate.required(0.95, 1)
        (DiscreteLaplace(scale=Fraction(4, 1)), 63)
    """

    cell: DiscreteLaplace | RoundedGaussian
    other: DiscreteLaplace | RoundedGaussian
    gate: Gate | None

    @classmethod
    def of(cls, paid: Paid, slots: int) -> SlotNoise:
        """Return the noise that the events pay for."""
        m = parameters.count(slots, "slots")
        first, *failures = paid
        cell, half = _law(first, m), _law(first, 2 * m)
        if not failures:
            return cls(cell, cell, None)
        delta0 = inputs.failure_of((first, *failures))  # type: ignore[arg-type]  # it looks
        return cls(cell, half, Gate.of(half, delta0, threshold=1))


def noisy_slots(
    slots: Any,
    columns: Any,
    words: Sequence[str | None],
    paid: Paid,
    *,
    shape: tuple[int, int],
    other: int,
) -> tuple[Integers, dict[str, int]]:
    """Release how many people fill each cell, and which words enough of them share.

    Args:
        slots: The rows that each person fills, shape (people, m), no row twice.
        columns: Each person's column, shape (people,).
        words: Each person's own word, or None.
        paid: The events that were charged.
        shape: How many rows and columns the table has, public.
        other: The row "other", public. Only who fills it has a word.

    Returns:
        The noisy table, and the noisy counts of the words that come out: the most
        frequent first, equal ones by the word.

    Raises:
        InvalidParameterError: If a person fills a row twice, or none, or has a word
            without filling "other": then the promise would not hold.

    Example:
        >>> paid = Pure(epsilon=9.0), Failure(delta0=1e-6)
        >>> people = [[0, 2]] * 90, [0] * 90, ["fee"] * 90
        >>> table, words = noisy_slots(*people, paid, shape=(3, 1), other=2)
        >>> table.shape, list(words)
        ((3, 1), ['fee'])
    """
    rows, places = np.asarray(slots, np.int64), np.asarray(columns, np.int64)
    _require_full(rows, places, words, shape, other)
    noise = SlotNoise.of(paid, rows.shape[1])
    cells = rows * shape[1] + places[:, None]
    table = np.bincount(cells.ravel(), minlength=shape[0] * shape[1]).reshape(shape)
    drawn = noise.cell.draw(table.size).reshape(shape)
    drawn[other] = noise.other.draw(shape[1])
    if noise.gate is None:
        return table + drawn, {}
    said = Counter(word for word in words if word is not None)
    return table + drawn, noise.gate.words(said)


def _law(paid: Event, moved: int) -> DiscreteLaplace | RoundedGaussian:
    """Return the noise for integers that move by `moved` in L1 and L2 squared."""
    if isinstance(paid, Pure):
        return DiscreteLaplace.calibrated(moved, inputs.epsilon(paid, Pure))
    z = inputs.noise_multiplier(paid)  # type: ignore[arg-type]  # it looks
    return RoundedGaussian(inputs.at_least(z, inputs.root(moved)))


def _require_full(
    rows: Integers,
    columns: Integers,
    words: Sequence[str | None],
    shape: tuple[int, int],
    other: int,
) -> None:
    """Refuse what has another sensitivity than the one that is paid for."""
    is_sound = (
        rows.ndim == 2  # noqa: PLR2004 - people and slots
        and rows.shape[1] > 0
        and columns.shape == (len(rows),) == (len(words),)
        and _within(rows, shape[0])
        and _within(columns, shape[1])
        and bool((np.diff(np.sort(rows, axis=1), axis=1) > 0).all())
        and all(
            word is None or other in row
            for word, row in zip(words, rows.tolist(), strict=True)
        )
    )
    if not is_sound:
        raise InvalidParameterError(
            "Each person must fill m different rows of the table and stand in one "
            "column, and who has a word must fill the row of others."
        )


def _within(numbers: Integers, bound: int) -> bool:
    return not numbers.size or bool(numbers.min() >= 0 and numbers.max() < bound)
