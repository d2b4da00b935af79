"""Chains, parsers and accounts stay what they were made of; copies are made anew."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from support.chain_parts import EMBEDDING, rich
from support.fakes import ScriptedModel, notes
from support.few_shot_fakes import generator_of
from support.frozen_parts import (
    COUGHS,
    MODELS,
    OTHERS,
    RASHES,
    WAYS,
    chain_of,
    reply,
)
from support.parser_parts import release

from langchain_dpicl import (
    ESAOutputParser,
    InvalidParameterError,
    KSAJointOutputParser,
    KSAPTROutputParser,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.common.replies import answered
from langchain_dpicl.few_shot import Greedy

# -- what was untrue ---------------------------------------------------------------


@WAYS
def test_a_copy_without_an_erased_corpus_asks_nothing_of_it(
    ask: Callable[[Any], Any],
) -> None:
    chain = chain_of()
    model = chain.model
    with pytest.raises(InvalidParameterError, match="model_copy"):
        chain.groups = RASHES
    other = chain.model_copy(update={"groups": RASHES})
    assert ask(other).content == "rash"
    assert not any("gave a cough" in text for text in model.asked)
    assert chain.groups is COUGHS
    assert ask(chain).content == "cough"


@WAYS
def test_a_copy_with_another_account_charges_that_one(
    ask: Callable[[Any], Any],
) -> None:
    old, new = rich(), rich()
    chain = chain_of(budget=old)
    with pytest.raises(InvalidParameterError, match="model_copy"):
        chain.budget = new
    copied = chain.model_copy(update={"budget": new})
    ask(copied)
    assert (old.spent().queries, new.spent().queries) == (0, 1)
    ask(chain)
    assert (old.spent().queries, new.spent().queries) == (1, 1)


@WAYS
@pytest.mark.parametrize("copied_by", ["model_copy", "copy"])
def test_one_answer_cannot_stop_a_copied_vote(
    ask: Callable[[Any], Any], copied_by: str
) -> None:
    parser = VoteOutputParser(labels=["cough", "rash", "fever", "itch"])
    fewer = getattr(parser, copied_by)(update={"labels": ["cough", "rash"]})
    slots = [answered("cough")] * 20
    for one in ("itch", "rash", "cough", "nothing"):
        assert release(fewer, [*slots, answered(one)]).text == "cough"
    longer = fewer.model_copy(update={"labels": ["cough", "rash", "itch"]})
    assert release(longer, [answered("itch")] * 20).text == "itch"
    # In a chain, one person's record decided whether there was an answer at all.
    documents = notes(300, "Lisinopril gave a cough.")
    documents[7].page_content = "Lisinopril gave an itch."
    chain = chain_of(
        groups=RetrievedGroups.from_documents(
            documents, EMBEDDING, unit_key="patient", n_groups=30
        ),
        model=ScriptedModel(
            reply=lambda text: "itch" if "an itch" in text else reply(text)
        ),
        parser=fewer,
        budget=None,
    )
    budget = rich()
    assert ask(chain.with_config(callbacks=[budget])).content == "cough"


# -- assigning -----------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_no_field_is_assigned_or_deleted(name: str) -> None:
    made = MODELS[name]()
    for field in [*type(made).model_fields, "anything", "invoke"]:
        before = getattr(made, field, None)
        with pytest.raises(InvalidParameterError, match=f"'{field}' of .*model_copy"):
            setattr(made, field, before)
        with pytest.raises(InvalidParameterError):
            delattr(made, field)
        assert getattr(made, field, None) == before


@pytest.mark.parametrize("name", OTHERS)
def test_no_term_is_assigned_or_deleted(name: str) -> None:
    make, terms = OTHERS[name]
    made = make()
    for term in terms:
        with pytest.raises(
            InvalidParameterError, match=f"'{term}' of .*Make a new one"
        ):
            setattr(made, term, None)
        with pytest.raises(InvalidParameterError):
            delattr(made, term)
    assert copy.copy(made) is made
    assert copy.deepcopy(made) is made


def test_a_handler_of_yours_keeps_what_it_notes() -> None:
    class Noting(PrivacyBudgetHandler):
        def __init__(self, **terms: Any) -> None:
            super().__init__(**terms)
            self.seen = 0

    mine = Noting(epsilon=1, delta=1e-6, queries=1, ledger=":memory:")
    mine.seen += 1
    assert mine.seen == 1
    with pytest.raises(InvalidParameterError):
        mine.epsilon = 2.0


# -- what was given does not change what was made --------------------------------------


def test_lists_that_change_afterwards_change_nothing() -> None:
    labels, words = ["cough", "rash"], ["cough", "rash", "nausea"]
    stop_words, candidates = {"dry"}, ["A dry cough.", "A rash."]
    parsers: list[tuple[Any, str, Any]] = [
        (VoteOutputParser(labels=labels), "labels", labels),
        (KSAJointOutputParser(k=1, domain=words), "domain", words),
        (KSAPTROutputParser(k=1, stop_words=stop_words), "stop_words", stop_words),
    ]
    esa = ESAOutputParser(embedding=EMBEDDING, candidates=candidates)
    parsers.append((esa, "candidates", candidates))
    for parser, field, given in parsers:
        before = list(getattr(parser, field))
        given.clear()
        assert list(getattr(parser, field)) == before
        assert isinstance(getattr(parser, field), tuple | frozenset)
        parser.charge()


def test_terms_of_a_generation_that_change_afterwards_change_nothing() -> None:
    sizes, stop = {"color": 60, "number": 60}, ["\n"]
    made = generator_of(labels=sizes, mechanism=Greedy(stop=stop))
    before = (repr(made), repr(made.forecast()))
    sizes["color"] = 10**9
    stop.append("x")
    assert (repr(made), repr(made.forecast())) == before


def test_a_domain_that_is_no_list_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match=r"domain: .*list of words"):
        KSAJointOutputParser(k=1, domain=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="not a string"):
        KSAJointOutputParser(k=1, domain="cough")
