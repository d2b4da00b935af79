"""What a parser says of itself: defaults, records, cache keys, and how it reads."""

from __future__ import annotations

import copy
import json
import math
import pickle
from typing import Any

import numpy as np
import pytest
from langchain_core.prompts import PromptTemplate
from pydantic import ValidationError
from support.parser_parts import EMBEDDING, PARSERS, paid, release, rich

from langchain_dpicl import mechanisms
from langchain_dpicl.common.outcome import CALLS_FAILED, NO_LEAD, Outcome, Status
from langchain_dpicl.common.prompts import (
    DRAFT_PROMPT,
    KEYWORD_INSTRUCTIONS,
    KEYWORD_PROMPT,
    RANKED_KEYWORD_PROMPT,
    SENTENCE_INSTRUCTIONS,
)
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import ABSTAIN, FAILED, Slot
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import SeededRandom
from langchain_dpicl.mechanisms.keyword_ptr import MAX_CHOICES
from langchain_dpicl.mechanisms.stages import Asked
from langchain_dpicl.parsers import (
    ESAOutputParser,
    KSAJointOutputParser,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    PublicInput,
    VoteOutputParser,
)
from langchain_dpicl.parsers.answer_vectors import usable_row
from langchain_dpicl.parsers.base import DPOutputParser, PublicAnswer
from langchain_dpicl.parsers.reading.keywords import STOP_WORDS
from langchain_dpicl.parsers.staged import Said, StagedOutputParser

DRAFT = VoteOutputParser(labels="draft")
TEXTS = ["A dry cough.", "A skin rash."]


def esa(**terms: Any) -> ESAOutputParser:
    return ESAOutputParser(embedding=EMBEDDING, candidates=TEXTS, **terms)


# -- public parameters -----------------------------------------------------------------

WORDS = {"drop_public_words": True}
ZERO = {
    "select": "cosine",
    "candidates": "given",
    "radius": 1.0,
    "min_score": None,
    "center": "zero",
}


@pytest.mark.parametrize(
    ("parser", "expected"),
    [
        (
            VoteOutputParser(labels=["a", "b"]),
            {"labels": ["a", "b"], "mechanism": "gaussian", "min_lead": None},
        ),
        (
            VoteOutputParser(labels=["a", "b"], mechanism="permute_and_flip"),
            {"labels": ["a", "b"], "mechanism": "permute_and_flip", "min_lead": None},
        ),
        (
            VoteOutputParser(
                labels="draft",
                extra_labels=["x"],
                prior=2,
                min_lead=0.5,
                then=KSAPTROutputParser(),
            ),
            {
                "then": "ksa/ptr",
                "labels": "draft",
                "mechanism": "gaussian",
                "min_lead": 0.5,
                "prior": 2.0,
                "max_labels": 8,
                "extra": ["x"],
            },
        ),
        (esa(), ZERO),
        (
            esa(select="vote", radius=0.5, center="candidates"),
            {**ZERO, "select": "vote", "radius": 0.5, "center": "candidates"},
        ),
        (
            ESAOutputParser(embedding=EMBEDDING, center=[0.0] * 384, min_score=0.2),
            {**ZERO, "candidates": 8, "center": "given", "min_score": 0.2},
        ),
        (KSAPTROutputParser(), {"k": 1, **WORDS}),
        (
            KSAPTROutputParser(k=2, mechanism="curve", drop_public_words=False),
            {"k": 2, "mechanism": "curve", "drop_public_words": False},
        ),
        (
            KSAPTROutputParser(k=(1, 3)).without(["record", "above"]),
            {"k": [1, 3], **WORDS, "dropped_words": ["above", "record"]},
        ),
        (KSAThresholdOutputParser(), {"items_per_answer": 1, **WORDS}),
        (
            KSAThresholdOutputParser(items_per_answer=3, mechanism="gaussian"),
            {"items_per_answer": 3, "mechanism": "gaussian", **WORDS},
        ),
        (
            KSAJointOutputParser(k=2, domain=["a", "b"]),
            {"k": 2, "domain": "fixed"},
        ),
        (
            KSAJointOutputParser(k=1, domain=str.split),
            {"k": 1, "domain": "by question"},
        ),
    ],
)
def test_the_record_names_what_an_answer_was_made_with(
    parser: Any, expected: dict[str, Any]
) -> None:
    assert parser.public_parameters() == expected


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_a_cache_key_holds_the_record_the_event_and_the_instructions(name: str) -> None:
    parser = PARSERS[name]()
    known = parser.cache_parameters("Which?")
    kind = type(parser)
    assert known["parser"] == f"{kind.__module__}.{kind.__qualname__}"
    assert known["instructions"] == parser.get_format_instructions()
    for key, value in {
        **parser.public_parameters(),
        **parser.event_template().to_dict(),
    }.items():
        assert key == "center" or known[key] == value


