"""What reading leaves out where it can change nothing is the same as all of it.

Each shortcut stands beside the rule written out in full, for options that contain one
another, share words, hold signs, digits and other scripts, or say "none" themselves.
"""
# ruff: noqa: RUF001 - other scripts

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from langchain_dpicl.parsers.reading import choice, denials, mentions, refusal, text
from langchain_dpicl.parsers.reading.choice import NoChoice, read_choice

OPTIONS: tuple[tuple[str, ...], ...] = (
    ("asthma", "COPD", "chronic bronchitis", "bronchitis"),
    ("diabetes", "type 2 diabetes", "Diabetes type 1", "TYPE"),
    ("C", "C++", "C#", "<=50K", ">50K"),
    ("1 to 2 hours", "1-2", "3", "2."),
    ("yes", "no", "not stated", "none of these", "None", "N/A"),
    ("Straße", "ﬁne", "Übelkeit", "猫", "Москва", "Proof: income"),
    ("the a", "A.", "Landlord’s notice", "no chest pain (asymptomatic)"),
)
WORDS = "a an the not no or and but so is than vs making has boxed to TO 2 3 1. b)"
TAGS = "<think> </think> <THINKING> </thought>"
SIGNS = ". , ; : - ** ` ( ) { } = < > # ' \" ! _ \u0300 \u200b \u2019"
PHRASES = (
    "I'd say, answer:, rather than, other than, none other than, followed by, "
    "instead of, I don't know, the records do not say, not sure, no clear answer, "
    "if I had to pick, ich weiß nicht, no doubt"
)
PIECES = [
    *(name for names in OPTIONS for name in names),
    *(word for some in (WORDS, TAGS, SIGNS) for word in some.split()),
    *PHRASES.split(", "),
    "\n",
    "\r\n",
    "\r",
]
pieces = st.lists(st.sampled_from(PIECES), max_size=10)
dressed = st.tuples(
    st.sampled_from(["", " ", "**", "`", '"', "_", "the ", "\n", "<", "\u200b"]),
    st.sampled_from(PIECES).flatmap(
        lambda name: st.sampled_from([name, name.upper(), name.title()])
    ),
    st.sampled_from(["", ".", "**", '"', "s", "\u0301", "!", " \n", ">", "_."]),
).map("".join)
replies = dressed | pieces.map(" ".join) | pieces.map("".join) | st.text(max_size=60)
many = settings(deadline=None, max_examples=400)


