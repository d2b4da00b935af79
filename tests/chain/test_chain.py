"""The chain end to end: what it answers, what it charges, what it is made of."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from suite import pairs
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
    RetrievedGroups,
    SampledGroups,
    VoteOutputParser,
)
from langchain_dpicl.budget import charges
from langchain_dpicl.offline import OfflineChatModel


def made(groups: Any, name: str = "vote", **parts: Any) -> DPChain:
    given = {"model": ScriptedModel(reply=reply), "parser": PARSERS[name]()}
    return DPChain(groups=groups, **{**given, "budget": rich(), **parts})


@pytest.mark.parametrize(
    ("name", "kind"), pairs(sorted(PARSERS), [ScriptedModel, AsyncScriptedModel])
)
async def test_every_way_answers_charges_and_reports(
    groups: RetrievedGroups, kind: Any, name: str
) -> None:
    budget = rich(queries=6)
    chain = made(groups, name, model=kind(reply=reply), budget=None)
    answers = await every_way(chain, budget)
    assert [type(answer).__name__ for answer in answers[:4]] == ["AIMessage"] * 4
    for answer in answers:
        assert "cough" in str(answer.content)
        public = record(answer)
        assert public["status"] == "released"
        assert (public["unit_key"], public["relation"]) == ("patient", "replace")
        assert public["events"]
    assert sorted(record(answer)["charge"] for answer in answers) == [1, 2, 3, 4, 5, 6]
    spent = {record(answer)["account"]["epsilon_spent"] for answer in answers}
    assert max(spent) <= 30
    assert len(spent) == 6
    with pytest.raises(BudgetExhaustedError):
        chain.invoke("What else?", {"callbacks": [budget]})


def test_the_budget_reaches_the_chain_by_every_route(groups: RetrievedGroups) -> None:
    field, bound, nested = rich(), rich(), rich()
    made(groups, budget=field).invoke(QUESTION)
    chain = made(groups, budget=None)
    chain.with_config(callbacks=[bound]).invoke(QUESTION)
    piped = RunnablePassthrough() | chain | StrOutputParser()
    piped.invoke(QUESTION, {"callbacks": [nested]})
    assert [b.spent().queries for b in (field, bound, nested)] == [1, 1, 1]


def test_it_stands_in_a_chain_on_both_sides(groups: RetrievedGroups) -> None:
    chain: Any = (
        {"question": RunnablePassthrough()}
        | made(groups, "ptr")
        | StrOutputParser()
        | RunnableLambda(str.upper)
    )
    assert chain.invoke(QUESTION) == "THEY COUGHED: COUGH"
    assert "".join(chain.stream(f"{QUESTION}?")) == "THEY COUGHED: COUGH"


def test_a_question_beside_an_input_is_the_question(groups: RetrievedGroups) -> None:
    prompt = PromptTemplate.from_template("{context} {question} About: {input}")
    chain = made(groups, prompt=prompt)
    chain.invoke({"question": QUESTION, "input": "drugs"})
    model: Any = chain.model
    assert model.asked[0].endswith(f"{QUESTION} About: drugs")
    for wrong in ({"input": [QUESTION]}, {"question": "", "input": "a"}):
        with pytest.raises(InvalidParameterError):
            chain.invoke(wrong)


def test_other_variables_of_the_prompt_come_from_the_input(
    groups: RetrievedGroups,
) -> None:
    prompt = ChatPromptTemplate.from_template("{tone}: {context} {question}")
    chain = made(groups, model=ScriptedModel(reply=lambda _: "cough"), prompt=prompt)
    chain.invoke({"question": QUESTION, "tone": "Kindly", "unused": 1})
    model: Any = chain.model
    assert all(text.startswith("Kindly: ") for text in model.asked)
    with pytest.raises(InvalidParameterError, match="tone"):
        chain.invoke(QUESTION)
    assert chain.budget is not None
    assert chain.budget.spent().queries == 1


@pytest.mark.parametrize("odd", [print, AIMessage("Hi.")])
def test_a_question_that_cannot_be_compared_is_charged_each_time(
    groups: RetrievedGroups, odd: Any
) -> None:
    budget = rich()
    chain = made(groups, budget=budget)
    for _ in range(2):
        answer = chain.invoke({"question": QUESTION, "odd": odd})
        assert record(answer)["status"] == "released"
    assert budget.spent().queries == 2


def test_the_answer_to_an_empty_group_is_dropped() -> None:
    few = RetrievedGroups.from_documents(
        notes(60), EMBEDDING, unit_key="patient", n_groups=60
    )
    model = ScriptedModel(reply=lambda text: "rash" if "Lis" not in text else "cough")
    chain = made(few, model=model)
    public = record(chain.invoke(QUESTION))
    assert public["details"]["noisy_votes"]["rash"] < 10
    # The public number of groups, and the first question of all alone.
    assert len(model.asked) == public["calls"] == 61


def test_a_question_about_one_person_is_not_answered() -> None:
    secret = Document("Ada Byron's locker code is 4711.", metadata={"patient": "ada"})
    groups = RetrievedGroups.from_documents(
        [*notes(400), secret], EMBEDDING, unit_key="patient", n_groups=60
    )
    budget = PrivacyBudgetHandler(epsilon=8, delta=1e-6, queries=20, ledger=":memory:")
    chain = made(groups, "ptr", model=OfflineChatModel(), budget=budget)
    answer = chain.invoke("What is Ada Byron's locker code?")
    assert "4711" not in repr(answer)
    assert record(answer)["status"] == "abstained"
    assert answer.content == "No answer: the test for agreement was not passed."


def test_exemplars_classify_with_sampled_groups() -> None:
    kinds = ("positive", "negative")
    documents = [
        Document(
            ["What a wonderful film", "What a dreadful film"][i % 2],
            metadata={"id": i, "label": kinds[i % 2]},
        )
        for i in range(400)
    ]
    groups = SampledGroups.from_documents(
        documents, unit_key="id", n_groups=10, sampling_rate=0.1
    )
    chain = made(
        groups,
        model=OfflineChatModel(),
        parser=VoteOutputParser(labels=list(kinds)),
        prompt=PromptTemplate.from_template("{context}\n\nText: {question}\nLabel:"),
        document_prompt=PromptTemplate.from_template(
            "Text: {page_content}\nLabel: {label}"
        ),
        budget=PrivacyBudgetHandler(
            epsilon=1e4, delta=1e-4, queries=5, ledger=":memory:"
        ),
    )
    answer = chain.invoke("A wonderful evening")
    assert answer.content == "positive"
    (event,) = record(answer)["events"]
    assert event["sampling_rate"] == 0.1


def test_candidates_that_are_all_the_same_cost_nothing(
    groups: RetrievedGroups,
) -> None:
    model = ScriptedModel(reply=lambda _text: "I don't know.")
    chain = made(groups, model=model, parser=ESAOutputParser(embedding=EMBEDDING))
    answer = chain.invoke(QUESTION)
    assert answer.content == "No answer: there is only one option to choose from."
    assert record(answer)["status"] == "abstained"
    assert (record(answer)["events"], record(answer)["charge"]) == ([], None)
    assert chain.budget is not None
    assert chain.budget.spent().queries == 0


def test_esa_asks_the_model_for_its_candidates(groups: RetrievedGroups) -> None:
    drafts = iter(["A dry cough.", "A skin rash.", "Nausea."] * 3)
    model = ScriptedModel(
        reply=lambda text: "A dry cough." if "Lisinopril" in text else next(drafts)
    )
    parser = ESAOutputParser(embedding=EMBEDDING, n_candidates=6)
    chain = made(groups, model=model, parser=parser)
    assert chain.invoke(QUESTION).content == "A dry cough."
    # A group without records is asked as well; the public question has no records.
    assert len([text for text in model.asked if "Records:" not in text]) == 6


class OddModel(ScriptedModel):
    """Answers a group's prompt with an odd message, and anything else with a label."""

    odd: Any

    def _generate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        asked_of_a_group = "Lisinopril" in str(messages[-1].content)
        said = self.odd if asked_of_a_group else AIMessage(content="rash")
        return ChatResult(generations=[ChatGeneration(message=said)])


