"""A model's thinking is not its answer."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompt_values import StringPromptValue
from support.fakes import ScriptedModel

from langchain_dpicl.common.replies import ABSTAIN, AnswerPieces, Slot, answer_of
from langchain_dpicl.sealed import SealedModel

ALONE = "Cough, or a rash?\n</think>\n\ncough"
REPLIES = {
    "<think>Cough, or a rash?</think>cough": "cough",
    "\n<think>\nCough?\nRash?\n</think>\n\ncough": "cough",
    "<THINK>A</THINK> <think>B</think>cough": "cough",
    "<thinking>A</thinking>\ncough": "cough",
    "[THINK]A[/THINK]cough": "cough",
    "<think></think>cough": "cough",
    "<think>It ends with </thinking>, not here.</think>cough": "cough",
    # Unfinished: the answer never came.
    "<think>Cough, or a ra": "",
    "<think>": "",
    "<think>all of it</think>\n": "",
    # A template wrote the opening tag.
    ALONE: "cough",
}
AS_THEY_ARE = [
    "cough",
    "",
    "  cough\n",
    "The tag <think> opens it, and </think> ends it.",
    "An answer.\n<think>\nHm.\n</think>\nMore.",
    "I wrote </think> in the middle.",
    "<thin ice>",
    "<thinker>a name",
    "[thin",
]
CASES = [*REPLIES.items(), *((text, text) for text in AS_THEY_ARE)]
BLOCKS: list[Any] = [
    {"type": "thinking", "thinking": "Rash?", "signature": "x"},
    {"type": "reasoning", "reasoning": "Rash?"},
    {"type": "text", "text": "cough"},
]


class Thinking(ScriptedModel):
    """Says something."""

    content: Any = ""

    def _generate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        message = AIMessage(content=self.content)
        return ChatResult(generations=[ChatGeneration(message=message)])


@pytest.mark.parametrize(("reply", "answer"), CASES)
def test_thinking_is_not_the_answer(reply: str, answer: str) -> None:
    assert answer_of(reply) == answer
    assert answer_of(AIMessage(reply)) == answer


@pytest.mark.parametrize(
    ("content", "answer"),
    [*REPLIES.items(), (BLOCKS, "cough"), (BLOCKS[:2], "")],
)
def test_groups_and_public_calls_read_answers_alike(content: Any, answer: str) -> None:
    model, prompt = Thinking(content=content), StringPromptValue(text="?")
    assert SealedModel(model).ask([prompt]) == [Slot(answer) if answer else ABSTAIN]
    assert answer_of(model.invoke(prompt)) == answer


@pytest.mark.parametrize(
    ("reply", "answer"),
    # What was said can't be taken back.
    [case for case in CASES if case[0] != ALONE],
)
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_a_stream_says_what_the_whole_says(reply: str, answer: str, size: int) -> None:
    pieces = AnswerPieces()
    parts = [reply[start : start + size] for start in range(0, len(reply), size)]
    said = [pieces.next(part) for part in parts]
    assert "".join(said) + pieces.rest() == answer
