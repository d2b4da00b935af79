"""A text is redacted alone, a failure stays in its group, and nobody is asked twice."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any, NoReturn

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.sealed import arun_sealed, run_sealed
from langchain_dpicl.sealed.model_loop import THREAD
from langchain_dpicl.sealed.redaction import PUBLIC_TEXT, Redactor

WRITTEN = [["Ada coughs.", "Bob"], [], None, ["Eve"], ["Ada"]]
REDACTED = [["[X] coughs.", "Bob"], [], None, None, ["[X]"]]


def hide(text: str) -> str:
    if text == "Eve":
        raise RuntimeError("private: " + text)
    return text.replace("Ada", "[X]")


async def ahide(text: str) -> str:
    return hide(text)


REDACTORS: dict[str, Any] = {
    "function": hide,
    "partial": partial(hide),
    "runnable": RunnableLambda(hide),
    "coroutine": RunnableLambda(hide, ahide),
    "sequence": RunnableLambda(hide, ahide) | RunnableLambda(str),
}


@pytest.mark.parametrize("kind", REDACTORS)
async def test_each_group_by_itself(kind: str) -> None:
    call = Redactor(REDACTORS[kind]).each(WRITTEN)
    assert call.blocking() == REDACTED
    again = Redactor(REDACTORS[kind]).each(WRITTEN)
    assert await again.awaiting() == REDACTED
    sealed = Redactor(REDACTORS[kind])
    assert run_sealed(sealed.each(WRITTEN).blocking) == REDACTED

    async def step() -> Any:
        return await sealed.each(WRITTEN).awaiting()

    assert await arun_sealed(step) == REDACTED


@pytest.mark.parametrize("wrong", [None, 3, b"x", FakeListChatModel(responses=["x"])])
@pytest.mark.parametrize("wrap", [False, True])
async def test_what_is_no_text_makes_the_group_abstain(wrong: Any, wrap: bool) -> None:
    def give(text: str) -> Any:
        return wrong if text == "odd" else text

    redactor = Redactor(RunnableLambda(give) if wrap else give)
    written = [["even", "odd"], ["even"]]
    assert redactor.each(written).blocking() == [None, ["even"]]
    assert await redactor.each(written).awaiting() == [None, ["even"]]


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, GeneratorExit])
async def test_whatever_is_raised_is_no_more_than_an_abstention(error: Any) -> None:
    def fail(text: str) -> str:
        if text == "odd":
            raise error("private")
        return text

    for redactor in (Redactor(fail), Redactor(RunnableLambda(fail))):
        assert redactor.each([["odd"], ["even"]]).blocking() == [None, ["even"]]
    assert await Redactor(fail).each([["odd"], ["even"]]).awaiting() == [
        None,
        ["even"],
    ]


def test_a_user_may_stop_the_program() -> None:
    def stop(text: str) -> NoReturn:
        raise KeyboardInterrupt(text)

    with pytest.raises(KeyboardInterrupt):
        run_sealed(Redactor(stop).each([["a"]]).blocking)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda _: None,
        lambda: "no argument",
        lambda _: 1 / 0,
        RunnableLambda(ahide),
        FakeListChatModel(responses=["said"]),
    ],
)
async def test_a_redactor_that_fails_is_found_on_a_public_text(wrong: Any) -> None:
    if not isinstance(wrong, RunnableLambda):
        with pytest.raises(InvalidParameterError, match="public sentence") as caught:
            await Redactor(wrong).probe().awaiting()
        assert caught.value.__cause__ is caught.value.__context__ is None
    with pytest.raises(InvalidParameterError, match="nothing was charged"):
        Redactor(wrong).probe().blocking()


async def test_one_that_works_passes() -> None:
    model = FakeListChatModel(responses=["said"]) | StrOutputParser()
    for good in (*REDACTORS.values(), model, str.upper):
        Redactor(good).probe().blocking()
        await Redactor(good).probe().awaiting()


@pytest.mark.parametrize("wrong", [None, "text", ahide, 3])
def test_other_kinds_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidParameterError, match="function from text to text"):
        Redactor(wrong)


@pytest.mark.parametrize("awaited", [False, True])
def test_a_function_is_called_for_one_text_at_a_time(awaited: bool) -> None:
    running, most = [0], [0]
    lock = threading.Lock()

    def count(text: str) -> str:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        threading.Event().wait(0.002)
        with lock:
            running[0] -= 1
        return text

    written = [[str(i)] for i in range(12)]
    call = Redactor(count).each(written)
    assert (asyncio.run(call.awaiting()) if awaited else call.blocking()) == written
    assert most == [1]


@pytest.mark.parametrize("awaited", [False, True])
def test_a_runnable_is_called_for_several_groups_up_to_the_limit(awaited: bool) -> None:
    """All of the limit's calls have to be under way before one of them ends."""
    together, running, most = threading.Barrier(3, timeout=60), [0], [0]
    lock = threading.Lock()

    def meet(text: str) -> str:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        together.wait()
        with lock:
            running[0] -= 1
        return text

    written = [[str(i)] for i in range(12)]
    call = Redactor(RunnableLambda(meet), 3).each(written)
    assert (asyncio.run(call.awaiting()) if awaited else call.blocking()) == written
    assert most == [3]


