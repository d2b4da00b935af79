"""A corpus of marked records, and clients that do with a text all that clients do.

They log it, warn of it, trace it, open spans for it, keep it in a cache, put it into
the answer's metadata, and raise errors that quote it.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import warnings
from typing import Any
from warnings import warn as early_bound_warn

from faces import HashingEmbeddings
from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langchain_core.documents import Document
from langchain_core.globals import get_verbose
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import Tool
from langsmith import traceable
from scripted import AsyncScriptedModel, ScriptedEmbeddings, ScriptedModel
from unit_tests.wall.marks import STEMS, is_private, mark

PEOPLE = 8
GROUPS = 4
KEY = "patient"
TELEMETRY: dict[str, Any] = {}
"""What the client is instrumented with: `tracer`, `logger`, `counter`."""
NOTEBOOK: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar(
    "notebook", default=None
)
"""Where the caller lets clients note what they are asked."""

INNER = FakeListChatModel(responses=["cough"])


def documents() -> list[Document]:
    """Return a note of each person, all of it marked."""
    return [
        Document(
            f"Lisinopril gave a cough, {mark('record', n)}.",
            metadata={KEY: mark("unit", n), "ward": mark("metadata", n)},
            id=f"{mark('metadata', n)}-{n}",
        )
        for n in range(PEOPLE)
    ]


def quoting(text: str, kind: type[BaseException] = RuntimeError) -> BaseException:
    """Return an error that quotes a text in every place there is."""
    error = kind(f"refused: {text}", {"body": text})
    error.__cause__ = ValueError(f"cause: {text}")
    error.__context__ = KeyError(f"context: {text}")
    error.__notes__ = [f"note: {text}"]  # type: ignore[attr-defined]
    return error


@traceable(run_type="llm", name="traced client")
def _traced(text: str) -> str:
    return f"traced {text}"


def tell(text: str) -> None:
    """Do with a text what client libraries do."""
    log = logging.getLogger("leaky.sdk")
    log.debug("request body: %s", text)
    log.error("slow", extra={"body": text}, stack_info=True)
    log.handle(logging.makeLogRecord({"msg": text, "levelno": logging.ERROR}))
    warnings.warn(f"deprecated argument in {text}", stacklevel=2)
    early_bound_warn(f"deprecated model in {text}", stacklevel=2)
    if TELEMETRY:
        with TELEMETRY["tracer"].start_as_current_span("call") as span:
            span.set_attribute("prompt", text)
            span.add_event("sent", {"body": text})
        TELEMETRY["logger"].emit(body=text, event_name="gen_ai.user.message")
        TELEMETRY["counter"].add(1, {"prompt": text})
    notebook = NOTEBOOK.get()
    if notebook is not None:
        notebook.append(text)


def tell_runnables(text: str) -> None:
    """Do with a text what a client that is made of runnables does."""
    _traced(text)
    RunnableLambda(str.upper, name="inner step").invoke(text)
    INNER.invoke(text)
    lookup = Tool("lookup", lambda word: word, "Looks up.", verbose=get_verbose())
    lookup.invoke(text)
    with contextlib.suppress(RuntimeError):  # Nobody is there to be told.
        dispatch_custom_event("asked", {"body": text})


def marked(text: str) -> AIMessage:
    """Return what the model says: of a private text, marks all over."""
    answer = mark("answer", text) if is_private(text) else ""
    count = int(STEMS["usage"]) if answer else 3
    said = "cough\nrash"
    if answer:
        said = f"cough {answer} {text[text.index(STEMS['record']) :][:20]}"
    return AIMessage(
        said,
        id=answer or None,
        additional_kwargs={"raw": answer},
        usage_metadata={
            "input_tokens": count,
            "output_tokens": 1,
            "total_tokens": count + 1,
        },
        response_metadata={"model_name": f"m{answer}", "system_fingerprint": answer},
    )


class LeakyModel(ScriptedModel):
    """Tells all; its script answers None, an error to raise, or nothing at all."""

    def _result(self, prompt: str) -> ChatResult:
        if is_private(prompt):
            tell(prompt)
            tell_runnables(prompt)
        reply = self.script(prompt)
        if isinstance(reply, BaseException):
            raise reply
        message = marked(prompt) if reply is None else AIMessage(reply)
        return ChatResult(
            generations=[ChatGeneration(message=message)],
            llm_output={"token_usage": dict(message.usage_metadata or {})},
        )

    def log_likelihoods(self, prompts: Any, continuations: Any) -> Any:
        """Tell all of each prompt; the first option is the likelier one with records.

        Its figures are odd, so that one would know them again.
        """
        for prompt in prompts:
            reply = self.script(prompt)
            if is_private(prompt):
                tell(prompt)
                tell_runnables(prompt)
            if isinstance(reply, BaseException):
                raise reply
        return [[-float(f"1.{STEMS['usage']}"), -5.0] for _ in prompts]


class AsyncLeakyModel(LeakyModel, AsyncScriptedModel):
    """The same with an asynchronous call of its own."""

    async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
        if is_private(text := str(messages[-1].content)):
            await INNER.ainvoke(messages)
            with contextlib.suppress(RuntimeError):
                await adispatch_custom_event("asked", {"body": text})
        return await super()._agenerate(messages, *args, **kwargs)


class LeakyEmbeddings(ScriptedEmbeddings):
    """Tells all; where it is to fail, it fails for private texts alone."""

    def __init__(self, *, failing: bool = False) -> None:
        super().__init__(HashingEmbeddings().embed_query)
        self._failing = failing

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        for text in texts:
            if is_private(text):
                tell(text)
                if self._failing:
                    raise quoting(text)
        return [list(map(float, self._vector(text))) for text in texts]
