"""Drafted options come out of a model's reply without its remarks."""
# ruff: noqa: E501 - replies as models write them

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from langchain_dpicl.parsers.reading.drafts import read_drafts
from langchain_dpicl.parsers.reading.text import LONGEST

THREE = ["Asthma", "COPD", "Lung cancer"]

CASES: list[tuple[str, list[str]]] = [
    ("Asthma\nCOPD\nLung cancer", THREE),
    ("1. Asthma\n2. COPD\n3. Lung cancer", THREE),
    ("1) Asthma\n2) COPD\n3) Lung cancer", THREE),
    ("a) Asthma\nb) COPD\nc) Lung cancer", THREE),
    ("- Asthma\n- COPD\n- Lung cancer", THREE),
    ("* Asthma\n* COPD\n* Lung cancer\n", THREE),
    ("\u2022 Asthma\n\u2022 COPD\n\u2022 Lung cancer", THREE),
    ("- [ ] Asthma\n- [x] COPD\n- [ ] Lung cancer", THREE),
    ("1. **Asthma**\n2. **COPD**\n3. **Lung cancer**", THREE),
    ("**1. Asthma**\n**2. COPD**\n**3. Lung cancer**", THREE),
    ('"Asthma"\n"COPD"\n"Lung cancer"', THREE),
    ("Asthma.\nCOPD.\nLung cancer.", THREE),
    ("Asthma\n\nCOPD\n\nLung cancer", THREE),
    ("```\nAsthma\nCOPD\nLung cancer\n```", THREE),
    ("Here you go:\n```text\nAsthma\nCOPD\nLung cancer\n```\nHope this helps!", THREE),
    ("Sure! Here are the options:\n\nAsthma\nCOPD\nLung cancer", THREE),
    (
        "Sure thing!\n- Asthma\n- COPD\n- Lung cancer\n\nLet me know if you need more.",
        THREE,
    ),
    ("Possible answers:\nAsthma\nCOPD\nLung cancer", THREE),
    ("Okay, a few.\nAsthma\nCOPD\nLung cancer\nNote: unordered", THREE),
    (
        "Asthma\nCOPD\nLung cancer\n\nNote: these are guesses without the records.",
        THREE,
    ),
    ("Asthma\nCOPD\nLung cancer\n(ordered from most to least likely)", THREE),
    (
        "I can't see the records, but plausible answers are:\nAsthma\nCOPD\nLung cancer",
        THREE,
    ),
    (
        (
            "I have not seen the notes. Still, here is a list.\n1. Asthma\n2. COPD\n"
            "3. Lung cancer\nThe actual answer depends on your data."
        ),
        THREE,
    ),
    ("**Respiratory:**\n- Asthma\n- COPD\n\n**Other:**\n- Lung cancer", THREE),
    (
        "1. Asthma - a common one\n2. COPD \u2013 in smokers\n3. Lung cancer \u2014 rare",
        THREE,
    ),
    (
        "1. **Asthma**: affects the young\n2. **COPD**: smokers\n3. **Lung cancer**: rare",
        THREE,
    ),
    ("Asthma (very common)\nCOPD (e.g. in smokers)\nLung cancer (5%)", THREE),
    (
        "- Asthma\n    - seen in children\n- COPD\n    - seen in smokers\n- Lung cancer",
        THREE,
    ),
    ("Asthma, COPD, Lung cancer", THREE),
    ("Asthma, COPD, and Lung cancer.", THREE),
    ("Asthma, COPD or Lung cancer", THREE),
    ("Possible answers: Asthma, COPD, Lung cancer", THREE),
    ("The most likely answers are Asthma, COPD, and Lung cancer.", THREE),
    ("Asthma; COPD; Lung cancer", THREE),
    ("Asthma | COPD | Lung cancer", THREE),
    ("1. Asthma 2. COPD 3. Lung cancer", THREE),
    (
        (
            "| option | how often |\n|---|---|\n| Asthma | high |\n| COPD | low |\n"
            "| Lung cancer | low |"
        ),
        THREE,
    ),
    ('["Asthma", "COPD", "Lung cancer"]', THREE),
    ('["Asthma", "COPD", "Lung cancer",]', THREE),
    ("['Asthma', 'COPD', 'Lung cancer']", THREE),
    ('```json\n["Asthma", "COPD", "Lung cancer"]\n```', THREE),
    (
        'Here is the array: ["Asthma", "COPD", "Lung cancer"] Tell me if "more" helps.',
        THREE,
    ),
    ('["Asthma", "COPD", "Lung cancer", "Chronic bronch', THREE),
    ('{"answers": ["Asthma", "COPD", "Lung cancer"], "note": "a guess"}', THREE),
    ('{"question": "Which?", "options": ["Asthma", "COPD", "Lung cancer"', THREE),
    (
        (
            '[{"option": "Asthma", "why": "common"}, {"option": "COPD"}, '
            '{"why": "rare", "option": "Lung cancer"}]'
        ),
        THREE,
    ),
    (
        (
            '[{"rank": 1, "label": "Asthma"}, {"rank": 2, "label": "COPD"}, '
            '{"rank": 3, "label": "Lung cancer"}'
        ),
        THREE,
    ),
    ('{"1": "Asthma", "2": "COPD", "3": "Lung cancer"}', THREE),
    ("<think>Perhaps pneumonia?</think>\nAsthma\nCOPD\nLung cancer", THREE),
    ("Asthma\nasthma\nCOPD\nAsthma.\n**copd**\nLung cancer\nLung cancers", THREE),
    ("Asthma\nCOPD\nLung cancer\nNone of the above\nOther\nNot stated\nUnknown", THREE),
    ("Follow-up\nFollow up\nFollowup", ["Follow-up"]),
    ("The manager\nManager\nManagers", ["The manager"]),
    ("Asthma", ["Asthma"]),
    ("Yes\nNo", ["Yes", "No"]),
    ("Yes, No", ["Yes", "No"]),
    ("0-1\n2-3\n4 or more", ["0-1", "2-3", "4 or more"]),
    ("- <1 hour\n- 1\u20132 hours\n- >2 hours", ["<1 hour", "1-2 hours", ">2 hours"]),
    ("$10\n$20\n+5%", ["$10", "$20", "+5%"]),
    (
        "No one\nNot enough staff\nNothing at all",
        ["No one", "Not enough staff", "Nothing at all"],
    ),
    ("It depends\nI cannot say", ["It depends"]),
    (
        "Urinary tract infection (UTI)\nFood and drink",
        ["Urinary tract infection (UTI)", "Food and drink"],
    ),
    (
        "Calling family back home\nDoesn't matter",
        ["Calling family back home", "Doesn't matter"],
    ),
    ("喘息\n肺がん", ["喘息", "肺がん"]),
    # Refusals.
    ("", []),
    ("I don't know.", []),
    ("I'm sorry, but I can't list answers without seeing the records.", []),
    ("I cannot answer that. The records would be needed.", []),
    ("As an AI, I don't have access to your records.", []),
    ("[]", []),
    ("Unfortunately, there is not enough information to draft options.", []),
    ("```json\n[]\n```", []),
]


