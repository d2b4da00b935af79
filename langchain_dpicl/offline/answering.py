"""Answers from what a prompt shows: a sentence, an option or a label.

Everything here compares words and numbers. A sentence or an option comes from the
records that hold the question's words, and most records decide. A label comes from the
exemplars nearest to a text; rows of a table are compared fact by fact, as Gower does
(*A General Coefficient of Similarity and Some of Its Properties*, Biometrics 27, 1971).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

from langchain_dpicl.common.prompts import NONE_OF_THESE
from langchain_dpicl.offline.lists import builtin_options
from langchain_dpicl.offline.reading import Reading
from langchain_dpicl.offline.words import (
    GENERIC_STEMS,
    STOP_STEMS,
    sentences,
    stem,
    stems,
    words,
)

UNKNOWN = "I don't know."
"""What the model says when the prompt holds nothing on the question."""

# What the model says when options are asked for and it has no list.
UNLISTED = "I can't list the possible answers to that."
# From the scores of several things to the place of the one to take.
Choose = Callable[[Sequence[float]], int]
# What a question asks for: "side effect" in "which side effect do patients ...".
_ASKED = re.compile(
    r"\b(?:what|which)\b(?: (?:is|are|was|were)\b)?(.*?)"
    r"(?=$| (?:is|are|was|were|do|does|did|has|have|had|can|could|should|will|would"
    r"|about|against|among|at|between|by|during|for|from|in|of|on|that|to|who|with)\b)"
)
# What is done, and not what about: "report" in "... do patients report most".
_LAST_VERB = re.compile(r" \w+ most(?: often)?$")
_NEGATIVE = re.compile(r"[^:]+: (?:absent|denied|negative|never|no|none)\b")

# Share of the labels' names in a score, beside the exemplars' votes.
_PRIOR_WEIGHT = 0.25
_FLOOR = 0.05  # Likeness that every exemplar keeps, so that far ones still vote.
# Mean distance of two rows over which a vote falls to 1/e: near rows decide.
_SCALE = 0.1
_FACT = re.compile(
    r"(?:\A|(?<=[.!?;]\s)|(?<=\n))the[ ]+([^\s.]+(?:[ ]+[^\s.]+){0,7}?)[ ]+"
    # Short values only: longer ones are no values of a column, and it bounds the work.
    r"(?:is|are|was|were)[ ]+([^\n]{1,80}?)[.;](?=\s|\Z)"
)
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d{1,2})?(?!\w)")
_LEAST_FACTS = 2
"""Facts that all texts must have in common: fewer are no row of a table."""


def answer(prompt: Reading, choose: Choose) -> str:
    """Return the answer to a prompt; `choose` picks among scored things."""
    if prompt.suggestions:
        return f"The records point to: {', '.join(prompt.suggestions)}."
    if prompt.drafts:
        return draft(prompt.question, prompt.drafts)
    if prompt.choices and prompt.labeling:
        # No label wins all ties: that would look like knowledge.
        labels = sorted(
            prompt.choices, key=lambda label: _tie_break(prompt.question, label)
        )
        return labels[choose(label_scores(prompt.question, labels, prompt.exemplars))]
    options = [one for one in prompt.choices if one.casefold() != NONE_OF_THESE]
    unknown = UNKNOWN if len(options) == len(prompt.choices) else NONE_OF_THESE
    if options and not prompt.records and unknown == UNKNOWN:
        return options[choose(label_prior(prompt.question, options))]
    if options:
        found = option_support(prompt.question, prompt.records, options)
    else:
        found = candidates(prompt.question, prompt.records)
    return found[choose([support for _, support in found])][0] if found else unknown


def draft(question: str, most: int) -> str:
    """Return possible answers to a question, one a line, out of public lists.

    The question must name the kind of thing that a list is of; of several lists, the
    one whose kind it asks for ("which side effect"), and whose subject it names.

    Example:
        >>> draft("Which sport do patients prefer?", 3).split()
        ['walking', 'swimming', 'cycling']
        >>> draft("What is the phone number of Theo?", 3)
        "I can't list the possible answers to that."
    """
    phrase = _ASKED.search(" ".join(words(question)))
    asked, held = set(stems(phrase[1]) if phrase else ()), set(stems(question))
    found = []
    for at, listed in enumerate(builtin_options()):
        about = len(held & {stem(word) for word in listed.subjects})
        found += [
            (kind <= asked, about, len(kind), -at)
            for kind in map(set, map(stems, listed.kinds))
            if kind <= held and (about or not listed.subjects)
        ]
    if not found:
        return UNLISTED
    return "\n".join(builtin_options()[-max(found)[-1]].texts[:most])


def candidates(question: str, records: Sequence[str]) -> list[tuple[str, float]]:
    """Return the sentences that may answer a question and their support, best first.

    In each record on the subject these are the sentences nearest to the question. A
    word's support is the share of these records that say it there, and a sentence is
    supported as its best word is. Equals stay in the order of the records.

    Example:
        >>> notes = ("Iron gave me a rash.", "Iron: cough.", "A cough from iron!")
        >>> candidates("What do patients on iron report?", notes)[0]
        ('Iron: cough.', 0.6666666666666666)
    """
    told = STOP_STEMS | set(stems(question))
    chosen = [
        [
            (text, stated - told - GENERIC_STEMS or stated - told)
            for text, stated in near
        ]
        for near, _ in _on_subject(question, records)
    ]
    support = Counter(
        word for near in chosen for word in set().union(*(news for _, news in near))
    )
    found = [
        (text, max((support[word] for word in news), default=0) / len(chosen))
        for near in chosen
        for text, news in near
    ]
    return sorted(found, key=lambda one: -one[1])


def option_support(
    question: str, records: Sequence[str], options: Sequence[str]
) -> list[tuple[str, float]]:
    """Return the options that records on the subject state, and each one's share.

    A sentence near to the question states it, or failing that any of the record's; of
    options that hold one another, the longest counts.
    """
    wanted = {option: frozenset(stems(option)) for option in options}
    counts = dict.fromkeys(options, 0)
    for pools in _on_subject(question, records):
        for pool in pools:
            said = {one for one in wanted.values() if any(one <= x for _, x in pool)}
            said = {one for one in said if one and not any(one < two for two in said)}
            for option, one in wanted.items():
                counts[option] += one in said
            if said:
                break
    total = sum(counts.values())
    return [(option, count / total) for option, count in counts.items() if count]


_Sentences = list[tuple[str, frozenset[str]]]


def _on_subject(
    question: str, records: Sequence[str]
) -> list[tuple[_Sentences, _Sentences]]:
    """Return for each record on the subject its near sentences, and all of them.

    A record is on the subject if it holds each word of the question, other than those
    that say what is asked for, what is done, and what any question may say; and if its
    near sentences are at least half as near as the nearest record's.
    """
    text, _, without = " ".join(words(question)).partition(" without ")
    text, excluded = _LAST_VERB.sub("", text), _content(without)
    phrase = _ASKED.search(text)
    asked = _content(phrase[1]) if phrase else frozenset()
    rest = _content(_ASKED.sub("", text, count=1)) - asked
    subject = rest - GENERIC_STEMS or asked - GENERIC_STEMS or rest
    if not subject:
        return []
    weights = {
        word: weight / len(part)
        for part, weight in ((_content(text), 0.5), (subject, 1.0), (asked, 2.0))
        for word in part
    }
    found = []
    for record in records:
        read = [(one, _stated(one)) for one in sentences(record)]
        whole = frozenset().union(*(held for _, held in read))
        if subject <= whole and not (excluded and excluded <= whole):
            # Exact, so that equals are equal in whatever order a set lists them.
            scores = [math.fsum(weights.get(x, 0.0) for x in held) for _, held in read]
            near = [
                one
                for one, score in zip(read, scores, strict=True)
                if score == max(scores)
            ]
            found.append((max(scores), near, read))
    least = max((score for score, _, _ in found), default=0.0) / 2
    return [(near, read) for score, near, read in found if score >= least]


def _content(text: str) -> frozenset[str]:
    return frozenset(stems(text)) - STOP_STEMS


def _stated(sentence: str) -> frozenset[str]:
    """Return the stems of a sentence; "Angina: absent" states nothing."""
    denied = _NEGATIVE.match(sentence.casefold())
    return frozenset() if denied else frozenset(stems(sentence))


def label_prior(text: str, labels: Sequence[str]) -> list[float]:
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
    return [weight / sum(weights) for weight in weights]


def label_scores(
    text: str, labels: Sequence[str], exemplars: Iterable[tuple[str, str]]
) -> list[float]:
    """Return a probability per label: the votes of the exemplars, the nearest most.

    Exemplars are pairs of text and label; labels are compared case-folded, and others
    than `labels` do not vote. The votes are mixed with `label_prior`, or with an even
    prior where the texts are rows: a value ("yes") is no hint at a label of its name.

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
    weights = row_weights(text, [exemplar for exemplar, _ in voters])
    if weights is None:
        own, others = _features(text), [_features(exemplar) for exemplar, _ in voters]
        weights = [max(_cosine(own, other), _FLOOR) ** 2 for other in others]
    else:
        prior = [1.0 / len(labels)] * len(labels)
    votes = [0.0] * len(labels)
    for weight, (_, at) in zip(weights, voters, strict=True):
        votes[at] += weight
    return [
        _PRIOR_WEIGHT * p + (1.0 - _PRIOR_WEIGHT) * vote / sum(weights)
        for p, vote in zip(prior, votes, strict=True)
    ]