def in_full(reply: str, labels: tuple[str, ...]) -> int | NoChoice:
    """Read a reply with no shortcut: each rule at each word, in the oldest order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "spelled", _spelled)
        patch.setattr(text, "_is_mark", _is_mark)
        patch.setattr(text._Reader, "_pass", _pass)
        patch.setattr(denials, "_BEFORE", _EveryPhrase())
        patch.setattr(mentions, "_chosen", _chosen)
        patch.setattr(refusal, "_REFUSALS", _EachAlone())
        read = text.passage(reply)
        options = mentions.options_of(labels)
        exact = options.texts.get(read.text.strip(" \t\n\"'*_`."))
        if exact is not None:
            return exact
        found = choice._whole(read, options)
        if found is None:
            found = choice._Reading(read, options, labels).chosen()
        if found is None:
            said = refusal.nothing_said(read)
            return NoChoice.NONE if said else NoChoice.UNREADABLE
        return NoChoice.NONE if found == mentions.NOTHING_FITS else found


def _spelled(given: str) -> str:
    given = unicodedata.normalize("NFKC", given).translate(text._SPELLING)
    given = given.replace("\r\n", "\n").replace("\r", "\n")
    for tag in ("think", "thinking", "reasoning", "thought"):
        ends = list(re.finditer(rf"</{tag}>", given, re.IGNORECASE))
        given = given[ends[-1].end() :] if ends else given
        begins = re.search(rf"<{tag}>", given, re.IGNORECASE)
        given = given[: begins.start()] if begins else given
    return given


def _is_mark(sign: str) -> bool:
    return unicodedata.category(sign)[0] == "M"


def _pass(self: text._Reader, gap: str, word: str) -> None:
    self._emphasis(gap)
    before = self.tokens[-1] if self.tokens else None
    if before is not None and before.item and "\n" not in gap:
        return
    end = None if before is None else text._sentence_end(gap, before)
    if end is not None:
        self.sentence += 1
        self.open.clear()
        self._new(part=True)
        gap = gap[end:]
    rest = self._brackets(gap)
    if before is not None and end is None and text._PAUSE.search(rest):
        self._new(part=text._STRONG_PAUSE.search(rest) is not None)
    result = word == "making" and "," in rest
    if before is not None and (word in text._BREAKS or result):
        self._new(part=True)
    elif before is not None and before.word == "and" and word in text._VERBS:
        self._new(part=False)


class _EveryPhrase:
    """Gives every phrase for any word."""

    def get(self, word: str, default: object) -> object:
        return denials._COMPARING


def _chosen(
    forms: tuple[mentions.Form, ...],
    raw: str,
    read: text.Passage,
    start: int,
    end: int,
) -> int | None:
    left = list(forms)
    if len({form.option for form in left}) > 1:
        marks = mentions._marks(read, start, end)
        left = [form for form in left if form.marks == marks]
        if len({form.option for form in left}) > 1:
            left = [form for form in left if form.raw == raw]
    found = {form.option for form in left}
    return found.pop() if len(found) == 1 else None


class _EachAlone:
    """Asks one pattern after the other."""

    def match(self, clause: str) -> re.Match[str] | None:
        found = (re.match(pattern, clause) for pattern in refusal._REFUSING)
        return next((match for match in found if match), None)


@many
@given(replies, st.sampled_from(OPTIONS))
@example("1 TO 2 hours", OPTIONS[3])
@example("a\u0301", OPTIONS[6])
@example("<think>COPD</think>asthma", OPTIONS[0])
@example("<think>COPD", OPTIONS[0])
@example("none other than COPD", OPTIONS[0])
@example("asthma vs COPD", OPTIONS[0])
@example("unlike asthma", OPTIONS[0])
@example("option 1 and has asthma", OPTIONS[0])
@example("1. and has asthma", OPTIONS[0])
def test_a_shortcut_reads_what_all_rules_read(
    reply: str, labels: tuple[str, ...]
) -> None:
    assert read_choice(reply, labels) == in_full(reply, labels)


@many
@given(replies)
@example("e\u0301 1. b) x, making")
def test_a_shortcut_finds_the_same_words(reply: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "spelled", _spelled)
        patch.setattr(text, "_is_mark", _is_mark)
        patch.setattr(text._Reader, "_pass", _pass)
        expected = text.passage(reply)
    # Equal tuples are equal in every place and mark of a word.
    assert text.passage(reply) == expected


@pytest.mark.parametrize("labels", [*OPTIONS[:3], OPTIONS[4], OPTIONS[5]])
def test_a_reply_that_is_an_option_is_read_without_its_words(
    labels: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    mentions.options_of(labels)

    def refuse(reply: str) -> text.Passage:
        raise AssertionError("The words were looked at.")

    monkeypatch.setattr(choice, "passage", refuse)
    for place, label in enumerate(labels):
        for reply in (label, label.upper(), f"**{label}**\n", f' "{label}."'):
            assert read_choice(reply, labels) == place


def test_no_reply_is_kept() -> None:
    """What is prepared for one question depends on its options alone."""
    labels = ("cough", "rash")
    read_choice("cough", labels)
    before = mentions.options_of.cache_info().currsize
    for reply in ("cough", "A dry cough, patient 7.", "rash", "no idea"):
        read_choice(reply, labels)
    assert mentions.options_of.cache_info().currsize == before
