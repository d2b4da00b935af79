"""A private value on its way from one sealed step to the next."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Generic, NoReturn, TypeVar

from langchain_dpicl.exceptions import DPError

T = TypeVar("T")


class Hidden(Generic[T]):
    """Holds a private value without showing it.

    Between two sealed steps the caller's own frame holds what the second one needs. An
    error there would hand that frame's variables to whoever prints tracebacks with
    their locals: they see this object's repr, which says nothing.

    Example:
        >>> hidden = Hidden(["private"])
        >>> hidden, hidden.value
        (<hidden>, ['private'])
    """

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "<hidden>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A private value is not pickled.")


def without_frames(step: Callable[[], T]) -> T:
    """Run a step on private values; what it refuses is raised anew, without its frames.

    Args:
        step: What to run. Errors that are not of this library pass: they are those of
            the caller's own iterables, databases, models. They keep the frames of
            those, and lose the library's own above them.

    Returns:
        What the step returned.

    Raises:
        DPError: What the step raised: same type and message, no cause, no context, and
            a traceback that begins here, so that its locals hold no private value. The
            same goes for a `KeyboardInterrupt`.

    Example:
        >>> without_frames(lambda: 3)
        3
    """
    refused: BaseException
    try:
        return step()
    except KeyboardInterrupt:
        refused = KeyboardInterrupt()
    except BaseException as error:  # noqa: BLE001 - raised again
        # Somebody else's subclass may be made of other arguments.
        if isinstance(error, DPError) and type(error).__module__ == _OURS:
            refused = type(error)(*error.args)
        else:
            refused = error.with_traceback(_outside(error.__traceback__))
    try:
        raise refused
    finally:
        # Its message may quote a record, and this frame is the caller's to look at.
        del refused


_OURS = DPError.__module__
_PACKAGE = _OURS.partition(".")[0]


def _outside(frames: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the first frame on that is not the library's own."""
    while frames is not None:
        module = frames.tb_frame.f_globals.get("__name__", "")
        if module.partition(".")[0] != _PACKAGE:
            break
        frames = frames.tb_next
    return frames
