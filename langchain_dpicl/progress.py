"""Progress bars on standard error, for people at a terminal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Advance = Callable[[int], None]
"""Says how many more are done."""


@contextmanager
def progress_bar(title: str, total: int, *, shown: bool) -> Iterator[Advance]:
    """Show a bar while the block runs; yield what moves it on.

    Args:
        title: What is being done.
        total: How much there is to do.
        shown: Whether to show it at all.

    Example:
        >>> with progress_bar("Counting", 3, shown=False) as advance:
        ...     advance(3)
    """
    if not shown:
        yield no_progress
        return
    with _new_bars(transient=False) as bars:
        task = bars.add_task(title, total=total)
        yield lambda count: bars.advance(task, count)


class GroupProgress:
    """The bars of a chain's group calls, one a query; they share the screen.

    Args:
        shown: Whether to show any.

    Privacy:
        A bar runs from 0 to the public number of groups, whatever the number of calls
        is: it moves by the share of the calls that have ended. *When* it moves is time,
        which the proof says nothing of; so it is for the operator's own terminal.
    """

    def __init__(self, *, shown: bool = False) -> None:
        self._shown = shown
        self._lock = threading.Lock()
        self._bars: Any = None
        self._users = 0

    @contextmanager
    def asking(self, calls: int, groups: int) -> Iterator[Advance]:
        """Show a bar while a query's groups are asked; yield what moves it on.

        Args:
            calls: How many calls are made; private.
            groups: The public number of groups.
        """
        if not self._shown or not calls:
            yield no_progress
            return
        bars = self._enter()
        try:
            task = bars.add_task("Asking the groups", total=groups)
            yield lambda count: bars.advance(task, count * groups / calls)
            bars.remove_task(task)
        finally:
            self._leave()

    def _enter(self) -> Any:
        with self._lock:
            if self._bars is None:
                self._bars = _new_bars(transient=True)
                self._bars.start()
            self._users += 1
            return self._bars

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._bars.stop()
                self._bars = None


def no_progress(_count: int) -> None:
    """Move no bar."""


def _new_bars(*, transient: bool) -> Any:
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress

    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    return Progress(*columns, console=Console(stderr=True), transient=transient)