@pytest.mark.parametrize(
    ("parser", "expected"),
    [
        (
            VoteOutputParser(labels=["a", "b"], aliases={"a": ["z", "y"]}),
            {"aliases": {"a": ["y", "z"]}, "drafting": None},
        ),
        (DRAFT, {"aliases": {}, "drafting": repr(DRAFT_PROMPT)}),
        (
            VoteOutputParser(labels="draft", then=KSAPTROutputParser()),
            {"then": KSAPTROutputParser().cache_parameters("Which?")},
        ),
        (
            esa(),
            {
                "given": TEXTS,
                "center": None,
                "embedding": [
                    "langchain_dpicl.offline.embeddings.HashingEmbeddings",
                    "",
                ],
            },
        ),
        (
            ESAOutputParser(embedding=EMBEDDING, center=[0, 0.5]),
            {"given": None, "center": [0.0, 0.5]},
        ),
        (esa(center="candidates"), {"center": "candidates"}),
        (
            KSAPTROutputParser(language="de", stop_words=["b", "a"]),
            {"language": "de", "stop_words": ["a", "b"]},
        ),
        (
            KSAJointOutputParser(k=1, domain=str.split),
            {"entries": ["Which?"]},
        ),
    ],
)
def test_a_cache_key_holds_every_public_input(
    parser: Any, expected: dict[str, Any]
) -> None:
    known = parser.cache_parameters("Which?")
    assert {key: known[key] for key in expected} == expected


def test_a_first_parser_alone_has_no_second_in_its_key() -> None:
    assert "then" not in DRAFT.cache_parameters("Which?")
    assert "then" not in DRAFT.public_parameters()


def test_drafted_labels_are_known_by_the_word_and_not_by_the_object() -> None:
    # As a settings file would give it: equal, and another object.
    read = VoteOutputParser(labels=json.loads('"draft"'))
    written = VoteOutputParser(labels="draft")
    assert read.cache_parameters("Which?") == written.cache_parameters("Which?")
    assert read.public_parameters() == written.public_parameters()
    assert read.lets_ties_out == written.lets_ties_out


@pytest.mark.parametrize(
    "parser",
    [
        KSAPTROutputParser(tokenizer=str.split),
        KSAThresholdOutputParser(tokenizer=str.split),
        KSAJointOutputParser(k=1, domain=["a"], tokenizer=str.split),
    ],
)
def test_a_function_is_in_no_cache_key(parser: Any) -> None:
    with pytest.raises(InvalidParameterError, match="tokenizer="):
        parser.cache_parameters("Which?")


# -- what a chain asks a parser --------------------------------------------------------

#       zero-shot, stages, ties, gate, instructions, rewriting
ASKED: dict[str, tuple[Any, ...]] = {
    "vote": (0, True, True, True, None, None),
    "flip": (0, False, True, True, None, None),
    "esa": (0, True, True, False, SENTENCE_INSTRUCTIONS, None),
    "esa-vote": (0, True, True, False, SENTENCE_INSTRUCTIONS, None),
    "ptr": (0, None, None, True, KEYWORD_INSTRUCTIONS, KEYWORD_PROMPT),
    "ptr-gaussian": (0, None, None, True, KEYWORD_INSTRUCTIONS, KEYWORD_PROMPT),
    "ptr-range": (0, None, None, True, KEYWORD_INSTRUCTIONS, KEYWORD_PROMPT),
    "threshold": (0, None, None, True, KEYWORD_INSTRUCTIONS, None),
    "threshold-gaussian": (0, None, None, True, KEYWORD_INSTRUCTIONS, None),
    "joint": (0, None, None, False, KEYWORD_INSTRUCTIONS, RANKED_KEYWORD_PROMPT),
}


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_a_parser_says_what_a_chain_needs_to_know(name: str) -> None:
    parser: Any = PARSERS[name]()
    zero_shot, stages, ties, gate, instructions, rewriting = ASKED[name]
    assert parser.zero_shot_answers == zero_shot
    assert getattr(parser, "has_stages", None) is stages
    assert getattr(parser, "lets_ties_out", None) is ties
    assert parser.knows_public_answers is gate
    assert parser.rewrite_prompt == rewriting
    assert parser.draft_prompt is None
    assert parser.second is None
    assert parser.goes_on(Outcome(Status.FALLBACK)) is False
    said = parser.get_format_instructions()
    assert said == instructions or (instructions is None and "- cough\n" in said)
    prepared = parser.prepare(PublicInput())
    assert parser.instructions(prepared) == said
    assert parser.public_outcome(prepared) is None
    assert parser.InputType.__args__[0] == list[str]
    assert parser.OutputType is str


