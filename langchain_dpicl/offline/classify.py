"""Labels from exemplars: nearest neighbors, mixed with a public prior.

Near are texts with the same words; rows of a table, with like facts (`facts.py`).
"""

from __future__ import annotations

import math
from hashlib import blake2b

from langchain_dpicl.offline.facts import fact_weights
from langchain_dpicl.offline.words import STOP_STEMS, stems

_PRIOR_WEIGHT = 0.25
"""Share of the prior in the mixture, when there are exemplars."""

_SHARPNESS = 2
"""Power of the similarities: near exemplars outvote many far ones."""

_FLOOR = 0.05
"""Similarity that every exemplar keeps, so that far ones still vote."""


def label_prior(text: str, labels: tuple[str, ...]) -> list[float]:
    """Return what the labels' names alone say about a text; sums to 1.

    A label weighs 1, plus 3 times the share of its name's words that the text holds.

    Example:
        >>> label_prior("Sports: the cup final", ("world", "sports"))
        [0.2, 0.8]
    """
    held = set(stems(text))
    weights = []
    for label in labels:
        name = [word for word in stems(label) if word not in STOP_STEMS]
        met = sum(word in held for word in name)
        weights.append(1.0 + (3.0 * met / len(name) if name else 0.0))
    total = sum(weights)
    return [weight / total for weight in weights]


def label_scores(
    text: str, labels: tuple[str, ...], exemplars: tuple[tuple[str, str], ...]
) -> list[float]:
    """Return a probability per label.

    Args:
        text: The text to label.
        labels: The labels, at least one.
        exemplars: Pairs of text and label; labels are compared case-folded, and
            exemplars with labels outside `labels` do not vote.

    Returns:
        The mixture of the prior and the exemplars' votes; the prior alone without
        exemplars, and an even one where the texts are rows of facts. Sums to 1.

    Example:
        >>> shown = (("Who won?", "person"), ("Where was it?", "place"))
        >>> person, place = label_scores("Who ran?", ("person", "place"), shown)
        >>> person > place
        True
    """
    prior = label_prior(text, labels)
    places = {label.casefold(): at for at, label in enumerate(labels)}
    voters = [(x, places[y.casefold()]) for x, y in exemplars if y.casefold() in places]
    if not voters:
        return prior
    weights = fact_weights(text, [exemplar for exemplar, _ in voters])
    if weights is None:
        target = _features(text)
        weights = [
            max(_cosine(target, _features(exemplar)), _FLOOR) ** _SHARPNESS
            for exemplar, _ in voters
        ]
    else:
        # A value of a row ("yes") is no hint at a label of the same name.
        prior = [1.0 / len(labels)] * len(labels)
    votes = [0.0] * len(labels)
    for weight, (_, at) in zip(weights, voters, strict=True):
        votes[at] += weight
    total = sum(votes)
    return [
        _PRIOR_WEIGHT * p + (1.0 - _PRIOR_WEIGHT) * vote / total
        for p, vote in zip(prior, votes, strict=True)
    ]


def _features(text: str) -> dict[str, float]:
    """Return weighted features of a text: its stems, and how it starts.

    Unlike subjects, classes often show in function words ("how many", "not"), so
    these count here; the start of a text shows its form.
    """
    found = stems(text)
    features = {word: 0.6 if word in STOP_STEMS else 1.0 for word in found}
    if found:
        features[f"^{found[0]}"] = 1.0
        features["^" + " ".join(found[:2])] = 1.0
    return features


def _cosine(a: dict[str, float], b: dict[str, float]) -> float:
    inner = sum(weight * b[word] for word, weight in a.items() if word in b)
    if not inner:
        return 0.0
    norms = sum(w * w for w in a.values()) * sum(w * w for w in b.values())
    return inner / math.sqrt(norms)


def tie_break(text: str, label: str) -> bytes:
    """Return a key that orders equal labels differently for every text.

    The first label of a list must not win all ties: that would look like knowledge.
    """
    return blake2b(
        f"{text}\0{label}".encode("utf-8", "surrogatepass"), digest_size=8
    ).digest()
