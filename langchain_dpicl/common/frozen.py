"""Objects that stay what their constructor made of them.

What a constructor derives from its arguments (a price, a sealed model, the words that a
vote is matched with) is true as long as the arguments stand. So public attributes can't
be assigned afterwards, and a changed copy goes through the constructor again.

`object.__setattr__`, `vars(...)` and names that begin with `_` are not guarded: this
protects from mistakes, not from an attacker in the same process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from langchain_core.language_models import BaseLanguageModel
from langchain_core.runnables import RunnableBinding
from pydantic import BaseModel, ConfigDict
from typing_extensions import Self, override

from langchain_dpicl.errors import InvalidParameterError


class Frozen:
    """Base of classes whose public attributes can't be assigned or deleted.

    A copy is the object itself.

    Example:
        >>> Frozen().budget = 3  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        langchain_dpicl.errors.InvalidParameterError: 'budget' of Frozen can't be ...
    """

    _way_out: ClassVar[str] = "Make a new one."

    # Type checkers know the attributes, and that they can't be assigned.
    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            self._require_private(name)
            super().__setattr__(name, value)

        def __delattr__(self, name: str) -> None:
            self._require_private(name)
            super().__delattr__(name)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self

    def _require_private(self, name: str) -> None:
        """Refuse a change of an attribute that is not private."""
        if not name.startswith("_"):
            raise InvalidParameterError(
                f"{name!r} of {type(self).__name__} can't be changed: the object was "
                f"checked, and prepared its work, when it was made. {self._way_out}"
            )


class _Name(str):
    """A class's name, shown without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def named(value: Any) -> Any:
    """Return what a repr shows of a part: models, functions and others' things by name.

    Their own reprs may hold keys, texts, and the objects that a method is bound to.

    Example:
        >>> from pathlib import Path
        >>> named(3), named(len), named(Path("notes.txt"))
        (3, len, PosixPath)
    """
    while isinstance(value, RunnableBinding):
        value = value.bound
    kind = type(value)
    if kind.__module__.partition(".")[0] in {"builtins", "langchain_dpicl"} and not (
        callable(value) or isinstance(value, BaseLanguageModel)
    ):
        return value
    return _Name(getattr(value, "__name__", kind.__name__))


class FrozenModel(Frozen, BaseModel):
    """Base of pydantic models that can't be changed, and are copied by the constructor.

    `model_copy(update=...)`, `model_construct`, the functions of `copy`, and pickles
    call the constructor, which checks everything again and carries nothing over that
    was derived from other values.
    """

    model_config = ConfigDict(frozen=True)

    _way_out: ClassVar[str] = "Make a new one, or use model_copy(update={...})."

    @override
    def model_copy(
        self, *, update: Mapping[str, Any] | None = None, deep: bool = False
    ) -> Self:
        """Return a new object with some fields changed, made by the constructor.

        `deep` makes no difference: a copy shares its values. Models, accounts and group
        sources exist once, and the others don't change.

        Raises:
            InvalidParameterError: If the constructor refuses a value, or knows no field
                of that name.
        """
        return self._made({**self._given(), **(update or {})})

    @classmethod
    @override
    def model_construct(  # type: ignore[override]  # pydantic's plugin has its own
        cls, _fields_set: Any = None, **values: Any
    ) -> Self:
        """Return an object made by the constructor: there is no way around it."""
        return cls._made(values)

    @override
    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, named(value)

    @override
    def copy(self, **changes: Any) -> Self:
        """Return `model_copy(...)`, by its name in pydantic 1."""
        return self.model_copy(**changes)

    @override
    def __copy__(self) -> Self:
        return self.model_copy()

    @override
    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self.model_copy()

    @override
    def __reduce__(self) -> tuple[Callable[..., Self], tuple[dict[str, Any]]]:
        return self._made, (self._given(),)

    def _given(self) -> dict[str, Any]:
        """Return the fields that were given; a copy has the same defaults."""
        return {name: getattr(self, name) for name in sorted(self.model_fields_set)}

    @classmethod
    def _made(cls, values: dict[str, Any]) -> Self:
        return cls(**values)