CALL = {"name": "look_up", "args": {"patient": "canary-7"}, "id": "1"}
TEXT = {"type": "text", "text": "cough"}


THOUGHT = {"type": "reasoning", "reasoning": "canary"}
ODD: dict[str, AIMessage] = {
    "tools": AIMessage(content="", tool_calls=[CALL]),
    "refusal": AIMessage(content=[{"type": "refusal", "refusal": "canary: no"}]),
    "empty": AIMessage(content=[]),
    "tools and text": AIMessage(content="cough", tool_calls=[CALL]),
    "blocks of text": AIMessage(content=[THOUGHT, TEXT]),
    "image and text": AIMessage(
        content=[TEXT, {"type": "image_url", "image_url": "x"}]
    ),
}


@pytest.mark.parametrize(("odd", "name"), pairs(ODD, ["vote", "ptr"]))
def test_what_is_no_text_is_no_answer(odd: str, name: str) -> None:
    groups = RetrievedGroups.from_documents(
        notes(300), EMBEDDING, unit_key="patient", n_groups=20
    )
    answer = made(groups, name, model=OddModel(odd=ODD[odd])).invoke(QUESTION)
    assert record(answer)["charge"]
    assert "canary" not in repr(answer)
    if "text" in odd:
        assert record(answer)["status"] == "released"
        assert "cough" in f"{answer.content} {record(answer)['keywords']}"
    elif name == "ptr":  # The groups said nothing, so no words can pass the test.
        assert record(answer)["status"] == "abstained"


# ---- what fails, and what nothing is released for ------------------------------------


