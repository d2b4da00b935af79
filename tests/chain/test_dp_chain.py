"""The chain end to end: what it answers, what it charges, what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fakes import AsyncScriptedModel, ScriptedModel, notes
from langchain_core._api import LangChainDeprecationWarning
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from langchain_dpicl import (
    BudgetExhaustedError,
    DPChain,
    ESAOutputParser,
    GroupCallError,
    InvalidParameterError,
    KSAJointOutputParser,
    KSAPTROutputParser,
    NoBudgetError,
    PrivacyBudgetHandler,
    PublicCallError,
    RetrievedGroups,
    SampledGroups,
    UnsealableModelError,
    VoteOutputParser,
)
from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel
from langchain_dpicl.parsers import DPOutputParser

QUESTION = "What did lisinopril give?"
EMBEDDING = HashingEmbeddings()

PARSERS: dict[str, Callable[[], DPOutputParser]] = {
    "vote": lambda: VoteOutputParser(labels=["cough", "rash"]),
    "esa": lambda: ESAOutputParser(
        embedding=EMBEDDING, candidates=["A dry cough.", "A skin rash."]
    ),
    "ptr": lambda: KSAPTROutputParser(k=1),
    "joint": lambda: KSAJointOutputParser(k=1, domain=["cough", "rash", "nausea"]),
}


def reply(text: str) -> str:
    if "word suggestions" in text:
        return "They coughed: " + text.split(": ")[1].split("\n", maxsplit=1)[0]
    return "cough" if "Lisinopril" in text else "I don't know."


def rich(queries: int = 5) -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(
        epsilon=30, delta=1e-6, queries=queries, ledger=":memory:"
    )


@pytest.fixture(params=sorted(PARSERS))
def parser(request: pytest.FixtureRequest) -> DPOutputParser:
    return PARSERS[request.param]()


@pytest.fixture(params=[ScriptedModel, AsyncScriptedModel], ids=["sync", "async"])
def model(request: pytest.FixtureRequest) -> ScriptedModel:
    built = request.param(reply=reply)
    assert isinstance(built, ScriptedModel)
    return built


def record(message: Any) -> dict[str, Any]:
    found = message.response_metadata["privacy"]
    assert isinstance(found, dict)
    return found


async def every_way(chain: DPChain, budget: PrivacyBudgetHandler) -> list[Any]:
    """Ask once by each of LangChain's six ways."""
    config: Any = {"callbacks": [budget]}
    streamed = AIMessageChunk(content="")
    for chunk in chain.stream(QUESTION, config):
        streamed += chunk  # type: ignore[assignment]
    astreamed = AIMessageChunk(content="")
    async for chunk in chain.astream(QUESTION, config):
        astreamed += chunk  # type: ignore[assignment]
    return [
        chain.invoke(QUESTION, config),
        await chain.ainvoke({"question": QUESTION}, config),
        *chain.batch([QUESTION], config),
        *(await chain.abatch([{"question": QUESTION}], config)),
        streamed,
        astreamed,
    ]


async def test_every_way_answers_charges_and_reports(
    groups: RetrievedGroups, model: ScriptedModel, parser: DPOutputParser
) -> None:
    budget = rich(queries=6)
    chain = DPChain(groups=groups, model=model, parser=parser)
    answers = await every_way(chain, budget)
    assert [type(answer).__name__ for answer in answers[:4]] == ["AIMessage"] * 4
    for answer in answers:
        assert "cough" in str(answer.content)
        public = record(answer)
        assert public["status"] == "released"
        assert public["unit_key"] == "patient"
        assert public["relation"] == "replace"
        assert public["account"]["queries"] == 6
        assert public["events"]
    assert sorted(record(answer)["charge"] for answer in answers) == [1, 2, 3, 4, 5, 6]
    spent = sorted(record(answer)["account"]["epsilon_spent"] for answer in answers)
    assert spent[-1] <= 30
    assert len(set(spent)) == 6
    with pytest.raises(BudgetExhaustedError):
        chain.invoke(QUESTION, {"callbacks": [budget]})


