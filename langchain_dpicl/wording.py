"""Public calls of a chain's model, and how a release is put into words.

They are ordinary calls, in sight of every observer: no record takes part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import RunnableBinding, RunnableConfig
from langchain_core.runnables.config import merge_configs

from langchain_dpicl.common.replies import AnswerPieces
from langchain_dpicl.parsers.reading import keeps
from langchain_dpicl.release.record import Status
from langchain_dpicl.sealed import SealedModel, public_call_error

TAGS = ["dpicl:public", "nostream", "langsmith:nostream"]
"""Tags of public calls. LangGraph streams no messages of runs with the last two.

It shows the chain's own message, which may say something else than the model said.
"""


@dataclass(frozen=True)
class Wording:
    """How a release is put into words.

    Attributes:
        text: What is said where no model is asked, or its answer is not taken.
        status: How the answer came about then.
        prompt: A public prompt whose answer is said if it is taken.
        taken: How the answer came about then.
        note: What stands before what the model says.
        kept: The question, and the released words that the model's answer must keep: a
            refusal, another answer or a denial would throw away what was paid for.
    """

    text: str
    status: Status
    prompt: PromptValue | None = None
    taken: Status = Status.ABSTAINED
    note: str = ""
    kept: tuple[str, tuple[str, ...]] = ("", ())

    def led(self, said: str) -> str:
        """Return what the model says, with the note before it if it says anything."""
        return f"{self.note} {said.lstrip()}" if self.note and said.strip() else said

    def takes(self, said: str) -> bool:
        """Return whether the model's answer is taken."""
        question, words = self.kept
        return bool(said.strip()) and (not words or keeps(said, words, question))

    def settled(self, said: str) -> tuple[str, Status]:
        """Return the answer, and how it came about."""
        return (said, self.taken) if self.takes(said) else (self.text, self.status)


def answers(
    model: Any,
    prompt: PromptValue,
    config: RunnableConfig | None,
    sealed: SealedModel,
    count: int = 1,
) -> list[Any]:
    """Return the model's replies to a public prompt; `sealed` makes its group calls."""
    tagged = merge_configs(config, {"tags": TAGS})
    if sealed.is_alone:
        tagged["max_concurrency"] = 1
    try:
        return list(sealed.in_turn(partial(model.batch, [prompt] * count, tagged)))
    except Exception as error:  # noqa: BLE001 - replaced by an error of ours
        failure = type(error)
    raise public_call_error(failure, model)


def streamed(
    model: Any, prompt: PromptValue, config: RunnableConfig, sealed: SealedModel
) -> Iterator[tuple[str, Any]]:
    """Yield what each piece of the model's reply adds to its answer, and the piece."""
    try:
        pieces = AnswerPieces()
        stream = model.stream(prompt, merge_configs(config, {"tags": TAGS}))
        advance = partial(next, stream, None)
        while (piece := sealed.in_turn(advance)) is not None:
            text = str(piece.text) if isinstance(piece, BaseMessage) else str(piece)
            yield pieces.next(text), piece
        yield pieces.rest(), None
    except Exception as error:  # noqa: BLE001 - replaced by an error of ours
        failure = type(error)
    else:
        return
    raise public_call_error(failure, model)


def changed(model: Any, **fields: Any) -> Any:
    """Return a copy of a model with other fields, as far as it has them.

    What is bound to it stays bound, and a temperature above 0 stays as it is.
    """
    if isinstance(model, RunnableBinding):
        free = {
            name: value for name, value in fields.items() if name not in model.kwargs
        }
        return model.model_copy(update={"bound": changed(model.bound, **free)})
    if getattr(model, "temperature", None):
        fields.pop("temperature", None)
    known = {n: value for n, value in fields.items() if n in type(model).model_fields}
    return model.model_copy(update=known)
