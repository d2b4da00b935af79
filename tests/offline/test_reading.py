from __future__ import annotations

import pytest

from langchain_dpicl.offline.reading import read
from langchain_dpicl.offline.words import sentences, stem


def test_rules_separate_records_that_hold_blank_lines() -> None:
    prompt = "Records:\nA one.\n\nA two.\n\n---\n\nB.\n\nQuestion: Why?\nAnswer:"
    assert read("", prompt).records == ("A one.\n\nA two.", "B.")
    assert read("", prompt).question == "Why?"


def test_a_records_own_question_is_no_instruction() -> None:
    before = "Question: Mine?\nContext: Q and A.\nQuestion: Theirs?"
    assert read("", before).question == "Mine?"
    after = "Context: Q and A.\nQuestion: Theirs?\n\nQuestion: Mine?\nAnswer:"
    assert read("", after).question == "Mine?"


def test_lists_are_cut_at_their_own_marks() -> None:
    assert read("", "Options: a b, c.\nQuestion: x").choices == ("a b", "c")
    assert read("", "Options: a, b; c\nQuestion: x").choices == ("a, b", "c")
    assert read("", "Options:\n- a, b.\nQuestion: x").choices == ("a, b",)
    assert read("", "Labels:\n- a, b\n- c\nQuestion: x").choices == ("a, b", "c")


def test_exemplars_with_several_lines() -> None:
    reading = read("Labels: x, y", "Text: one\ntwo\nLabel: x\n\nText: three\nLabel:")
    assert reading.exemplars == (("one\ntwo", "x"),)
    assert (reading.question, reading.choices) == ("three", ("x", "y"))


@pytest.mark.parametrize(
    "group",
    [
        "report reports reported reporting",
        "study studies studied studying",
        "dose doses dosed dosing",
        "stop stops stopped stopping",
        "bleed bleeds bleeding",
        "rash rashes",
        "man men",
        "alvarez alvarez's",
    ],
)
def test_inflections_share_a_stem(group: str) -> None:
    assert len({stem(word) for word in group.split()}) == 1


def test_abbreviations_do_not_end_a_sentence() -> None:
    text = "Mr. K. Ito saw Dr. Lee. Exercise angina: no. ST slope: up."
    assert sentences(text) == [
        "Mr. K. Ito saw Dr. Lee.",
        "Exercise angina: no.",
        "ST slope: up.",
    ]
