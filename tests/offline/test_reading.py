from __future__ import annotations

import pytest

from langchain_dpicl.offline.question import understand
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
    assert read("", "Options: a b, c.\nQuestion: x").options == ("a b", "c")
    assert read("", "Options: a, b; c\nQuestion: x").options == ("a, b", "c")
    assert read("", "Labels:\n- a, b\n- c\nQuestion: x").labels == ("a, b", "c")


def test_exemplars_with_several_lines() -> None:
    reading = read("Labels: x, y", "Text: one\ntwo\nLabel: x\n\nText: three\nLabel:")
    assert reading.exemplars == (("one\ntwo", "x"),)
    assert (reading.question, reading.labels) == ("three", ("x", "y"))


@pytest.mark.parametrize(
    ("question", "asked", "subject"),
    [
        ("Which drug do patients with asthma take most?", "drug", "asthma"),
        ("Which trigger do patients with asthma blame most?", "trigger", "asthma"),
        ("What is the door code of the old mill?", "door code", "mill"),
        ("Which drug helps against asthma?", "drug", "help against asthma"),
        ("Is coughing common among men?", "cough", "man"),
    ],
)
def test_questions_are_taken_apart(question: str, asked: str, subject: str) -> None:
    reading = understand(question)
    assert reading.asked == {stem(word) for word in asked.split()}
    assert reading.subject == {stem(word) for word in subject.split()}


def test_names_and_exclusions() -> None:
    reading = understand("What did Ruth Alvarez say about P0042 without anger?")
    assert reading.names == {stem("ruth"), stem("alvarez"), "p0042"}
    assert reading.excluded == {"anger"}
    assert understand("Which Side Effect Is Most Common?").names == frozenset()


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