def test_candidates_that_are_not_given_are_asked_for() -> None:
    parser = ESAOutputParser(embedding=EMBEDDING)
    assert parser.zero_shot_answers == parser.n_candidates == 8
    least = ESAOutputParser(embedding=EMBEDDING, n_candidates=2)
    assert least.zero_shot_answers == 2
    assert VoteOutputParser(labels=["a", "b"], prior=0.25).zero_shot_answers == 1


def test_drafts_are_asked_for_with_their_number() -> None:
    asked = VoteOutputParser(labels="draft", max_labels=3).draft_prompt
    assert asked is not None
    assert "at most 3." in asked.format(question="Which?")
    assert DRAFT.draft_prompt is not None
    assert "at most 8." in DRAFT.draft_prompt.format(question="Which?")
    assert DRAFT.lets_ties_out is False
    own = PromptTemplate.from_template("{question} {max_labels}")
    mine = VoteOutputParser(labels="draft", draft_template=own).draft_prompt
    assert mine is not None
    assert mine.format(question="Which?") == "Which? 8"
    assert (
        "- cough"
        in VoteOutputParser(labels=["cough", "rash"]).get_format_instructions()
    )
    assert DRAFT.get_format_instructions().endswith("Options:\n- none of these")


@pytest.mark.parametrize(
    ("status", "details", "goes_on"),
    [
        (Status.FALLBACK, {"reason": NO_LEAD}, True),
        (Status.FALLBACK, {}, True),
        (Status.FALLBACK, {"reason": CALLS_FAILED}, False),
        (Status.RELEASED, {}, False),
    ],
)
def test_a_second_parser_follows_a_silent_vote(
    status: Status, details: dict[str, Any], goes_on: bool
) -> None:
    then = KSAPTROutputParser()
    outcome = Outcome(status, details=details)
    first = VoteOutputParser(labels=["a", "b"], then=then)
    assert first.second is then
    assert first.goes_on(outcome) is goes_on
    assert VoteOutputParser(labels=["a", "b"]).goes_on(outcome) is False


@pytest.mark.parametrize("then", [3, VoteOutputParser(labels="draft", then=esa())])
def test_a_second_parser_has_no_second_of_its_own(then: Any) -> None:
    with pytest.raises(InvalidParameterError, match="then must be one"):
        VoteOutputParser(labels=["a", "b"], then=then)


def test_alone_a_parser_asks_nobody_twice() -> None:
    parser = VoteOutputParser(labels=["a", "b"], then=esa(), budget=rich())
    with pytest.raises(InvalidParameterError, match="then="):
        parser.invoke(["a"])


# -- how one reply is read -------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "reply", "reading"),
    [
        ("vote", "Cough.", "answer"),
        ("vote", "rash", "answer"),
        ("vote", "None of these.", "nothing"),
        ("vote", "fever", "unreadable"),
        ("esa", "They cough.", "answer"),
        ("esa", "I don't know.", "nothing"),
        ("ptr", "A dry cough.", "answer"),
        ("ptr", "Most of these people report a dry cough.", "loose"),
        ("ptr", "Then at most they were as they would be.", "answer"),
        ("ptr", "Then they were as they would be.", "unreadable"),
        ("ptr", "I don't know.", "nothing"),
        ("threshold", "dry cough", "answer"),
        ("joint", "A bad cough.", "answer"),
        ("joint", "I don't know.", "nothing"),
        ("joint", "Fever.", "unreadable"),
        ("joint", "I don't know, but perhaps a rash.", "answer"),
    ],
)
def test_a_reply_counts_or_not(name: str, reply: str, reading: str) -> None:
    parser = PARSERS[name]()
    assert parser.reads(reply, parser.prepare(PublicInput())) == reading


