"""A private value on its way from one sealed step to the next."""

from __future__ import annotations

from typing import Generic, NoReturn, TypeVar

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