@pytest.mark.parametrize(("reply", "options"), CASES)
def test_options_are_read_without_remarks(reply: str, options: list[str]) -> None:
    assert read_drafts(reply, 8) == options


EDGES: list[tuple[str, list[str]]] = [
    # Lines that are remarks.
    ("Options\nA b\nC d", ["A b", "C d"]),
    ("Below\nA b", ["Below", "A b"]),
    ("Note\nA b\nC d", ["A b", "C d"]),
    ("Sure, a\nA b\nC d", ["A b", "C d"]),
    ("Sure thing\nA b\nC d", ["Sure thing", "A b", "C d"]),
    ("Sure that is here\nA b\nC d", ["A b", "C d"]),
    ("In order\nA b", ["In order", "A b"]),
    ("I am\nA b", ["I am", "A b"]),
    ("If you want!\nA b\nC d", ["A b", "C d"]),
    ("If you want\nA b\nC d", ["If you want", "A b", "C d"]),
    ("If you want so\nA b\nC d", ["A b", "C d"]),
    ("Ok. a\nA b\nC d", ["A b", "C d"]),
    ("Ok: a b\nA b", ["A b"]),
    ("Ok a b\nA b\nC d", ["Ok a b", "A b", "C d"]),
    ("A b\nC d:\n", ["A b"]),
    ("A b\nC d e f g h.\nE", ["A b", "C d e f g h", "E"]),
    ("A b\nC d e f g h i.\nE", ["A b", "E"]),
    ("A b\nC d e f g h i\nE", ["A b", "C d e f g h i", "E"]),
    ("A b\nC d e f g h i!\nE", ["A b", "E"]),
    ("(c d)\nA b\nC d", ["A b", "C d"]),
    ("(c)\nA b\nC d", ["(c)", "A b", "C d"]),
    ("(c d).\nA b\nC d", ["A b", "C d"]),
    ("(c) d\nA b\nC d", ["d", "A b", "C d"]),
    ("A b\na b c d e f g h i j\nE f", ["A b", "a b c d e f g h i j", "E f"]),
    ("A b\na b c d e f g h i j k\nE f", ["A b", "E f"]),
    ("A b\na b c d e f g h i j k - x\nE f", ["A b", "E f"]),
    ("A b\na b c d e f g h i - x y z\nE f", ["A b", "a b c d e f g h i", "E f"]),
    ("A b\nI don't know\nE f", ["A b", "E f"]),
    ("\n# Options:\nA b\nC d", ["A b", "C d"]),
    ("(Note this)\nA b\nC d", ["A b", "C d"]),
    ("json\nA b\nC d", ["A b", "C d"]),
    # Marked lines.
    ("- A b\n- C d\nthe rest", ["A b", "C d"]),
    ("- A b\nthe rest", ["A b", "the rest"]),
    ("A b\n- C d\nE f", ["A b", "C d", "E f"]),
    ("- A b", ["A b"]),
    ("1. A b", ["A b"]),
    ("- A b\n  - C d\n- E f", ["A b", "E f"]),
    ("- A b\n - C d\n- E f", ["A b", "C d", "E f"]),
    ("- A b\n\t- C d\n- E f", ["A b", "E f"]),
    ("  - A b\n   - C d\n    - E f", ["A b", "C d"]),
    ("- A b\n- C d:\n- E f", ["A b", "E f"]),
    ("- A b\n- a b c d e f g h i j k\n- E f", ["A b", "E f"]),
    ("- A b\n- a b c d e f g h i j\n- E f", ["A b", "a b c d e f g h i j", "E f"]),
    ("- A b\n- C d e f g h i.\n- E f", ["A b", "C d e f g h i", "E f"]),
    ("- Note\n- A b\n- Below", ["A b", "Below"]),
    ("> - A b\n> - C d", ["A b", "C d"]),
    ("1) A b\n2: C d\n(3) E f", ["A b", "C d", "E f"]),
    ("**1.** A b\n**2.** C d", ["A b", "C d"]),
    ("a. A b\nb. C d", ["A b", "C d"]),
    ("1.A b\n2.C d", ["1.A b", "2.C d"]),
    ("- A b\n- Note that it is\n- C d", ["A b", "C d"]),
    ("- A b\n- (c d)\n- E f", ["A b", "(c d)", "E f"]),
    # Lines with numbers within.
    ("1. A b 2. C d", ["A b", "C d"]),
    ("1. A b", ["A b"]),
    ("Here: 1. A b, 2. C d; 3. E f", ["A b", "C d", "E f"]),
    ("x\n1. A b 2. C d\ny", ["A b", "C d"]),
    ("(1) A b (2) C d", ["A b", "C d"]),
    ("1. A b 2. C d\n3. E f 4. G h", ["A b", "C d"]),
    ("123. A b 124. C d", ["A b 124"]),
    # Tables.
    ("| A b | x |\n| C d | y |", ["A b", "C d"]),
    ("| A b | x |\n| C d | y |\n| E f | z |", ["A b", "C d", "E f"]),
    ("| n | x |\n|---|---|\n| A b | y |", ["A b"]),
    ("| n | x |\n|:--|--:|\n| 1 | A b |\n| 2 | C d |", ["A b", "C d"]),
    ("|---|\n| A b |\n| C d |", ["A b", "C d"]),
    ("| A b |\n|---|\n| - |\n| C d |", ["C d"]),
    ("so:\n| n | x |\n|---|---|\n| A b | y |\n| C d | z |", ["A b", "C d"]),
    ("| n |\n|---|\n| A b |\n|---|\n| C d |", ["A b", "C d"]),
    ("| A b | x |\nC d\n| E f | y |\n| G h | y |", ["A b", "E f", "G h"]),
    ("A | b\nC | d", ["A", "C"]),
    # One line.
    ("A b, C d", ["A b", "C d"]),
    ("A b, C d and E f", ["A b", "C d", "E f"]),
    ("A b, C d, and E f", ["A b", "C d", "E f"]),
    ("A b; C d and E f", ["A b", "C d and E f"]),
    ("A b; C d; and E f", ["A b", "C d", "E f"]),
    ("A b | C d", ["A b", "C d"]),
    ("A b / C d", ["A b", "C d"]),
    ("A/b", ["A/b"]),
    ("A b, ", ["A b"]),
    ("A b,, C d", ["A b", "C d"]),
    ("A: b, c", ["b, c"]),
    ("A, b: c", ["A", "b"]),
    ("They are: A b, C d", ["A b", "C d"]),
    ("They are A b, C d", ["A b", "C d"]),
    ("Perhaps A b, C d", ["Perhaps A b", "C d"]),
    ("It may include A b, C d", ["A b", "C d"]),
    ("A b c d e f, C", ["A b c d e f", "C"]),
    ("A b c d e f g, C", ["A b c d e f g, C"]),
    ("A and b", ["A and b"]),
    ("A b, c: d", ["A b", "c"]),
    ("A: b", ["b"]),
    ("A, I don't know", ["A"]),
    ("a b c d e f g h i j k, l", []),
    ("[A b, C d]", ["A b", "C d"]),
    ("Note that A b, C d", ["Note that A b", "C d"]),
    ("Sure:\nA b, C d", ["A b", "C d"]),
    ("Here: A b; C d", ["A b", "C d"]),
    ("Here: A b|C d", ["A b", "C d"]),
    ("A b, C d; E f", ["A b, C d", "E f"]),
    ("Colors: A, b: c", ["A", "b"]),
    ("A: , b", ["b"]),
    ("A b, C or D and E", ["A b", "C", "D and E"]),
    ("and A b, or C d", ["A b", "C d"]),
    ("Either A b or C d", ["Either A b or C d"]),
    # Remarks behind an option.
    ("A b - x\nC d", ["A b", "C d"]),
    ("A b: x y\nC d", ["A b", "C d"]),
    ("A b -- x\nC d", ["A b", "C d"]),
    ("A-b\nC d", ["A-b", "C d"]),
    ("A b (x)\nC d", ["A b (x)", "C d"]),
    ("A b (x y z)\nC d", ["A b (x y z)", "C d"]),
    ("A b (x y z w)\nC d", ["A b", "C d"]),
    ("A b (common)\nC d", ["A b", "C d"]),
    ("A b (most common)\nC d", ["A b", "C d"]),
    ("A b (5)\nC d", ["A b", "C d"]),
    ("A b (x, y)\nC d", ["A b", "C d"]),
    ("A b (i.e. x)\nC d", ["A b", "C d"]),
    ("A b ()\nC d", ["A b", "C d"]),
    ("A b (x\nC d", ["A b (x)", "C d"]),
    ("A b [x]\nC d", ["A b [x]", "C d"]),
    ("A b (x y z w\nC d", ["A b", "C d"]),
    ("(A b)\nC d", ["C d"]),
    ("A b (50% x)\nC d", ["A b", "C d"]),
    ("A b (x) (rare)\nC d", ["A b (x)", "C d"]),
    ("A (x) b\nC d", ["A (x) b", "C d"]),
    ("A b. C d\nE", ["A b", "E"]),
    ("A b! C\nE", ["A b", "E"]),
    ("A b; c\nE f", ["A b", "E f"]),
    ("A b (rare).\nC d", ["A b", "C d"]),
    ("A b (X.)\nC d", ["A b (X.)", "C d"]),
    ("A b (very.)\nC", ["A b", "C"]),
    ("- and A b\n- or C d", ["A b", "C d"]),
    ("A  b\nC\td", ["A b", "C"]),
    ("A b \u2192 x\nC d", ["A b", "C d"]),
    ("- : A b\n- C", ["A b", "C"]),
    ("A b (x=y)\nC", ["A b", "C"]),
    ("**(rare)**\nC d", ["(rare)", "C d"]),
    # JSON.
    ('["A b", "C d"]', ["A b", "C d"]),
    ('{"a": "A b", "b": "C d"}', ["A b", "C d"]),
    ('{"a": ["A b"], "b": "C d"}', ["A b"]),
    ('{"a": {"b": "A b"}, "c": "C d"}', ["A b", "C d"]),
    ('[{"x": "A b", "name": "C d"}]', ["C d"]),
    ('[{"value": "A b", "option": "C d"}]', ["C d"]),
    ('[{"x": "A b", "y": "C d"}]', ["A b"]),
    ('[{"X": "A b", "OPTION": "C d"}]', ["C d"]),
    ('[{"option": "A b", "option": "C d"}]', ["A b"]),
    ('[{}, "A b"]', ["A b"]),
    ('[{"a": 1}, "A b"]', ["A b"]),
    ('[["A b"], ["C d"]]', ["A b", "C d"]),
    ('["A b", {"x": "C d"}]', ["A b", "C d"]),
    ('[1, "A b", null, true]', ["1", "A b", "null", "true"]),
    ('["A b" "C d"]', ["C d"]),
    ('["A b", "C d', ["A b"]),
    ('["A b", \'C d', ["A b"]),
    ('{"a": "A b", "b": "C d', ["A b"]),
    ('{"a": "A b", "b"', ["A b"]),
    ('[{"a": "A b"}, {"a": "C d"', ["A b"]),
    ('{"a": "A b"} {"a": "C d"}', ["A b"]),
    ('["A b"] ["C d"]', ["A b"]),
    (
        '["A\\u0020b", "C\\nd", "e\\"f", "g\\bh", "i\\/j"]',
        ["A b", "C d", 'e"f', "gh", "i/j"],
    ),
    ("['it\\'s', 'C d']", ["it's", "C d"]),
    ("['it's a', 'C d']", ["it's a", "C d"]),
    ('["A b"}, "C d"]', ["A b"]),
    ('{"a": ["A b"}, "C d"]', ["A b"]),
    ('{"x": {"y": ["A b"]}, "z": "C d"}', ["A b"]),
    ('Say ["A b"] or x', ["A b"]),
    ('[\n  "A b",\n  "C d"\n]', ["A b", "C d"]),
    ('["A b",, "C d"]', ["A b", "C d"]),
    ('[: "A b"]', []),
    ('["a": "A b", "c": "C d"]', ["A b", "C d"]),
    ('{"A b", "C d"}', ["A b", "C d"]),
    ('["", "A b"]', ["A b"]),
    ('{"options": [{"title": "A b", "text": "C d"}]}', ["C d"]),
    ('[{"label": "A b"}, {"label": "A B"}, {"label": "C d"}]', ["A b", "C d"]),
    ('[x "A b"', ['[x "A b)']),
    ('["A b"]]["C d"]', ["A b"]),
    ('{"a": "b", "c": [{"d": "e"}]}', ["e"]),
    # Fences.
    ("```\nA b\nC d\n```", ["A b", "C d"]),
    ("x\n```\nA b\n```\ny\n```\nC d\n```", ["A b", "C d"]),
    ("~~~\nA b\n~~~", ["A b"]),
    ("```\n```\nA b\nC d", ["A b", "C d"]),
    ("```\nA b\nC d", ["A b", "C d"]),
    ("A b\n```\nC d", ["C d"]),
    ("  ```x\nA b\n  ```\ny", ["A b"]),
    # Same options.
    ("A b\na-b\nA  B", ["A b"]),
    ("The a\nA\nb", ["The a", "A", "b"]),
    ("a\nthe\nb", ["a", "the", "b"]),
    ("A b\nNone of these\nN/A\nother\nC d", ["A b", "C d"]),
    ("Abs\nAb\nC", ["Abs", "Ab", "C"]),
    ("1 b\none b\nc", ["1 b", "c"]),
    # Below the last row a rule has nothing under it.
    ("| A b |\n| C d |\n|---|", ["A b", "C d"]),
]


