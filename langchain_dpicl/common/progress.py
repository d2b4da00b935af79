"""Progress on standard error, for people at a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Advance = Callable[[int], None]  # Says how many more are done.

_WIDTH = 24
_PAUSE = 0.1  # Seconds between two drawings.


@contextmanager
def progress_bar(
    title: str,
    total: int | None,
    *,
    shown: bool,
    done: int = 0,
    speed: str | None = None,
) -> Iterator[Advance]:
    """Show a bar while the block runs; yield what moves it on.

    A total of None is not known; `done` is done already; `speed` is the unit, such as
    "tokens/s", in which to show how fast it goes. Where standard error is no terminal
    only the last state is written.

    Example:
        >>> with progress_bar("Counting", 3, shown=False) as advance:
        ...     advance(3)
    """
    if not shown:
        yield no_progress
        return
    bar = _Bar(title, total, done, speed)
    try:
        yield bar.advance
        # What turned out not to be needed counts as done, and not as quick work.
        bar.total = None if total is None else bar.done
    finally:
        bar.draw("\n")


def no_progress(_count: int) -> None:
    """Move no bar."""


class _Bar:
    """A line that is written over; threads may move it."""

    def __init__(
        self, title: str, total: int | None, done: int, speed: str | None
    ) -> None:
        self.title, self.total, self.speed = title, total, speed
        self.done = self._before = done
        self._start = self._drawn = time.monotonic()
        self._lock = threading.Lock()

    def advance(self, count: int) -> None:
        with self._lock:
            self.done += count
            is_due = time.monotonic() - self._drawn > _PAUSE
        if is_due and is_watched():
            self.draw("")

    def draw(self, end: str) -> None:
        # What goes wrong on the screen must not fail work that is paid for.
        with suppress(Exception), self._lock:
            self._drawn = time.monotonic()
            taken = self._drawn - self._start
            words = [self.title]
            if self.total is None:
                words.append(f"{self.done:,}")
            else:
                share = self.done / self.total if self.total else 1.0
                filled = "#" * round(_WIDTH * share)
                words.append(f"[{filled:<{_WIDTH}}] {self.done:,}/{self.total:,}")
            words.append(f"{taken:.0f} s")
            if self.speed is not None:
                rate = (self.done - self._before) / taken if taken else 0.0
                words.append(f"{rate:,.1f} {self.speed}")
            sys.stderr.write("\r" + " ".join(words) + end)
            sys.stderr.flush()


def is_watched() -> bool:
    """Return whether somebody looks: at a terminal, or in a notebook."""
    # Programs without a console have no standard error.
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return is_terminal or "ipykernel" in sys.modules
