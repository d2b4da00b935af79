"""A reply chooses one of the public options, or none, by public rules."""
# ruff: noqa: RUF001 - other scripts

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from langchain_dpicl.parsers.reading.choice import (
    NONE,
    UNREADABLE,
    NoChoice,
    read_choice,
)

LUNGS = ("asthma", "COPD", "chronic bronchitis", "lung cancer")
SUGAR = ("diabetes", "type 2 diabetes", "gestational diabetes", "heart failure")
POLAR = ("Yes", "No", "It depends")
HABITS = ("Smoker", "Ex-smoker", "Never smoked")
SIGNS = ("C", "C++", "C#", "Rust")
PAY = ("<=50K", ">50K")
WEEK = ("2 visits", "3 visits", "more than 5 visits")
SENSE = ("no chest pain (asymptomatic)", "typical angina", "atypical angina")
PETS = ("猫", "犬", "金魚")
CITY = ("Москва", "Санкт-Петербург", "Казань")
GERMAN = ("Übelkeit", "Kopfschmerzen", "Müdigkeit")
MOVES = ("up", "down", "unchanged")
WAITS = ("under 1 hour", "1-2 hours", "over 2 hours")
JOBS = ("manager", "pay", "career growth", "work-life balance")
LAW = ("Landlord's notice", "Pay stubs", "Proof of income", "Photo ID")

