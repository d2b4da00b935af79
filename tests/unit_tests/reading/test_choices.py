"""A reply is read by public rules, as a careful person reads a form.

`replies.jsonl` has one reply a line, with what it chooses: a label, "none", or
"unreadable". Those of the groups "recorded" are a language model's. What is between
the lines is held by properties: dressing a reply up changes nothing, a denied option is
never chosen, and nothing but the reply counts.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from faces import VoteOutputParser, planned, read_reply
from hypothesis import example, given
from hypothesis import strategies as st

Line = dict[str, Any]

LINES: list[Line] = [
    json.loads(line)
    for line in Path(__file__).with_name("replies.jsonl").read_text("utf-8").split("\n")
    if line
]
GROUPS: dict[str, list[Line]] = defaultdict(list)
for _line in LINES:
    GROUPS[_line["group"]].append(_line)

# Replies that are an option and nothing else, in its own words.
BARE = [
    line
    for line in LINES
    if line["reads"] in line["labels"]
    and line["reply"].casefold() == line["reads"].casefold()
    and line["reply"].replace(" ", "").isalpha()
]
SAMPLE = [line for line in LINES if "\n" not in line["reply"]][::4]


def reading(line: Line, reply: str | None = None) -> str:
    """Return how a line's reply is read, or another one in its place."""
    text = line["reply"] if reply is None else reply
    return read_reply(line["labels"], text, line.get("aliases"))


@pytest.mark.promise("reply-read")
@pytest.mark.parametrize("group", GROUPS)
def test_replies_are_read_as_a_careful_person_would(group: str) -> None:
    wrong = [
        (line["reply"], line["reads"], found)
        for line in GROUPS[group]
        if (found := reading(line)) != line["reads"]
    ]
    assert wrong == []


@pytest.mark.promise("reply-read", twin=True)
def test_twin_of_the_reader_that_takes_the_first_label_inside() -> None:
    def naive(line: Line) -> str:
        named = [x for x in line["labels"] if x.lower() in line["reply"].lower()]
        return named[0] if named else "unreadable"

    for group in ("denied", "several options, or something else", "none of these"):
        assert any(naive(line) != line["reads"] for line in GROUPS[group])


@pytest.mark.promise("reply-read")
@pytest.mark.parametrize("change", [str.upper, str.lower, str.title])
def test_letter_case_changes_nothing(change: Any) -> None:
    for line in SAMPLE:
        reply = change(line["reply"])
        # "ß" has no capital; an apostrophe makes `title` spell another word.
        if reply.casefold() == line["reply"].casefold() and "'" not in reply:
            assert reading(line, reply) == line["reads"], reply


DRESS = ["**{}**", "_{}_", "`{}`", '"{}"', "“{}”", "- {}", "1. {}", "b) {}", "# {}"]


@pytest.mark.promise("reply-read")
@pytest.mark.parametrize("dress", [*DRESS, "Answer: {}", "**Answer:** {}", "  {}\n"])
def test_markup_quotes_and_numbering_change_nothing(dress: str) -> None:
    for line in BARE:
        assert reading(line, dress.format(line["reply"])) == line["reads"], line


@pytest.mark.promise("reply-read")
@pytest.mark.parametrize(
    "behind", [".", "!", " (4 of 6)", " (most of them)", ", I think", " [3/5]", "…"]
)
def test_a_remark_behind_changes_nothing(behind: str) -> None:
    for line in BARE:
        assert reading(line, line["reply"] + behind) == line["reads"], line


@pytest.mark.promise("reply-read")
@pytest.mark.parametrize(
    "around",
    [
        "Thanks for the notes!\n\n{}",
        "{}\n\nLet me know if you need more.",
        "Sure.\n\n**{}**\n",
        "\t{}\r\n\r\n",
        "\ufeff{}\u00a0",
    ],
)
def test_polite_text_on_other_lines_changes_nothing(around: str) -> None:
    for line in BARE:
        assert reading(line, around.format(line["reply"])) == line["reads"], line


@pytest.mark.promise("reply-read")
def test_the_order_of_labels_changes_nothing() -> None:
    for line in LINES:
        backwards = {**line, "labels": line["labels"][::-1]}
        assert reading(backwards) == line["reads"], line


@pytest.mark.promise("denied-label")
@pytest.mark.parametrize(
    "denial",
    ["not {}", "It is not {}.", "Not {}!", "never {}", "It isn't {}.", "without {}"],
)
def test_a_denied_label_is_never_chosen(denial: str) -> None:
    for line in BARE:
        reply = denial.format(line["reads"].lower())
        others = [x for x in line["labels"] if x.casefold() in reply.casefold()]
        # "No" and "never married" are answers of their own.
        if others == [line["reads"]] and line["reads"] not in ("Yes", "No"):
            assert reading(line, reply) != line["reads"], reply


@pytest.mark.promise("reply-never-raises")
@given(
    st.text(max_size=200) | st.binary(max_size=99).map(lambda b: b.decode("latin-1")),
    st.sampled_from(LINES),
)
@example("\ud800", LINES[0])
@example("\x00**\u0300", LINES[-1])
def test_any_reply_has_a_reading(reply: str, line: Line) -> None:
    assert reading(line, reply) in (*line["labels"], "none", "unreadable")


@pytest.mark.promise("reply-never-raises")
@pytest.mark.parametrize(
    "piece", ["a", "1. ", "**", "(", "asthma or ", "not asthma ", "\u0300", "<think>"]
)
def test_a_hostile_reply_takes_little_time(piece: str) -> None:
    began = time.process_time()
    for size in (1, 2):
        assert read_reply(["asthma", "COPD"], piece * 25_000 * size)
    assert time.process_time() - began < 5


@pytest.mark.promise("reply-alone")
def test_a_reply_is_read_without_regard_to_others() -> None:
    for line in reversed(LINES):
        reading(line, "asthma and all other labels " * 50)
        assert reading(line) == line["reads"]


@pytest.mark.promise("vote-reads")
@pytest.mark.parametrize("line", LINES[::12], ids=lambda line: line["reply"][:20])
def test_a_parser_alone_votes_as_it_reads(line: Line) -> None:
    parser = VoteOutputParser(
        labels=line["labels"],
        aliases=line.get("aliases") or {},
        noise_multiplier=0.5,
        abstain_text="no answer",
        budget=planned(1e9),
    )
    told = line["reads"] if line["reads"] in line["labels"] else "no answer"
    # Ten replies of another kind are outvoted; they don't change how these are read.
    assert parser.invoke(["???"] * 10 + [line["reply"]] * 60) == told