@pytest.mark.parametrize(
    "ask",
    [
        lambda chain: chain.invoke(QUESTION),
        lambda chain: asyncio.run(chain.ainvoke(QUESTION)),
        lambda chain: list(chain.stream(QUESTION)),
        lambda chain: chain.batch([QUESTION]),
    ],
)
def test_without_a_budget_nobody_is_asked(
    groups: RetrievedGroups, ask: Callable[[DPChain], object]
) -> None:
    model = ScriptedModel(reply=reply)
    chain = DPChain(groups=groups, model=model, parser=PARSERS["ptr"]())
    with pytest.raises(NoBudgetError, match="callbacks"):
        ask(chain)
    assert model.asked == []


def test_a_spent_budget_asks_no_group(groups: RetrievedGroups) -> None:
    model = ScriptedModel(reply=reply)
    chain = DPChain(
        groups=groups, model=model, parser=PARSERS["vote"](), budget=rich(1)
    )
    chain.invoke(QUESTION)
    model.asked.clear()
    with pytest.raises(BudgetExhaustedError):
        chain.invoke(QUESTION)
    assert model.asked == []


def test_the_charge_stands_before_any_group_is_asked(groups: RetrievedGroups) -> None:
    budget = rich()
    seen: list[int] = []

    def spy(text: str) -> str:
        if "Lisinopril" in text:
            seen.append(budget.spent().queries)
        return reply(text)

    chain = DPChain(
        groups=groups,
        model=ScriptedModel(reply=spy),
        parser=PARSERS["ptr"](),
        budget=budget,
    )
    chain.invoke(QUESTION)
    assert seen
    assert set(seen) == {1}


def test_the_budget_reaches_the_chain_by_every_route(groups: RetrievedGroups) -> None:
    chain = DPChain(
        groups=groups, model=ScriptedModel(reply=reply), parser=PARSERS["vote"]()
    )
    field = rich()
    DPChain(
        groups=groups,
        model=ScriptedModel(reply=reply),
        parser=PARSERS["vote"](),
        budget=field,
    ).invoke(QUESTION)
    bound = rich()
    chain.with_config(callbacks=[bound]).invoke(QUESTION)
    nested = rich()
    (RunnablePassthrough() | chain | StrOutputParser()).invoke(
        QUESTION, {"callbacks": [nested]}
    )
    assert [b.spent().queries for b in (field, bound, nested)] == [1, 1, 1]


def test_it_stands_in_a_chain_on_both_sides(groups: RetrievedGroups) -> None:
    chain = (
        {"question": RunnablePassthrough()}
        | DPChain(
            groups=groups,
            model=ScriptedModel(reply=reply),
            parser=PARSERS["ptr"](),
            budget=rich(),
        )
        | StrOutputParser()
        | RunnableLambda(str.upper)
    )
    assert chain.invoke(QUESTION) == "THEY COUGHED: COUGH"
    assert "".join(chain.stream(QUESTION)) == "THEY COUGHED: COUGH"


def test_the_number_of_calls_does_not_depend_on_the_corpus(
    groups: RetrievedGroups,
) -> None:
    few = RetrievedGroups.from_documents(
        notes(65), EMBEDDING, unit_key="patient", n_groups=60
    )
    asked = []
    for source in (groups, few):
        model = ScriptedModel(reply=reply)
        chain = DPChain(groups=source, model=model, parser=PARSERS["vote"]())
        chain.invoke(QUESTION, {"callbacks": [rich()]})
        asked.append(len(model.asked))
    assert asked == [60, 60]
    unpadded = ScriptedModel(reply=reply)
    DPChain(
        groups=few, model=unpadded, parser=PARSERS["vote"](), pad_calls=False
    ).invoke(QUESTION, {"callbacks": [rich()]})
    assert len(unpadded.asked) < 60


def test_the_answer_to_an_empty_group_is_dropped() -> None:
    one = RetrievedGroups.from_documents(
        notes(60), EMBEDDING, unit_key="patient", n_groups=60
    )
    chain = DPChain(
        groups=one,
        model=ScriptedModel(
            reply=lambda text: "rash" if "Lis" not in text else "cough"
        ),
        parser=VoteOutputParser(labels=["cough", "rash"]),
    )
    public = record(chain.invoke(QUESTION, {"callbacks": [rich()]}))
    assert public["details"]["noisy_votes"]["rash"] < 10


