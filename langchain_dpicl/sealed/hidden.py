"""A private value on its way from one sealed step to the next."""

from __future__ import annotations

from collections.abc import Callable
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
        step: What to run. Errors that are not of this library pass as they are: they
            are those of the caller's own iterables, databases, models.

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
    except DPError as error:
        # Somebody else's subclass may be made of other arguments.
        if type(error).__module__ != DPError.__module__:
            raise
        refused = type(error)(*error.args)
    except KeyboardInterrupt:
        refused = KeyboardInterrupt()
    raise refused