def test_a_reply_counts_by_a_tokenizer_of_your_own() -> None:
    parser = KSAPTROutputParser(tokenizer=str.split)
    assert parser.reads("dry cough", frozenset({"dry"})) == "answer"
    assert parser.reads("dry dry", frozenset({"dry"})) == "unreadable"
    assert parser.reads("I don't know.", frozenset()) == "nothing"
    words = KSAJointOutputParser(k=1, domain=["Coughs"], tokenizer=str.split)
    assert words.reads("Coughs", ("Coughs",)) == "answer"
    assert words.reads("coughs", ("Coughs",)) == "unreadable"
    counted = [Slot("Dry dry cough"), Slot(None), Slot("dry")]
    assert parser._counts(counted, frozenset({"cough"})) == {"Dry": 1, "dry": 2}
    public = PublicInput(question="Which Cough?", prompt_text="a B")
    stop = KSAPTROutputParser(tokenizer=str.split, stop_words=["THE"])
    assert stop.prepare(public) == {"the", "Which", "Cough?", "a", "B"}


def test_items_of_an_answer_are_counted_up_to_their_number() -> None:
    parser = KSAPTROutputParser()
    slots = [Slot("Many report paid leave, and slow routers."), Slot(None)]
    assert parser._counts(slots, frozenset({"many", "report"})) == dict.fromkeys(
        ["pay", "leave", "slow", "router"], 1
    )
    assert parser._counts(slots, frozenset({"many"}), 2) == {"report": 1, "pay": 1}


# -- the answer that a gate asks for ---------------------------------------------------


def test_groups_agree_with_a_label() -> None:
    parser = VoteOutputParser(labels=["cough", "rash"])
    found = parser.public_answer(PublicInput(zero_shot=("A rash.", "cough")))
    assert found is not None
    assert found.text == "rash"
    assert [
        found.agrees(text) for text in ("Rash", "cough", "none", "rash, cough")
    ] == [
        True,
        False,
        False,
        False,
    ]
    for silent in ((), ("I don't know.",), ("fever",)):
        assert parser.public_answer(PublicInput(zero_shot=silent)) is None


def test_groups_agree_with_words_of_which_they_share_more_than_half() -> None:
    parser = KSAPTROutputParser()
    public = PublicInput(
        question="Which cough?", zero_shot=("The dry night cough", "x")
    )
    found = parser.public_answer(public)
    assert isinstance(found, PublicAnswer)
    assert found.text == "The dry night cough"
    agreeing = ["night dry", "A DRY night.", "dry night hard", "Which dry night cough"]
    others = ["dry", "dry night hard fast", "cough", "", "fast"]
    assert [found.agrees(text) for text in agreeing + others] == [True] * 4 + [
        False
    ] * 5
    for silent in ((), ("I don't know.",), ("Which cough?",), ("",)):
        known = PublicInput(question="Which cough?", zero_shot=silent)
        assert parser.public_answer(known) is None
    own = KSAPTROutputParser(tokenizer=str.split).public_answer(public)
    assert own is not None
    assert own.agrees("dry night cough")
    assert not own.agrees("Dry Night")


@pytest.mark.parametrize("name", ["esa", "joint"])
def test_what_is_public_already_has_no_gate(name: str) -> None:
    with pytest.raises(InvalidParameterError, match="has no public answer"):
        PARSERS[name]().public_answer(PublicInput(zero_shot=("cough",)))


# -- values that can't be changed or seen ----------------------------------------------


