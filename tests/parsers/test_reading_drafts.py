"""Drafted options come out of a model's reply without its remarks."""
# ruff: noqa: E501 - replies as models write them

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from langchain_dpicl.parsers.reading.drafts import read_drafts

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