def row_weights(text: str, exemplars: Sequence[str]) -> list[float] | None:
    """Return how much each exemplar's label counts for a row, 1 for the nearest.

    A row is sentences of one form: "The age is 37 years. The job is clerk." A distance
    is the mean over the facts that two rows share. Words differ by 0 or 1, numbers by
    their distance over the range of all that the prompt shows of this fact. Texts of
    which not two facts are stated by all are no rows: then it is None.

    Example:
        >>> shown = ["The age is 20. The pay is low.", "The age is 60. The pay is low."]
        >>> near, far = row_weights("The age is 24. The pay is low.", shown)
        >>> near > far
        True
    """
    own, *others = map(_facts, (text, *exemplars))
    if len(own.keys() & set.intersection(*map(set, others))) < _LEAST_FACTS:
        return None
    distances: list[list[float]] = [[] for _ in others]
    for name, (unit, number) in own.items():
        column = {at: row[name] for at, row in enumerate(others) if name in row}
        alike = [number, *(other for kind, other in column.values() if kind == unit)]
        spread = (max(alike) - min(alike)) or 1.0
        for at, (kind, other) in column.items():
            far = abs(number - other) / spread if kind == unit else 1.0
            distances[at].append(far)
    means = [sum(row) / len(row) for row in distances]
    return [math.exp((min(means) - mean) / _SCALE) for mean in means]


