"""An answer counts for lemmas, or for one phrase, by public rules about it alone."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from langchain_dpicl.parsers.reading import keywords
from langchain_dpicl.parsers.reading.keywords import (
    ANSWER_WORDS,
    STOP_WORDS,
    items_of,
    lemma,
    phrase_of,
)

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
    assert not STOP_WORDS & ANSWER_WORDS
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


EDGES: list[tuple[str, list[str], list[str]]] = [
    # An answer's items, and those without lemmas where two words were asked for.
    ("Mostly asthma", ["asthma"], ["asthma"]),
    ("mostly", ["mostly"], ["mostly"]),
    ("the", ["the"], ["the"]),
    ("The a", ["a"], ["a"]),
    ("asthma likely", ["asthma"], ["asthma"]),
    ("asthma possibly likely", ["asthma"], ["asthma"]),
    ("likely", ["likely"], ["likely"]),
    ("a asthma, mostly usually", ["asthma"], ["asthma"]),
    (
        "no chest pain today",
        ["no", "chest", "pain", "today"],
        ["no", "chest", "pain", "today"],
    ),
    ("no chest pain", ["no chest pain"], ["no chest pain"]),
    ("(no) chest pain", ["chest pain"], ["chest pain"]),
    ("chest (no) pain now", ["chest pain now"], ["chest pain now"]),
    ("(no chest)", ["no chest"], ["no chest"]),
    (
        "(no chest pain now)",
        ["no", "chest", "pain", "now"],
        ["no", "chest", "pain", "now"],
    ),
    ("1. asthma 2", ["asthma 2"], ["asthma 2"]),
    ("non-smoking man's dog", ["non-smoking man dog"], ["non-smoking man dog"]),
    ("Tim's", ["tim"], ["tim"]),
    ("'s x", ["s x"], ["s x"]),
    ("x-y-z a b c d", ["x-y-z", "b", "c", "d"], ["x-y-z", "b", "c", "d"]),
    ("x - y a b c", ["x", "y", "b", "c"], ["x", "y", "b", "c"]),
    ("x -y a b c", ["x", "y", "b", "c"], ["x", "y", "b", "c"]),
    ("x_y a b c d", ["x", "y", "b", "c", "d"], ["x", "y", "b", "c", "d"]),
    ("Based on what we see on paper", ["see", "on", "paper"], ["see", "on"]),
    ("He looks like they look good", ["good"], ["looks", "good"]),
    ("It looks nice like paper", ["nice", "like", "paper"], ["looks", "nice", "like"]),
    ("Like looks of paper here", ["like", "paper"], ["like", "looks"]),
    ("don't wouldn't isn't I'm it's one's paid", ["pay"], ["paid"]),
    ("paid paid leaves leave", ["pay", "leave"], ["paid", "leave"]),
    (
        "one of them is paying two more",
        ["pay", "two", "more"],
        ["paying", "two", "more"],
    ),
    (
        "1. paid leave and 2. slow routers now",
        ["pay", "leave", "2", "slow", "router", "now"],
        ["paid", "leave", "2", "slow", "routers", "now"],
    ),
    ("didn't hasn't mustn't paid", ["pay"], ["paid"]),
    ("\u732b\u3068\u72ac", ["\u732b\u3068\u72ac"], ["\u732b\u3068\u72ac"]),
    (
        "\u732b\u3068\u72ac\u732b",
        ["\u732b\u3068\u72ac\u732b"],
        ["\u732b\u3068\u72ac\u732b"],
    ),
    ("two-thirds of them pay", ["two-thirds", "pay"], ["two-thirds", "pay"]),
    ("a asthma b c", ["asthma b c"], ["asthma b c"]),
    ("ex- smoker now or here", ["ex", "smoker", "now"], ["ex", "smoker", "now"]),
    (
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"],
        ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"],
    ),
    (
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"],
        ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"],
    ),
    ("dogs dogs dogs dogs ", ["dog"], ["dogs"]),
    ("that's what they're on", ["on"], ["on"]),
    ("perhaps the big asthma maybe", ["big asthma"], ["big asthma"]),
]


PHRASES = {
    "likely",
    "no chest",
    "\u732b\u3068\u72ac\u732b",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "the",
    "asthma 2",
    "asthma b c",
    "no chest pain",
    "tim",
    "\u732b\u3068\u72ac",
    "chest pain now",
    "a",
    "chest pain",
    "asthma",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "non-smoking man dog",
    "mostly",
    "big asthma",
    "s x",
}


@pytest.mark.parametrize(("answer", "items", "bare"), EDGES)
def test_each_rule_of_items_holds_just_where_it_says(
    answer: str, items: list[str], bare: list[str]
) -> None:
    assert items_of(answer) == items
    assert items_of(answer, ["paper", "Leaves"], None) == bare
    assert phrase_of(answer) == (items[0] if " ".join(items) in PHRASES else None)


def test_long_words_have_no_lemma() -> None:
    assert lemma("a" * 36 + "-men") == "a" * 36 + "-man"
    assert lemma("a" * 37 + "-men") == "a" * 37 + "-men"
    assert lemma("") == ""
    assert lemma("dogs", None) == "dogs"