@pytest.mark.parametrize(("reply", "options"), EDGES)
def test_each_rule_of_drafts_holds_just_where_it_says(
    reply: str, options: list[str]
) -> None:
    assert read_drafts(reply, 8) == options


def test_a_remark_in_brackets_is_looked_for_at_the_end() -> None:
    for letters, option in ((195, "A b"), (196, f"A b ({'x' * 196}, y)")):
        assert read_drafts(f"A b ({'x' * letters}, y)\nC d", 8) == [option, "C d"]


def test_of_a_long_draft_the_beginning_is_read() -> None:
    head = "A b\n" + " " * (LONGEST - 7) + "\n"
    assert read_drafts(f"{head}C d", 8) == ["A b", "C"]
    assert read_drafts(f"{head[1:]} C d", 8) == ["b", "C"]


def test_no_more_than_asked_for_are_taken() -> None:
    many = "\n".join(f"{i}. option {word}" for i, word in enumerate("abcdefghij"))
    assert read_drafts(many, 4) == [f"option {word}" for word in "abcd"]
    assert read_drafts(many, 0) == []
    assert read_drafts(many, 1) == ["option a"]
    assert len(read_drafts(many, 10)) == len(read_drafts(many, 11)) == 10
    # The same ones are found again only later.
    assert read_drafts("A\na\nA\nB\nC", 2) == ["A", "B"]


