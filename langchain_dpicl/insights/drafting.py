"""`draft_topics`: a public list of topics, from a description alone.

Topics are drafted before anybody's conversation is read, printed for review, edited and
saved. A model is asked three times: for everything that people come for, for what is
unpleasant or administrative, which drafts forget, and for people and situations that
are special. Then it names the topics that mean the same, since near-duplicates split
counts.

Privacy:
    What goes in is public: a sentence, an operator's list, the tree of the last period,
    words that were released. So all calls are ordinary ones, in sight of callbacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from langchain_core.prompts import ChatPromptTemplate

from langchain_dpicl.common import parameters
from langchain_dpicl.common.replies import answer_of
from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.insights.topics import MOST_TOPICS, Topics, is_name, topic_key
from langchain_dpicl.parsers.reading import read_drafts

MOST_DRAFTED = 80
"""Topics of a draft, those that were given among them."""

_ASKED = (
    (
        "everything that people come to it for, the most frequent first: 30 to 50 "
        "topics in 5 to 12 groups"
    ),
    (
        "what is unpleasant or administrative, which such lists forget: complaints, "
        "mistakes, waiting, money that is wrong or missing, privacy, documents and "
        "proofs, technical trouble, changes of one's own data, leaving: 10 to 20 topics"
    ),
    (
        "special groups of people, rare but serious situations, and what else is still "
        "missing: 10 to 20 topics"
    ),
)
"""What the draft is asked for, one call each."""

_DRAFT = ChatPromptTemplate.from_template(
    "Many people talk with this assistant: {about}\n{known}\n"
    "List the topics that they may bring up: {asked}. Name each in two to five words, "
    "so that people who talk about it can be told from those who don't. No two topics "
    "mean the same, and none is a part of another one. Reply in this form, and with "
    "nothing else:\n\n# Group\n- topic\n- topic\n\n# Group\n- topic\n"
)
_KNOWN = "\nListed so far; add to these groups, or make new ones:\n\n{tree}\n"
_SAME = ChatPromptTemplate.from_template(
    "Which of the topics below mean the same, or so nearly that people who talk about "
    "one talk about the other? Reply with one line for each pair, the better name "
    "first, both word for word, and with nothing else:\n\nname = other name\n\n"
    'If there is no such pair, reply "none".\n\nTopics:\n{tree}'
)
_FILE = ChatPromptTemplate.from_template(
    "Many people talk with an assistant: {about}\n\nListed are these topics:\n\n"
    "{tree}\n\nSeveral people brought up something that is not listed. Of it these "
    "words are known: {words}\n\n"
    "What topic is behind each word? Reply with one line for each, and with nothing "
    "else: the word, a topic in two to five words, and its group.\n\n"
    "word: topic (group)"
)
_HEADING = re.compile(
    r"^\s*(?:#+\s*(.+?)|\*\*([^*]+)\*\*|([^-*\u2022\s][^:.!?]{2,40})(?=:\s*$))[\s:*]*$"
)
_MARK = re.compile(r"^\s*[*_]{0,2}(?:[-*+\u2022]|\d{1,2}[.)])[*_]{0,2}\s+")
_PAIR = re.compile(r"^[\s\-*\u2022\d.)]*(.+?)\s*(?:==?|\u2261)\s*(.+?)\s*$")
_FILED = re.compile(r"^[\s\-*\u2022\d.)]*([^:]+):\s*([^()]+?)\s*(?:\(([^()]+)\).*)?$")


def draft_topics(
    model: Any, *, about: str, topics: Any = None, most: int = MOST_DRAFTED
) -> Topics:
    r"""Have a model list what people may talk about, in groups, in four public calls.

    Print what comes back, edit it (`topics.save(path)`, `Topics.load(path)`), and pass
    it to `insights`.

    Args:
        model: A chat model or completion model.
        about: What the assistant is for, in a sentence. It, and what it is to the
            people who use it, decides what the draft covers.
        topics: What is listed already: your own topics, or last period's. They stay.
        most: Most topics, those among them.

    Raises:
        InvalidParameterError: If an argument is of another form. Conversations are
            refused.
        PublicCallError: If the model fails, or drafts no topics.

    Example:
        >>> from langchain_core.language_models import FakeListChatModel
        >>> replies = [
        ...     "# Orders\n- late delivery\n- returns",
        ...     "# Leaving\n- refunds",
        ... ]
        >>> model = FakeListChatModel(responses=[*replies, "none", "none"])
        >>> print(draft_topics(model, about="The assistant of a shop."))
        Orders
          late delivery
          returns
        Leaving
          refunds
    """
    if not isinstance(about, str) or not about.strip():
        raise InvalidParameterError(
            "about must be a sentence that says what the assistant is for. Topics must "
            "not be drafted from conversations."
        )
    given = {} if topics is None else _grouped(Topics.of(topics))
    parameters.count(most, "most", minimum=max(2, len(given)))
    drafted = dict(given)
    for wanted in _ASKED:
        known = _KNOWN.format(tree=_topics(drafted, about)) if drafted else ""
        reply = _asked(model, _DRAFT, about=about, known=known, asked=wanted)
        for name, group in _read(reply):
            drafted.setdefault(name, group)
        drafted = _different(drafted)
    if len(drafted) < 2:  # noqa: PLR2004 - a choice is among two at least
        raise PublicCallError(
            "The model drafted no topics. Take a larger one, or list them yourself: "
            "Topics.of(...), saved as a file for --topics of the command."
        )
    reply = _asked(model, _SAME, tree="\n".join(drafted))
    doubles = _repeated(reply, drafted, given)
    kept = [(name, group) for name, group in drafted.items() if name not in doubles]
    return _topics(dict(kept[: min(most, MOST_TOPICS)]), about)


def filed(topics: Topics, words: Iterable[str], model: Any) -> Topics:
    """Return topics with those behind released words; see `Topics.with_words`."""
    drafted = _grouped(topics)
    known_words = {word for name in topics.names for word in topic_key(name).split()}
    new = {word: word for word in words if topic_key(word) not in known_words}
    if not new:
        return topics
    terms = {"about": topics.about, "tree": str(topics), "words": ", ".join(new)}
    groups = {topic_key(group): group for group in topics.groups if group}
    placed: dict[str, tuple[str, str | None]] = {}
    for line in _asked(model, _FILE, **terms).splitlines():
        match = _FILED.match(line)
        word = match and match[1].strip(" \"'*`").casefold()
        if match and word in new and (named := read_drafts(match[2], 1)):
            group = groups.get(topic_key(match[3] or ""), match[3])
            placed[word] = (named[0], group)
    for word in new:
        drafted.setdefault(*placed.get(word, (word, None)))
    return _topics(_different(drafted), topics.about)


def _asked(model: Any, prompt: ChatPromptTemplate, **terms: str) -> str:
    failure = ""
    try:
        return answer_of((prompt | model).invoke(terms))
    except Exception as error:  # noqa: BLE001 - replaced by an error of ours
        failure = type(error).__name__
    raise PublicCallError(f"The model failed on the description ({failure}).")


def _read(reply: str) -> Iterator[tuple[str, str | None]]:
    """Yield the topics of a reply, each with the group that it stands under.

    What is neither below a heading nor marked as an item is talk.
    """
    below: list[tuple[str | None, list[str]]] = [(None, [])]
    lines = [line for line in reply.splitlines() if line.strip()]
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        is_over = _MARK.match(after) is not None and _indent(after) > _indent(line)
        heading = _HEADING.match(_MARK.sub("# ", line) if is_over else line)
        if heading is not None:
            below.append((next(filter(None, heading.groups()), "").strip(" *:"), []))
        elif below[-1][0] or _MARK.match(line):
            below[-1][1].append(line.strip())
    for group, listed in below:
        for name in read_drafts("\n".join(listed), MOST_TOPICS):
            yield _MARK.sub("", name), group


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _grouped(topics: Topics) -> dict[str, str | None]:
    return dict(zip(topics.names, topics.groups, strict=True))


def _topics(drafted: Mapping[str, str | None], about: str) -> Topics:
    """Return topics, those of a group together."""
    groups = list(dict.fromkeys(drafted.values()))
    names = sorted(drafted, key=lambda name: groups.index(drafted[name]))
    own_groups = tuple(drafted[name] for name in names)
    return Topics(names=tuple(names), groups=own_groups, about=about)


def _different(drafted: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the topics that can be told from those before them, in known groups."""
    kept, names, groups = dict[str, str | None](), set[str](), dict[str, str]()
    for name, group in drafted.items():
        key, group_key = topic_key(name), topic_key(group or "")
        if is_name(name) and key not in names:
            kept[name] = groups.setdefault(group_key, group or "") or None
            names.add(key)
    return kept


def _repeated(
    reply: str, drafted: Mapping[str, str | None], given: Mapping[str, str | None]
) -> set[str]:
    """Return the topics that a reply says are others' doubles; given ones stay."""
    names = {topic_key(name): name for name in drafted}
    better: dict[str, str] = {}
    for pair in filter(None, map(_PAIR.match, reply.splitlines())):
        kept, dropped = (names.get(topic_key(text), "") for text in pair.groups())
        while kept in better:
            kept = better[kept]
        if dropped in given and kept not in given:
            kept, dropped = dropped, kept
        if kept and dropped and kept != dropped and dropped not in given:
            better[dropped] = kept
    return set(better)