CASES: list[tuple[tuple[str, ...], str, str | NoChoice]] = [
    # The option itself, dressed in many ways.
    (LUNGS, "asthma", "asthma"),
    (LUNGS, "Asthma.", "asthma"),
    (LUNGS, "  ASTHMA \n", "asthma"),
    (LUNGS, "**Asthma**", "asthma"),
    (LUNGS, "__copd__", "COPD"),
    (LUNGS, "`COPD`", "COPD"),
    (LUNGS, "\u201cChronic bronchitis\u201d", "chronic bronchitis"),
    (LUNGS, "'lung cancer'", "lung cancer"),
    (LUNGS, "The COPD", "COPD"),
    (LUNGS, "- asthma", "asthma"),
    (LUNGS, "> asthma", "asthma"),
    (LUNGS, "# Asthma", "asthma"),
    (LUNGS, "2. asthma", "asthma"),
    (LUNGS, "b) asthma", "asthma"),
    (LUNGS, "(c) lung cancer", "lung cancer"),
    (LUNGS, "Option 1: asthma", "asthma"),
    (LUNGS, "Answer: asthma", "asthma"),
    (LUNGS, "**Answer:** COPD", "COPD"),
    (LUNGS, "Answer:\n\nCOPD", "COPD"),
    (LUNGS, "Final answer: **lung cancer**", "lung cancer"),
    (LUNGS, '{"answer": "asthma"}', "asthma"),
    (LUNGS, '```json\n{"answer": "COPD", "confidence": 0.8}\n```', "COPD"),
    (LUNGS, "$\\boxed{asthma}$", "asthma"),
    (LUNGS, "<answer>asthma</answer>", "asthma"),
    (LUNGS, "asthma (4 of 6)", "asthma"),
    (LUNGS, "COPD [3/5]", "COPD"),
    (LUNGS, "asthma - 4 of 6 patients", "asthma"),
    (LUNGS, "asthma: 4 of 6", "asthma"),
    (LUNGS, "asthma, I think", "asthma"),
    (LUNGS, "Probably asthma", "asthma"),
    (LUNGS, "asthma!!!", "asthma"),
    (LUNGS, "lung cancers", "lung cancer"),
    (LUNGS, "Lung  cancer", "lung cancer"),
    (LUNGS, "asthma\n\nCOPD is mentioned in one record as well.", "asthma"),
    (LUNGS, "asthma (tied with COPD, one each)", "asthma"),
    (LUNGS, "<think>Is it COPD? No.</think>\nasthma", "asthma"),
    # Inside a sentence.
    (LUNGS, "The most common condition is asthma.", "asthma"),
    (LUNGS, "Most of these patients have asthma, I believe.", "asthma"),
    (LUNGS, "It\u2019s COPD\u2014seen in four of five notes.", "COPD"),
    (
        LUNGS,
        "Based on the notes, I'd go with chronic bronchitis.",
        "chronic bronchitis",
    ),
    (LUNGS, "I would choose lung cancer over the others.", "lung cancer"),
    (LUNGS, "My answer is COPD.", "COPD"),
    (LUNGS, "COPD would be my best guess; asthma is rarer.", "COPD"),
    (LUNGS, "There is no doubt that it is asthma.", "asthma"),
    (LUNGS, "Asthma is more common than COPD.", "asthma"),
    (LUNGS, "Asthma, followed by COPD and lung cancer.", "asthma"),
    (LUNGS, "COPD leads with 5 cases, compared to 2 cases of asthma.", "COPD"),
    (LUNGS, "Most have asthma, while two have COPD.", "asthma"),
    (LUNGS, "Mostly asthma, although one has lung cancer.", "asthma"),
    (LUNGS, "Asthma was the most common, with COPD in one case.", "asthma"),
    (LUNGS, "Two have COPD and four have asthma, so asthma.", "asthma"),
    (LUNGS, "Asthma: 2\nCOPD: 3\n\nTherefore the answer is COPD.", "COPD"),
    (LUNGS, "- **COPD**: 3\n- asthma: 2\n\nSo COPD is the most common.", "COPD"),
    (LUNGS, "They all have **COPD**. One was checked for asthma.", "COPD"),
    (LUNGS, "It is asthma. COPD was named by one patient too.", "asthma"),
    (LUNGS, "I'm not certain, but asthma seems most likely.", "asthma"),
    (LUNGS, "Hard to say; if I had to pick, COPD.", "COPD"),
    # Denied or set aside.
    (LUNGS, "not asthma but COPD", "COPD"),
    (LUNGS, "It isn't asthma, it's COPD.", "COPD"),
    (LUNGS, "COPD, not asthma", "COPD"),
    (LUNGS, "COPD rather than asthma.", "COPD"),
    (LUNGS, "Instead of asthma, the notes describe lung cancer.", "lung cancer"),
    (LUNGS, "There is no option but asthma.", "asthma"),
    (LUNGS, "It can be none other than COPD.", "COPD"),
    (LUNGS, "Neither asthma nor COPD; the notes say lung cancer.", "lung cancer"),
    (
        LUNGS,
        "not asthma, COPD or lung cancer but chronic bronchitis",
        "chronic bronchitis",
    ),
    (LUNGS, "Asthma was ruled out. The diagnosis is COPD.", "COPD"),
    (LUNGS, "Asthma does not appear, COPD does.", "COPD"),
    (LUNGS, "Not only asthma is common here.", "asthma"),
    (LUNGS, "Not asthma.", UNREADABLE),
    # Options within options.
    (SUGAR, "type 2 diabetes", "type 2 diabetes"),
    (SUGAR, "Type-2 diabetes (most patients)", "type 2 diabetes"),
    (SUGAR, "Most of them have type\u00a02 diabetes.", "type 2 diabetes"),
    (SUGAR, "diabetes", "diabetes"),
    (SUGAR, "Diabetes, type 2", "type 2 diabetes"),
    (SUGAR, "gestational diabetes, not type 2 diabetes", "gestational diabetes"),
    (SUGAR, "diabetes mellitus", "diabetes"),
    (HABITS, "never smoked", "Never smoked"),
    (HABITS, "They are ex\u2011smokers.", "Ex-smoker"),
    (HABITS, "Ex smoker", "Ex-smoker"),
    (HABITS, "exsmoker", "Ex-smoker"),
    (HABITS, "Smokers", "Smoker"),
    (SENSE, "asymptomatic", SENSE[0]),
    (SENSE, "Asymptomatic (no chest pain)", SENSE[0]),
    (SENSE, "Most had no chest pain.", SENSE[0]),
    (SENSE, "atypical angina", "atypical angina"),
    (SENSE, "The typical type: typical angina.", "typical angina"),
    (LAW, "the landlords notice", "Landlord's notice"),
    (LAW, "Landlord\u2019s notice", "Landlord's notice"),
    (LAW, "A pay stub is what clients lack most.", "Pay stubs"),
    (LAW, "Most clients come without proof of income.", UNREADABLE),
    # Short words, numbers, signs, other scripts.
    (POLAR, "No, most do not.", "No"),
    (POLAR, "Yes. No doubt about it.", "Yes"),
    (POLAR, "**No.**", "No"),
    (POLAR, "The yes", "Yes"),
    (POLAR, "A", UNREADABLE),
    (POLAR, "The answer is no.", "No"),
    (POLAR, "Yes and no", UNREADABLE),
    (POLAR, "No records mention it.", NONE),
    (POLAR, "It depends on the patient.", "It depends"),
    (MOVES, "Up", "up"),
    (MOVES, "It mostly went down.", "down"),
    (MOVES, "down, not up", "down"),
    (SIGNS, "C++", "C++"),
    (SIGNS, "The answer is C.", "C"),
    (SIGNS, "**C#** is used most.", "C#"),
    (SIGNS, "Most use Rust.", "Rust"),
    (PAY, ">50K", ">50K"),
    (PAY, "Most earn <= 50K.", "<=50K"),
    (PAY, "\u226450K", "<=50K"),
    # Of the signs before a word the last four count.
    (("====50K", "===50K"), "=====50K", "====50K"),
    (("====50K", "===50K"), "===50K", "===50K"),
    (WEEK, "3 visits (4 of 5)", "3 visits"),
    (WEEK, "Three visits", "3 visits"),
    (WEEK, "more than 5 visits", "more than 5 visits"),
    (WAITS, "1\u20132 hours", "1-2 hours"),
    (WAITS, "Over two hours", "over 2 hours"),
    (WAITS, "1 to 2 hours", "1-2 hours"),
    (POLAR, "It's a no.", "No"),
    (JOBS, "Most people making plans name pay, although one names the manager.", "pay"),
    (LUNGS, "One has asthma, three have COPD, making COPD the top one.", "COPD"),
    (LUNGS, "Between asthma and COPD, but COPD edges ahead.", "COPD"),
    (JOBS, "Lack of career growth", "career growth"),
    (JOBS, "Low pay (4 of 6)", "pay"),
    (JOBS, "Work life balance", "work-life balance"),
    (JOBS, "None of these \u2014 reasons vary.", NONE),
    (JOBS, "Only one mentions pay, so none of these.", NONE),
    (JOBS, "No one mentions pay; the reason is the manager.", "manager"),
    (JOBS, "B. Pay", "pay"),
    (PETS, "猫", "猫"),
    (PETS, "答え：犬です。", "犬"),
    (PETS, "一番多いのは金魚です", "金魚"),
    (CITY, "**москва**.", "Москва"),
    (CITY, "Санкт\u2013Петербург", "Санкт-Петербург"),
    (GERMAN, "U\u0308belkeit", "Übelkeit"),
    (GERMAN, "MÜDIGKEIT (3)", "Müdigkeit"),
    # None of them.
    (LUNGS, "none of these", NONE),
    (LUNGS, "**None of these.**", NONE),
    (LUNGS, "None of the above", NONE),
    (LUNGS, "None", NONE),
    (LUNGS, "N/A", NONE),
    (LUNGS, "none of these (asthma and COPD are tied)", NONE),
    (LUNGS, "Answer: none of these", NONE),
    (LUNGS, "None of the options apply, as no lung disease is named.", NONE),
    (LUNGS, "I don't know, since none of them has asthma.", NONE),
    (LUNGS, "The records do not say.", NONE),
    (LUNGS, "The records don't mention asthma or COPD.", NONE),
    (LUNGS, "Not stated", NONE),
    (LUNGS, "It's unclear from these notes.", NONE),
    (LUNGS, "I can't tell: one has asthma and the other COPD.", NONE),
    # Several, or something else.
    (LUNGS, "Asthma or COPD", UNREADABLE),
    (LUNGS, "asthma/COPD", UNREADABLE),
    (LUNGS, "asthma, COPD", UNREADABLE),
    (LUNGS, "asthma and COPD", UNREADABLE),
    (LUNGS, "- asthma\n- COPD", UNREADABLE),
    (LUNGS, "Asthma: 2\nCOPD: 2", UNREADABLE),
    (LUNGS, "One has asthma, two have COPD.", UNREADABLE),
    (LUNGS, "Answer: asthma or COPD", UNREADABLE),
    (LUNGS, "It's a tie between **asthma** and COPD.", UNREADABLE),
    (LUNGS, "pneumonia", UNREADABLE),
    (LUNGS, "asthmatic children", UNREADABLE),
    (LUNGS, "No condition leads; asthma appears once.", UNREADABLE),
    (LUNGS, "Heart failure is the most common. One has asthma.", UNREADABLE),
    (LUNGS, "", NONE),
    (LUNGS, "2", UNREADABLE),
]


