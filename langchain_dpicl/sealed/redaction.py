"""Redaction of records on their way into the groups' prompts.

Privacy:
    Redaction is no part of the guarantee: no epsilon depends on it, and none becomes
    smaller. It keeps what it finds from the model's provider. A text is redacted alone,
    in the sealed region, after the charge. So a slot's prompt is a function of its own
    group's records, as long as what the redactor returns depends on the text that it
    is given and on nothing else. That is an assumption, as it is for an embedding. One
    that numbers names over several texts (`PERSON_17`) breaks it: one person changes
    the numbers in everybody's prompts. A text that fails, or comes back as no text,
    makes its own group abstain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from langchain_core.runnables import Runnable

from langchain_dpicl.common.hidden import Hidden
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.release.fan_out import fan_out
from langchain_dpicl.release.flow import Do
from langchain_dpicl.sealed.embedding_calls import CALLS_AT_ONCE
from langchain_dpicl.sealed.model_loop import on_model_loop
from langchain_dpicl.sealed.region import aattempt, attempt, sealed_context

Redact = Callable[[str], str] | Runnable[str, str]
Written = list[str] | None
"""A group's records as they are written; None where one can't be."""

PUBLIC_TEXT = "This public sentence names nobody."
"""What a redactor has to bear before a question is charged."""


class Redactor:
    """A function or a Runnable, from text to text.

    Args:
        redact: The function, which is called for one text at a time, or the Runnable,
            which may be called for several groups at once.
        at_once: Most groups at once.

    Raises:
        InvalidParameterError: If it is neither.
    """

    def __init__(self, redact: Any, at_once: int | None = None) -> None:
        self._runs = isinstance(redact, Runnable)
        if not self._runs and (not callable(redact) or iscoroutinefunction(redact)):
            raise InvalidParameterError(
                "redact must be a function from text to text, or a Runnable; for "
                "asynchronous code, RunnableLambda(function, coroutine_function)."
            )
        self._redact = redact
        self._at_once = (at_once or CALLS_AT_ONCE) if self._runs else 1

    @property
    def name(self) -> str:
        """What tells it from others in the key of a cached answer."""
        kind = type(self._redact)
        module = getattr(self._redact, "__module__", kind.__module__)
        return f"{module}.{getattr(self._redact, '__qualname__', kind.__qualname__)}"

    def probe(self) -> Do:
        """Return the call that redacts a public text, out in the open.

        Raises:
            InvalidParameterError: If that fails, or gives no text.
        """

        def blocking() -> None:
            try:
                found = self._text(PUBLIC_TEXT)
            except Exception as error:  # noqa: BLE001 - replaced by an error of ours
                found = error
            _require_text(found)

        async def awaiting() -> None:
            if not self._runs:
                await asyncio.to_thread(blocking)
                return
            # Where the groups' texts are redacted: a client's connection that belongs
            # to another loop would fail whichever group met it first.
            call = partial(self._redact.ainvoke, PUBLIC_TEXT)
            try:
                found = await on_model_loop(call)
            except Exception as error:  # noqa: BLE001 - replaced by an error of ours
                found = error
            _require_text(found)

        return Do(blocking, awaiting)

    def failure(self, texts: Sequence[str]) -> str:
        """Return why public texts can't be redacted; empty if they can."""
        try:
            for text in texts:
                _require_text(self._text(text))
        except Exception as error:  # noqa: BLE001 - shown: the texts are public
            return f"{type(error).__name__}: {str(error)[:500]}"
        return ""

    def each(self, written: Sequence[Written]) -> Do:
        """Return the call that redacts groups' records, for the sealed region.

        Each text is redacted alone. A group whose text fails becomes None.
        """
        asked = [i for i, texts in enumerate(written) if texts]
        calls = [self._group(Hidden(written[i])) for i in asked]
        many = fan_out(
            calls,
            self._at_once,
            name="dpicl-redact",
            context=sealed_context(),
            on_threads=not self._runs,
        )

        def merged(found: list[Written]) -> list[Written]:
            redacted = list(written)
            for i, texts in zip(asked, found, strict=True):
                redacted[i] = texts
            return redacted

        async def awaiting() -> list[Written]:
            if not self._runs:
                return merged(await many.awaiting())
            # Runnables make tasks of their texts, which a loop's debug mode logs: the
            # models' loop does not.
            return merged(await on_model_loop(many.awaiting))

        return Do(lambda: merged(many.blocking()), awaiting)

    def _group(self, texts: Hidden[Any]) -> Do:
        def step() -> list[str]:
            return [_require_text(self._text(text)) for text in texts.value]

        async def astep() -> list[str]:
            invoke = self._redact.ainvoke
            return [_require_text(await invoke(text)) for text in texts.value]

        async def awaiting() -> Written:
            return await aattempt(astep)

        return Do(lambda: attempt(step), awaiting)

    def _text(self, text: str) -> Any:
        return self._redact.invoke(text) if self._runs else self._redact(text)


def _require_text(found: Any) -> str:
    if isinstance(found, str):
        return found
    what = "raised" if isinstance(found, Exception) else "returned"
    raise InvalidParameterError(
        f"redact= {what} {type(found).__name__} for the text {PUBLIC_TEXT!r}; nothing "
        "was charged. It takes a text and returns one. Behind a model, put "
        "| StrOutputParser()."
    )
