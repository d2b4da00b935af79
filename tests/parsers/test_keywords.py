"""The threshold parser: short answers, cut by a public rule, released word by word."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.chain_parts import QUESTION
from support.parser_parts import release as released

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.accounting import Failure, Gaussian, Pure
from langchain_dpicl.common.replies import ABSTAIN, FAILED, Slot
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import keyword_threshold
from langchain_dpicl.mechanisms.random import SeededRandom, use
from langchain_dpicl.parsers import (
    KSAJointOutputParser,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    PublicInput,
)
from langchain_dpicl.parsers.ksa_joint import domain_places
from langchain_dpicl.release.record import Outcome, Status


def paid(z: float) -> tuple[Gaussian, Failure]:
    return Gaussian(noise_multiplier=z), Failure(delta0=1e-9)


def release(
    parser: KSAThresholdOutputParser,
    texts: Sequence[str | Slot],
    *,
    z: float = 1e-3,
    public: PublicInput | None = None,
) -> Outcome:
    slots = [text if isinstance(text, Slot) else Slot(text) for text in texts]
    return parser.release(
        slots,
        paid=cast("Any", SimpleNamespace(events=paid(z))),
        relation=Relation.REPLACE,
        slot_count=len(slots),
        prepared=parser.prepare(public or PublicInput()),
    )


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, int], int]]:
    """What the mechanism was given: the counts and how many words an answer has."""
    seen: list[tuple[dict[str, int], int]] = []

    def spy(
        counts: Counter[str], *, items_per_answer: int, **_terms: Any
    ) -> dict[str, float]:
        seen.append((dict(counts), items_per_answer))
        return {}

    monkeypatch.setattr(keyword_threshold, "threshold_words", spy)
    return seen


def test_several_right_words_come_out_without_a_gap() -> None:
    texts = ["cough"] * 40 + ["rash"] * 40 + ["nausea"] * 39 + ["canary"]
    with use(SeededRandom(1)):
        outcome = release(KSAThresholdOutputParser(), texts, z=1.0)
    assert outcome.status is Status.RELEASED
    assert sorted(outcome.keywords) == ["cough", "nausea", "rash"]
    assert outcome.text == f"Among the most frequent: {', '.join(outcome.keywords)}"
    assert "canary" not in repr(outcome)


def test_nothing_common_is_a_fallback_that_says_no_more() -> None:
    texts = [f"canary{i}" for i in range(80)]
    outcome = release(KSAThresholdOutputParser(), texts, z=2.0)
    assert outcome.status is Status.FALLBACK
    assert outcome.keywords == ()
    assert outcome.text is None
    assert "canary" not in repr(outcome)
    assert outcome == release(KSAThresholdOutputParser(), [FAILED] * 80, z=2.0)


TIED = ["cough"] * 30 + ["rash"] * 30 + ["itch"]


def answers_of(texts: list[str], runs: int, z: float, **terms: Any) -> list[Any]:
    """Return what so many draws release; the answers are read once."""
    parser, slots = KSAThresholdOutputParser(**terms), [Slot(text) for text in texts]
    counts = parser.counts(slots, parser.prepare(PublicInput()), 1)
    once = mock.patch.object(KSAThresholdOutputParser, "counts", return_value=counts)
    with once, use(SeededRandom(4)):
        return [release(parser, texts, z=z) for _ in range(runs)]


@pytest.mark.parametrize("z", [2.0, 4.0])
def test_of_two_tied_words_one_is_the_answer_in_one_of_twenty(z: float) -> None:
    """Also where noise lets one of them through and not the other one."""
    found = answers_of(TIED, 1500, z)
    alone = [one for one in found if one.text in ("cough", "rash")]
    assert len(alone) / len(found) <= 0.05 + 3 * (0.05 * 0.95 / len(found)) ** 0.5
    one_only = [one for one in found if len(one.keywords) == 1]
    # A twin that gives the only word that came out.
    assert z == 2.0 or len(one_only) / len(found) > 0.2


def test_a_clear_word_is_the_answer_and_others_stand_in_the_record() -> None:
    texts = ["cough"] * 70 + ["rash"] * 30 + ["itch"]
    for found in answers_of(texts, 20, 1.0):
        assert found.text == "cough"
        assert found.keywords == ("cough", "rash")
        noisy = found.details["noisy_counts"]
        assert list(noisy) == ["cough", "rash"]
        assert noisy["cough"] == pytest.approx(70, abs=8)


answers = st.lists(
    st.text(alphabet="ab cdé\u00df\u2019-咳,", max_size=20)
    | st.sampled_from([ABSTAIN, FAILED]),
    max_size=5,
)


def distance(parser: KSAThresholdOutputParser, ours: Any, theirs: Any) -> int:
    """Return the squared L2 distance of the counts in two worlds."""
    with pytest.MonkeyPatch.context() as patch:
        seen: list[Counter[str]] = []
        patch.setattr(
            keyword_threshold,
            "threshold_words",
            lambda counts, **_terms: seen.append(counts) or {},
        )
        for texts in (ours, theirs):
            release(parser, texts)
    one, other = seen
    return sum((one[word] - other[word]) ** 2 for word in one | other)


@settings(deadline=None, max_examples=100)
@given(answers, st.text(max_size=60), st.text(max_size=60), st.integers(1, 3))
def test_one_slot_moves_the_counts_no_farther_than_the_noise_allows_for(
    others: Any, ours: str, theirs: str, items_per_answer: int
) -> None:
    parser = KSAThresholdOutputParser(items_per_answer=items_per_answer)
    assert distance(parser, [*others, ours], [*others, theirs]) <= 2 * items_per_answer
    assert distance(parser, [*others, ours], others) <= items_per_answer


def test_the_twin_that_does_not_cut_answers_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parser = KSAThresholdOutputParser(items_per_answer=2)
    long = ["one two three four five"]
    assert distance(parser, long, ["six seven eight nine"]) == 4
    right = KSAThresholdOutputParser.counts
    monkeypatch.setattr(
        KSAThresholdOutputParser,
        "counts",
        lambda self, slots, dropped, _most: right(self, slots, dropped),
    )
    assert distance(parser, long, ["six seven eight nine"]) > 4


def test_abstaining_and_failed_slots_count_for_nothing(counted: list[Any]) -> None:
    slots = [ABSTAIN, FAILED, Slot("cough"), Slot("I don't know"), Slot("?!"), ABSTAIN]
    release(KSAThresholdOutputParser(), slots)
    assert counted == [({"cough": 1}, 1)]


def test_a_tokenizer_that_breaks_on_one_answer_silences_no_other(
    counted: list[Any],
) -> None:
    def fragile(text: str) -> list[str]:
        if "poison" in text:
            raise RuntimeError(text)
        return text.split("/")

    parser = KSAThresholdOutputParser(
        items_per_answer=2, tokenizer=fragile, stop_words=()
    )
    release(parser, ["a b/c", "poison", "c"])
    assert counted == [({"a b": 1, "c": 2}, 2)]
    with pytest.raises(InvalidParameterError, match="tokenizer"):
        parser.cache_parameters("What?")


def test_a_charge_for_another_mechanism_releases_nothing() -> None:
    parser = KSAThresholdOutputParser()
    other: Any = SimpleNamespace(events=(Pure(epsilon=1.0),))
    with pytest.raises(InvalidParameterError, match="paid"):
        parser.release(
            [Slot("cough")] * 90,
            paid=other,
            relation=Relation.REPLACE,
            slot_count=1,
            prepared=frozenset(),
        )


def test_parsers_that_differ_have_cache_keys_that_differ() -> None:
    makes: list[dict[str, Any]] = [
        {},
        {"items_per_answer": 2},
        {"noise_multiplier": 2.0},
        {"delta0": 1e-9},
        {"stop_words": ("the",)},
        {"drop_public_words": False},
    ]
    keys = [
        json.dumps(KSAThresholdOutputParser(**terms).cache_parameters(QUESTION))
        for terms in makes
    ]
    assert all(a != b for a, b in itertools.combinations(keys, 2))
    again = KSAThresholdOutputParser(items_per_answer=1).cache_parameters(QUESTION)
    assert json.dumps(again) == keys[0]


# ---- other keyword parsers -----------------------------------------------------------


def test_public_words_are_not_counted() -> None:
    parser = KSAPTROutputParser(k=1)
    public = PublicInput(
        question="Which cough?",
        prompt_text="Answer from the records",
        zero_shot=("It may be dry.",),
    )
    dropped = parser.prepare(public)
    assert {"cough", "records", "the"} <= dropped
    assert "dry" not in dropped, "the zero-shot answer's words may be confirmed"
    answers = [Slot("The records are about a cough from lisinopril.")] * 80
    assert released(parser, answers, prepared=dropped).keywords == ("lisinopril",)
    keeping = KSAPTROutputParser(k=3, drop_public_words=False)
    assert keeping.zero_shot_answers == 0
    assert released(keeping, answers, prepared=keeping.prepare(public)).keywords == (
        "cough",
        "lisinopril",
        "record",
    )


def test_released_words_are_in_alphabetical_order_whatever_their_counts() -> None:
    parser = KSAPTROutputParser(k=2)
    for first, second in (("alpha", "omega"), ("omega", "alpha")):
        slots = [Slot(f"It is {first} and {second} that they were.")] * 70
        slots += [Slot(first)] * 20
        assert released(parser, slots).keywords == ("alpha", "omega")


def test_the_joint_domain_is_public_and_large_enough() -> None:
    parser = KSAJointOutputParser(k=2, domain=lambda question: question.split())
    assert parser.prepare(PublicInput(question="cough rash Cough")) == ("cough", "rash")
    with pytest.raises(InvalidParameterError, match="fewer than k = 2"):
        parser.prepare(PublicInput(question="cough cough"))
    with pytest.raises(InvalidParameterError, match="int among its words"):
        KSAJointOutputParser(k=1, domain=[2019, 2020])  # type: ignore[list-item]
    slots = [Slot("A rash, a rash and cough.")] * 50 + [Slot("rash")] * 20
    outcome = released(parser, slots, prepared=("cough", "rash", "nausea"))
    assert outcome.keywords == ("rash", "cough")


@pytest.mark.parametrize(
    "answer", ["No pain", "silent", "Silent (no pain).", "no pain (silent)"]
)
def test_a_joint_entry_with_brackets_counts_by_either_of_its_names(answer: str) -> None:
    domain = ["silent (no pain)", "angina (typical)", "angina (atypical)", "none"]
    assert domain_places([answer], domain) == [{0}]
    # A name of two entries is a name of neither.
    assert domain_places(["Angina"], domain) == [set()]


def test_where_most_groups_use_none_of_the_words_none_comes_out() -> None:
    parser = KSAJointOutputParser(k=2, domain=["cough", "rash", "nausea"])
    unsure = [Slot("I don't know.")] * 60
    found = released(parser, [*unsure, *[Slot("A rash.")] * 20])
    assert found.status is Status.FALLBACK
    assert "none of the words" in found.details["reason"]
    slots = [*unsure, *[Slot("A rash.")] * 80, *[Slot("Cough and rash.")] * 9]
    assert released(parser, slots).keywords == ("rash",)


texts = st.lists(st.text(max_size=60), max_size=6)


@settings(deadline=None, max_examples=100)
@given(texts, st.text(max_size=200), st.lists(st.text(max_size=12), max_size=5))
def test_one_answer_changes_no_other_answers_places(
    answers: list[str], extra: str, domain: list[str]
) -> None:
    places = domain_places([*answers, extra], domain)
    assert places[:-1] == domain_places(answers, domain)


def test_an_answer_that_cannot_be_read_stops_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(_: Any, word: str, **__: Any) -> str:
        if word == "broken":
            raise RuntimeError(word)
        return word

    monkeypatch.setattr("simplemma.Lemmatizer.lemmatize", failing)
    budget = PrivacyBudgetHandler(epsilon=8, delta=1e-6, queries=1, ledger=":memory:")
    parser = KSAJointOutputParser(k=1, domain=["rash", "cough"], budget=budget)
    assert parser.invoke(["broken", *["A rash."] * 90]) == "rash"


@pytest.mark.parametrize(
    ("terms", "name"),
    [
        ({"language": "en-US"}, "language"),
        ({"stop_words": ["the", 5]}, "stop_words"),
        ({"stop_words": "the"}, "stop_words"),
    ],
)
def test_what_no_answer_could_be_read_by_is_refused(terms: Any, name: str) -> None:
    with pytest.raises(InvalidParameterError, match=name):
        KSAThresholdOutputParser(**terms)


def test_phrases_of_a_domain_must_be_contiguous() -> None:
    assert domain_places(["dry and mild cough"], ["dry cough", "mild cough"]) == [{1}]
    assert domain_places(["word " * 200_000], ["word word", "other"]) == [{0}]
