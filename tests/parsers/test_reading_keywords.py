"""An answer counts for lemmas, or for one phrase, by public rules about it alone."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from langchain_dpicl.parsers.reading import keywords
from langchain_dpicl.parsers.reading.keywords import (
    STOP_WORDS,
    items_of,
    lemma,
)
from langchain_dpicl.parsers.reading.text import word_set

SHORT = [
    ("No chest pain", "no chest pain"),
    ("**No chest pain.**", "no chest pain"),
    ("up", "up"),
    ("Up.", "up"),
    ("On", "on"),
    ("off", "off"),
    ("No", "no"),
    ("Yes!", "yes"),
    ("Once", "once"),
    ("before lunch", "before lunch"),
    ("After lunch", "after lunch"),
    ("More", "more"),
    ("Never", "never"),
    ("In spring", "in spring"),
    ("The managers", "manager"),
    ("A new router", "new router"),
    ("new routers", "new router"),
    ("`Routers`", "router"),
    ("Children", "child"),
    ("Women's shoes", "woman shoe"),
    ("non\u2011smokers", "non-smoker"),
    ("Non-smoker", "non-smoker"),
    ("Asthma, perhaps", "asthma"),
    ("Probably asthma", "asthma"),
    ("It's asthma.", "asthma"),
    ("Answer: asthma", "asthma"),
    ("Asthma (4 of 6)", "asthma"),
    ("1. Asthma", "asthma"),
    ("Tim\u2019s phone", "tim phone"),
    ("50,000 dollars", "50,000 dollar"),
    ("喘息", "喘息"),
    ("<think>COPD?</think>Asthma", "asthma"),
]


@pytest.mark.parametrize(("answer", "item"), SHORT)
def test_a_short_answer_is_one_item(answer: str, item: str) -> None:
    assert items_of(answer) == [item]


@pytest.mark.parametrize(
    "answer",
    [
        "I don't know.",
        "Not stated",
        "",
        "...",
        "The records do not say.",
        "none of these",
        "**None of these.**",
        "None of the above (asthma and COPD are tied)",
    ],
)
def test_no_answer_is_no_item(answer: str) -> None:
    assert items_of(answer) == []


def test_a_short_answer_keeps_the_words_of_the_question() -> None:
    assert items_of("No pain", ["which", "pain"]) == ["no pain"]
    assert items_of("up", ["does", "it", "go", "up", "or", "down"]) == ["up"]


def test_a_longer_answer_counts_for_its_lemmas() -> None:
    said = "The customers mostly complained about slow routers and about one router."
    assert items_of(said, ["customer", "complain"]) == ["mostly", "slow", "router"]
    assert items_of(said, ["Customers", "complaining"]) == ["mostly", "slow", "router"]
    assert items_of(said, language=None)[:2] == ["customers", "mostly"]


def test_none_alone_is_an_answer() -> None:
    assert items_of("None") == ["none"]
    assert items_of("None (asymptomatic)") == ["none"]


@pytest.mark.parametrize(
    "frame",
    [
        "Based on the given records, {}.",
        "According to these records, it is {}.",
        "The records indicate {}.",
        "It looks like {}.",
        "It seems to be {}.",
    ],
)
def test_words_around_an_answer_take_no_place_in_front_of_it(frame: str) -> None:
    said = frame.format("paid leave and not much else")
    assert items_of(said, ["record"])[0] == "pay"


def test_words_that_answer_are_no_stop_words() -> None:
    assert not STOP_WORDS & word_set(
        "yes no not none nothing nobody up down on off in out over under before after "
        "once twice more less most least few never always until without both all half "
        "two three four five six seven eight nine ten eleven twelve"
    )
    assert "up" in items_of("In most of the patients the pressure went up")


def test_other_languages_have_their_own_lemmas() -> None:
    assert lemma("kinder", "de") == "kind"
    assert items_of("Kinder", language="de") == ["kind"]
    with pytest.raises(ValueError, match="xx"):
        lemma("word", "xx")


def test_the_lemmatizer_keeps_no_word() -> None:
    items_of("Theo Ivanova reports canaries in the mornings of every single day")
    kept = keywords._lemmatizer()._cached_lemmatize
    assert kept.cache_info().currsize == 0


texts = st.text(max_size=200) | st.lists(
    st.sampled_from([answer for answer, _ in SHORT] + ["not", "(", ")", "\n", ","]),
    max_size=12,
).map(" ".join)


@settings(deadline=None, max_examples=300)
@given(texts, st.lists(st.text(max_size=8), max_size=4))
@example("\ud800", [])
@example("I\u0307", [""])
def test_any_answer_has_different_items(answer: str, asked: list[str]) -> None:
    items = items_of(answer, asked)
    assert len(set(items)) == len(items)
    assert all(items)


@pytest.mark.parametrize("piece", ["a", "ab ", "a-", "a'", "-", "(", "non", "1,"])
def test_a_hostile_answer_takes_linear_time(piece: str) -> None:
    started = time.process_time()
    items_of((piece * 100_000)[:100_000])
    items_of(" ".join(f"{piece}{i:x}ing" for i in range(20_000)))
    assert time.process_time() - started < 5
