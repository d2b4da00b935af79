"""Progress bars on standard error, for people at a terminal."""

from __future__ import annotations

import sys
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