async def test_one_bad_group_changes_nothing_for_the_others(
    groups: RetrievedGroups,
) -> None:
    def fragile(text: str) -> str:
        if "Note 7." in text:
            raise RuntimeError("canary-7f3a " + text)
        return reply(text)

    for model_class in (ScriptedModel, AsyncScriptedModel):
        chain = DPChain(
            groups=groups, model=model_class(reply=fragile), parser=PARSERS["ptr"]()
        )
        budget = rich(2)
        for answer in (
            chain.invoke(QUESTION, {"callbacks": [budget]}),
            await chain.ainvoke(QUESTION, {"callbacks": [budget]}),
        ):
            assert record(answer)["status"] == "released"
            assert "canary" not in repr(answer)


@pytest.mark.parametrize("bad", ["", "   ", "\n"])
def test_groups_that_say_nothing_abstain(groups: RetrievedGroups, bad: str) -> None:
    chain = DPChain(
        groups=groups,
        model=ScriptedModel(reply=lambda text: bad if "Lisinopril" in text else "No."),
        parser=PARSERS["ptr"](),
        budget=rich(),
    )
    answer = chain.invoke(QUESTION)
    assert record(answer)["status"] == "fallback"
    assert answer.content == "No."


def test_a_model_that_always_fails_is_told_before_anything_is_charged(
    groups: RetrievedGroups,
) -> None:
    def broken(text: str) -> str:
        raise RuntimeError("canary-7f3a")

    budget = rich()
    chain = DPChain(
        groups=groups, model=ScriptedModel(reply=broken), parser=PARSERS["ptr"]()
    )
    with pytest.raises(PublicCallError, match="RuntimeError") as caught:
        chain.invoke(QUESTION, {"callbacks": [budget]})
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert budget.spent().queries == 0


@pytest.mark.parametrize("on_failure", ["fallback", "abstain"])
async def test_a_vote_whose_calls_all_fail_abstains(
    groups: RetrievedGroups, on_failure: Any
) -> None:
    def broken(text: str) -> str:
        raise RuntimeError("canary-7f3a")

    chain = DPChain(
        groups=groups,
        model=ScriptedModel(reply=broken),
        parser=VoteOutputParser(labels=["a", "b"]),
        on_failure=on_failure,
        budget=rich(),
    )
    for answer in (chain.invoke(QUESTION), await chain.ainvoke(QUESTION)):
        assert record(answer)["status"] == "abstained"
        assert answer.content == chain.abstain_text
        assert "canary" not in repr(answer)
    assert chain.budget is not None
    assert chain.budget.spent().queries == 2


def test_released_words_survive_a_failing_rewrite(groups: RetrievedGroups) -> None:
    def no_rewrite(text: str) -> str:
        if "word suggestions" in text:
            raise RuntimeError("down")
        return reply(text)

    chain = DPChain(
        groups=groups,
        model=ScriptedModel(reply=no_rewrite),
        parser=PARSERS["ptr"](),
        budget=rich(),
    )
    assert chain.invoke(QUESTION).content == "cough"
    assert "".join(str(c.content) for c in chain.stream(QUESTION)) == "cough"


def test_a_question_about_one_person_is_not_answered() -> None:
    documents = [
        *notes(400),
        Document("Ada Byron's locker code is 4711.", metadata={"patient": "ada"}),
    ]
    groups = RetrievedGroups.from_documents(
        documents, EMBEDDING, unit_key="patient", n_groups=60
    )
    chain = DPChain(groups=groups, model=OfflineChatModel(), parser=PARSERS["ptr"]())
    budget = PrivacyBudgetHandler(epsilon=8, delta=1e-6, queries=20, ledger=":memory:")
    answer = chain.invoke("What is Ada Byron's locker code?", {"callbacks": [budget]})
    assert "4711" not in repr(answer)
    assert record(answer)["status"] == "fallback"
    assert answer.content == "I don't know."


def test_a_failing_item_of_a_batch_does_not_stop_the_others(
    groups: RetrievedGroups,
) -> None:
    chain = DPChain(
        groups=groups,
        model=ScriptedModel(reply=reply),
        parser=PARSERS["vote"](),
        budget=rich(2),
    )
    found = chain.batch([QUESTION] * 4, return_exceptions=True)
    kinds = sorted(type(item).__name__ for item in found)
    assert kinds == ["AIMessage"] * 2 + ["BudgetExhaustedError"] * 2


