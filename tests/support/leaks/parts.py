"""A corpus of marked records, and a model and an embedding that tell all they know.

The model and the embedding do with a private text whatever a client library might: they
log it, warn with it, trace it, open a span for it, put it into the answer's metadata,
and raise errors that quote it.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel, BaseLLM, FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult, Generation, LLMResult
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langsmith import traceable

from langchain_dpicl import (
    ESAOutputParser,
    KSAJointOutputParser,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.ledger import SQLLedger
from langchain_dpicl.offline import HashingEmbeddings
from langchain_dpicl.parsers import DPOutputParser
from support.leaks.canaries import PUBLIC, STEMS, is_private, marker

INNER = FakeListChatModel(responses=["cough"])

telemetry: dict[str, Any] = {}
"""What the model's client is instrumented with: `tracer`, `logger`, `counter`."""

UNITS = 12
GROUPS = 6
QUESTION = f"What did lisinopril give, {PUBLIC}"


def corpus() -> list[Document]:
    return [
        Document(
            f"Lisinopril gave a cough, {marker('document', i)}.",
            metadata={
                "patient": marker("unit", i),
                "ward": marker("metadata", i),
                "floor": i % 4,
            },
            id=f"{marker('metadata', i)}-{i}",
        )
        for i in range(UNITS)
    ]


class Records(BaseRetriever):
    """A LangChain retriever, which publishes what it finds to its callbacks."""

    found: list[Document]

    def _get_relevant_documents(self, query: str, **kwargs: Any) -> list[Document]:
        return self.found


class TalkativeGroups(RetrievedGroups):
    """A store that is asked through LangChain, and logs what it found."""

    def draw_prepared(self, *args: Any, **kwargs: Any) -> Any:
        drawn = super().draw_prepared(*args, **kwargs)
        for documents in drawn:
            tell(repr(Records(found=documents).invoke("all")))
        return drawn


