"""Off switches for what belongs to the whole process, and not to one context.

Loggers, warnings, LangChain's callbacks and its LLM cache can be set up by anybody at
any time, also between two lines of a private step. So they are stopped where each of
them does its work, and only in the sealed region: outside they behave as before.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.caches import BaseCache
from langchain_core.callbacks import manager
from langchain_core.globals import get_llm_cache
from langchain_core.language_models import chat_models, llms
from langchain_core.outputs import Generation

from langchain_dpicl.sealed.telemetry import switch_off_sdk

IsSealed = Callable[[], bool]

_switching = threading.Lock()
_done: set[str] = set()


def install_switches(is_sealed: IsSealed) -> None:
    """Give the process its off switches, each one once.

    Args:
        is_sealed: Whether the caller is in the sealed region.
    """
    with _switching:
        if not _done:
            _switch_off_logging(is_sealed)
            _switch_off_langchain(is_sealed)
            _done.add("process")
        switch_off_sdk(is_sealed)


def _switch_off_logging(is_sealed: IsSealed) -> None:
    """Stop records where every logger makes and hands them on, and warnings."""
    is_enabled, handle = logging.Logger.isEnabledFor, logging.Logger.handle
    show: Callable[[Any], None] = warnings._showwarnmsg  # type: ignore[attr-defined]  # noqa: SLF001 - catch_warnings replaces the public one

    def is_enabled_for(self: logging.Logger, level: int) -> bool:
        return not is_sealed() and is_enabled(self, level)

    def handle_unless_sealed(self: logging.Logger, record: logging.LogRecord) -> None:
        if not is_sealed():
            handle(self, record)

    def show_unless_sealed(message: Any) -> None:
        if not is_sealed():
            show(message)

    logging.Logger.isEnabledFor = is_enabled_for  # type: ignore[method-assign]
    logging.Logger.handle = handle_unless_sealed  # type: ignore[method-assign]
    warnings._showwarnmsg = show_unless_sealed  # type: ignore[attr-defined]  # noqa: SLF001 - as above


def _switch_off_langchain(is_sealed: IsSealed) -> None:
    """Stop callbacks where LangChain hands out events, and its global LLM cache.

    A model or a group source that is made of other runnables calls them by `invoke`.
    No handler is inherited there, but debug mode and environment variables add some.
    """
    handle, ahandle = manager.handle_event, manager.ahandle_event

    def handle_event(*args: Any, **kwargs: Any) -> None:
        if not is_sealed():
            handle(*args, **kwargs)

    async def ahandle_event(*args: Any, **kwargs: Any) -> None:
        if not is_sealed():
            await ahandle(*args, **kwargs)

    def get_cache() -> BaseCache | None:
        found = get_llm_cache()
        return _NO_CACHE if found is not None and is_sealed() else found

    manager.handle_event = handle_event
    manager.ahandle_event = ahandle_event
    for module in (chat_models, llms):
        module.get_llm_cache = get_cache  # type: ignore[attr-defined]


class _NoCache(BaseCache):
    """Stands for a cache, so that nothing complains, and keeps nothing."""

    def lookup(self, prompt: str, llm_string: str) -> None:
        """Return nothing."""

    def update(
        self, prompt: str, llm_string: str, return_val: Sequence[Generation]
    ) -> None:
        """Keep nothing."""

    async def alookup(self, prompt: str, llm_string: str) -> None:
        """Return nothing."""

    async def aupdate(
        self, prompt: str, llm_string: str, return_val: Sequence[Generation]
    ) -> None:
        """Keep nothing."""

    def clear(self, **kwargs: Any) -> None:
        """Have nothing to clear."""


_NO_CACHE = _NoCache()
