"""Keywords, sentences and drafts are taken out of one reply at a time.

An answer is counted for its own words, each once, for a public number of them at most.
The labels of a drafted vote come from a reply that saw the question alone.
"""

from __future__ import annotations

from typing import Any

import pytest
from faces import (
    DPChain,
    ESAOutputParser,
    SampledGroups,
    VoteOutputParser,
    common_items,
    planned,
    record,
)
from hypothesis import given
from hypothesis import strategies as st
from scripted import ScriptedEmbeddings, ScriptedModel
from worlds import QUESTION, UNIT, notes

MANY = 40
LONG = "The customers complained about slow routers, slow cables and routers."


@pytest.mark.promise("items-read")
@pytest.mark.parametrize(
    ("answer", "items"),
    [
        ("A dry cough.", ["dry cough"]),
        ("**Dry cough**", ["dry cough"]),
        ("1. dry coughs", ["dry cough"]),
        ("dry cough (4 of 6)", ["dry cough"]),
        ("It's a dry cough.", ["dry cough"]),
        ("Yes", ["yes"]),
        ("喘息", ["喘息"]),
        ("I don't know.", []),
        ("none of these", []),
        ("...", []),
        ("", []),
    ],
)
def test_a_short_answer_is_one_item_and_no_answer_is_none(
    answer: str, items: list[str]
) -> None:
    assert common_items([answer] * MANY) == items


@pytest.mark.promise("items-bounded")
@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_an_answer_counts_for_so_many_items_at_most(most: int) -> None:
    items = common_items([LONG] * MANY, most)
    assert len(items) == most
    # The rule looks at that answer alone: others beside it change nothing.
    assert common_items([LONG] * MANY + [f"word{n}" for n in range(9)], most) == items


def check_rare(answers: list[str]) -> None:
    """Check that what is said by one person, however often, does not come out."""
    assert common_items(answers, 2) == []


@pytest.mark.promise("items-bounded")
def test_a_word_counts_once_a_reply() -> None:
    shouting = " ".join(["router cable"] * 200)
    check_rare([shouting])
    assert common_items([shouting] * MANY, 2) == ["cable", "router"]


@pytest.mark.promise("items-bounded", twin=True)
def test_twin_that_counts_every_occurrence() -> None:
    with pytest.raises(AssertionError):
        check_rare(["router cable"] * 200)


@pytest.mark.promise("items-read")
def test_public_stop_words_never_count_in_a_sentence() -> None:
    assert "slow" in common_items([LONG] * MANY, 9)
    found = common_items([LONG] * MANY, 9, stop_words=["slow", "customers", "about"])
    assert {"slow", "about"}.isdisjoint(found)
    assert {"cable", "router"} <= set(found)


@pytest.mark.promise("reply-never-raises")
@pytest.mark.parametrize(
    "odd", ["\x00 \x00", "a\x00b c\x00d e", "\ud800", "x" * 50_000, "word " * 30_000]
)
def test_an_odd_answer_breaks_nothing_and_silences_nobody(odd: str) -> None:
    assert "cough" in common_items(["cough"] * MANY + [odd], 3)


@pytest.mark.promise("reply-never-raises")
@given(st.lists(st.text(max_size=60), max_size=5))
def test_any_answers_can_be_counted(answers: list[str]) -> None:
    # Of what others say nothing leads, whatever it is.
    assert common_items(["cough"] * MANY + answers) == ["cough"]


def nearest(text: str) -> list[float]:
    """Return a direction for coughs, one for rashes, and one for all else."""
    kind = 0 if "cough" in text else 1 if "rash" in text else 2
    return [float(kind == place) for place in range(3)]


@pytest.mark.promise("esa-reads")
@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (["Mostly a dry cough."] * 40 + ["a rash"] * 5, "It is a cough."),
        (["A skin rash, I think"] * 40 + ["\x00", "\ud800", ""], "It is a rash."),
        (["I don't know."] * 40 + ["a rash"] * 5, "no answer"),
        (["The records do not say."] * 40, "no answer"),
        (["lightning"] * 40, "no answer"),
    ],
)
def test_the_candidate_that_answers_are_near_is_said(
    answers: list[str], told: str
) -> None:
    parser = ESAOutputParser(
        embedding=ScriptedEmbeddings(nearest),
        candidates=["It is a cough.", "It is a rash."],
        noise_multiplier=0.5,
        abstain_text="no answer",
        budget=planned(1e9),
    )
    assert parser.invoke(answers) == told


THREE = ["Asthma", "COPD", "Lung cancer"]


def drafted(reply: str) -> tuple[Any, list[str]]:
    """Return the record of a vote whose labels are drafted, and the prompts."""
    text = "Lisinopril gave a dry cough."
    model = ScriptedModel(script=lambda asked: "asthma" if text in asked else reply)
    groups = SampledGroups.from_documents(
        notes(40, text), unit_key=UNIT, n_groups=20, sampling_rate=1.0
    )
    parser = VoteOutputParser(labels="draft", noise_multiplier=0.5)
    chain = DPChain(groups=groups, model=model, parser=parser, budget=planned(1e9))
    return record(chain.invoke(QUESTION)), model.prompts


@pytest.mark.promise("drafts-read", "drafted-labels-are-public")
@pytest.mark.parametrize(
    ("reply", "labels"),
    [
        ("Asthma\nCOPD\nLung cancer", THREE),
        ("1. **Asthma**\n2. **COPD**\n3. **Lung cancer**", THREE),
        ("- Asthma\n- COPD\n- Lung cancer\n", THREE),
        ("Sure! Here are the options:\n\n- Asthma\n- COPD\n- Lung cancer", THREE),
        ('["Asthma", "COPD", "Lung cancer"]', THREE),
        ('```json\n["Asthma", "COPD", "Lung cancer"]\n```', THREE),
        ("Asthma, COPD, Lung cancer", THREE),
        (
            "Asthma\nasthma\nCOPD\nLung cancers\nNone of these",
            [*THREE[:2], "Lung cancers"],
        ),
        ("I'm sorry, but I can't list answers without seeing the records.", []),
        ("", []),
    ],
)
def test_labels_are_drafted_in_public(reply: str, labels: list[str]) -> None:
    told, prompts = drafted(reply)
    assert told["details"]["labels"] == labels
    assert QUESTION in prompts[0]
    assert "dry cough" not in prompts[0]
    # Without labels nobody is asked, and nobody pays.
    assert (len(prompts) > 1, bool(told["events"])) == (bool(labels), bool(labels))
