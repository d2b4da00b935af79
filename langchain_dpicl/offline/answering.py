"""Answers from what a prompt shows: a sentence, an option, a label or a list.

A prompt is read by the markers of this library's prompts and of common RAG prompts.
Instructions are looked for outside the records only, so that a record cannot turn
itself into one. Everything here compares words.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from importlib import resources

from langchain_dpicl.common.prompts import NONE_OF_THESE
from langchain_dpicl.offline.words import (
    GENERIC_STEMS,
    STOP_STEMS,
    sentences,
    stems,
    words,
)

UNKNOWN = "I don't know."
"""What the model says when the prompt holds nothing on the question."""

UNLISTED = "I can't list the possible answers to that."
"""What the model says when options are asked for and it has no list."""

_FLAGS = re.IGNORECASE | re.MULTILINE | re.DOTALL
_CONTEXT = re.compile(r"^\s*(?:records|context|documents|facts)[ \t]*:", _FLAGS)
_QUESTION = re.compile(r"^\s*question[ \t]*:", _FLAGS)
_ANSWER = re.compile(r"\n\s*(?:helpful |possible )?answers?\s*:?\s*\Z", _FLAGS)
_DRAFTS = re.compile(r"\blist the possible answers\b[^.]*?\bat most\s+(\d+)", _FLAGS)
_TOPICS = re.compile(
    r"\bwhich of these topics\b[^\n]*\n((?:\n?- [^\n]+)+)"
    r".*?\bconversations of the person:\s*(.*)\n\s*topics:\s*\Z",
    _FLAGS,
)
_SUGGESTIONS = re.compile(r"\bword suggestions[^:\n]*:([^\n]*)", _FLAGS)
_CHOICES = re.compile(r"\b(?:options|labels)[ \t]*:((?:\n- [^\n]+)+|[^\n]+)", _FLAGS)
_EXEMPLAR = re.compile(r"^text[ \t]*:(.*?)\nlabel[ \t]*:([^\n]*)", _FLAGS)
# Records stand between blank lines or rules.
_BREAK = re.compile(r"\n\s*\n(?:\s*-{3,}[ \t]*\n)?")
# What a question asks for: "side effect" in "which side effect do patients ...".
_ASKED = re.compile(
    r"\b(?:what|which)\b(?: (?:is|are|was|were)\b)?(.*?)"
    r"(?=$| (?:is|are|was|were|do|does|did|has|have|had|can|could|should|will|would"
    r"|about|against|among|at|between|by|during|for|from|in|of|on|that|to|who|with)\b)"
)
# What is done, and not what about: "report" in "... do patients report most".
_LAST_VERB = re.compile(r" \w+ most(?: often)?$")
_MOST_WORDS = 0.5
_DENIED = re.compile(r"[^:]+: (?:absent|denied|negative|never|no|none)\b")


def answer(prompt: str) -> str:
    r"""Return the answer to a prompt.

    Example:
        >>> answer(
        ...     "Records:\nThe fee is 5.\n\n---\n\nHi.\n\nQuestion: What is the fee?"
        ... )
        'The fee is 5.'
    """
    exemplars = [(m[1].strip(), m[2].strip(), m) for m in _EXEMPLAR.finditer(prompt)]
    if exemplars and not exemplars[-1][1]:
        frame = prompt[: exemplars[0][2].start()]
        if not _CONTEXT.search(frame):
            shown = [(text, name) for text, name, _ in exemplars if name]
            return label(exemplars[-1][0], shown, _choices(frame))
    frame, question, records = _split(_ANSWER.sub("", prompt.strip()))
    if suggested := _SUGGESTIONS.search(frame):
        return f"The records point to: {suggested[1].strip()}."
    if drafts := _DRAFTS.search(frame):
        return draft(question, int(drafts[1]))
    choices = _choices(frame)
    options = [one for one in choices if one.casefold() != NONE_OF_THESE]
    if not options:
        return sentence(question, records)
    can_decline = len(options) < len(choices)
    if records or can_decline:
        chosen = option(question, records, options)
        return chosen or (NONE_OF_THESE if can_decline else UNKNOWN)
    return max(options, key=lambda one: _share(one, question))


def _split(prompt: str) -> tuple[str, str, list[str]]:
    """Return the prompt without its records, the question, and the records."""
    context = _CONTEXT.search(prompt)
    questions = list(_QUESTION.finditer(prompt))
    if context is None:
        frame, rest = prompt, ""
        question = prompt[questions[-1].end() :] if questions else prompt
    else:
        frame, rest = prompt[: context.start()], prompt[context.end() :]
        if before := [match for match in questions if match.end() <= context.start()]:
            # What the records say after that is no question.
            question = frame[before[-1].end() :]
        elif questions:
            question = prompt[questions[-1].end() :]
            rest = prompt[context.end() : questions[-1].start()]
        else:
            rest, _, question = rest.rpartition("\n\n")
        frame = f"{frame}\n{question}"
    records = [record.strip() for record in _BREAK.split(rest) if record.strip()]
    return frame, _BREAK.split(question.strip())[0], records


def _choices(frame: str) -> list[str]:
    """Return the options or labels that a prompt lists, by bullets or commas."""
    listed = _CHOICES.search(frame)
    text = listed[1].strip("\n-") if listed else ""
    items = text.split("\n-" if "\n" in text else ",")
    return list(filter(None, (item.strip(" .\"'") for item in items)))


def sentence(question: str, records: Sequence[str]) -> str:
    """Return the sentence that answers a question best, or that none does.

    In each record on the subject the sentences nearest to the question count. A word's
    support is the number of records that say it there, and a sentence is supported as
    its best word is. Of equals, the first is taken.

    Example:
        >>> notes = ("Iron gave me a rash.", "Iron: cough.", "A cough from iron!")
        >>> sentence("What do patients on iron report?", notes)
        'Iron: cough.'
    """
    told = STOP_STEMS | set(stems(question))
    # What each sentence says that the question does not.
    news = [
        {
            text: held - told - GENERIC_STEMS or held - told
            for text, held in near.items()
        }
        for near in _on_subject(question, records)
    ]
    support = Counter(
        word for record in news for word in frozenset().union(*record.values())
    )
    best = {
        text: max((support[word] for word in held), default=0)
        for record in news
        for text, held in record.items()
    }
    return max(best, key=best.__getitem__) if best else UNKNOWN


def option(question: str, records: Sequence[str], options: Sequence[str]) -> str | None:
    """Return the option that most records on the subject state, or None.

    Of options that hold one another, the longest counts.

    Example:
        >>> option("What do patients on iron report?", ["Iron: rash."], ["cough"])
    """
    wanted = {one: frozenset(stems(one)) for one in options}
    counts = Counter[str]()
    for near in _on_subject(question, records):
        told = [one for one in wanted.values() if any(one <= x for x in near.values())]
        counts.update(
            one
            for one, held in wanted.items()
            if held in told and not any(held < other for other in told)
        )
    return max(options, key=counts.__getitem__) if counts else None


def label(text: str, exemplars: Sequence[tuple[str, str]], labels: list[str]) -> str:
    """Return the label of the exemplars nearest to a text.

    A label gets the squared likeness of each of its exemplars, and a quarter of the
    share of its name's words that the text holds. Of equals, a hash of the text takes
    one: that a label wins all ties would look like knowledge.

    Example:
        >>> label("Who ran?", [("Who won?", "person"), ("Where was it?", "place")], [])
        'person'
    """
    votes = defaultdict[str, float](float)
    for other, name in exemplars:
        votes[name.casefold()] += _likeness(text, other) ** 2
    total = sum(votes.values()) or 1.0

    def score(name: str) -> tuple[float, bytes]:
        data = f"{text}\0{name}".encode("utf-8", "surrogatepass")
        vote = votes[name.casefold()] / total + _share(name, text) / 4
        return round(vote, 9), blake2b(data).digest()

    return max(labels or [name for _, name in exemplars], key=score, default=UNKNOWN)


def topics(prompt: str) -> str | None:
    r"""Return the listed topics that a person's conversations are about.

    Those are the ones of whose words they hold more than half, one a line, or "none".
    None where the prompt asks for something else.

    Example:
        >>> topics(
        ...     "Which of these topics are they about?\n\n- refunds\n- late fees\n\n"
        ...     "The conversations of the person:\n\nWhere is my refund?\n\nTopics:"
        ... )
        'refunds'
    """
    asked = _TOPICS.search(prompt)
    if asked is None:
        return None
    listed = asked[1].strip("\n- ").split("\n- ")
    shares = {one: _share(one, asked[2]) for one in listed}
    held = [one for one in listed if shares[one] > _MOST_WORDS]
    return "\n".join(sorted(held, key=lambda one: -shares[one])) or "none"


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
    suited = {
        (kind <= asked, len(held & subjects), len(kind)): texts
        # Of equals, the first.
        for kind, subjects, texts in reversed(_lists())
        if kind <= held and (held & subjects or not subjects)
    }
    return "\n".join(suited[max(suited)][:most]) if suited else UNLISTED


@lru_cache(maxsize=1)
def _lists() -> list[tuple[set[str], set[str], list[str]]]:
    """Return a kind of thing, the subjects that a question must name, and a list."""
    lists = resources.files(__package__).joinpath("options.txt")
    read = []
    for line in lists.read_text(encoding="utf-8").splitlines():
        about, _, texts = line.partition(": ")
        kinds, _, subjects = about.partition("; ")
        read += [
            (set(stems(kind)), set(stems(subjects)), texts.split(", "))
            for kind in kinds.split(" / ")
        ]
    return read


def _on_subject(
    question: str, records: Sequence[str]
) -> Iterator[dict[str, frozenset[str]]]:
    """Yield the sentences of each record on the subject that are nearest to a question.

    A record is on the subject if it holds each word of the question, other than those
    that say what is asked for, what is done, and what any question may say; and if its
    nearest sentences are at least half as near as the nearest record's. With each
    sentence come the lemmas of what it states.
    """
    text = _LAST_VERB.sub("", " ".join(words(question)))
    phrase = _ASKED.search(text)
    asked = _content(phrase[1]) if phrase else frozenset()
    rest = _content(_ASKED.sub("", text, count=1)) - asked
    subject = rest - GENERIC_STEMS or asked - GENERIC_STEMS or rest
    weights = Counter[str]()
    for part, weight in ((_content(text), 0.5), (subject, 1.0), (asked, 2.0)):
        weights.update({stem: weight / len(part) for stem in part})
    kept = []
    for record in records:
        read = {one: _stated(one) for one in sentences(record)}
        if subject and subject <= frozenset().union(*read.values()):
            # Exact, so that equals are equal in whatever order a set lists them.
            near = {one: math.fsum(map(weights.__getitem__, read[one])) for one in read}
            best = max(near.values())
            kept.append((best, {one: read[one] for one in read if near[one] == best}))
    least = max((best for best, _ in kept), default=0.0) / 2
    return (nearest for best, nearest in kept if best >= least)


def _content(text: str) -> frozenset[str]:
    return frozenset(stems(text)) - STOP_STEMS


def _stated(text: str) -> frozenset[str]:
    """Return the lemmas of a sentence; "Angina: absent" states nothing."""
    return frozenset() if _DENIED.match(text.casefold()) else frozenset(stems(text))


def _share(name: str, text: str) -> float:
    """Return the share of a name's words that a text holds."""
    wanted = _content(name)
    return len(wanted & set(stems(text))) / len(wanted) if wanted else 0.0


def _likeness(one: str, other: str) -> float:
    """Return the cosine of two texts' words, of which the first ones count twice.

    Classes often show in function words ("how many", "not") and in a text's start.
    """
    a, b = (Counter([*held, *held[:2]]) for held in map(stems, (one, other)))
    inner = sum(times * b[stem] for stem, times in a.items())
    norms = sum(n * n for n in a.values()) * sum(n * n for n in b.values())
    return inner / math.sqrt(norms) if inner else 0.0