@pytest.mark.parametrize(("labels", "reply", "chosen"), CASES)
def test_a_reply_is_read_as_a_careful_reader_would(
    labels: tuple[str, ...], reply: str, chosen: str | NoChoice
) -> None:
    read = read_choice(reply, labels)
    assert (labels[read] if isinstance(read, int) else read) == chosen


AILS = ("asthma", "COPD", "lung cancer", "flu")


def test_aliases_are_further_names() -> None:
    names = {"COPD": ["chronic obstructive pulmonary disease", "smoker's lung"]}
    assert read_choice("Smoker\u2019s lung, mostly", LUNGS, names) == 1
    assert read_choice("Smoker's lung, mostly", LUNGS) is UNREADABLE


def test_an_option_that_says_nothing_is_an_option() -> None:
    labels = ["yes", "no", "not stated"]
    assert read_choice("It is not stated.", labels) == 2
    assert read_choice("I don't know", labels) is NONE


@pytest.mark.parametrize(
    ("reply", "chosen"),
    [
        ("Asthma? No, COPD.", "COPD"),
        ("Asthma, COPD and flu were all ruled out; lung cancer.", "lung cancer"),
        ("Asthma and COPD are unlikely. It's flu.", "flu"),
        ("Flu is the diagnosis, and asthma and COPD were both excluded.", "flu"),
        ("The patient has asthma and COPD was ruled out.", "asthma"),
        ("Asthma or COPD can be excluded.", UNREADABLE),
        ("Both asthma and COPD have been excluded.", UNREADABLE),
    ],
)
def test_a_denial_of_several_options_is_of_each(
    reply: str, chosen: str | NoChoice
) -> None:
    read = read_choice(reply, AILS)
    assert (AILS[read] if isinstance(read, int) else read) == chosen