pieces = st.sampled_from(
    [
        "Asthma",
        "COPD",
        "\n",
        "\n- ",
        "1. ",
        ", ",
        "[",
        "]",
        "{",
        "}",
        '"',
        "'",
        ":",
        "```\n",
        "**",
        " - a remark",
        "Note: this",
        "I don't know",
        "\\",
        "\\u00",
        "|",
        "(",
    ]
)


@settings(deadline=None, max_examples=400)
@given(
    st.lists(pieces, max_size=30).map("".join) | st.text(max_size=300),
    st.integers(0, 9),
)
@example('["\\ud800"]', 3)
@example("\ud800", 3)
def test_any_reply_gives_a_few_different_options(reply: str, most: int) -> None:
    found = read_drafts(reply, most)
    assert len(found) <= most
    assert len({option.casefold() for option in found}) == len(found)
    assert all(option.strip() == option != "" for option in found)


names = st.lists(
    st.sampled_from(["Asthma", "COPD", "Lung cancer", "Heart failure", "High fever",
                     "Back pain", "Poor sleep", "At night"]),
    min_size=2, max_size=8, unique=True,
)  # fmt: skip


@settings(deadline=None)
@given(names)
def test_every_way_of_listing_gives_the_same(options: list[str]) -> None:
    import json

    ways = [
        "\n".join(options),
        "\n".join(f"- {option}" for option in options),
        "\n".join(f"{i}. **{option}**" for i, option in enumerate(options, 1)),
        json.dumps(options),
        f"Sure, here:\n```json\n{json.dumps(options, indent=2)}\n```\nGood luck!",
        json.dumps({"options": [{"option": option} for option in options]}),
    ]
    assert [read_drafts(way, 8) for way in ways] == [options] * len(ways)


@pytest.mark.parametrize(
    "piece",
    [" ", "\t", "\n", "-", "- ", "1. ", "1. a ", "a, ", "[", '["', '"', "'", "'a", '\\"',
     '"\\', "{", '{"a":', "(", "a (", ": ", "|", "| a |\n", "```\n", "*", "a\n", "and ",
     "[ ", "<a>"],
)  # fmt: skip
def test_a_hostile_reply_takes_linear_time(piece: str) -> None:
    started = time.process_time()
    read_drafts((piece * 100_000)[:100_000], 8)
    read_drafts("[" + (piece * 100_000)[:100_000], 8)
    assert time.process_time() - started < 5