def test_what_is_private_or_long_is_in_no_repr_and_no_dump() -> None:
    terms: dict[str, Any] = {"budget": rich(), "random": SeededRandom(1)}
    for parser in (
        VoteOutputParser(labels=["a", "b"], aliases={"a": ["zed"]}, **terms),
        KSAPTROutputParser(tokenizer=str.split, **terms),
        KSAJointOutputParser(k=1, domain=["zed"], tokenizer=str.split, **terms),
        esa(**terms),
    ):
        shown = repr(parser)
        assert "budget" not in shown
        assert "zed" not in shown
        assert "prompt" not in shown
        assert "template" not in shown
        assert "stop_words" not in shown
        hidden = {"budget", "random", "embedding", "tokenizer", "prompt"}
        assert not {*hidden, "draft_template"} & parser.model_dump().keys()
    own = PromptTemplate.from_template("{question} {max_labels} {keywords}")
    assert "{keywords}" not in repr(
        VoteOutputParser(labels="draft", draft_template=own)
    )
    assert "{keywords}" not in repr(KSAPTROutputParser(prompt=own, stop_words=["zed"]))
    assert "zed" not in repr(KSAPTROutputParser(stop_words=["zed"]))
    assert "{keywords}" not in repr(
        KSAJointOutputParser(k=1, domain=["zed"], prompt=own)
    )
    assert KSAPTROutputParser(prompt=own).rewrite_prompt is own


def test_what_a_noisy_sum_says_can_not_be_changed() -> None:
    said = Said(Outcome(Status.FALLBACK))
    assert (said.lead, said.is_answer) == (0.0, False)
    candidates = esa().prepare(PublicInput())
    for thing, field in (
        (said, "lead"),
        (PublicInput(), "draft"),
        (candidates, "texts"),
    ):
        with pytest.raises(AttributeError):
            setattr(thing, field, None)
    public = PublicInput()
    assert (public.question, public.prompt_text, public.zero_shot, public.draft) == (
        "",
        "",
        (),
        "",
    )


def test_a_parser_without_a_mechanism_can_not_be_made() -> None:
    own = {"check", "event_template", "release", "public_parameters"}
    assert DPOutputParser.__abstractmethods__ == own
    staged = {"check", "event_template", "noisy", "said", "public_parameters"}
    assert StagedOutputParser.__abstractmethods__ == staged


def test_parameters_stand_as_they_were_given() -> None:
    labels = ["a", "b"]
    parser = VoteOutputParser(labels=labels)
    labels.append("c")
    assert parser.labels == ("a", "b")
    with pytest.raises((InvalidParameterError, TypeError, ValidationError)):
        parser.labels = ("x", "y")  # type: ignore[misc]
    with pytest.raises(InvalidParameterError):
        VoteOutputParser(labels=["a", "b"], unknown=1)
    assert VoteOutputParser(labels=["a", "b"], max_labels=1).max_labels == 1
    assert VoteOutputParser(labels=["a", "b"], min_lead=0).min_lead == 0
    assert VoteOutputParser(labels="draft", extra_labels=["x"]).extra_labels == ("x",)
    assert KSAPTROutputParser().stop_words is STOP_WORDS or (
        KSAPTROutputParser().stop_words == STOP_WORDS
    )
    assert KSAPTROutputParser().language == "en"