def test_names_tell_redactors_apart() -> None:
    names = [Redactor(one).name for one in (hide, str.upper, RunnableLambda(hide))]
    assert len(set(names)) == 3
    assert names[0].endswith("test_redaction.hide")
    assert PUBLIC_TEXT not in repr(Redactor(hide))


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (lambda _: 1 / 0, "raised ZeroDivisionError"),
        (RunnableLambda(lambda _: 1 / 0), "raised ZeroDivisionError"),
        (lambda _: None, "returned NoneType"),
        (RunnableLambda(lambda _: None), "returned NoneType"),
        (lambda text: [text], "returned list"),
    ],
)
async def test_it_is_said_what_a_redactor_did(wrong: Any, what: str) -> None:
    redactor = Redactor(wrong)
    said = f"redact= {what} for the text 'This public sentence names nobody.'"
    with pytest.raises(InvalidParameterError, match=said) as caught:
        redactor.probe().blocking()
    with pytest.raises(InvalidParameterError, match=said) as awaited:
        await redactor.probe().awaiting()
    for error in (caught.value, awaited.value):
        assert error.__cause__ is error.__context__ is None


async def test_each_way_of_asking_calls_its_own_function() -> None:
    asked: list[tuple[str, str]] = []

    def note(way: str, text: str) -> str:
        asked.append((way, threading.current_thread().name.partition("_")[0]))
        return text

    async def anote(text: str) -> str:
        return note("awaiting", text)

    runs = Redactor(RunnableLambda(partial(note, "blocking"), anote))
    calls = Redactor(partial(note, "blocking"))
    for redactor, ways in (
        (runs, [("blocking", "dpicl-redact"), ("awaiting", THREAD)]),
        (calls, [("blocking", "MainThread"), ("blocking", "asyncio")]),
    ):
        call = redactor.each([["a"], ["b"]])
        assert call.blocking() == [["a"], ["b"]]
        again = redactor.each([["a"], ["b"]])
        assert await again.awaiting() == [["a"], ["b"]]
        assert asked == [ways[0]] * 2 + [ways[1]] * 2
        asked.clear()
        redactor.probe().blocking()
        await redactor.probe().awaiting()
        assert [way for way, _ in asked] == [ways[0][0], ways[1][0]]
        # Nothing is called on the caller's own event loop.
        assert asked[1][1] == ways[1][1]
        asked.clear()


@pytest.mark.parametrize(
    ("redact", "at_once", "most"),
    [
        (hide, None, 1),
        (hide, 5, 1),
        (RunnableLambda(hide), None, 16),
        (RunnableLambda(hide), 5, 5),
        (RunnableLambda(hide), 1, 1),
    ],
)
def test_only_runnables_are_called_at_once(
    redact: Any, at_once: Any, most: int
) -> None:
    assert Redactor(redact, at_once)._at_once == most


async def test_all_of_a_groups_texts_come_back_in_order() -> None:
    written = [[f"{group} {text}" for text in range(group)] for group in range(4)]
    for redact in (str.upper, RunnableLambda(str.upper)):
        redactor = Redactor(redact)
        wanted = [[text.upper() for text in texts] for texts in written]
        assert redactor.each(written).blocking() == wanted
        assert await redactor.each(written).awaiting() == wanted
        # What was given stays as it was.
        assert written[3] == ["3 0", "3 1", "3 2"]
        assert redactor.each([]).blocking() == []


def test_a_name_is_that_of_the_function_or_of_the_class() -> None:
    assert Redactor(hide).name == f"{__name__}.hide"
    runs = RunnableLambda(hide)
    assert Redactor(runs).name == f"{type(runs).__module__}.RunnableLambda"

    class Hiding:
        def __call__(self, text: str) -> str:
            return text

    assert Redactor(Hiding()).name == f"{__name__}.{Hiding.__qualname__}"
