"""The offline chat model: answers by extraction, without a download or a key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from langchain_dpicl.offline.answering import answer, topics


class OfflineChatModel(BaseChatModel):
    r"""An extractive chat model: a stand-in to try things out, not a language model.

    It reads the prompt by the markers of this library's prompts and of common RAG
    prompts, and answers

    * from records (`Records:` or `Context:`) with a sentence, out of those that hold
      the question's words, whose other words most such records share;
    * from options (`Options: a, b`) with the one that most records on the subject
      state; where none does, with "none of these" if that is an option; without records
      and that option, with the one that the question names, else the first;
    * from labeled exemplars (`Text:`, `Label:`) with the label of the nearest ones;
      from labels alone (`Labels: a, b`) with the one that the text names;
    * to a request to list possible answers with a small public list (side effects,
      drugs, triggers, sports, ...), or that it can't list them;
    * from a person's conversations and a list of topics (`insights`) with those whose
      words the conversations hold;
    * from word suggestions with a sentence made of them;
    * from nothing: that it does not know.

    The same prompt gives the same answer in every process.

    Example:
        >>> model = OfflineChatModel()
        >>> prompt = (
        ...     "Records:\nAnn got a cough from iron.\n\nBo has a rash from zinc.\n\n"
        ...     "Question: Which side effect do patients on iron report?\nAnswer:"
        ... )
        >>> model.invoke(prompt).content
        'Ann got a cough from iron.'
        >>> model.invoke("Which side effect do patients report?").content
        "I don't know."
    """

    model_name: str = "offline-extractive"
    """The name that is shown in metadata and traces."""

    @property
    def _llm_type(self) -> str:
        return "langchain-dpicl-offline"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002 - LangChain's signature.
        **_: Any,
    ) -> ChatResult:
        system = [m.text for m in messages if m.type == "system"]
        asked = [m.text for m in messages if m.type in {"human", "chat"}]
        prompt = "\n\n".join(system + asked)
        text = topics(prompt) or answer(prompt)
        for mark in filter(None, stop or ()):
            text = text.split(mark, 1)[0]
        told = {"model_name": self.model_name, "finish_reason": "stop"}
        message = AIMessage(text, response_metadata=told)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        message = self._generate(*args, **kwargs).generations[0].message
        for piece in re.findall(r"\S+\s*", message.text):
            yield ChatGenerationChunk(message=AIMessageChunk(content=piece))
        last = AIMessageChunk(
            content="",
            chunk_position="last",
            response_metadata=message.response_metadata,
        )
        yield ChatGenerationChunk(message=last)
