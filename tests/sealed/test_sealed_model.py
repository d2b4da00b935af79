"""One call a prompt, one slot an answer, and no failure that reaches another slot."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import LLM, BaseLLM
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult, Generation, LLMResult
from langchain_core.prompt_values import StringPromptValue
from langchain_core.rate_limiters import InMemoryRateLimiter
from langchain_core.runnables import ConfigurableField, RunnableLambda
from pydantic import PrivateAttr
from scripted import AsyncScriptedModel, ScriptedModel

from langchain_dpicl.common.replies import ABSTAIN, FAILED, Slot
from langchain_dpicl.errors import (
    GroupCallError,
    InvalidParameterError,
    PublicCallError,
    UnsealableModelError,
)
from langchain_dpicl.sealed import SealedModel, open_for_tests
from langchain_dpicl.wording import answers, streamed

PUBLIC = StringPromptValue(text="Say yes.")


def prompts(count: int) -> list[StringPromptValue]:
    return [StringPromptValue(text=str(i)) for i in range(count)]


def ask(model: Any, count: int, limit: int | None = None) -> list[Slot]:
    return SealedModel(model, limit).ask(prompts(count))


def odd_is_bad(text: str) -> str:
    if text == "3":
        raise RuntimeError("private: " + text)
    return "" if text == "5" else f"answer {text}"


EXPECTED = [
    FAILED if i == 3 else ABSTAIN if i == 5 else Slot(f"answer {i}") for i in range(8)
]


class BatchedLLM(BaseLLM):
    """Takes lists, and refuses a whole list for one bad prompt, as providers do."""

    seconds: float = 0.0
    _calls: list[int] = PrivateAttr(default_factory=list)
    _running: list[int] = PrivateAttr(default_factory=list)
    _most: int = PrivateAttr(default=0)

    @property
    def _llm_type(self) -> str:
        return "batched"

    def _generate(self, prompts: list[str], *args: Any, **kwargs: Any) -> LLMResult:
        self._calls.append(len(prompts))
        self._running.append(1)
        self._most = max(self._most, len(self._running))
        time.sleep(self.seconds)
        self._running.pop()
        return LLMResult(generations=[[*self._said(text)] for text in prompts])

    def _said(self, text: str) -> list[Generation]:
        return [Generation(text=odd_is_bad(text)), Generation(text="a second one")]


class AsyncBatchedLLM(BatchedLLM):
    async def _agenerate(
        self, prompts: list[str], *args: Any, **kwargs: Any
    ) -> LLMResult:
        return self._generate(prompts)


class SingleLLM(LLM):
    @property
    def _llm_type(self) -> str:
        return "single"

    def _call(self, prompt: str, *args: Any, **kwargs: Any) -> str:
        return odd_is_bad(prompt)


class Answering(ScriptedModel):
    """Answers with a result that a function makes of all that a call is given."""

    result: Callable[..., ChatResult]

    def _generate(self, *args: Any, **given: Any) -> ChatResult:
        return self.result(*args, **given)


def saying(*contents: Any) -> ChatResult:
    messages = [AIMessage(content) for content in contents]
    return ChatResult(
        generations=[ChatGeneration(message=message) for message in messages]
    )


@pytest.mark.parametrize("limit", [None, 1, 3])
@pytest.mark.parametrize(
    "model",
    [
        ScriptedModel(script=odd_is_bad),
        AsyncScriptedModel(script=odd_is_bad),
        BatchedLLM(),
        AsyncBatchedLLM(),
        SingleLLM(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_failed_call_abstains_and_touches_no_other(
    model: Any, limit: int | None
) -> None:
    assert ask(model, 8, limit) == EXPECTED


def test_a_model_that_computes_here_is_asked_once_at_a_time() -> None:
    """A completion model that takes lists and has no asynchronous call of its own."""
    for model, limit, most in (
        (BatchedLLM(seconds=0.002), None, 1),
        (BatchedLLM(seconds=0.01), 4, 4),
        (AsyncBatchedLLM(seconds=0.01), None, 8),
    ):
        ask(model, 8, limit)
        assert 1 <= model._most <= most
        assert (model._most > 1) is (most > 1)


def test_progress_counts_the_calls() -> None:
    model = BatchedLLM()
    ended: list[int] = []
    assert SealedModel(model).ask(prompts(8), ended.append) == EXPECTED
    assert ended == model._calls == [1] * 8
    assert SealedModel(model).ask([]) == []


# -- what a reply is -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "slot"),
    [
        (saying("first", "second"), Slot("first")),
        (saying([{"type": "text", "text": "from blocks"}]), Slot("from blocks")),
        (saying([]), ABSTAIN),
        (saying("  \n"), ABSTAIN),
        (saying(), ABSTAIN),
    ],
)
def test_a_slot_holds_one_answer(result: ChatResult, slot: Slot) -> None:
    assert ask(Answering(result=lambda *_, **__: result), 1) == [slot]


# -- how a model is called -------------------------------------------------------------


def test_arguments_reach_the_model_as_langchain_gives_them() -> None:
    """All by name, and a run manager only where the method names one."""
    seen: list[Any] = []

    def plain(_: Any, **given: Any) -> ChatResult:
        seen.append(given)
        return saying("yes")

    def managed(_: Any, *, run_manager: Any = 7, **given: Any) -> ChatResult:
        return plain(_, run_manager=run_manager, **given)

    class Managed(ScriptedModel):
        def _generate(
            self, messages: Any, stop: Any = None, run_manager: Any = 7, **given: Any
        ) -> ChatResult:
            return managed(messages, stop=stop, run_manager=run_manager, **given)

    for model in (Answering(result=plain), Managed()):
        bound = model.bind(stop=["x"], temperature=0.5).bind(temperature=0.7, top_p=1)
        assert ask(bound.with_config(tags=["t"]), 1) == [Slot("yes")]
    first = {"stop": ["x"], "temperature": 0.7, "top_p": 1}
    assert seen == [first, {**first, "run_manager": None}]


def test_the_models_rate_limiter_is_kept() -> None:
    taken: list[bool] = []

    class Counting(InMemoryRateLimiter):
        def acquire(self, *, blocking: bool = True) -> bool:
            taken.append(blocking)
            return True

    ask(AsyncScriptedModel(rate_limiter=Counting()), 5)
    assert taken == [True] * 5


class Hearing(BaseCallbackHandler):
    """What somebody hangs on a model of their own."""

    heard = False

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        Hearing.heard = True


def test_a_models_own_observers_stay_outside(capsys: pytest.CaptureFixture) -> None:
    cache = InMemoryCache()
    model = ScriptedModel(callbacks=[Hearing()], verbose=True, cache=cache)
    inside = SealedModel(model)
    assert inside.ask(prompts(2)) == [Slot("yes")] * 2
    assert not Hearing.heard
    assert cache.lookup("0", "") is None
    assert vars(cache)["_cache"] == {}
    # The caller's own model keeps them, and one without any is taken as it is.
    assert (model.callbacks, model.verbose, model.cache) != (None, False, False)
    with open_for_tests():
        inside.ask(prompts(1))
    assert Hearing.heard
    other = ScriptedModel()
    assert SealedModel(other).model is other


# -- what can't be sealed --------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (None, "not nothing"),
        ("", "not nothing"),
        ("openai:gpt-4o", "not a name"),
        (RunnableLambda(str), "RunnableLambda can't be called"),
        (RunnableLambda(str).bind(stop=["x"]), "RunnableLambda can't be called"),
        (ScriptedModel() | RunnableLambda(str), "RunnableSequence can't be called"),
        (ScriptedModel().with_retry(), "without .with_retry"),
        (
            ScriptedModel().configurable_fields(cache=ConfigurableField(id="cache")),
            "can't be called",
        ),
        (
            ScriptedModel().configurable_alternatives(
                ConfigurableField(id="model"), other=ScriptedModel()
            ),
            "can't be called",
        ),
        (ScriptedModel().with_fallbacks([]), "without .*with_fallbacks"),
        (ScriptedModel().with_listeners(on_end=print).bind(stop=["x"]), "listeners"),
    ],
)
def test_what_is_wrong_with_a_model_is_said(model: Any, what: str) -> None:
    with pytest.raises(UnsealableModelError, match=what):
        SealedModel(model)


@pytest.mark.parametrize(
    ("limit", "what"),
    [(0, "at least 1, not 0"), (-1, "not -1"), (1.5, "not float"), ("2", "not str")],
)
def test_a_limit_that_is_no_count_is_named(limit: Any, what: str) -> None:
    with pytest.raises(InvalidParameterError, match=f"max_concurrency must be.*{what}"):
        SealedModel(BatchedLLM(), limit)


# -- the public call -------------------------------------------------------------------


@pytest.mark.parametrize("way", ["group call", "probe", "answer", "pieces"])
def test_a_model_of_one_call_makes_public_ones_in_turn(way: str) -> None:
    """Whatever is bound to it: a public call beside a private one may make it fail."""
    model = BatchedLLM(seconds=0.005)
    inside, other = SealedModel(model), SealedModel(model.bind(stop=["x"]), 1)
    calls: dict[str, Callable[[], Any]] = {
        "group call": lambda: other.ask(prompts(6)),
        "probe": lambda: other.probe(PUBLIC),
        "answer": lambda: answers(model, PUBLIC, None, other, 6),
        "pieces": lambda: [*streamed(model, PUBLIC, {}, other)],
    }
    with ThreadPoolExecutor(2) as pool:
        for call in (lambda: inside.ask(prompts(8)), calls[way]):
            pool.submit(call)
    assert len(model._calls) > 8
    assert model._most == 1


def test_one_public_call_is_made_the_way_that_private_ones_are() -> None:
    model = BatchedLLM()
    inside = SealedModel(model.bind(stop=["x"]))
    assert not inside.is_probed
    for _ in range(2):
        inside.probe(PUBLIC)
        assert inside.is_probed
    assert model._calls == [1]
    inside.doubt()
    assert not inside.is_probed
    inside.probe(PUBLIC)
    assert model._calls == [1, 1]


def test_a_model_without_a_blocking_call_is_refused_by_it() -> None:
    class Awaited(ScriptedModel):
        def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
            raise NotImplementedError

        async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
            return saying("yes")

    inside = SealedModel(Awaited())
    with pytest.raises(UnsealableModelError, match="Awaited has no blocking call"):
        inside.probe(PUBLIC)
    assert not inside.is_probed


def test_a_dead_model_is_named_by_it_with_its_error() -> None:
    def dead(_prompt: str) -> str:
        raise ConnectionError("refused")

    inside = SealedModel(ScriptedModel(script=dead))
    for _ in range(2):
        with pytest.raises(PublicCallError, match="ConnectionError") as caught:
            inside.probe(PUBLIC)
        assert not isinstance(caught.value, GroupCallError)
        assert caught.value.__cause__ is caught.value.__context__ is None
    assert not inside.is_probed
