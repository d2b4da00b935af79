"""Records that a group is shown as turns of a chat."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from pydantic import PrivateAttr
from support.chain_parts import record, rich
from support.fakes import ScriptedModel

from langchain_dpicl import (
    DPChain,
    InvalidParameterError,
    SampledGroups,
    VoteOutputParser,
    create_dp_tool,
)
from langchain_dpicl.common.prompts import DOCUMENT_PROMPT

TICKETS = [
    Document(
        f"Ticket {i} of Ada: no parcel.",
        metadata={"customer": str(i), "label": "delivery"},
    )
    for i in range(400)
]
GROUPS = SampledGroups.from_documents(
    TICKETS, unit_key="customer", n_groups=20, sampling_rate=0.5
)
TURNS = ChatPromptTemplate.from_messages(
    [("human", "{page_content}"), ("ai", "{label}")]
)
PROMPT = ChatPromptTemplate.from_messages(
    [
        ("system", "Sort the ticket. {format_instructions}"),
        MessagesPlaceholder("records"),
        ("human", "{question}"),
    ]
)
QUESTION = "Where is my lamp?"


class Chat(ScriptedModel):
    """Answers as the turns before do, and remembers whole prompts."""

    _chats: list[list[BaseMessage]] = PrivateAttr(default_factory=list)

    def _generate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        self._chats.append(messages)
        answers = [m.text for m in messages if m.type == "ai"]
        said = AIMessage(answers[-1] if answers else "I don't know.")
        return ChatResult(generations=[ChatGeneration(message=said)])

    @property
    def chats(self) -> list[list[BaseMessage]]:
        return self._chats


def made(**parts: Any) -> tuple[DPChain, Chat]:
    model = Chat()
    given: dict[str, Any] = {
        "groups": GROUPS,
        "parser": VoteOutputParser(labels=["delivery", "billing"]),
        "prompt": PROMPT,
        "document_prompt": TURNS,
        "budget": rich(),
        "cache": False,
    }
    return DPChain(model=model, **{**given, **parts}), model


async def test_each_record_is_turns_of_its_own() -> None:
    chain, model = made()
    for answer in (chain.invoke(QUESTION), await chain.ainvoke(QUESTION)):
        assert (answer.content, record(answer)["status"]) == ("delivery", "released")
    # The first question of all is asked alone besides.
    (alone,) = [chat for chat in model.chats if len(chat) == 2]
    assert [m.type for m in alone] == ["system", "human"]
    private = [chat for chat in model.chats if len(chat) > 2]
    assert len(private) == 40
    for first, *turns, last in private:
        assert "- none of these" in first.text
        assert last.text == QUESTION
        assert [m.type for m in turns] == ["human", "ai"] * (len(turns) // 2)
        for asked, said in zip(turns[::2], turns[1::2], strict=True):
            assert asked.text.endswith(" of Ada: no parcel.")
            assert said.text == "delivery"
    texts = [m.text for chat in private for m in chat[1:-1:2]]
    assert len(set(texts)) > 200


def test_a_record_that_cannot_be_written_silences_its_group_alone() -> None:
    odd = [*TICKETS, Document("No label.", metadata={"customer": "x"})]
    groups = SampledGroups.from_documents(
        odd, unit_key="customer", n_groups=20, sampling_rate=1.0
    )
    chain, model = made(groups=groups)
    assert chain.invoke(QUESTION).content == "delivery"
    assert len([chat for chat in model.chats if len(chat) > 2]) == 19


def test_a_check_and_a_tool_know_the_turns() -> None:
    chain, model = made()
    chain.check("Where is it?", "No parcel.")
    assert [len(chat) > 2 for chat in model.chats].count(True) == 1
    tool = create_dp_tool(chain, name="sort", description="Sorts a ticket.")
    assert set(tool.args) == {"question"}


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"prompt": None}, "has no place for them"),
        ({"prompt": "{records} {question}"}, "has no place for them"),
        ({"document_prompt": DOCUMENT_PROMPT}, "writes each as a text"),
        ({"prompt": PROMPT + "{context}"}, r"leave \{context\} out"),
        ({"prompt": [MessagesPlaceholder("records")]}, "no variable question"),
        ({"document_prompt": [MessagesPlaceholder("turns")]}, "one text each"),
        (
            {"document_prompt": [("human", [{"type": "text", "text": "{label}"}])]},
            "one text each",
        ),
        ({"document_prompt": [("human", "{page_content} {x}")]}, "no record has: x"),
    ],
)
def test_what_does_not_fit_is_refused(parts: dict[str, Any], why: str) -> None:
    for name, part in parts.items():
        if isinstance(part, str | list):
            messages = [part] if isinstance(part, str) else part
            parts = {name: ChatPromptTemplate.from_messages(messages)}
    with pytest.raises(InvalidParameterError, match=why):
        made(**parts)