def test_words_that_are_no_list_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="not a string"):
        KSAPTROutputParser().without("record")
    more = KSAPTROutputParser().without(["record"])
    assert more.stop_words == STOP_WORDS | {"record"}
    for wrong in (3, None):
        with pytest.raises(InvalidParameterError, match="domain"):
            KSAJointOutputParser(k=1, domain=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"k": (2, 1)}, "k must be"),
        ({"k": (1, 2), "mechanism": "curve"}, "a range of k"),
        ({"mechanism": "curve", "noise_multiplier": 1.0}, "noise_multiplier="),
    ],
)
def test_a_curve_goes_with_one_k_and_no_noise_of_your_own(
    terms: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        KSAPTROutputParser(**terms)


def test_the_widest_range_of_k_is_taken() -> None:
    KSAPTROutputParser(k=(1, MAX_CHOICES))
    with pytest.raises(InvalidParameterError, match=f"at most {MAX_CHOICES} such"):
        KSAPTROutputParser(k=(1, MAX_CHOICES + 1))
    assert KSAPTROutputParser(k=(2, 2)).event_template().mechanism == "ksa/ptr"
    KSAPTROutputParser(k=(2, 2), mechanism="curve")


# -- votes -----------------------------------------------------------------------------


def test_each_slot_has_its_bin() -> None:
    parser = VoteOutputParser(labels=["a", "b", "c"])
    slots = [
        Slot("c"),
        Slot("a"),
        Slot("c"),
        Slot("?"),
        ABSTAIN,
        FAILED,
        FAILED,
        FAILED,
    ]
    assert parser._counts(slots, ("a", "b", "c")) == [1, 0, 2, 0, 1, 3]
    assert parser.choice("b") == 1
    assert parser.choice(None) is None


@pytest.mark.parametrize(
    ("winner", "text", "reason"),
    [
        (0, "a", None),
        (1, "b", None),
        (2, None, 'the noisy choice fell on "none of these"'),
        (3, None, "the noisy choice fell on unreadable replies"),
        (4, None, "the noisy choice fell on failed calls"),
        (5, None, NO_LEAD),
    ],
)
def test_permute_and_flip_releases_what_it_draws(
    winner: int, text: str | None, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def drawn(scores: Any, **terms: Any) -> int:
        seen.append((list(scores), terms))
        return winner

    monkeypatch.setattr(mechanisms, "permute_and_flip", drawn)
    source = SeededRandom(1)
    parser = VoteOutputParser(
        labels=["a", "b"], mechanism="permute_and_flip", random=source
    )
    slots = [Slot("a"), Slot("b"), Slot("b"), Slot("?"), FAILED, ABSTAIN]
    outcome = release(parser, slots, paid=paid(parser, epsilon=0.5))
    ((scores, terms),) = seen
    nobody = 2 / 0.5 * math.log(2 / (2 * 0.01))
    assert scores == [1, 2, 0, 1, 1, pytest.approx(nobody)]
    assert terms == {"epsilon": 0.5, "sensitivity": 1.0, "random": source}
    assert outcome.text == text
    assert outcome.details.get("reason") == reason
    assert "labels" not in outcome.details


def test_permute_and_flip_shows_the_labels_of_a_draft() -> None:
    parser = VoteOutputParser(labels="draft", mechanism="permute_and_flip")
    found = release(parser, [Slot("b")] * 9, prepared=("a", "b"))
    assert (found.text, found.details) == ("b", {"labels": ["a", "b"]})
    slots = [Slot("b")] * 9
    with pytest.raises(InvalidParameterError, match="no noisy votes"):
        list(
            parser.noisy(
                slots,
                paid=paid(parser),
                relation=Relation.REPLACE,
                slot_count=9,
                prepared=("a", "b"),
            )
        )


def test_the_details_of_a_vote_are_rounded_once() -> None:
    parser = VoteOutputParser(labels="draft")
    said = parser.said(
        np.array([30.27, 1.04, 2.55, 0.03, 1.26]),
        asked=Asked.whole(40),
        paid=paid(parser, 1.0),
        relation=Relation.REPLACE,
        prepared=("a", "b"),
    )
    assert said.outcome.details == {
        "labels": ["a", "b"],
        "noisy_votes": {"a": 30.3, "b": 1.0},
        "noisy_none": 2.5,
        "noisy_unreadable": 0.0,
        "noisy_failed": 1.3,
        "confidence": round(27.72 / 2, 2),
    }
    assert said.lead == pytest.approx(27.72 / 2)


def test_the_favored_label_of_a_draft_is_named_and_sent_along() -> None:
    parser = VoteOutputParser(labels="draft", prior=4.0)
    public = PublicInput(
        question="Which?", draft="cough\nrash", zero_shot=("Rash.", "x")
    )
    prepared: Any = parser.prepare(public)
    assert prepared == ("cough", "rash")
    assert prepared.favored == 1
    assert parser._prior(prepared, 0.5) == [0.0, 2.0]
    assert parser._prior(("cough", "rash"), 0.5) == [0.0, 0.0]
    for again in (copy.copy(prepared), pickle.loads(pickle.dumps(prepared))):
        assert (again, again.favored) == (prepared, 1)
    found = release(parser, [Slot("cough")] * 30, prepared=prepared)
    assert found.details["prior"] == "rash"
    silent = PublicInput(question="Which?", draft="cough\nrash", zero_shot=("Fever.",))
    assert getattr(parser.prepare(silent), "favored", 0) is None
    assert not hasattr(DRAFT.prepare(public), "favored")


def test_a_draft_without_a_question_needs_labels_of_its_own() -> None:
    own = VoteOutputParser(labels="draft", extra_labels=["x", "y"])
    assert own.prepare(PublicInput()) == ("x", "y")
    assert own.prepare(PublicInput(question="Which?", draft="y\nz")) == ("x", "y", "z")
    nothing = DRAFT.public_outcome(())
    assert nothing is not None
    assert nothing.details["labels"] == []
    signs = VoteOutputParser(labels="draft", extra_labels=["yes"])
    assert signs.prepare(PublicInput(question="Q", draft="...\nno")) == ("yes", "no")


def test_labels_that_look_alike_are_named() -> None:
    with pytest.raises(InvalidParameterError, match="Labels 'b' and 'B!' are the same"):
        VoteOutputParser(labels=["a", "b", "B!"])
    with pytest.raises(InvalidParameterError, match="number 2 has no letter"):
        VoteOutputParser(labels=["a", "b", "?"])
    with pytest.raises(InvalidParameterError, match="number 0 has no letter"):
        VoteOutputParser(labels="draft", extra_labels=["?", "a"])
    VoteOutputParser(labels=["a", "b"])


@pytest.mark.parametrize("min_lead", [-0.5, -1.0, -1e-9])
def test_a_lead_is_never_negative(min_lead: float) -> None:
    with pytest.raises(InvalidParameterError, match="min_lead"):
        VoteOutputParser(labels=["a", "b"], min_lead=min_lead)


@pytest.mark.parametrize("score", [-1.0, -0.5, 0.0, 1.0])
def test_a_least_score_may_be_any_cosine(score: float) -> None:
    assert esa(min_score=score).min_score == score


def test_candidates_by_votes_have_a_winner_in_a_close_race() -> None:
    parser = esa(select="vote")
    said = parser.said(
        np.array([30.25, 30.0, 10.0, 0.0, 0.0]),
        asked=Asked.whole(91),
        paid=paid(parser, 0.5),
        relation=Relation.REPLACE,
        prepared=parser.prepare(PublicInput()),
    )
    assert said.outcome.text == TEXTS[0]
    assert said.lead == pytest.approx(0.25)
    assert said.outcome.details["confidence"] == 0.25


def test_a_direction_has_length_one() -> None:
    prepared = esa(center="candidates").prepare(PublicInput())
    for place in (0, 1):
        assert np.linalg.norm(prepared.direction(place)) == pytest.approx(1)


@pytest.mark.parametrize(
    ("vector", "row"),
    [
        ([1.5, 0.0], [1.0, 0.0]),
        ([3.0, 4.0], [0.6, 0.8]),
        ([0.3, 0.4], [0.3, 0.4]),
        ([0.0, 0.0], None),
        (["x", "y"], None),
        ({}, None),
        ([1.0], None),
        ([math.inf, 0.0], None),
    ],
)
def test_a_row_is_of_length_one_at_most(vector: Any, row: list[float] | None) -> None:
    found = usable_row(vector, 2)
    assert (None if found is None else found.tolist()) == row


@pytest.mark.parametrize(
    ("terms", "slot_count"),
    [
        ({}, 3),
        ({"relation": Relation.ADD_REMOVE, "slot_count": 7}, 7),
        ({"relation": Relation.ADD_REMOVE}, 1),
    ],
)
async def test_alone_the_public_number_of_groups_is_used(
    terms: dict[str, Any], slot_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def spy(self: Any, slots: Any, **given: Any) -> Outcome:
        seen.append(given["slot_count"])
        return Outcome(Status.FALLBACK)

    monkeypatch.setattr(KSAPTROutputParser, "release", spy)
    parser = KSAPTROutputParser(budget=rich(), **terms)
    parser.invoke(["a", "b", "c"])
    await parser.ainvoke(["a", "b", "c"])
    assert seen == [slot_count] * 2


def test_a_ranking_prompt_of_your_own_is_in_no_repr() -> None:
    own = PromptTemplate.from_template("{question} {keywords} mine")
    shown = repr(KSAJointOutputParser(k=1, domain=["zed"], prompt=own))
    assert "mine" not in shown
    assert "prompt" not in shown