def _facts(text: str) -> dict[str, tuple[str, float]]:
    """Return by name what a text states: a unit and the mean of the value's numbers.

    "30 to 40 years" is 35 years. A word is a unit of its own, and 0 of it.
    """
    found: dict[str, tuple[str, float]] = {}
    for name, value in _FACT.findall(text.casefold()):
        numbers = [float(one.replace(",", "")) for one in _NUMBER.findall(value)]
        fact = (value, 0.0)
        if numbers:
            rest = stems(_NUMBER.sub(" ", value))
            unit = " ".join(one for one in rest if one not in STOP_STEMS)
            fact = (unit, sum(numbers) / len(numbers))
        found.setdefault(" ".join(name.split()), fact)
    return found


def _features(text: str) -> dict[str, float]:
    """Return weighted features of a text: its stems, and how it starts.

    Classes often show in function words ("how many", "not") and in a text's start.
    """
    found = stems(text)
    starts = [f"^{found[0]}", "^" + " ".join(found[:2])] if found else []
    return {
        **{word: 0.6 if word in STOP_STEMS else 1.0 for word in found},
        **dict.fromkeys(starts, 1.0),
    }


def _cosine(a: dict[str, float], b: dict[str, float]) -> float:
    inner = sum(weight * b.get(word, 0.0) for word, weight in a.items())
    norms = sum(w * w for w in a.values()) * sum(w * w for w in b.values())
    return inner / math.sqrt(norms) if inner else 0.0


def _tie_break(text: str, label: str) -> bytes:
    """Return a key that orders equal labels differently for every text."""
    data = f"{text}\0{label}".encode("utf-8", "surrogatepass")
    return blake2b(data, digest_size=8).digest()
