"""No frame of a parser that refuses its candidates holds one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.outputs import Generation
from support.frames import private_locals
from support.parser_parts import PARSERS, rich
from unit_tests.wall.marks import mark

from langchain_dpicl import BudgetExhaustedError, InvalidParameterError, NoBudgetError
from langchain_dpicl.parsers import DPOutputParser

ANSWERS = [f"A dry cough, said {mark('answer', n)}." for n in range(20)]


class Errors(BaseCallbackHandler):
    """Looks at the frames of the errors that callbacks are told of."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.count = 0

    def on_chain_error(self, error: BaseException, **_: Any) -> None:
        self.count += 1
        self.seen += private_locals(error, __name__)


async def call(parser: DPOutputParser, way: str, answers: Any, errors: Errors) -> None:
    config: Any = {"callbacks": [errors]}
    generations = [Generation(text=str(each)) for each in answers]
    if way == "invoke":
        parser.invoke(answers, config)
    elif way == "ainvoke":
        await parser.ainvoke(answers, config)
    elif way == "parse_result":
        parser.parse_result(generations)
    else:
        await parser.aparse_result(generations)


def spent() -> Any:
    budget = rich(1)
    PARSERS["vote"](budget=budget).invoke(["cough"] * 20)
    return budget


REFUSED: dict[str, tuple[Callable[[], Any], Any, type[Exception]]] = {
    "no budget": (lambda: None, ANSWERS, NoBudgetError),
    "a spent budget": (spent, ANSWERS, BudgetExhaustedError),
    "messages": (lambda: None, [AIMessage(text) for text in ANSWERS], NoBudgetError),
}


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "parse_result", "aparse_result"])
@pytest.mark.parametrize("name", REFUSED)
async def test_no_frame_of_a_refusal_holds_an_answer(name: str, way: str) -> None:
    make, answers, kind = REFUSED[name]
    errors = Errors()
    with pytest.raises(kind) as caught:
        await call(PARSERS["vote"](budget=make()), way, answers, errors)
    assert private_locals(caught.value, __name__) == []
    assert errors.seen == []
    assert errors.count == ("invoke" in way)


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_no_frame_of_a_candidate_that_is_none_holds_an_answer(way: str) -> None:
    with pytest.raises(InvalidParameterError, match="not int") as caught:
        await call(PARSERS["vote"](), way, [*ANSWERS, 3], Errors())
    assert private_locals(caught.value, __name__) == []
