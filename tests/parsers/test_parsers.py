"""The parsers: what they release, ask for and refuse."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import BaseGenerationOutputParser
from langchain_core.outputs import ChatGeneration, Generation
from support.parser_parts import ANSWERS, EMBEDDING, PARSERS, paid, release, rich

from langchain_dpicl.accounting import Exponential, Failure, Gaussian
from langchain_dpicl.common.replies import Slot
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
)
from langchain_dpicl.mechanisms import (
    keyword_joint,
    keyword_ptr,
    keyword_threshold,
    voting,
)
from langchain_dpicl.parsers import (
    ESAOutputParser,
    KSAJointOutputParser,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    VoteOutputParser,
)

EXPECTED = {
    "vote": "cough",
    "esa": "A dry cough.",
    "ptr": "dry cough",
    "ptr-range": "dry cough",
    "threshold": "dry cough",
    "joint": "cough",
}


@pytest.fixture(params=sorted(PARSERS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_alone_it_is_a_langchain_parser_that_pays(name: str) -> None:
    budget = rich(queries=6)
    parser = PARSERS[name](budget=budget)
    assert isinstance(parser, BaseGenerationOutputParser)
    generations = [Generation(text=text) for text in ANSWERS]
    messages = [AIMessage(content=text) for text in ANSWERS]
    assert parser.parse_result(generations) == EXPECTED[name]
    assert parser.invoke(ANSWERS) == EXPECTED[name]
    assert parser.invoke(messages) == EXPECTED[name]
    assert asyncio.run(parser.ainvoke(ANSWERS)) == EXPECTED[name]
    assert asyncio.run(parser.aparse_result(generations)) == EXPECTED[name]
    chat = [ChatGeneration(message=message) for message in messages]
    assert parser.parse_result(list(chat)) == EXPECTED[name]
    assert budget.spent().queries == 6
    with pytest.raises(BudgetExhaustedError):
        parser.parse_result(generations)


def test_only_the_number_of_candidates_is_traced(name: str) -> None:
    seen: list[Any] = []

    class Watching(BaseCallbackHandler):
        def on_chain_start(self, serialized: Any, inputs: Any, **kwargs: Any) -> None:
            seen.append((serialized, inputs, kwargs))

    parser = PARSERS[name](budget=rich())
    parser.invoke(
        [*ANSWERS, "canary-7f3a"], {"callbacks": [Watching()], "run_name": "p"}
    )
    assert "85 candidates" in repr(seen)
    assert "canary" not in repr(seen)
    assert "cough" not in repr([inputs for _, inputs, _ in seen])


def test_noise_is_charged_before_it_is_drawn(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = rich()
    parser = PARSERS[name](budget=budget)
    seen: list[int] = []
    original = type(parser).release

    def spy(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(budget.spent().queries)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(type(parser), "release", spy)
    parser.invoke(ANSWERS)
    assert seen == [1]


VOTE, CHOICE = Gaussian(noise_multiplier=2.5), Exponential(epsilon=0.75)
TEST = VOTE, Failure(delta0=1e-7)


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(
    ("which", "module", "function", "events"),
    [
        ("vote", voting, "noisy_counts", VOTE),
        ("esa", voting, "noisy_counts", VOTE),
        ("ptr", keyword_ptr, "ptr_top_k", TEST),
        ("threshold", keyword_threshold, "threshold_words", TEST),
        ("ptr-range", keyword_ptr, "choose_k", CHOICE),
        ("ptr-range", keyword_ptr, "ptr_top_k", TEST),
        ("joint", keyword_joint, "joint_top_k", CHOICE),
    ],
)
def test_the_mechanism_gets_what_was_charged(
    which: str,
    module: Any,
    function: str,
    events: Any,
    relation: Relation,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[list[Any]] = []
    original = getattr(module, function)

    def spy(*args: Any, **kwargs: Any) -> Any:
        seen.append([*args, *kwargs.values()])
        return original(*args, **kwargs)

    monkeypatch.setattr(module, function, spy)
    parser = PARSERS[which]()
    release(
        parser,
        [Slot(text) for text in ANSWERS],
        paid=paid(parser, z=2.5, epsilon=0.75, delta0=1e-7),
        relation=relation,
    )
    (given,) = seen
    assert [term for term in given if isinstance(term, Relation)] == [relation]
    assert [term for term in given if type(term) is type(events)] == [events]


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: VoteOutputParser(labels=["Yes", "yes!"]), "the same"),
        (lambda: VoteOutputParser(labels=["yes", "?"]), "number 1"),
        (lambda: VoteOutputParser("drafts"), "give a list of labels"),
        (lambda: VoteOutputParser("draft", max_labels=0), "max_labels"),
        (lambda: VoteOutputParser(["a", "b"], aliases={"x": ["y"]}), "'x', which is"),
        (lambda: KSAPTROutputParser(k=(1, 2), selection_epsilon=0.0), "epsilon"),
        (lambda: KSAThresholdOutputParser(items_per_answer=10**6), "items_per_answer"),
        (lambda: KSAThresholdOutputParser(delta0=1e-301), "delta0"),
        (lambda: KSAJointOutputParser(k=3, domain=["a", "A", "b"]), "fewer than k"),
        (lambda: KSAJointOutputParser(k=1, domain="word"), "not a string"),
        (lambda: KSAJointOutputParser(k=1, domain=3), "domain: .*list of words"),
        (lambda: ESAOutputParser(embedding=EMBEDDING, candidates=["a"]), "candidates"),
        (lambda: ESAOutputParser(embedding=EMBEDDING, radius=1.0), "radius"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(
    make: Callable[[], object], named: str
) -> None:
    with pytest.raises(InvalidParameterError, match=named):
        make()


@pytest.mark.parametrize("value", [[], [3], None])
def test_candidates_of_other_kinds_are_refused(value: Any) -> None:
    parser = PARSERS["vote"](budget=rich())
    with pytest.raises(InvalidParameterError, match="candidate"):
        parser.invoke(value)


def test_a_parser_can_be_sent_to_another_process(name: str) -> None:
    parser = PARSERS[name]()
    again = pickle.loads(pickle.dumps(parser))
    assert again.public_parameters() == parser.public_parameters()
    assert again.charge() == parser.charge()