def test_exemplars_classify_with_sampled_groups() -> None:
    documents = [
        Document(
            ["What a wonderful film", "What a dreadful film"][i % 2],
            metadata={"id": i, "label": ["positive", "negative"][i % 2]},
        )
        for i in range(400)
    ]
    groups = SampledGroups.from_documents(
        documents, unit_key="id", n_groups=10, sampling_rate=0.1
    )
    chain = DPChain(
        groups=groups,
        model=OfflineChatModel(),
        parser=VoteOutputParser(labels=["positive", "negative"]),
        prompt=PromptTemplate.from_template("{context}\n\nText: {question}\nLabel:"),
        document_prompt=PromptTemplate.from_template(
            "Text: {page_content}\nLabel: {label}"
        ),
        document_separator="\n\n",
        budget=PrivacyBudgetHandler(
            epsilon=8, delta=1e-4, queries=5, ledger=":memory:"
        ),
    )
    answer = chain.invoke("A wonderful evening")
    assert answer.content == "positive"
    (event,) = record(answer)["events"]
    assert event["sampling_rate"] == 0.1
    assert record(answer)["relation"] == groups.relation.value


def test_other_variables_of_the_prompt_come_from_the_input(
    groups: RetrievedGroups,
) -> None:
    model = ScriptedModel(reply=lambda _text: "cough")
    chain = DPChain(
        groups=groups,
        model=model,
        parser=PARSERS["vote"](),
        prompt=ChatPromptTemplate.from_template("{tone}: {context} {question}"),
        budget=rich(),
    )
    chain.invoke({"question": QUESTION, "tone": "Kindly", "unused": 1})
    assert all(text.startswith("Kindly: ") for text in model.asked)
    with pytest.raises(InvalidParameterError, match="tone"):
        chain.invoke(QUESTION)
    assert chain.budget is not None
    assert chain.budget.spent().queries == 1


@pytest.mark.parametrize(
    "question", ["", "  ", None, 3, {}, {"question": ""}, {"q": "x"}, ["x"]]
)
def test_a_missing_question_is_refused_uncharged(
    groups: RetrievedGroups, question: Any
) -> None:
    budget = rich()
    chain = DPChain(
        groups=groups, model=ScriptedModel(), parser=PARSERS["vote"](), budget=budget
    )
    with pytest.raises(InvalidParameterError, match="question"):
        chain.invoke(question)
    assert budget.spent().queries == 0


@pytest.mark.parametrize("name", ["context", "keywords"])
def test_the_chains_own_variables_cannot_be_smuggled_in(
    groups: RetrievedGroups, name: str
) -> None:
    chain = DPChain(
        groups=groups, model=ScriptedModel(), parser=PARSERS["vote"](), budget=rich()
    )
    with pytest.raises(InvalidParameterError, match=name):
        chain.invoke({"question": QUESTION, name: "mine"})


def test_a_rewriting_prompt_that_cannot_be_filled_is_found_before_the_charge(
    groups: RetrievedGroups,
) -> None:
    budget = rich()
    prompt = PromptTemplate.from_template("{tone} {keywords} {question}")
    chain = DPChain(
        groups=groups,
        model=ScriptedModel(reply=reply),
        parser=KSAPTROutputParser(k=1, prompt=prompt),
        budget=budget,
    )
    with pytest.raises(InvalidParameterError, match="tone"):
        chain.invoke(QUESTION)
    assert budget.spent().queries == 0


