"""What the frames of an error hold: what debuggers and error trackers show of them."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

from unit_tests.wall.marks import marks_in


def chain_of(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those behind it."""
    if error is not None:
        yield error
        yield from chain_of(error.__cause__)
        yield from chain_of(error.__context__)


def locals_of(error: BaseException, caller: str) -> list[str]:
    """Return how the frames show their locals.

    Args:
        error: The error.
        caller: The module whose own frames, and iterables, are left out.
    """
    return [
        f"{frame.f_code.co_filename}:{line} {frame.f_code.co_name} {name}={value!r}"
        for each in chain_of(error)
        for frame, line in traceback.walk_tb(each.__traceback__)
        if frame.f_globals["__name__"] != caller
        for name, value in frame.f_locals.items()
    ]


def private_locals(error: BaseException, caller: str) -> list[str]:
    """Return the locals, of all frames, that show something private."""
    return [found for found in locals_of(error, caller) if marks_in(found)]
