"""A follow-up question is made whole by a public call, before anything is charged."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from support.chain_parts import EMBEDDING, PARSERS, QUESTION, reply, rich
from support.fakes import AsyncScriptedModel, ScriptedModel, notes

from langchain_dpicl import (
    DPChain,
    InvalidParameterError,
    PublicCallError,
    RetrievedGroups,
    UnsealableModelError,
    create_question_condenser,
)
from langchain_dpicl.offline import OfflineChatModel

GROUPS = RetrievedGroups.from_documents(
    notes(300), EMBEDDING, unit_key="patient", n_groups=20
)
HISTORY = [HumanMessage("Tell me about lisinopril."), AIMessage("It is a medicine.")]


class Condensing(ScriptedModel):
    """Remembers every message that it is asked with."""

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self._asked.extend(str(message.content) for message in messages[:-1])
        return super()._generate(messages)


@pytest.mark.parametrize(
    "value",
    [
        {"question": "What did it give?", "chat_history": HISTORY},
        {"input": "What did it give?", "chat_history": HISTORY},
        [*HISTORY, HumanMessage("What did it give?")],
        {
            "question": "What did it give?",
            "chat_history": [
                ("human", "Tell me about lisinopril."),
                ("ai", "It is a medicine."),
            ],
        },
    ],
    ids=["mapping", "input", "messages", "tuples"],
)
async def test_a_follow_up_becomes_a_whole_question(value: Any) -> None:
    model = Condensing(reply=lambda _text: f"  {QUESTION}\n")
    condenser = create_question_condenser(model)
    assert condenser.invoke(value) == {"question": QUESTION}
    assert await condenser.ainvoke(value) == {"question": QUESTION}
    assert model.asked[1:4] == [
        "Tell me about lisinopril.",
        "It is a medicine.",
        "What did it give?",
    ]


@pytest.mark.parametrize("chain_model", [ScriptedModel, AsyncScriptedModel])
async def test_it_stands_before_a_chain_in_every_way(chain_model: Any) -> None:
    budget = rich(queries=10)
    condenser = create_question_condenser(ScriptedModel(reply=lambda _text: QUESTION))
    chain = condenser | DPChain(
        groups=GROUPS, model=chain_model(reply=reply), parser=PARSERS["vote"]()
    )
    value, config = (
        {"question": "What?", "chat_history": HISTORY},
        {"callbacks": [budget]},
    )
    assert chain.invoke(value, config).content == "cough"
    assert (await chain.ainvoke(value, config)).content == "cough"
    pieces = [str(chunk.content) for chunk in chain.stream(value, config)]
    assert "".join(pieces) == "cough"
    pieces = [str(chunk.content) async for chunk in chain.astream(value, config)]
    assert "".join(pieces) == "cough"
    assert chain.batch([value], config)[0].content == "cough"
    assert len(budget.ledger.charges("default")) == 5


async def test_the_groups_see_nothing_of_the_conversation() -> None:
    model = AsyncScriptedModel(
        reply=lambda text: QUESTION if text == "What?" else reply(text)
    )
    chain = create_question_condenser(model) | DPChain(
        groups=GROUPS, model=model, parser=PARSERS["vote"](), budget=rich()
    )
    history = [HumanMessage("secret plan"), AIMessage("Noted.")]
    answer = await chain.ainvoke({"question": "What?", "chat_history": history})
    assert answer.content == "cough"
    assert len(model.asked) == 22
    assert not any("secret plan" in text for text in model.asked)


@pytest.mark.parametrize(
    "value", ["What?", {"question": "What?"}, {"question": "What?", "chat_history": []}]
)
async def test_without_a_history_no_model_is_asked(value: Any) -> None:
    model = ScriptedModel()
    condenser = create_question_condenser(model)
    assert condenser.invoke(value) == {"question": "What?"}
    assert await condenser.ainvoke(value) == {"question": "What?"}
    assert not model.asked


def test_other_variables_pass_and_a_silent_model_changes_nothing() -> None:
    condenser = create_question_condenser(
        ScriptedModel(reply=lambda _text: " "), history_key="before"
    )
    value = {"question": "What?", "before": HISTORY, "language": "French"}
    assert condenser.invoke(value) == {"question": "What?", "language": "French"}


def test_the_last_messages_count() -> None:
    model = Condensing(reply=lambda _text: QUESTION)
    condenser = create_question_condenser(model, max_messages=1)
    condenser.invoke({"question": "What?", "chat_history": HISTORY})
    assert model.asked[1:] == ["It is a medicine.", "What?"]


async def test_a_failing_model_says_so_and_nothing_is_charged() -> None:
    def broken(text: str) -> str:
        raise RuntimeError("canary")

    budget = rich()
    chain = create_question_condenser(ScriptedModel(reply=broken)) | DPChain(
        groups=GROUPS,
        model=ScriptedModel(reply=reply),
        parser=PARSERS["vote"](),
        budget=budget,
    )
    value = {"question": "What?", "chat_history": HISTORY}
    with pytest.raises(PublicCallError) as failed:
        chain.invoke(value)
    assert "canary" not in str(failed.value)
    with pytest.raises(PublicCallError):
        await chain.ainvoke(value)
    assert not budget.ledger.charges("default")


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"question": " "},
        {"question": 7, "chat_history": HISTORY},
        {"question": "What?", "chat_history": "canary"},
        {"question": "What?", "chat_history": [object()]},
        {"question": "What?", "chat_history": [("canary", "x")]},
        [],
        [*HISTORY],
        7,
    ],
)
def test_an_input_that_is_no_conversation_is_refused(value: Any) -> None:
    condenser = create_question_condenser(ScriptedModel())
    with pytest.raises(InvalidParameterError) as refused:
        condenser.invoke(value)
    assert "canary" not in str(refused.value)


def test_arguments_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="max_messages"):
        create_question_condenser(ScriptedModel(), max_messages=0)
    with pytest.raises(InvalidParameterError, match="chat_history"):
        create_question_condenser(
            ScriptedModel(), prompt=ChatPromptTemplate.from_template("{question}")
        )
    with pytest.raises(UnsealableModelError):
        create_question_condenser("gpt")


@pytest.mark.parametrize(
    ("follow_up", "whole"),
    [
        ("And on metformin?", "Which effect do patients on metformin report?"),
        ("Is that all?", "Is that all?"),
    ],
)
def test_the_offline_model_rewrites_what_it_can(follow_up: str, whole: str) -> None:
    condenser = create_question_condenser(OfflineChatModel())
    found = condenser.invoke(
        {
            "question": follow_up,
            "chat_history": [
                ("human", "Which effect do patients on lisinopril report?"),
                ("ai", "A dry cough."),
            ],
        }
    )
    assert found == {"question": whole}
