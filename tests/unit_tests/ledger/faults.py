"""Statements that fail, by a table that is not there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event

_WRITES = re.compile(r"\b(INSERT INTO|UPDATE (?!SET)|DELETE FROM)")


@contextmanager
def listening(name: str, listener: Any, **options: Any) -> Iterator[None]:
    """Listen to all engines."""
    event.listen(Engine, name, listener, **options)
    try:
        yield
    finally:
        event.remove(Engine, name, listener)


@contextmanager
def failing_writes(fails: Callable[[Any], bool]) -> Iterator[None]:
    """Ask before each statement that writes, by its connection, whether it fails."""

    def before(connection: Any, _cursor: Any, text: str, given: Any, *_: Any) -> Any:
        if _WRITES.search(text) and fails(connection):
            text = "SELECT * FROM nowhere"
        return text, given

    with listening("before_cursor_execute", before, retval=True):
        yield