class BrokenGroups(TalkativeGroups):
    """A store that fails, and quotes what it was looking at."""

    def draw_prepared(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise quoting(repr(super().draw_prepared(*args, **kwargs)))


class BrokenLedger(SQLLedger):
    """A ledger that fails on units, and quotes whom it was about to charge."""

    def charge_units(self, charge: Any, unit_ids: Sequence[str]) -> NoReturn:
        tell(repr(unit_ids))
        raise quoting(repr(unit_ids))


def groups(
    kind: type[RetrievedGroups] = TalkativeGroups, sampling_rate: float = 1.0
) -> RetrievedGroups:
    # Everybody is eligible and in a prompt, and pays by themselves: the ledger is told
    # of every unit.
    return kind.from_documents(
        corpus(),
        HashingEmbeddings(),
        unit_key="patient",
        n_groups=GROUPS,
        docs_per_group=UNITS,
        score_threshold=-1.0,
        sampling_rate=sampling_rate,
    )


def quoting(text: str) -> RuntimeError:
    """Return an error that quotes a text in every place there is."""
    error = RuntimeError(f"refused: {text}", {"body": text})
    error.__cause__ = ValueError(f"cause: {text}")
    error.__context__ = KeyError(f"context: {text}")
    error.__notes__ = [f"note: {text}"]  # type: ignore[attr-defined]
    return error


@traceable(run_type="llm", name="traced client")
def _traced(text: str) -> str:
    return f"traced {text}"


def tell(text: str) -> None:
    """Do with a private text what client libraries do."""
    log = logging.getLogger("leaky.sdk")
    log.debug("request body: %s", text)
    log.warning("slow", extra={"body": text})
    warnings.warn(f"deprecated argument in {text}", stacklevel=2)
    _traced(text)
    # A client made of other runnables, as a router of models is.
    RunnableLambda(str.upper, name="inner step").invoke(text)
    INNER.invoke(text)
    if telemetry:
        with telemetry["tracer"].start_as_current_span("call") as span:
            span.set_attribute("prompt", text)
            span.add_event("sent", {"body": text})
        telemetry["logger"].emit(body=text, event_name="gen_ai.user.message")
        telemetry["counter"].add(1, {"prompt": text})


def reply(text: str, *, failing: str = "none") -> AIMessage:
    """Return what the model says, or raise."""
    if not is_private(text):
        said = "They coughed." if "suggestions" in text else "I don't know."
        return AIMessage(said, usage_metadata=_usage(3), response_metadata=_named("m"))
    tell(text)
    # One of the calls fails, whatever the parser.
    if failing == "interrupt":
        raise KeyboardInterrupt(text)
    if failing == "model" or marker("document", 7) in text:
        raise quoting(text)
    mark = marker("answer", text)
    quoted = text[text.index(STEMS["document"]) :][:20]
    return AIMessage(
        f"cough {mark} {quoted}",
        id=mark,
        additional_kwargs={"raw": mark},
        usage_metadata=_usage(int(STEMS["usage"])),
        response_metadata=_named(mark),
    )


def _usage(count: int) -> Any:
    return {"input_tokens": count, "output_tokens": 1, "total_tokens": count + 1}


def _named(name: str) -> dict[str, Any]:
    return {"model_name": f"scripted-{name}", "system_fingerprint": name}


class LeakyChat(BaseChatModel):
    """Answers on the caller's thread."""

    failing: str = "none"

    @property
    def _llm_type(self) -> str:
        return "leaky"

    def _generate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        message = reply(str(messages[-1].content), failing=self.failing)
        return ChatResult(
            generations=[ChatGeneration(message=message)],
            llm_output={"token_usage": dict(message.usage_metadata or {})},
        )


class AsyncLeakyChat(LeakyChat):
    """The same with an asynchronous call of its own."""

    async def _agenerate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        await INNER.ainvoke(messages)
        return self._generate(messages)


class LeakyLLM(BaseLLM):
    """A completion model that takes lists of prompts."""

    failing: str = "none"

    @property
    def _llm_type(self) -> str:
        return "leaky"

    def _generate(self, prompts: list[str], *args: Any, **kwargs: Any) -> LLMResult:
        found = [reply(prompt, failing=self.failing) for prompt in prompts]
        return LLMResult(
            generations=[
                [Generation(text=str(m.content), generation_info=m.response_metadata)]
                for m in found
            ],
            llm_output={"token_usage": dict(found[0].usage_metadata or {})},
        )


class LeakyEmbeddings(Embeddings):
    """Embeds public texts, and answers one by one; a list of answers makes it raise."""

    def __init__(self, *, failing: bool = False) -> None:
        self._inner = HashingEmbeddings()
        self._failing = failing

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        private = [text for text in texts if is_private(text)]
        for text in private:
            tell(text)
        if private and (self._failing or len(texts) > 1):
            raise quoting(private[0])
        return self._inner.embed_documents(texts)

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def redact(text: str) -> str:
    """Tell all, and fail on one record."""
    if is_private(text):
        tell(text)
        if marker("document", 3) in text:
            raise quoting(text)
    return text.replace("Lisinopril", "[DRUG]")


async def aredact(text: str) -> str:
    await INNER.ainvoke(text)
    return redact(text)


REDACTORS: dict[str, Callable[[list[Any]], Any]] = {
    "function": lambda _callbacks: redact,
    "runnable": lambda callbacks: (
        RunnableLambda(redact, aredact, name="redact") | RunnableLambda(str)
    ).with_config(callbacks=list(callbacks)),
}
"""What records are redacted with; the Runnable brings the caller's own handlers."""

GATED = "gate"
STAGED = "stages"
"""Like `vote`, with a public-first gate: two charges, and answers between them."""

PARSERS: dict[str, Callable[[bool], DPOutputParser]] = {
    "vote": lambda _failing: VoteOutputParser(labels=("cough", "rash")),
    "esa": lambda failing: ESAOutputParser(
        embedding=LeakyEmbeddings(failing=failing),
        candidates=["A dry cough.", "A skin rash."],
    ),
    "ptr": lambda _failing: KSAPTROutputParser(k=1),
    "threshold": lambda _failing: KSAThresholdOutputParser(),
    GATED: lambda _failing: VoteOutputParser(labels=("cough", "rash")),
    STAGED: lambda failing: ESAOutputParser(
        embedding=LeakyEmbeddings(failing=failing),
        candidates=["A dry cough.", "A skin rash."],
    ),
    "joint": lambda _failing: KSAJointOutputParser(
        k=1, domain=["cough", "rash", "nausea"]
    ),
}