def test_a_name_that_two_options_share_counts_for_neither() -> None:
    labels = ["arm (left)", "leg (left)"]
    assert read_choice("left", labels) is UNREADABLE
    assert read_choice("leg", labels) == 1


def test_the_order_of_the_options_changes_nothing() -> None:
    for labels, reply, _ in CASES:
        there = read_choice(reply, labels)
        back = read_choice(reply, labels[::-1])
        if isinstance(there, int):
            assert back == len(labels) - 1 - there, reply
        else:
            assert back is there, reply


ALL = tuple(dict.fromkeys(label for labels, _, _ in CASES for label in labels))
words = st.sampled_from(
    [
        *ALL,
        *[
            "not",
            "no",
            "but",
            "so",
            "or",
            "and",
            "the",
            "is",
            ",",
            ".",
            ";",
            ":",
            "-",
            "**",
            "`",
            "(",
            ")",
            "[",
            "]",
            "{",
            "\n",
            "1.",
            "a)",
            '"',
            "'",
        ],
        "Answer:",
        "I don't know",
        "none of these",
        "rather than",
        "most",
        "\n",
        "\n- ",
    ]
)
replies = st.lists(words, max_size=25).map(" ".join) | st.text(max_size=200)


@settings(deadline=None, max_examples=300)
@given(replies, st.sampled_from([LUNGS, SUGAR, POLAR, SIGNS, SENSE, PETS]))
@example("\ud800", LUNGS)
@example("\x00**\u0300", PETS)
def test_any_reply_has_a_reading(reply: str, labels: tuple[str, ...]) -> None:
    read = read_choice(reply, labels)
    assert read in (NONE, UNREADABLE) or read in range(len(labels))


@settings(deadline=None, max_examples=200)
@given(replies, st.sampled_from([LUNGS, SUGAR, SENSE]))
def test_letter_case_changes_nothing(reply: str, labels: tuple[str, ...]) -> None:
    upper = reply.upper()
    if upper.casefold() == reply.casefold():
        assert read_choice(upper, labels) == read_choice(reply, labels)


@pytest.mark.parametrize(("labels", "reply", "chosen"), CASES)
@pytest.mark.parametrize("around", ["**{}**", "_{}_", "{}\n", '"{}"', "  {}  "])
def test_what_is_around_a_reply_changes_nothing(
    labels: tuple[str, ...], reply: str, chosen: str | NoChoice, around: str
) -> None:
    if any(sign in reply for sign in "*_\n`"):
        return
    read = read_choice(around.format(reply), labels)
    assert (labels[read] if isinstance(read, int) else read) == chosen


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "1",
        "1.",
        "1,",
        " ",
        "\n",
        "*",
        "**",
        "`",
        "(",
        "[",
        "-",
        "- ",
        "'",
        '"',
        "asthma ",
        "asthma, ",
        "asthma or ",
        "not asthma ",
        "so i don't know. ",
        "so ",
        "i don't know but ",
        "none of ",
        "the records do not ",
        "answer: ",
        "1. ",
        "\u0300",
        "猫",
        "<think>",
        "</think>",
        "a'",
        "a-",
        "than ",
        "and is ",
        '{"answer": "',
    ],
)
def test_a_hostile_reply_takes_linear_time(piece: str) -> None:
    started = time.process_time()
    for labels in (LUNGS, PETS):
        read_choice((piece * 100_000)[:100_000], labels)
    assert time.process_time() - started < 5