async def test_a_text_parser_behind_a_chain_shows_no_guess_as_an_answer(
    groups: RetrievedGroups,
) -> None:
    """By default a refusal; where guesses are asked for, each says what it is."""
    note = "From general knowledge, not from the records: "
    for terms, expected in (
        ({}, "No answer: the test for agreement was not passed."),
        ({"fallback": "model"}, f"{note}Paris, I think."),
    ):
        model = ScriptedModel(
            reply=lambda text: "" if "Records:" in text else "Paris, I think."
        )
        chain: Any = made(groups, "ptr", model=model, **terms) | StrOutputParser()
        for _ in range(2):  # Released, and given again.
            assert chain.invoke(QUESTION) == expected
            assert "".join(chain.stream(QUESTION)) == expected
        assert "".join([piece async for piece in chain.astream(QUESTION)]) == expected


def test_the_public_answer_is_not_asked_to_choose(groups: RetrievedGroups) -> None:
    """It has no records: of options it could only say that none is supported."""
    model = ScriptedModel(
        reply=lambda text: "none of these" if "Options:" in text else "A cough."
    )
    prompt = PromptTemplate.from_template("{context} {question} {format_instructions}")
    chain = made(groups, model=model, prompt=prompt, fallback="model")
    assert str(chain.invoke(QUESTION).content).endswith(": A cough.")


def test_after_failed_calls_the_model_is_asked_alone_again(
    groups: RetrievedGroups,
) -> None:
    """The reason was released. A key that expired costs one question, not all."""
    state = {"groups": True, "alone": True}

    def script(text: str) -> str:
        if not state["groups" if "Lisinopril" in text else "alone"]:
            raise RuntimeError("expired")
        return reply(text)

    budget = rich()
    chain = made(groups, model=ScriptedModel(reply=script), budget=budget)
    chain.invoke("What?")
    state["groups"] = state["alone"] = False
    reason = "too many calls to the model failed"
    assert record(chain.invoke(QUESTION))["details"]["reason"] == reason
    with pytest.raises(Exception, match="RuntimeError"):
        chain.invoke(QUESTION)
    assert budget.spent().queries == 2
    state["groups"] = state["alone"] = True
    assert record(chain.invoke(QUESTION))["status"] == "released"
    assert len(charges(budget.ledger, "default")) == 3


def test_a_record_that_cannot_be_written_into_the_prompt_silences_its_group_only() -> (
    None
):
    documents = notes(300)
    for document in documents[1:]:
        document.metadata["visit"] = "May"
    groups = RetrievedGroups.from_documents(
        documents, EMBEDDING, unit_key="patient", n_groups=60
    )
    prompt = PromptTemplate.from_template("{visit}: {page_content}")
    answer = made(groups, "ptr", document_prompt=prompt).invoke(QUESTION)
    assert record(answer)["status"] == "released"


# ---- its face ------------------------------------------------------------------------


def test_schemas_can_be_built_and_nothing_is_configurable(
    groups: RetrievedGroups,
) -> None:
    chain = made(groups)
    assert chain.get_input_jsonschema()["title"]
    assert chain.get_output_jsonschema()["title"]
    assert chain.get_graph().nodes
    assert chain.config_specs == []
    assert "unit-1" not in repr(chain)


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


def test_it_is_a_tool_and_a_retriever(groups: RetrievedGroups) -> None:
    chain = made(groups, "ptr")
    tool = chain.as_tool(name="ask", description="Notes.")
    assert tool.invoke({"question": QUESTION}) == "They coughed: cough"
    found = chain.as_retriever(k=2).invoke(QUESTION)
    assert [one.page_content for one in found] == ["They coughed: cough", "cough"]
    for wrong in (
        {"description": "Notes."},
        {"name": "ask"},
        {"name": "ask", "description": "Notes.", "arg_types": {"x": str}},
        {"name": "ask", "description": "Notes.", "args_schema": dict},
    ):
        with pytest.raises(InvalidParameterError):
            chain.as_tool(**wrong)  # type: ignore[arg-type]


class OnceBlocking(ScriptedModel):
    """Loses its blocking call with the wording."""

    def _generate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        if "word suggestions" in str(messages[-1].content):
            raise NotImplementedError
        return super()._generate(messages)


def test_nothing_that_the_wording_raises_loses_what_was_paid_for(
    groups: RetrievedGroups,
) -> None:
    chain = made(groups, "ptr", model=OnceBlocking(reply=reply))
    answer = chain.invoke(QUESTION)
    assert (answer.content, record(answer)["status"]) == ("cough", "released")
    assert record(answer)["calls"] == 62


def test_a_parser_may_ask_the_groups_in_its_own_way(groups: RetrievedGroups) -> None:
    class Twice(VoteOutputParser):
        """Asks each group twice, and takes the second reply."""

        def ask(self, model: Any, prompts: Any, *more: Any) -> Any:
            super().ask(model, prompts, *more)
            return super().ask(model, prompts, *more)

    model = ScriptedModel(reply=lambda _text: "Cough.")
    chain = made(groups, parser=Twice(labels=["cough", "rash"]), model=model)
    assert chain.invoke(QUESTION).content == "cough"
    # One public call besides: the model is tried before the charge.
    assert len(model.asked) == 1 + 2 * groups.n_groups