@pytest.mark.parametrize("vector", [[float("nan")] * 384, [0.0] * 384, [1.0] * 3])
def test_a_bad_question_embedding_is_refused_uncharged(vector: list[float]) -> None:
    class Bad(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return EMBEDDING.embed_documents(texts)

        def embed_query(self, text: str) -> list[float]:
            return vector

    budget = rich()
    groups = RetrievedGroups.from_documents(
        notes(80), Bad(), unit_key="patient", n_groups=60
    )
    chain = DPChain(
        groups=groups, model=ScriptedModel(), parser=PARSERS["vote"](), budget=budget
    )
    with pytest.raises(InvalidParameterError):
        chain.invoke(QUESTION)
    assert budget.spent().queries == 0


def test_delta_too_large_for_the_corpus_is_refused_with_the_number(
    groups: RetrievedGroups,
) -> None:
    budget = PrivacyBudgetHandler(epsilon=8, delta=0.01, queries=5, ledger=":memory:")
    model = ScriptedModel(reply=reply)
    chain = DPChain(groups=groups, model=model, parser=PARSERS["vote"](), budget=budget)
    with pytest.raises(InvalidParameterError, match="300 units"):
        chain.invoke(QUESTION)
    assert model.asked == []


def test_a_sealed_region_that_fails_is_charged_and_says_nothing(
    groups: RetrievedGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: Any) -> None:
        raise RuntimeError("canary-7f3a")

    budget = rich()
    chain = DPChain(
        groups=groups, model=ScriptedModel(), parser=PARSERS["vote"](), budget=budget
    )
    monkeypatch.setattr(RetrievedGroups, "draw_prepared", broken)
    with pytest.raises(GroupCallError) as caught:
        chain.invoke(QUESTION)
    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None
    assert budget.spent().queries == 1


def test_a_record_that_cannot_be_written_into_the_prompt_silences_its_group_only() -> (
    None
):
    documents = notes(300)
    for document in documents[1:]:
        document.metadata["visit"] = "May"
    groups = RetrievedGroups.from_documents(
        documents, EMBEDDING, unit_key="patient", n_groups=60
    )
    chain = DPChain(
        groups=groups,
        model=ScriptedModel(reply=reply),
        parser=PARSERS["ptr"](),
        document_prompt=PromptTemplate.from_template("{visit}: {page_content}"),
        budget=rich(),
    )
    assert record(chain.invoke(QUESTION))["status"] == "released"


def test_candidates_that_are_all_the_same_cost_nothing(
    groups: RetrievedGroups,
) -> None:
    budget = rich()
    chain = DPChain(
        groups=groups,
        model=ScriptedModel(reply=lambda _text: "I don't know."),
        parser=ESAOutputParser(embedding=EMBEDDING),
        budget=budget,
    )
    answer = chain.invoke(QUESTION)
    assert answer.content == "I don't know."
    assert record(answer)["status"] == "fallback"
    assert record(answer)["events"] == []
    assert record(answer)["charge"] is None
    assert budget.spent().queries == 0


def test_esa_asks_the_model_for_its_candidates(groups: RetrievedGroups) -> None:
    drafts = iter(["A dry cough.", "A skin rash.", "Nausea."] * 3)

    def vary(text: str) -> str:
        return "A dry cough." if "Lisinopril" in text else next(drafts)

    model = ScriptedModel(reply=vary)
    chain = DPChain(
        groups=groups,
        model=model,
        parser=ESAOutputParser(embedding=EMBEDDING, n_candidates=6),
        budget=rich(),
    )
    assert chain.invoke(QUESTION).content == "A dry cough."
    # A group without records is asked as well; the public question has no records.
    assert len([text for text in model.asked if "Records:" not in text]) == 6


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"model": "openai:gpt"}, UnsealableModelError),
        ({"groups": ["record canary-7f3a"]}, InvalidParameterError),
        ({"parser": StrOutputParser()}, InvalidParameterError),
        ({"on_failure": "canary-7f3a"}, InvalidParameterError),
        ({"max_group_concurrency": 0}, InvalidParameterError),
        ({"epsilon": 3}, InvalidParameterError),
        (
            {"prompt": PromptTemplate.from_template("{question}")},
            InvalidParameterError,
        ),
        (
            {"document_prompt": PromptTemplate.from_template("{vist}")},
            InvalidParameterError,
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    groups: RetrievedGroups, changes: dict[str, Any], error: type[Exception]
) -> None:
    parts = {"groups": groups, "model": ScriptedModel(), "parser": PARSERS["vote"]()}
    with pytest.raises(error) as caught:
        DPChain(**{**parts, **changes})
    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_range_of_k_is_refused_with_sampled_groups() -> None:
    groups = SampledGroups.from_documents(
        notes(100), unit_key="patient", n_groups=10, sampling_rate=0.1
    )
    with pytest.raises(InvalidParameterError, match="single k"):
        DPChain(
            groups=groups, model=ScriptedModel(), parser=KSAPTROutputParser(k=(1, 3))
        )


