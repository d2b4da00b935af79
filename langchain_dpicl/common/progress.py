"""Progress bars on standard error, for people at a terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

Advance = Callable[[int], None]  # Says how many more are done.


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
    "tokens/s", in which to show how fast it goes.

    Example:
        >>> with progress_bar("Counting", 3, shown=False) as advance:
        ...     advance(3)
    """
    if not shown:
        yield no_progress
        return
    bars = _new_bars(transient=False, speed=speed, done=done, is_open=total is None)
    task: Any = None
    # What goes wrong on the screen must not fail work that is paid for.
    with suppress(Exception):
        bars.start()
    with suppress(Exception):
        task = bars.add_task(title, total=total, completed=done)

    def advance(count: int) -> None:
        with suppress(Exception):
            bars.advance(task, count)

    try:
        yield advance
        with suppress(Exception):
            # What turned out not to be needed counts as done, and not as quick work.
            bars.update(task, total=bars.tasks[0].completed)
    finally:
        with suppress(Exception):
            bars.stop()


class GroupProgress:
    """The bars of a chain's group calls, one a query; they share the screen.

    Privacy:
        A bar runs from 0 to the public number of groups, but how it moves is private:
        when, and by how much, tells how many calls there are and which have ended. So
        it is for the terminal of somebody who may see the records, and off otherwise.
        It is drawn, or fails to be, without any effect on the query.
    """

    def __init__(self, *, shown: bool = False) -> None:
        self._shown = shown
        self._lock = threading.Lock()
        self._bars: Any = None
        self._users = 0

    @contextmanager
    def asking(self, calls: int, groups: int) -> Iterator[Advance]:
        """Show a bar while a query's groups are asked; yield what moves it on."""
        if not self._shown or not calls:
            yield no_progress
            return
        bars: Any = None
        task: Any = None
        # What goes wrong on the screen must not fail a query that is paid for.
        with suppress(Exception):
            bars = self._enter()
            task = bars.add_task("Asking the groups", total=groups)

        def advance(count: int) -> None:
            with suppress(Exception):
                bars.advance(task, count * groups / calls)

        try:
            yield advance
        finally:
            if bars is not None:
                with suppress(Exception):
                    bars.remove_task(task)
                with suppress(Exception):
                    self._leave()

    def _enter(self) -> Any:
        with self._lock:
            if self._bars is None:
                bars = _new_bars(transient=True)
                bars.start()
                self._bars = bars
            self._users += 1
            return self._bars

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                bars, self._bars = self._bars, None
                bars.stop()


def no_progress(_count: int) -> None:
    """Move no bar."""


def _new_bars(
    *,
    transient: bool,
    speed: str | None = None,
    done: int = 0,
    is_open: bool = False,
) -> Any:
    from rich.console import Console
    from rich.progress import (
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.text import Text

    class Screen(Console):
        """A screen that is gone is no reason to end the program."""

        def on_broken_pipe(self) -> None:
            pass

    class Speed(ProgressColumn):
        """How many were done in a second."""

        def render(self, task: Task) -> Text:
            taken = task.finished_time or task.elapsed
            rate = (task.completed - done) / taken if taken else 0.0
            return Text(f"{rate:,.1f} {speed}")

    columns: list[str | ProgressColumn]
    if is_open:
        # Without a total there is no share, and no time left.
        words = TextColumn("{task.description} {task.completed:,.0f}")
        columns = [SpinnerColumn(), words, TimeElapsedColumn()]
    else:
        columns = [*Progress.get_default_columns(), MofNCompleteColumn()]
    if speed is not None:
        columns.append(Speed())
    return Progress(*columns, console=Screen(stderr=True), transient=transient)


def is_watched() -> bool:
    """Return whether somebody looks: at a terminal, or in a notebook."""
    # Programs without a console have no standard error.
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return is_terminal or "ipykernel" in sys.modules
