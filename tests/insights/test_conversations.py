"""Records of every documented form become documents, each read by itself."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import requests
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tracers import LangChainTracer
from langsmith import Client
from langsmith.schemas import Run
from openinference.instrumentation import using_user
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.insights.conversations import documents_of

SAID = [
    SystemMessage("Be kind."),
    HumanMessage("Where is it?"),
    AIMessage("On its way."),
]
PLAIN = "user: Where is it?\nassistant: On its way."
OPENAI: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "Where is it?"},
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        ],
    },
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
    {"role": "tool", "content": "parcel 7: Bremen", "tool_call_id": "1"},
    {"role": "assistant", "content": "On its way."},
]
MESSAGE = "attributes.llm.{}_messages.{}.message.{}"
SPAN = {
    "attributes.openinference.span.kind": "LLM",
    "attributes.input.value": '{"messages": "again"}',
    MESSAGE.format("output", 0, "role"): "assistant",
    MESSAGE.format("output", 0, "content"): "On its way.",
    MESSAGE.format("input", 1, "role"): "user",
    MESSAGE.format("input", 1, "contents.0.message_content.type"): "text",
    MESSAGE.format("input", 1, "contents.0.message_content.text"): "Where is it?",
    MESSAGE.format("input", 0, "role"): "system",
    MESSAGE.format("input", 0, "content"): "Be kind.",
}
RUN = {
    "run_type": "chain",
    "inputs": {"question": "Where is it?"},
    "outputs": {"answer": "On its way."},
}


@pytest.mark.parametrize(
    ("record", "key"),
    [
        ({"user": "ada", "text": PLAIN}, "user"),
        ({"user": "ada", "messages": OPENAI}, "user"),
        ({"user": "ada", "messages": SAID}, "user"),
        ({"metadata": {"user": "ada"}, "messages": OPENAI}, "user"),
        (("ada", SAID), "user"),
        (("ada", PLAIN), "user"),
        ({**RUN, "extra": {"metadata": {"user_id": "ada"}}}, "user_id"),
        ({**SPAN, "attributes.user.id": "ada"}, "user.id"),
        ({**SPAN, "attributes.metadata": '{"user_id": "ada"}'}, "user_id"),
    ],
)
def test_a_record_becomes_what_users_and_assistants_said(record: Any, key: str) -> None:
    (document,) = documents_of([record], key)
    assert document.page_content == PLAIN
    assert document.metadata[key] == "ada"


class Session(requests.Session):
    """Keeps the runs that LangSmith's client sends, and sends them nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[dict[str, Any]] = []

    def request(self, method: Any, url: Any, **more: Any) -> requests.Response:
        self.runs.append(json.loads(more["data"]))
        response = requests.Response()
        response.status_code, response.raw = 200, io.BytesIO(b"{}")
        return response


def test_what_langsmith_and_openinference_write_is_read() -> None:
    model = FakeListChatModel(responses=["On its way."])
    session, spans, provider = Session(), InMemorySpanExporter(), TracerProvider()
    more = {"api_key": "k", "auto_batch_tracing": False}
    client = Client(session=session, api_url="http://langsmith.invalid", **more)
    tracer = LangChainTracer(client=client)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    instrumentor = LangChainInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    try:
        with using_user("ada"):
            given = {"callbacks": [tracer], "metadata": {"user_id": "ada"}}
            model.invoke(SAID[:2], config=given)
        tracer.wait_for_futures()
    finally:
        instrumentor.uninstrument()
    ended = session.runs[-1]
    found = documents_of([ended, Run(**ended)], "user_id")
    found += documents_of(spans.get_finished_spans(), "user.id")
    assert [one.page_content for one in found] == [PLAIN] * 2  # One run, and one span.


def test_each_chat_is_a_document_and_single_values_are_metadata() -> None:
    chats = [[{"role": "user", "text": "One?"}], [{"role": "user", "text": "Two?"}]]
    record = {"user": 7, "plan": "gold", "metadata": {"month": "2026-11"}}
    found = documents_of([{**record, "chats": chats}], "user")
    assert [one.page_content for one in found] == ["user: One?", "user: Two?"]
    kept = {"user": 7, "plan": "gold", "month": "2026-11"}
    assert [one.metadata for one in found] == [kept, kept]
    document = Document("as it is", metadata={"user": 7})
    assert documents_of([document], "user")[0] is document


def test_of_a_persons_records_that_begin_alike_the_longest_is_kept() -> None:
    longer = [*OPENAI, {"role": "user", "content": "Thanks!"}]
    records = [("ada", OPENAI), ("ada", longer), ("ada", OPENAI[:2]), ("bo", OPENAI)]
    found = documents_of(records, "user")
    texts = [(one.metadata["user"], one.page_content) for one in found]
    assert texts == [("ada", f"{PLAIN}\nuser: Thanks!"), ("bo", PLAIN)]
    # Of equal ones it is not the list's order that decides.
    equal = [{"user": "ada", "messages": OPENAI, "plan": plan} for plan in ("b", "a")]
    kept = [documents_of(listed, "user") for listed in (equal, equal[::-1])]
    assert [[one.metadata["plan"] for one in found] for found in kept] == [["b"]] * 2


DEEP: Any = {}
for _ in range(5_000):
    DEEP = {"messages": [DEEP]}


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"messages": DEEP},
        {"messages": 7},
        {"messages": [None, 7, {"role": 3}]},
        {"text": None},
        {"text": "", "n": 10**5_000},
        {"attributes": "{", "a": 1, "a.b": 2},
        {"a": {"9" * 5_000: 1}},
        {".".join("a" * 5_000): 1},
        {"run_type": "tool", "inputs": {"input": "Where is it?"}},
        {"attributes": {"input": {"value": "{", "mime_type": "application/json"}}},
    ],
)
def test_an_odd_record_has_no_text_and_stops_nobody(odd: Any) -> None:
    found = documents_of([{"user": "odd", **odd}, ("ada", PLAIN)], "user")
    assert [one.page_content for one in found] == ["", PLAIN]
    assert found[0].metadata["user"] == "odd"


@pytest.mark.parametrize("whose", [{}, {"user": None}, {"user": " "}, {"user": [7]}])
def test_a_record_of_nobody_is_refused_without_its_text(whose: Any) -> None:
    record = {"text": "My number is 555-0100.", **whose}
    with pytest.raises(UnitError, match="1 \\(counted from 0\\)") as refused:
        documents_of([("ada", PLAIN), record], "user")
    assert "555" not in str(refused.value)


@pytest.mark.parametrize("given", ["a text", {"ada": "a text"}, 7])
def test_what_is_no_list_of_records_is_refused(given: Any) -> None:
    with pytest.raises(InvalidParameterError, match="iterable"):
        documents_of(given, "user")
    with pytest.raises(InvalidParameterError, match="unit_key"):
        documents_of([("ada", PLAIN)], 5)  # type: ignore[arg-type]  # what is tested