class Watching(BaseCallbackHandler):
    """Records everything that any callback is told."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def _note(self, *args: Any, **kwargs: Any) -> None:
        self.seen.append(repr((args, kwargs)))

    on_chain_start = on_chain_end = on_chain_error = _note
    on_llm_start = on_llm_end = on_llm_error = on_llm_new_token = _note
    on_chat_model_start = on_retriever_start = on_retriever_end = _note


async def test_canaries_reach_no_callback_event_or_record(
    parser: DPOutputParser, caplog: pytest.LogCaptureFixture
) -> None:
    documents = [
        Document(
            f"Lisinopril gave a cough, canary-{i:04d}x.",
            metadata={"patient": f"canary-unit-{i}"},
        )
        for i in range(300)
    ]
    groups = RetrievedGroups.from_documents(
        documents, EMBEDDING, unit_key="patient", n_groups=60
    )
    bound, outer = Watching(), Watching()
    model = AsyncScriptedModel(
        reply=lambda text: reply(text) + (text[-300:] if "Lisinop" in text else ""),
        callbacks=[bound],
        verbose=True,
    )
    parser.__init__(  # type: ignore[misc]
        **{**parser.__dict__, "random": None, "budget": None}
    )
    chain = DPChain(groups=groups, model=model, parser=parser)
    budget = rich(queries=20)
    config: Any = {"callbacks": [budget, outer]}
    caplog.set_level(0)
    answers = await every_way(chain, budget)
    chain.invoke(QUESTION, config)
    await chain.ainvoke(QUESTION, config)
    events = [e async for e in chain.astream_events(QUESTION, config, version="v2")]
    with pytest.warns(LangChainDeprecationWarning, match="astream_log"):
        logs = [patch async for patch in chain.astream_log(QUESTION, config)]
    private = [text for text in model.asked if "canary-" in text]
    assert len(private) >= 60 * 8  # The canaries were there to be seen.
    for surface in (answers, events, logs, outer.seen, bound.seen, chain, caplog.text):
        assert "canary" not in repr(surface)
    assert outer.seen


def test_the_answer_is_a_message_with_no_usage_of_group_calls(
    groups: RetrievedGroups,
) -> None:
    chain = DPChain(
        groups=groups, model=OfflineChatModel(), parser=PARSERS["vote"](), budget=rich()
    )
    answer = chain.invoke(QUESTION)
    assert isinstance(answer, AIMessage)
    assert answer.usage_metadata is None
    assert set(answer.response_metadata) == {"privacy"}


def test_nothing_about_privacy_is_configurable_and_nothing_is_pickled(
    groups: RetrievedGroups,
) -> None:
    chain = DPChain(groups=groups, model=ScriptedModel(), parser=PARSERS["vote"]())
    assert chain.config_specs == []
    assert "unit-1" not in repr(chain)
    with pytest.raises(TypeError, match="private records"):
        __import__("pickle").dumps(chain)


def test_schemas_can_be_built(groups: RetrievedGroups) -> None:
    chain = DPChain(groups=groups, model=ScriptedModel(), parser=PARSERS["vote"]())
    assert chain.get_input_jsonschema()["title"]
    assert chain.get_output_jsonschema()["title"]
    assert chain.get_graph().nodes


def test_an_embedding_server_that_is_down_costs_nothing() -> None:
    class Down(Embeddings):
        up = True

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return EMBEDDING.embed_documents(texts)

        def embed_query(self, text: str) -> list[float]:
            raise ConnectionError("refused")

    budget = rich()
    groups = RetrievedGroups.from_documents(
        notes(80), Down(), unit_key="patient", n_groups=60
    )
    chain = DPChain(
        groups=groups, model=ScriptedModel(), parser=PARSERS["vote"](), budget=budget
    )
    with pytest.raises(ConnectionError):
        chain.invoke(QUESTION)
    assert budget.spent().queries == 0
