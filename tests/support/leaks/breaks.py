"""The seal, broken in ways in which somebody who writes such a library breaks it."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackManager, CallbackManager
from langchain_core.runnables.config import ensure_config

from langchain_dpicl import DPChain, RetrievedGroups
from langchain_dpicl.common.hidden import Hidden
from langchain_dpicl.common.slots import Slot, answered
from langchain_dpicl.ledger.sql import unit_charging
from langchain_dpicl.parsers import VoteOutputParser
from langchain_dpicl.release.flow import Do
from langchain_dpicl.sealed import SealedModel, attempt, calls, region
from langchain_dpicl.sealed.redaction import Redactor


@contextmanager
def unsealed() -> Iterator[pytest.MonkeyPatch]:
    """Group calls are ordinary calls in the caller's context; errors come as they are.

    As `LLMChain` did, each call is a run that tells its callbacks the prompt.
    """
    with pytest.MonkeyPatch.context() as patch:
        made = SealedModel.__init__

        def init(self: Any, model: Any, *args: Any) -> None:
            made(self, model, *args)
            self.given = model

        async def aguarded(step: Any) -> Any:
            return Hidden(await step())

        patch.setattr(SealedModel, "__init__", init)
        patch.setattr(SealedModel, "_generate", _generate)
        patch.setattr(SealedModel, "_agenerate", _agenerate)
        patch.setattr(calls, "_without_observers", lambda model: model)
        for module in (calls, region):
            patch.setattr(module, "sealed_context", contextvars.copy_context)
        patch.setattr(region, "_guarded", lambda step: step())
        patch.setattr(region, "_aguarded", aguarded)
        yield patch


def _generate(self: Any, prompts: list[Any]) -> list[Slot]:
    texts = [prompt.to_string() for prompt in prompts]
    config: Any = ensure_config()
    manager = CallbackManager.configure(
        config["callbacks"], verbose=self._model.verbose
    )
    run = manager.on_chain_start({"name": "group"}, {"prompts": texts})
    run.on_text("\n".join(texts))
    said = [self.given.invoke(prompt) for prompt in prompts]
    run.on_chain_end({"answers": said})
    return [answered(getattr(each, "text", each)) for each in said]


async def _agenerate(self: Any, prompts: list[Any]) -> list[Slot]:
    texts = [prompt.to_string() for prompt in prompts]
    config: Any = ensure_config()
    manager = AsyncCallbackManager.configure(
        config["callbacks"], verbose=self._model.verbose
    )
    run = await manager.on_chain_start({"name": "group"}, {"prompts": texts})
    await run.on_text("\n".join(texts))
    said = [await self.given.ainvoke(prompt) for prompt in prompts]
    await run.on_chain_end({"answers": said})
    return [answered(getattr(each, "text", each)) for each in said]


@contextmanager
def bare_threads() -> Iterator[None]:
    """Group calls run in threads in which nobody waits for an error."""
    with unsealed() as patch:
        patch.setattr(SealedModel, "answer", _in_threads)
        patch.setattr(SealedModel, "aanswer", _ain_threads)
        yield


def _in_threads(self: Any, prompts: Any, *args: Any) -> list[Slot]:
    for prompt in prompts:
        thread = threading.Thread(target=self._generate, args=([prompt],))
        thread.start()
        thread.join()
    return [answered("cough")] * len(prompts)


async def _ain_threads(self: Any, prompts: Any, *args: Any) -> list[Slot]:
    return await asyncio.to_thread(_in_threads, self, prompts)


@contextmanager
def quoted_answers() -> Iterator[None]:
    """A release that quotes the groups' answers, in its text and in its record."""
    release = VoteOutputParser.release

    def quoting(self: Any, slots: Any, **terms: Any) -> Any:
        outcome = release(self, slots, **terms)
        answers = [slot.text for slot in slots]
        text, details = f"{outcome.text} {answers}", {"answers": answers}
        return replace(outcome, text=text, details=details)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VoteOutputParser, "release", quoting)
        yield


@contextmanager
def plain_reprs() -> Iterator[None]:
    """Groups whose repr shows them, in a chain whose repr shows its groups."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RetrievedGroups, "__repr__", lambda self: repr(_drawn(self)))
        patch.setattr(DPChain, "__repr_args__", lambda self: [("groups", self.groups)])
        yield


@contextmanager
def plain_pickles() -> Iterator[None]:
    """Groups that can be pickled, with all that they hold."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            RetrievedGroups, "__reduce__", lambda self: (list, (_drawn(self),))
        )
        yield


def _drawn(groups: RetrievedGroups) -> list[Any]:
    asked = groups.prepare("cough")
    return list(RetrievedGroups.draw_prepared(groups, asked))


@contextmanager
def plain_units() -> Iterator[None]:
    """A ledger that keeps balances under the ids themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unit_charging, "unit_tag", lambda _key, unit_id: unit_id.encode())
        yield


@contextmanager
def plain_results() -> Iterator[None]:
    """Group calls are tasks of the caller's loop, whose results are the answers.

    A task's repr shows the first letters of its result, so the repr begins with a mark.
    """

    async def aattempt(step: Any) -> Any:
        try:
            return await asyncio.ensure_future(step())
        except Exception:  # noqa: BLE001 - as the original
            return None

    def show(slot: Slot) -> str:
        return (slot.text or "").partition(" ")[2]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "aattempt", aattempt)
        patch.setattr(calls, "on_model_loop", lambda step: step())
        patch.setattr(Slot, "__repr__", show)
        yield


@contextmanager
def redacting_in_sight() -> Iterator[None]:
    """Records are redacted where the public text is: in the caller's own context."""
    probe, contexts = Redactor.probe, list[contextvars.Context]()

    def seen(self: Redactor) -> Any:
        contexts.append(contextvars.copy_context())
        return probe(self)

    def each(self: Redactor, written: Any) -> Do:
        def group(texts: Any) -> Any:
            run = contexts[-1].copy().run
            return attempt(lambda: [run(self._text, text) for text in texts])

        async def awaiting() -> Any:
            return [group(texts) for texts in written]

        return Do(lambda: [group(texts) for texts in written], awaiting)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Redactor, "probe", seen)
        patch.setattr(Redactor, "each", each)
        yield


@dataclass(frozen=True)
class Break:
    """How the seal is broken for an observer, and in which run."""

    how: Callable[[], AbstractContextManager[Any]] = unsealed
    failure: str = "none"


SEALED_CALLS = Break()
BREAKS = {
    "output": Break(quoted_answers),
    "answer_cache": Break(quoted_answers),
    "exception": Break(unsealed, failure="store"),
    "exception_hooks": Break(bare_threads),
    "repr": Break(plain_reprs),
    "dumpd": Break(plain_reprs),
    "pickle": Break(plain_pickles),
    "ledger_files": Break(plain_units),
    "asyncio_debug": Break(plain_results),
}
"""By observer; every other one sees it when group calls are ordinary calls."""
