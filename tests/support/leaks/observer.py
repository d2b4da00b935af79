"""What every observer has in common, and the stage on which they watch one run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal


@dataclass
class Stage:
    """What observers prepare before a run, and what the run leaves for them to see.

    Attributes:
        folder: Where the ledger's files are.
        callbacks: The caller's callbacks, in the run's config.
        model_fields: What the model is made with.
        model_config: What the model's `with_config` is given.
        chain_wrappers: Applied to the chain before it is asked.
        wrappers: Applied to the function that asks.
        debug_loop: Whether asyncio runs in its debug mode.
        parts: The chain, its parts, and whatever else was made for the run.
        outputs: Everything that the caller was given.
        error: What the caller was raised.
    """

    folder: Path
    callbacks: list[Any] = field(default_factory=list)
    model_fields: dict[str, Any] = field(default_factory=dict)
    model_config: dict[str, Any] = field(default_factory=dict)
    chain_wrappers: list[Callable[[Any], Any]] = field(default_factory=list)
    wrappers: list[Callable[[Any], Any]] = field(default_factory=list)
    debug_loop: bool = False
    parts: dict[str, Any] = field(default_factory=dict)
    outputs: list[Any] = field(default_factory=list)
    error: BaseException | None = None

    @property
    def config(self) -> dict[str, Any]:
        return {
            "callbacks": list(self.callbacks),
            "tags": ["a-tag"],
            "metadata": {"app": "clinic"},
            "run_name": "clinic question",
        }

    def wrapped(self, runnable: Any) -> Any:
        for wrap in self.chain_wrappers:
            runnable = wrap(runnable)
        return runnable


class Observer(ABC):
    """Something that watches: it is attached for a run, and then asked what it saw."""

    name: str
    """How it is called in the test's id."""

    sees: Literal["question", "something", "nothing"] = "question"
    """What it must have seen of any run, or else it does not work at all."""

    only_async: bool = False
    """Whether it can only watch the asynchronous ways."""

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        yield

    @abstractmethod
    def seen(self, stage: Stage) -> object:
        """Return everything that it saw, after the run."""
