"""A private value on its way from one sealed step to the next."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, Generic, NoReturn, TypeVar

from typing_extensions import ParamSpec

from langchain_dpicl.errors import DPError

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")


def hidden_repr(self: object) -> str:
    """Return the repr of an object that holds private text: the name of its class.

    Example:
        >>> class Note(str):
        ...     __repr__ = hidden_repr
        >>> Note("private")
        Note(<hidden>)
    """
    return f"{type(self).__name__}(<hidden>)"


class Hidden(Generic[T]):
    """Holds a private value without showing it.

    Between two sealed steps the caller's own frame holds what the second one needs. An
    error there would hand that frame's variables to anybody who prints tracebacks with
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

    An error of this library comes with the same type and message, no cause, no context,
    and a traceback that begins here, so that its locals hold no private value; the same
    goes for a `KeyboardInterrupt`. Errors of the caller's own iterables, databases and
    models keep the frames of those, and lose the library's own above them.

    Example:
        >>> without_frames(lambda: 3)
        3
    """
    try:
        return step()
    except BaseException as error:  # noqa: BLE001 - raised again
        refused = _anew(error)
    try:
        raise refused
    finally:
        # Its message may quote a record, and this frame is the caller's to look at.
        del refused


def hiding(call: Callable[P, T]) -> Callable[P, T]:
    """Keep the arguments of a function, also a coroutine's, out of errors' frames.

    Example:
        >>> @hiding
        ... def refuse(record):
        ...     raise DPError("No such record.")
        >>> try:
        ...     refuse("private")
        ... except DPError as error:
        ...     print(error.__traceback__.tb_next.tb_frame.f_locals["given"])
        <hidden>
    """

    @wraps(call)
    def sync(*args: Any, **kwargs: Any) -> Any:
        given = Hidden((args, kwargs))
        del args, kwargs
        return without_frames(lambda: call(*given.value[0], **given.value[1]))

    @wraps(call)
    async def asynchronous(*args: Any, **kwargs: Any) -> Any:
        given = Hidden((args, kwargs))
        del args, kwargs
        acall: Callable[..., Awaitable[Any]] = call  # type: ignore[assignment]  # looked at below
        try:
            return await acall(*given.value[0], **given.value[1])
        except BaseException as error:  # noqa: BLE001 - raised again
            refused = _anew(error)
        try:
            raise refused
        finally:
            del refused

    found: Any = asynchronous if iscoroutinefunction(call) else sync
    hidden: Callable[P, T] = found
    return hidden


def hiding_in(*words: str) -> Callable[[type[C]], type[C]]:
    """Return a decorator that is `hiding` for methods whose names end with a word."""

    def decorate(kind: type[C]) -> type[C]:
        for name, method in list(vars(kind).items()):
            if not name.endswith(words):
                continue
            if isinstance(method, classmethod):
                setattr(kind, name, classmethod(hiding(method.__func__)))
            else:
                setattr(kind, name, hiding(method))
        return kind

    return decorate


def _anew(error: BaseException) -> BaseException:
    """Return an error whose traceback begins where it is raised next."""
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt()
    # Somebody else's subclass may be made of other arguments.
    if isinstance(error, DPError) and type(error).__module__ == _OURS:
        return type(error)(*error.args)
    return error.with_traceback(_outside(error.__traceback__))


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
