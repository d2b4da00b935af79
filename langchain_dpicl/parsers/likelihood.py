"""What one group's figures choose: the label whose share rises most above public ones.

A model has favorites: it gives some labels a high probability whatever it reads. So a
label is chosen by its *gain*, the logarithm of its share among the labels minus that of
its public share. Public figures are those of the same prompt without records, or the
mean of the group's own figures at public texts that stand in place of the question
(contextual calibration: Zhao, Wallace, Feng, Klein, Singh, *Calibrate Before Use*, ICML
2021).

Privacy:
    A choice is a function of one group's figures and of public values. Nothing here
    sees two groups: a mean, a scale or a threshold over groups would let one person
    move every vote.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from langchain_dpicl.common.replies import Figures

NEUTRAL = ("N/A",)
"""Texts without content, for `calibrate="public"`."""


@dataclass(frozen=True)
class Calibrated:
    """What is public about a question whose votes are read by likelihood.

    Attributes:
        texts: The labels.
        figures: The model's figures for them without records.
    """

    texts: tuple[str, ...]
    figures: Figures


def shares(figures: Figures) -> Figures:
    """Return the logarithms of the options' shares among each other.

    Example:
        >>> [round(math.exp(share), 3) for share in shares((-3.0, -3.0 - math.log(3)))]
        [0.75, 0.25]
    """
    highest = max(figures)
    total = highest + math.log(math.fsum(math.exp(x - highest) for x in figures))
    return tuple(figure - total for figure in figures)


def mean(rows: Sequence[Figures]) -> Figures:
    """Return the mean figure of each option."""
    return tuple(math.fsum(column) / len(rows) for column in zip(*rows, strict=True))


def risen(figures: Figures, public: Figures, margin: float) -> int | None:
    """Return the place of the option that gains most over public figures.

    Ties go to the first of them. None: it gains less than `margin`.

    Example:
        >>> likes_the_first = (-0.1, -2.3)
        >>> risen((-0.2, -1.7), likes_the_first, 0.0)
        1
        >>> risen((-0.2, -1.7), likes_the_first, 1.0)
    """
    pairs = zip(shares(figures), shares(public), strict=True)
    # Rounded: the last bits of a difference break no tie.
    gains = [round(own - other, 9) for own, other in pairs]
    best = max(range(len(gains)), key=gains.__getitem__)
    return best if gains[best] >= margin else None
