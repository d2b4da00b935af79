"""Words are counted by public rules, once an answer."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_dpicl.parsers.words import (
    domain_places,
    keyword_counts,
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
def test_one_answer_changes_no_other_answers_places(
    answers: list[str], extra: str, domain: list[str]
) -> None:
    places = domain_places([*answers, extra], domain)
    assert places[:-1] == domain_places(answers, domain)


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
    assert domain_places(["The pain of the chest"], ["pain of the chest"]) == [{0}]


def test_phrases_must_be_contiguous() -> None:
    assert domain_places(["dry and mild cough"], ["dry cough", "mild cough"]) == [{1}]


def test_a_megabyte_is_counted() -> None:
    answer = "word " * 200_000
    assert keyword_counts([answer]) == {"word": 1}
    assert keyword_counts([answer], dropped={"the", "a"}, items_per_answer=1) == {
        "word": 1
    }
    assert domain_places([answer], ["word word", "other"]) == [{0}]
