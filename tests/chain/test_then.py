"""A second parser, where the first one tells nothing: charged, drawn anew, recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate
from support.chain_parts import EMBEDDING, QUESTION, every_way, record
from support.fakes import AsyncScriptedModel, notes

from langchain_dpicl import (
    BudgetExhaustedError,
    DPChain,
    ESAOutputParser,
    InvalidParameterError,
    KSAPTROutputParser,
    NoisyThreshold,
    PrivacyBudgetHandler,
    RetrievedGroups,
    SampledGroups,
    VoteOutputParser,
)
from langchain_dpicl.accounting import event_from_dict
from langchain_dpicl.chain.public_model import PublicModel
from langchain_dpicl.common.outcome import Outcome, Status
from langchain_dpicl.ledger import MemoryLedger
from langchain_dpicl.mechanisms import GaussianNoise
from langchain_dpicl.mechanisms.source import SeededRandom

NOTES = notes(400)
GROUPS = RetrievedGroups.from_documents(
    NOTES, EMBEDDING, unit_key="patient", n_groups=50
)
THRESHOLD = RetrievedGroups.from_documents(
    [
        *NOTES,
        *(Document(f"Ramipril. {i}", metadata={"patient": f"o{i}"}) for i in range(50)),
    ],
    EMBEDDING,
    unit_key="patient",
    n_groups=50,
    score_threshold=0.2,
)


class Model(AsyncScriptedModel):
    """Finds none of the options, and says "cough" where it may say what it likes."""

    drafts: str = "fever\nrash"
    choice: str = "none of these"

    def __init__(self, **terms: Any) -> None:
        super().__init__(**terms)
        self.reply = self._say

    def _say(self, text: str) -> str:
        if "word suggestions" in text:
            return "It was a cough."
        if "Lisinopril" not in text:
            return self.drafts if "possible" in text else "I don't know."
        return self.choice if "none of these" in text else "cough"


def parser(labels: Any = ("fever", "rash"), **terms: Any) -> VoteOutputParser:
    return VoteOutputParser(labels=labels, then=KSAPTROutputParser(k=1), **terms)


def account(**terms: Any) -> PrivacyBudgetHandler:
    own: dict[str, Any] = {"epsilon": 50, "delta": 1e-6, "ledger": MemoryLedger()}
    return PrivacyBudgetHandler(**{**own, "queries": 8, **terms})


FILTER = {"accounting": "zcdp"}


def chain_of(budget: Any, own: Any = None, **terms: Any) -> DPChain:
    parts: dict[str, Any] = {"groups": GROUPS, "model": Model(), **terms}
    return DPChain(parser=own or parser(), budget=budget, **parts)


def charges(budget: PrivacyBudgetHandler) -> int:
    return len(budget.ledger.charges(budget.account))


def kinds(public: dict[str, Any]) -> list[str]:
    return [type(event_from_dict(one)).__name__ for one in public["events"]]


@pytest.fixture(autouse=True)
def known_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PublicModel, "has_answered", True)


@pytest.mark.parametrize("terms", [{}, FILTER], ids=["plan", "filter"])
async def test_it_answers_by_every_way_and_both_releases_are_charged(
    terms: dict[str, Any],
) -> None:
    budget = account(**{**terms, "queries": 12})
    said = await every_way(chain_of(None), budget)
    for message in said:
        public = record(message)
        assert message.content == "It was a cough."
        assert (public["status"], public["mechanism"]) == ("released", "ksa/ptr")
        assert kinds(public) == ["Gaussian", "Gaussian", "Failure"]
        before = public["details"]["before"]
        assert before["mechanism"] == "vote/gaussian"
        assert before["reason"] == "more groups chose none of these than any one option"
    each = 2 if terms else 1
    assert charges(budget) == each * len(said)
    assert budget.spent().epsilon <= 50


def test_a_plan_charges_both_at_the_noise_that_they_are_drawn_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget, noises = account(), []
    for kind in (VoteOutputParser, KSAPTROutputParser):

        def release(
            self: Any, slots: Any, *, paid: Any, own: Any = kind.release, **terms: Any
        ) -> Any:
            noises.append(paid.noise)
            return own(self, slots, paid=paid, **terms)

        monkeypatch.setattr(kind, "release", release)
    public = record(chain_of(budget).invoke(QUESTION))
    charged = [event_from_dict(one) for one in public["events"]]
    assert noises[0].noise_multiplier == charged[0].noise_multiplier  # type: ignore[union-attr]
    assert noises[1].noise_multiplier == charged[1].noise_multiplier  # type: ignore[union-attr]
    alone = account().quote(VoteOutputParser(labels=["a", "b"]).event_template())
    assert isinstance(alone, GaussianNoise)
    assert noises[0].noise_multiplier > 1.2 * alone.noise_multiplier


def test_where_a_label_comes_out_nothing_goes_on() -> None:
    for terms in ({}, FILTER):
        budget, model = account(**terms), Model(choice="rash")
        answer = chain_of(budget, model=model).invoke(QUESTION)
        assert (answer.content, charges(budget)) == ("rash", 1)
        assert "before" not in record(answer)["details"]
        asked = [text for text in model.asked if "Lisinopril" in text]
        assert len(asked) == GROUPS.n_groups


def test_where_drafting_fails_the_second_is_asked_at_once() -> None:
    refusal = "I can't list possible answers to this."
    for terms in ({}, FILTER):
        budget = account(**terms)
        chain = chain_of(budget, parser("draft"), model=Model(drafts=refusal))
        public = record(chain.invoke(QUESTION))
        reason = "the model listed no option"
        assert public["details"]["before"]["reason"] == reason
        assert charges(budget) == 1
        assert len(public["events"]) == (2 if terms else 3)


def test_where_drafting_fails_a_noisy_threshold_is_released_all_the_same() -> None:
    groups = RetrievedGroups.from_documents(
        NOTES,
        EMBEDDING,
        unit_key="patient",
        n_groups=50,
        score_threshold=NoisyThreshold(units=200),
    )
    budget, refusal = account(**FILTER), "I can't list possible answers to this."
    chain = chain_of(
        budget, parser("draft"), model=Model(drafts=refusal), groups=groups
    )
    public = record(chain.invoke(QUESTION))
    assert (public["status"], public["mechanism"]) == ("released", "ksa/ptr")
    assert charges(budget) == 2
    assert kinds(public) == ["Gaussian", "Gaussian", "Failure"]


def test_a_second_parser_that_public_input_decides_costs_nothing() -> None:
    refusal = "I can't list possible answers to this."
    own = VoteOutputParser(
        labels=["fever", "rash"], then=VoteOutputParser(labels="draft")
    )
    for terms in ({}, FILTER):
        budget = account(**terms)
        chain = chain_of(budget, own, model=Model(drafts=refusal))
        public = record(chain.invoke(QUESTION))
        assert (public["status"], charges(budget)) == ("abstained", 1)
        assert public["details"]["then"] == "the model listed no option"
        assert public["mechanism"] == "vote/gaussian"


def test_failing_calls_are_not_asked_a_second_time() -> None:
    class Fails(Model):
        def _say(self, text: str) -> str:
            if "Lisinopril" in text:
                raise ValueError
            return super()._say(text)

    budget = account(**FILTER)
    public = record(chain_of(budget, model=Fails()).invoke(QUESTION))
    assert public["details"]["reason"] == "too many calls to the model failed"
    assert (charges(budget), public["mechanism"]) == (1, "vote/gaussian")


def test_the_second_release_has_its_own_sample() -> None:
    groups = SampledGroups.from_documents(
        NOTES, unit_key="patient", n_groups=20, sampling_rate=0.5
    )
    model = Model()
    chain_of(account(accounting="renyi"), groups=groups, model=model).invoke(QUESTION)
    votes = {t for t in model.asked if "Lisinopril" in t and "none of these" in t}
    words = {t for t in model.asked if "Lisinopril" in t} - votes
    contexts = [
        {line for text in each for line in text.splitlines() if "Note" in line}
        for each in (votes, words)
    ]
    assert min(map(len, contexts)) > 100
    assert contexts[0] != contexts[1]


def test_in_a_per_unit_account_those_who_take_part_pay_twice() -> None:
    budget = account(scope="unit", **FILTER)
    chain_of(budget, groups=THRESHOLD).invoke(QUESTION)
    spent = [one.spent.loss for one in budget.ledger.unit_balances("default")]
    costs = [one.charge.cost.loss for one in budget.ledger.charges("default")]
    assert len(costs) == 2
    assert len(spent) == len(NOTES)
    assert set(spent) == {sum(costs)}


def test_a_unit_that_can_pay_once_takes_part_once() -> None:
    # Enough for one vote and no second release.
    budget = account(scope="unit", accounting="zcdp", queries=1)
    public = record(chain_of(budget, groups=THRESHOLD).invoke(QUESTION))
    assert public["details"]["before"]["reason"].startswith("more groups chose none")
    assert public["status"] == "abstained"
    assert len(public["events"]) == 3


def test_a_plan_for_each_unit_is_refused_before_any_charge() -> None:
    budget = account(scope="unit")
    with pytest.raises(InvalidParameterError, match="several things under one charge"):
        chain_of(budget, groups=THRESHOLD).invoke(QUESTION)
    assert not charges(budget)


def test_a_stream_tells_the_steps() -> None:
    pieces = chain_of(account(**FILTER)).stream(QUESTION)
    told = [
        step["step"]
        for piece in pieces
        for step in piece.response_metadata.get("privacy_steps", [])
    ]
    assert told == ["charged", "groups", "then", "charged", "groups", "merged"]


# -- with a cache --------------------------------------------------------------------


class Stopped(BaseException):
    """A process that dies where this is raised, as far as one can in a test."""


class Dies(BaseCallbackHandler):
    raise_error = True

    def __init__(self, place: int) -> None:
        self.left = place

    def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
        self.left -= 1
        if not self.left:
            raise Stopped(data["step"])


@pytest.mark.parametrize("terms", [{}, FILTER], ids=["plan", "filter"])
def test_a_stored_answer_is_given_again_with_its_own_record(
    terms: dict[str, Any],
) -> None:
    budget = account(**terms)
    chain = chain_of(budget, cache=True)
    first, before = chain.invoke(QUESTION), charges(budget)
    again = chain.invoke(QUESTION)
    assert (again.content, charges(budget)) == (first.content, before)
    one, other = record(first), record(again)
    assert (other["status"], other["events"]) == ("cached", [])
    same = ("mechanism", "parameters", "unit_key", "relation", "keywords")
    assert [one[name] for name in same] == [other[name] for name in same]
    assert other["details"]["before"] == one["details"]["before"]


def test_calls_that_failed_are_made_again_by_the_next_asking() -> None:
    class Fails(Model):
        down: bool = True

        def _say(self, text: str) -> str:
            if self.down and "Lisinopril" in text:
                raise ValueError
            return super()._say(text)

    for terms in ({}, FILTER):
        budget, model = account(**terms), Fails()
        chain = chain_of(budget, model=model, cache=True)
        reason = record(chain.invoke(QUESTION))["details"]["reason"]
        assert reason == "too many calls to the model failed"
        model.down = False
        answer = chain.invoke(QUESTION)
        assert answer.content == "It was a cough."
        assert charges(budget) == (3 if terms else 2)


@pytest.mark.parametrize("terms", [{}, FILTER])
@pytest.mark.parametrize("place", range(1, 6))
def test_a_draw_that_was_given_up_is_charged_anew(
    terms: dict[str, Any], place: int
) -> None:
    budget = account(**terms)
    chain = chain_of(budget, cache=True)
    with pytest.raises(Stopped):
        chain.invoke(QUESTION, {"callbacks": [Dies(place)]})
    before = charges(budget)
    answer = chain.invoke(QUESTION)
    assert answer.content == "It was a cough."
    # Stopped at the last step, the second release is stored.
    new = 0 if place == 5 + bool(terms) else 1 + bool(terms)
    assert charges(budget) == before + new
    assert chain.invoke(QUESTION).content == answer.content
    assert charges(budget) == before + new


def test_a_model_that_fails_before_the_second_release_loses_no_vote() -> None:
    class Fails(Model):
        def _say(self, text: str) -> str:
            if "Lisinopril" not in text and "none of these" not in text:
                raise ValueError
            return super()._say(text)

    esa = ESAOutputParser(embedding=EMBEDDING, n_candidates=2)
    own = VoteOutputParser(labels=["fever", "rash"], then=esa)
    chain = chain_of(account(**FILTER), own, model=Fails(), fallback="refuse")
    public = record(chain.invoke(QUESTION))
    assert public["details"]["then"] == "the model failed on the question alone"
    assert (
        public["details"]["reason"]
        == "more groups chose none of these than any one option"
    )
    assert public["mechanism"] == "vote/gaussian"


def test_the_second_parsers_prompt_and_randomness_are_in_the_key() -> None:
    ksa = KSAPTROutputParser(k=1)
    asked = ChatPromptTemplate.from_template("{question} with {keywords}")
    others = [
        KSAPTROutputParser(k=1, prompt=asked),
        KSAPTROutputParser(k=1, random=SeededRandom(1)),
    ]
    budget, seen = account(**{**FILTER, "queries": 20}), set[int]()
    for then in (ksa, *others):
        own = VoteOutputParser(labels=["fever", "rash"], then=then)
        chain_of(budget, own, cache=True).invoke(QUESTION)
        seen.add(charges(budget))
    assert seen == {2, 4, 6}


def test_the_second_parser_is_in_the_key() -> None:
    budget = account(**FILTER)
    chain_of(budget, cache=True).invoke(QUESTION)
    before = charges(budget)
    other = VoteOutputParser(labels=["fever", "rash"], then=KSAPTROutputParser(k=2))
    chain_of(budget, other, cache=True).invoke(QUESTION)
    assert charges(budget) > before


def test_what_a_spent_account_can_not_go_on_to_is_told() -> None:
    budget = account(accounting="zcdp", queries=1)
    chain = chain_of(budget)
    public = record(chain.invoke(QUESTION))
    assert public["details"]["then"] == "the account can't pay for it"
    assert (public["status"], charges(budget)) == ("abstained", 1)
    with pytest.raises(BudgetExhaustedError):
        chain.invoke(QUESTION)


def test_the_record_is_json() -> None:
    json.dumps(record(chain_of(account()).invoke(QUESTION)))


@pytest.mark.parametrize("then", ["ksa", parser(), 3])
def test_what_can_not_go_on_is_refused(then: Any) -> None:
    with pytest.raises(InvalidParameterError, match="then must be one private output"):
        VoteOutputParser(labels=["a", "b"], then=then)


async def test_alone_a_parser_can_ask_nobody_a_second_time() -> None:
    budget = account()
    own = parser(budget=budget)
    with pytest.raises(InvalidParameterError, match="only a DPChain can"):
        own.invoke(["rash"] * 50)
    with pytest.raises(InvalidParameterError, match="only a DPChain can"):
        await own.ainvoke(["rash"] * 50)
    assert not charges(budget)


def test_an_outcome_that_says_something_is_the_end() -> None:
    assert not parser().goes_on(Outcome(Status.RELEASED, "rash"))
    assert not VoteOutputParser(labels=["a", "b"]).goes_on(Outcome(Status.FALLBACK))


async def test_a_check_tries_both_parsers() -> None:
    model = Model()
    chain = chain_of(account(), model=model)
    for report in (chain.check([QUESTION]), await chain.acheck([QUESTION])):
        first, second = report.questions
        assert first.question == second.question == QUESTION
        assert report.group_calls == 2 * GROUPS.n_groups
        assert report.charge is not None
        assert len(report.charge["events"]) == 3
    instructions = [text for text in model.asked if "at most three words" in text]
    choices = [text for text in model.asked if "none of these" in text]
    assert instructions
    assert choices
