"""Membership inference: do examples tell who was among the records?

Two attacks give each record a score, from the examples alone: how much of its wording
one of them holds, and how sure of its label they make a classifier. The area under the
curve (AUC) is the probability that a member's score is above another record's: 1/2 is
chance. Trials are independent; records of one trial are not.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy import stats

from langchain_dpicl.offline.answering import label_scores

Record = Mapping[str, str]
Attack = Callable[[Sequence[Record], Sequence[Record]], list[float]]
"""From records and examples to a score for each record."""

LONGEST = 4
"""Words of the longest sequence that is looked for."""


def wording(records: Sequence[Record], examples: Sequence[Record]) -> list[float]:
    """Return the largest share of a record's word sequences that one example holds."""
    held = [_sequences(example["text"]) for example in examples]

    def score(record: Record) -> float:
        own = _sequences(record["text"])
        shares = [len(own & other) / len(own) for other in held] if own else [0.0]
        return max(shares, default=0.0)

    return [score(record) for record in records]


def confidence(records: Sequence[Record], examples: Sequence[Record]) -> list[float]:
    """Return the offline classifier's probability of each record's own label."""
    labels = tuple(sorted({one["label"] for one in (*records, *examples)}))
    shown = tuple((example["text"], example["label"]) for example in examples)
    return [
        label_scores(record["text"], labels, shown)[labels.index(record["label"])]
        for record in records
    ]


ATTACKS: dict[str, Attack] = {"wording": wording, "confidence": confidence}


def _sequences(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    return {
        tuple(words[start : start + length])
        for length in range(1, LONGEST + 1)
        for start in range(len(words) - length + 1)
    }


def auc(members: Sequence[float], others: Sequence[float]) -> float:
    """Return the probability that a member's score is above another's; ties half."""
    ranks = stats.rankdata(np.concatenate([members, others]))
    count = len(members)
    above = float(ranks[:count].sum()) - count * (count + 1) / 2
    return above / (count * len(others))


def interval(aucs: Sequence[float], doubt: float) -> tuple[float, float]:
    """Return the mean over trials, and half its interval at confidence 1 - doubt."""
    half = stats.t.ppf(1 - doubt / 2, len(aucs) - 1) * statistics.stdev(aucs)
    return statistics.fmean(aucs), float(half) / math.sqrt(len(aucs))


def trial(
    members: Sequence[Record],
    others: Sequence[Record],
    examples: Sequence[Record],
    attacks: Mapping[str, Attack] = ATTACKS,
) -> dict[str, float]:
    """Return the AUC of each attack."""
    return {
        name: auc(attack(members, examples), attack(others, examples))
        for name, attack in attacks.items()
    }
