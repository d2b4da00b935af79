"""What a model or a record tries from inside a call reaches neither callers nor others.

Also: how many calls, log records, warnings, events and tokens there are tells nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import io
import logging
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import pytest
from faces import (
    DPChain,
    HashingEmbeddings,
    KSAPTROutputParser,
    RetrievedGroups,
    VoteOutputParser,
    open_for_tests,
)
from langchain_core import globals as switches
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackManager
from langchain_core.documents import Document
from langsmith.run_helpers import get_tracing_context
from scripted import AsyncScriptedModel, ScriptedModel
from unit_tests.wall.leaky import INNER, quoting, tell, tell_runnables
from unit_tests.wall.marks import mark, marks_in
from unit_tests.wall.observers import Recorder, logged
from unit_tests.wall.ways import LABELS, corpus_account
from worlds import QUESTION, notes, without

TEXT = f"a record, {mark('record', 'attempt')}"
PRIVATE = "Note 7."
"""The record of the one person whose slot misbehaves."""

BOTH = pytest.mark.parametrize("model", [ScriptedModel, AsyncScriptedModel])
EMBEDDING = HashingEmbeddings()


def is_group(prompt: str) -> bool:
    return "Note " in prompt


def groups(documents: list[Document] | None = None) -> RetrievedGroups:
    return RetrievedGroups.from_documents(
        notes(60) if documents is None else documents,
        EMBEDDING,
        unit_key="patient",
        n_groups=12,
        docs_per_group=60,
    )


async def ask(
    model: Any, script: Callable[[str], Any], parser: Any = None, source: Any = None
) -> set[str]:
    """Ask by both colors; return the answers."""
    chain = DPChain(
        groups=source or groups(),
        model=model(script=script),
        parser=parser or VoteOutputParser(labels=LABELS),
        budget=corpus_account(":memory:"),
    )
    answers = [chain.invoke(QUESTION), await chain.ainvoke(QUESTION)]
    return {str(answer.content) for answer in answers}


class Panic(BaseException):
    """What a panic of a compiled extension is: not an `Exception`."""


@BOTH
@pytest.mark.promise("no-slot-ends-a-question")
@pytest.mark.parametrize(
    "kind",
    [
        *(Panic, SystemExit, GeneratorExit, StopIteration, StopAsyncIteration),
        *(asyncio.CancelledError, RecursionError, MemoryError, AssertionError),
    ],
)
async def test_nothing_that_one_call_raises_ends_the_question(
    model: Any, kind: type[BaseException]
) -> None:
    def script(prompt: str) -> Any:
        return kind(TEXT) if PRIVATE in prompt else "cough"

    assert await ask(model, script) == {"cough"}


@pytest.mark.promise("no-slot-ends-a-question")
async def test_a_call_that_cancels_itself_ends_itself_alone() -> None:
    class Suicidal(AsyncScriptedModel):
        async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            if PRIVATE in str(messages):
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)
            return await super()._agenerate(messages, *args, **kwargs)

    assert await ask(Suicidal, lambda _prompt: "cough") == {"cough"}


@BOTH
@pytest.mark.promise("a-call-changes-nothing-outside")
async def test_a_call_that_switches_observers_on_shows_nothing(model: Any) -> None:
    """It sets caches, debug mode, handlers and filters, and then tells all."""
    cache, events, made = InMemoryCache(), Recorder(), list[Any]()

    def script(prompt: str) -> str:
        if not is_group(prompt):
            return "cough"
        switches.set_llm_cache(cache)
        switches.set_debug(True)
        switches.set_verbose(True)
        logging.getLogger("leaky.sdk").setLevel(0)
        warnings.simplefilter("always")
        BaseCallbackManager(handlers=[events])
        made.append(get_tracing_context()["enabled"])
        tell(TEXT)
        tell_runnables(TEXT)
        INNER.invoke(TEXT, {"callbacks": [events]})
        return "cough"

    printed = io.StringIO()
    try:
        with (
            warnings.catch_warnings(record=True) as warned,
            logged() as records,
            redirect_stdout(printed),
            redirect_stderr(printed),
        ):
            assert await ask(model, script) == {"cough"}
    finally:
        switches.set_llm_cache(None)
        switches.set_debug(False)
        switches.set_verbose(False)
    assert marks_in([vars(cache), events.events, records, warned, printed]) == []
    assert set(made) == {False}


@BOTH
@pytest.mark.promise("a-call-changes-nothing-outside")
async def test_context_variables_go_neither_in_nor_out(model: Any) -> None:
    variable = contextvars.ContextVar("secret", default="default")
    variable.set("the caller's")
    found = set()

    def script(prompt: str) -> str:
        if is_group(prompt):
            found.add(variable.get())
            variable.set(TEXT)
        return "cough"

    assert await ask(model, script) == {"cough"}
    assert found == {"default"}
    assert variable.get() == "the caller's"


@BOTH
@pytest.mark.promise("no-slot-ends-a-question")
async def test_a_tokenizer_that_fails_on_one_answer_stops_no_release(
    model: Any,
) -> None:
    def picky(text: str) -> list[str]:
        if "special" in text:
            raise quoting(TEXT, Panic)
        return text.split()

    def script(prompt: str) -> str:
        if is_group(prompt):
            return "special" if PRIVATE in prompt else "cough"
        return "unknown"

    parser = KSAPTROutputParser(k=1, tokenizer=picky)
    assert await ask(model, script, parser) == {"cough"}


def _nested(depth: int) -> Any:
    nested: Any = "x"
    for _ in range(depth):
        nested = [nested]
    return nested


RECORDS: dict[str, Document] = {
    "braces": Document("{question} {0} {unknown!r:>{w}} {{ }} %s %(x)s"),
    "template": Document("{{ question }} {% raise %} <|im_end|> [/INST]"),
    "huge": Document("cough " * 300_000),
    "NUL": Document("a\0b\x1b[31m\x85\u2028\u202e"),
    "surrogate": Document("a lone \ud800 surrogate"),
    "empty": Document(""),
    "nested": Document("deep", metadata={"nested": _nested(400)}),
    "braced key": Document("x", metadata={"{question}": "{page_content}"}),
}


@pytest.mark.promise("no-record-ends-a-question")
@pytest.mark.parametrize("kind", RECORDS)
async def test_no_record_stops_or_rewords_a_question(kind: str) -> None:
    """It may stop its own slot; no other slot, and no call more or less."""
    prompts: dict[str, list[str]] = {}
    strange = RECORDS[kind].model_copy(deep=False)
    strange.metadata = {**strange.metadata, "patient": "unit-strange"}
    for world, more in (("with", [strange]), ("without", [])):
        asked: list[str] = []

        def script(prompt: str, asked: list[str] = asked) -> str:
            asked.append(prompt)
            return "cough"

        source = groups([*notes(60), *more])
        assert await ask(ScriptedModel, script, source=source) == {"cough"}
        prompts[world] = asked
    assert len(prompts["with"]) == len(prompts["without"])


# ---- what can be counted -------------------------------------------------------------

STRANGE: dict[str, Any] = {
    "answers": "cough",
    "fails": quoting(TEXT),
    "panics": quoting(TEXT, Panic),
    "babbles": "cough, rash, neither; " * 2000,
    "says nothing": "",
    "refuses": "I can't help with that.",
}


async def counted(model: Any, reply: Any, documents: list[Document]) -> dict[str, Any]:
    """Return all numbers that somebody outside could count of a question."""

    def script(prompt: str) -> Any:
        if not is_group(prompt):
            return "cough\nrash"
        if PRIVATE in prompt:
            tell(TEXT)
            return reply
        return "cough"

    class Billed(model):
        def _result(self, prompt: str) -> Any:
            result, size = super()._result(prompt), len(prompt)
            result.generations[0].message.usage_metadata = {
                "input_tokens": size,
                "output_tokens": 1,
                "total_tokens": size + 1,
            }
            return result

    asked, events = Billed(script=script), Recorder()
    chain = DPChain(
        groups=groups(documents),
        model=asked,
        parser=VoteOutputParser(labels="draft"),
        budget=corpus_account(":memory:"),
        cache=False,
    )
    numbers: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as warned, logged() as (records, _):
        warnings.simplefilter("always")
        for ask in ("invoke", "ainvoke"):
            answer = getattr(chain, ask)(QUESTION, {"callbacks": [events]})
            answer = answer if ask == "invoke" else await answer
            assert answer.content == "cough"
            assert answer.usage_metadata
            numbers[ask] = answer.usage_metadata
        numbers["log"] = len(records)
        numbers["warnings"] = len(warned)
    numbers["calls"] = len(asked.prompts)
    numbers["events"] = Counter(name for name, _, _ in events.events)
    return numbers


@BOTH
@pytest.mark.promise("numbers-tell-nothing")
@pytest.mark.parametrize("kind", [*STRANGE, "absent"])
async def test_no_number_tells_of_one_slot(model: Any, kind: str) -> None:
    whole = notes(60)
    documents = without(whole, "unit-7") if kind == "absent" else whole
    for _ in range(2):  # A thread of another test may log in between: once, not twice.
        usual = await counted(model, "cough", whole)
        strange = await counted(model, STRANGE.get(kind, "cough"), documents)
        assert {**strange, "log": 0} == {**usual, "log": 0}
        if strange == usual:
            break
    assert strange == usual


@pytest.mark.promise("numbers-tell-nothing")
def test_the_number_of_calls_does_not_depend_on_who_is_there() -> None:
    """Also where a group is left with nobody."""
    counts = set()
    for person in range(14):
        model = ScriptedModel(script=lambda _prompt: "cough")
        chain = DPChain(
            groups=groups(without(notes(14), f"unit-{person}")),
            model=model,
            parser=VoteOutputParser(labels=LABELS),
            budget=corpus_account(":memory:"),
        )
        chain.invoke(QUESTION)
        counts.add(len(model.prompts))
    assert len(counts) == 1


@pytest.mark.promise("numbers-tell-nothing", twin=True)
async def test_an_open_wall_is_counted() -> None:
    """Where one person's slot logs and warns, there is one record more of each."""
    whole = notes(60)
    with open_for_tests():
        usual = await counted(ScriptedModel, "cough", whole)
        fewer = await counted(ScriptedModel, "cough", without(whole, "unit-7"))
    for name in ("log", "warnings"):
        with pytest.raises(AssertionError):
            assert usual[name] == fewer[name]
