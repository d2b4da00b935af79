"""Released facts first, and the paid question where they don't tell."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.globals import set_llm_cache
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from support.chain_parts import EMBEDDING, record, reply, rich
from support.fakes import AsyncScriptedModel, notes
from support.released_parts import public_record

from langchain_dpicl import (
    DPChain,
    FactsChain,
    InvalidParameterError,
    ReleasedCorpus,
    RetrievedGroups,
    VoteOutputParser,
)

CORPUS = ReleasedCorpus(
    [
        Document(
            "Most frequent drug of patients with asthma: salbutamol (about 23 ± 3)."
        ),
        Document(
            "Most frequent drug of patients with migraine: topiramate (about 21 ± 3)."
        ),
    ],
    public_record(),
)
TOLD = "Which drug do patients with asthma take?"
UNTOLD = "What did lisinopril give?"


def model(silence: str = "The facts do not say.") -> AsyncScriptedModel:
    def say(text: str) -> str:
        if "Facts:" in text:
            return "Salbutamol." if "asthma take?\nAnswer" in text else silence
        return reply(text)

    return AsyncScriptedModel(reply=say)


def facts(**terms: Any) -> FactsChain:
    return FactsChain(**{"corpus": CORPUS, "model": model(), "k": 1, **terms})


def chain(budget: Any = None) -> DPChain:
    groups = RetrievedGroups.from_documents(
        notes(200), EMBEDDING, unit_key="patient", n_groups=40
    )
    parser = VoteOutputParser(labels=["cough", "rash"])
    return DPChain(groups=groups, model=model(), parser=parser, budget=budget)


async def test_facts_answer_for_nothing() -> None:
    for answer in (facts().invoke(TOLD), await facts().ainvoke({"question": TOLD})):
        assert answer.content == "Salbutamol."
        public = record(answer)
        assert public["details"]["facts"] == [CORPUS[0].page_content]
        assert public["epsilon"] == CORPUS.record["epsilon"]


def test_facts_are_told_again_from_a_global_cache() -> None:
    set_llm_cache(InMemoryCache())
    try:
        answers = [facts().invoke(TOLD) for _ in range(2)]
    finally:
        set_llm_cache(None)
    assert [answer.content for answer in answers] == ["Salbutamol."] * 2


@pytest.mark.parametrize("silence", ["I don't know.", "The facts do not say."])
async def test_only_what_the_facts_do_not_tell_is_charged(silence: str) -> None:
    budget = rich()
    first = facts(model=model(silence)) | chain()
    config: Any = {"callbacks": [budget]}
    assert first.invoke(TOLD, config).content == "Salbutamol."
    assert (await first.ainvoke(TOLD, config)).content == "Salbutamol."
    assert not budget.spent().queries
    paid = first.invoke({"input": UNTOLD}, config)
    assert (paid.content, record(paid)["status"]) == ("cough", "released")
    assert (await first.ainvoke(UNTOLD, config)).content == "cough"
    assert budget.spent().queries == 2


def test_a_paid_chain_may_have_its_account_bound() -> None:
    budget = rich()
    first = facts() | chain().with_config(callbacks=[budget]).with_config(tags=["a"])
    assert first.invoke(TOLD).content == "Salbutamol."
    assert not budget.spent().queries
    assert first.invoke(UNTOLD).content == "cough"
    assert budget.spent().queries == 1


def test_behind_something_else_it_asks_for_parentheses() -> None:
    budget = rich()
    ahead: Any = RunnableLambda(str)
    with pytest.raises(InvalidParameterError, match=r"first \| \(facts \| chain\)"):
        (ahead | facts() | chain(budget)).invoke(TOLD)
    assert (ahead | (facts() | chain(budget))).invoke(TOLD).content == "Salbutamol."
    assert not budget.spent().queries


async def test_a_stream_gives_either_answer() -> None:
    first, budget = facts() | chain(), rich()
    config: Any = {"callbacks": [budget]}
    for question, said in ((TOLD, "Salbutamol."), (UNTOLD, "cough")):
        pieces = list(first.stream(question, config))
        assert "".join(str(piece.content) for piece in pieces) == said
        assert "privacy" in pieces[-1].response_metadata
        texts = [str(one.content) async for one in first.astream(question, config)]
        assert "".join(texts) == said
    assert budget.spent().queries == 2


def test_it_pipes_into_anything_else_as_runnables_do() -> None:
    assert (facts() | StrOutputParser()).invoke(TOLD) == "Salbutamol."
    whole = (facts() | chain(rich())) | StrOutputParser()
    assert whole.batch([TOLD, UNTOLD]) == ["Salbutamol.", "cough"]


async def test_facts_are_about_everybody() -> None:
    asked = {"question": TOLD, "filter": {"ward": "3"}}
    for first in (facts(), facts() | chain()):
        with pytest.raises(InvalidParameterError, match="about everybody"):
            first.invoke(asked)
        with pytest.raises(InvalidParameterError, match="about everybody"):
            await first.ainvoke(asked)


def test_the_model_sees_facts_and_no_record() -> None:
    asked = model()
    facts(model=asked).invoke(TOLD)
    (text,) = asked.asked
    assert CORPUS[0].page_content in text
    assert CORPUS[1].page_content not in text


def test_thinking_is_no_answer() -> None:
    thinks = AsyncScriptedModel(reply=lambda _: "<think>Hm.</think>Salbutamol.")
    assert facts(model=thinks).invoke(TOLD).content == "Salbutamol."


def test_a_run_is_traced_as_one_chain() -> None:
    class Starts(BaseCallbackHandler):
        names: list[Any] = []  # noqa: RUF012

        def on_chain_start(self, *args: Any, **kwargs: Any) -> None:
            self.names.append(kwargs.get("name"))

    facts().invoke(TOLD, {"callbacks": [Starts()]})
    assert Starts.names[0] == "FactsChain"


def test_bad_parts_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="must be a ReleasedCorpus"):
        facts(corpus=[Document("a")])
    with pytest.raises(InvalidParameterError, match="k"):
        facts(k=0)
    with pytest.raises(InvalidParameterError, match="model must be"):
        facts(model="gpt-4o")
    for prompt in ("{context} {question}", ChatPromptTemplate.from_template("{x}")):
        with pytest.raises(InvalidParameterError, match="prompt must be"):
            facts(prompt=prompt)
    with pytest.raises(InvalidParameterError, match="empty"):
        facts().invoke(" ")
