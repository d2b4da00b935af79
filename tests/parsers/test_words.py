"""Words are counted by public rules, once an answer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.parsers.reading.keywords import lemma
from langchain_dpicl.parsers.words import (
    domain_counts,
    domain_places,
    keyword_counts,
    lemmas,
    named,
    refuse_unnamed,
    tokenize,
)

texts = st.lists(st.text(max_size=60), max_size=6)


@settings(deadline=None, max_examples=200)
@given(texts, st.text(max_size=200))
def test_one_answer_changes_each_count_by_at_most_one(
    answers: list[str], extra: str
) -> None:
    before = keyword_counts(answers)
    after = keyword_counts([*answers, extra])
    assert all(0 <= after[word] - before[word] <= 1 for word in after | before)


@settings(deadline=None, max_examples=200)
@given(texts, st.text(max_size=200), st.lists(st.text(max_size=12), max_size=5))
def test_one_answer_changes_each_domain_count_by_at_most_one(
    answers: list[str], extra: str, domain: list[str]
) -> None:
    before = domain_counts(answers, domain)
    after = domain_counts([*answers, extra], domain)
    assert all(0 <= b - a <= 1 for a, b in zip(before, after, strict=True))


@settings(deadline=None, max_examples=200)
@given(texts, st.text(max_size=200), st.integers(1, 4))
def test_one_answer_changes_no_more_counts_than_it_may(
    answers: list[str], extra: str, items_per_answer: int
) -> None:
    before = keyword_counts(answers, items_per_answer=items_per_answer)
    after = keyword_counts([*answers, extra], items_per_answer=items_per_answer)
    moved = {word: after[word] - before[word] for word in after}
    assert set(moved.values()) <= {0, 1}
    assert sum(moved.values()) <= items_per_answer
    assert set(before) <= set(after)
    assert set(after) <= set(keyword_counts([*answers, extra]))


def test_an_answers_first_different_words_are_kept() -> None:
    kept = [
        set(
            keyword_counts(
                ["The cough, the COUGH, dry and mild"],
                dropped={"the", "and"},
                items_per_answer=c,
            )
        )
        for c in (1, 2, 3, 9)
    ]
    assert kept == [
        {"cough"},
        {"cough", "dry"},
        {"cough", "dry", "mild"},
        {"cough", "dry", "mild"},
    ]


def test_twin_that_counts_every_occurrence_breaks_the_bound() -> None:
    many = tokenize("cough cough cough")
    assert many.count("cough") == 3
    assert keyword_counts(["cough cough cough"])["cough"] == 1


def test_words_of_any_script_are_words() -> None:
    assert tokenize("Übelkeit, 咳嗽 und ﬁeber 12") == [
        "übelkeit",
        "咳嗽",
        "und",
        "fieber",
        "12",
    ]
    assert tokenize("It\u2019s non-productive -- really") == [
        "it's",
        "non-productive",
        "really",
    ]
    assert tokenize("") == []
    assert tokenize("\ud800 \u0000 ok") == ["ok"]


def test_words_are_dropped_but_not_from_phrases() -> None:
    dropped = {"the", "of"}
    found = keyword_counts(["The pain of the chest"], dropped=dropped)
    assert set(found) == {"pain", "chest"}
    assert domain_counts(["The pain of the chest"], ["pain of the chest"]) == [1]


def test_phrases_must_be_contiguous() -> None:
    assert domain_counts(["dry and mild cough"], ["dry cough", "mild cough"]) == [0, 1]


def test_a_megabyte_is_counted() -> None:
    answer = "word " * 200_000
    assert keyword_counts([answer]) == {"word": 1}
    assert keyword_counts([answer], dropped={"the", "a"}, items_per_answer=1) == {
        "word": 1
    }
    assert domain_counts([answer], ["word word", "other"]) == [1, 0]


def test_entries_of_a_domain_are_found_in_order_and_whole() -> None:
    domain = ["dry cough", "cough", "a b c", "silent (no pain)", "none", "?"]
    answers = ["Cough dry cough", "a b", "a b c.", "no pain", "silent", "c", ""]
    assert domain_places(answers, domain) == [
        {0, 1},
        set(),
        {2},
        {3},
        {3},
        set(),
        set(),
    ]
    assert domain_counts(answers, domain) == [1, 1, 1, 2, 0, 0]
    assert domain_counts([], domain) == [0] * 6
    assert domain_counts(["a"], []) == []


def test_entries_of_the_same_words_count_together() -> None:
    assert domain_counts(["Dry"], ["dry", "DRY", "rash (dry)"]) == [1, 1, 0]
    # A name in brackets that is an entry as well is that entry's.
    assert domain_counts(["left"], ["arm (left)", "left"]) == [0, 1]
    assert domain_counts(["arm"], ["arm (left)", "arm (right)"]) == [0, 0]
    # "x" outside and inside is one name.
    assert domain_counts(["x"], ["x (x)"]) == [1]


def test_a_tokenizer_of_your_own_may_fail_on_one_answer() -> None:
    def words(text: str) -> list[str]:
        if "poison" in text:
            raise RuntimeError("too odd")
        return text.split()

    answers = ["Dry cough", "poison", "Dry"]
    assert keyword_counts(answers, tokenizer=words) == {"Dry": 2, "cough": 1}
    assert domain_counts(answers, ["Dry", "Dry cough"], tokenizer=words) == [2, 1]


def test_a_model_is_told_from_others_by_its_class_and_name() -> None:
    class Model:
        model_name = "large"
        model = "small"

    class Other:
        model = "small"

    class Odd:
        model = 3

    place = f"{__name__}.{Model.__qualname__}".removesuffix("Model")
    assert named(Model()) == [f"{place}Model", "large"]
    assert named(Other()) == [f"{place}Other", "small"]
    assert named(Odd()) == [f"{place}Odd", ""]
    assert named(3) == ["builtins.int", ""]


def test_only_a_tokenizer_of_your_own_is_refused() -> None:
    refuse_unnamed(None)
    with pytest.raises(InvalidParameterError, match="tokenizer="):
        refuse_unnamed(tokenize)


def test_lemmas_are_those_of_the_words() -> None:
    assert lemmas("Dry coughs, children's") == ["dry", "cough", lemma("children's")]
