"""The chain end to end: what it answers, what it charges, what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from support.chain_parts import (
    EMBEDDING,
    PARSERS,
    QUESTION,
    every_way,
    record,
    reply,
    rich,
)
from support.fakes import AsyncScriptedModel, ScriptedModel, notes

from langchain_dpicl import (
    BudgetExhaustedError,
    DPChain,
    ESAOutputParser,
    InvalidParameterError,
    PrivacyBudgetHandler,
    Relation,
    RetrievedGroups,
    SampledGroups,
    VoteOutputParser,
)
from langchain_dpicl.mechanisms import voting
from langchain_dpicl.offline import OfflineChatModel
from langchain_dpicl.parsers import DPOutputParser


@pytest.fixture(params=sorted(PARSERS))
def parser(request: pytest.FixtureRequest) -> DPOutputParser:
    return PARSERS[request.param]()


@pytest.fixture(params=[ScriptedModel, AsyncScriptedModel], ids=["sync", "async"])
def model(request: pytest.FixtureRequest) -> ScriptedModel:
    built = request.param(reply=reply)
    assert isinstance(built, ScriptedModel)
    return built


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


@pytest.mark.parametrize("name", sorted(PARSERS))
async def test_the_question_may_come_as_the_input_of_langchains_chains(
    groups: RetrievedGroups, name: str
) -> None:
    model = ScriptedModel(reply=reply)
    chain = DPChain(groups=groups, model=model, parser=PARSERS[name](), budget=rich())
    given = {"input": QUESTION, "chat_history": []}
    for answer in (chain.invoke(given), await chain.ainvoke(given)):
        assert "cough" in answer.content
    assert QUESTION in model.asked[0]


def test_a_question_beside_an_input_is_the_question(groups: RetrievedGroups) -> None:
    prompt = PromptTemplate.from_template("{context} {question} About: {input}")
    model = ScriptedModel(reply=reply)
    chain = DPChain(
        groups=groups,
        model=model,
        parser=PARSERS["vote"](),
        prompt=prompt,
        budget=rich(),
    )
    chain.invoke({"question": QUESTION, "input": "drugs"})
    assert model.asked[0].endswith(f"{QUESTION} About: drugs")
    with pytest.raises(InvalidParameterError, match="input"):
        chain.invoke({"input": QUESTION})
    for empty in ({"input": ""}, {"input": [QUESTION]}, {"question": "", "input": "a"}):
        with pytest.raises(InvalidParameterError, match="question"):
            chain.invoke(empty)


def test_an_input_finds_the_cached_answer_to_the_same_question(
    groups: RetrievedGroups,
) -> None:
    chain = DPChain(
        groups=groups,
        model=ScriptedModel(reply=reply),
        parser=PARSERS["vote"](),
        budget=rich(),
        cache=True,
    )
    chain.invoke(QUESTION)
    assert record(chain.invoke({"input": QUESTION}))["status"] == "cached"


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
    # A chain's first question is asked alone, too.
    assert asked == [61, 61]
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
    assert record(answer)["status"] == "abstained"
    assert answer.content == "No answer: the test for agreement was not passed."


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
    expected = "No answer: there is only one candidate to choose from."
    assert answer.content == expected
    assert record(answer)["status"] == "abstained"
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
    ("terms", "relation"),
    [({}, Relation.REPLACE), ({"score_threshold": 0.1}, Relation.REPLACE)],
    ids=["all", "threshold"],
)
async def test_the_mechanism_is_told_the_sources_relation_and_what_was_charged(
    terms: dict[str, Any], relation: Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another relation the noise would be for another sensitivity."""
    source = RetrievedGroups.from_documents(
        notes(120), EMBEDDING, unit_key="patient", n_groups=60, **terms
    )
    given: list[Any] = []
    original = voting.noisy_counts

    def spy(counts: Any, *terms: Any) -> Any:
        given.append(terms)
        return original(counts, *terms)

    monkeypatch.setattr(voting, "noisy_counts", spy)
    chain = DPChain(
        groups=source,
        model=ScriptedModel(reply=reply),
        parser=PARSERS["vote"](),
        budget=rich(),
    )
    for answer in (chain.invoke(QUESTION), await chain.ainvoke(QUESTION)):
        paid, relation_of_noise = given.pop()
        assert relation_of_noise is relation
        (event,) = record(answer)["events"]
        assert paid.noise_multiplier == event["noise_multiplier"]
        assert record(answer)["relation"] == relation.value
