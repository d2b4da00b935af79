"""Objects that stay what their constructor made of them, and public values.

What a constructor derives from its arguments (a price, a sealed model, the words that a
vote is matched with) is true as long as the arguments stand. So public attributes can't
be assigned afterwards, and a changed copy goes through the constructor again.

`Public` is the base of terms, events and records. The canonical JSON of such a value is
its identity. People's records never pass through it: pydantic's own errors hold what
was given.

`object.__setattr__`, `vars(...)` and names that begin with `_` are not guarded: this
protects from mistakes, not from an attacker in the same process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import Self, override

from langchain_dpicl.errors import InvalidParameterError

T = TypeVar("T")


def validated(owner: str, fields: Collection[str], make: Callable[[], T]) -> T:
    """Return what `make` returns; raise what pydantic refuses as an error of ours.

    The message names the owner, those of `fields` that are wrong, and pydantic's
    reasons. The value that was given is not in it, and the error has neither cause nor
    context: a list of documents that is passed for a group source is private.

    Raises:
        InvalidParameterError: If pydantic refuses a value.
    """
    try:
        return make()
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
    reasons = []
    for item in details:
        place = item["loc"][0] if item["loc"] else ""
        reason = item["msg"].removeprefix("Value error, ").rstrip(".")
        reason = reason.removeprefix(f"{owner} can't be made. ")
        if item["type"].startswith("union_tag"):
            reason = "Its kind is not known"  # Pydantic shows the kind that was given.
        if item["type"] == "extra_forbidden":
            reason = "It has no field of such a name"
        reasons.append(f"{place}: {reason}." if place in fields else f"{reason}.")
    raise InvalidParameterError(f"{owner} can't be made. {' '.join(reasons)}")


class Frozen:
    """Base of classes whose public attributes can't be assigned or deleted.

    A copy is the object itself.

    Example:
        >>> Frozen().budget = 3  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        langchain_dpicl.errors.InvalidParameterError: 'budget' of Frozen can't be ...
    """

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
            way = ", or use model_copy(update={...})" * isinstance(self, BaseModel)
            raise InvalidParameterError(
                f"{name!r} of {type(self).__name__} can't be changed. Make a new "
                f"one{way}."
            )


class FrozenModel(Frozen, BaseModel):
    """Base of pydantic models that can't be changed, and are copied by the constructor.

    `model_copy(update=...)`, `model_construct`, the functions of `copy`, and pickles
    call the constructor, which checks everything again and carries nothing over that
    was derived from other values. A subclass derives in `_derive`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    if not TYPE_CHECKING:  # A type checker makes a constructor of the fields.

        def __init__(self, **values: Any) -> None:
            kind, make = type(self), partial(super().__init__, **values)
            validated(kind.__name__, {*kind.model_fields, *values}, make)
            self._derive()

    def _derive(self) -> None:
        """Make what follows from the fields; refuse fields that do not fit together."""

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
        return type(self)(**{**self._given(), **(update or {})})

    @classmethod
    @override
    def model_construct(  # type: ignore[override]  # pydantic's plugin has its own
        cls, _fields_set: Any = None, **values: Any
    ) -> Self:
        """Return an object made by the constructor: there is no way around it."""
        return cls(**values)

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
    def __reduce__(self) -> tuple[Callable[..., Self], tuple[Any, ...]]:
        return _made, (type(self), self._given())

    def _given(self) -> dict[str, Any]:
        """Return the fields that were given; a copy has the same defaults."""
        return {name: getattr(self, name) for name in sorted(self.model_fields_set)}


class Public(FrozenModel):
    """Base of public values: of one type each, and read from JSON as strictly.

    Example:
        >>> class Size(Public):
        ...     people: int
        >>> Size(people=3).model_copy(update={"people": 4})
        Size(people=4)
        >>> Size(people="Ada")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        langchain_dpicl.errors.InvalidParameterError: Size can't be made. people: ...
    """

    model_config = ConfigDict(strict=True)

    @classmethod
    @override
    def model_validate(cls, obj: Any, **terms: Any) -> Self:
        """Return the object of a mapping of its fields, or the object itself."""
        make = partial(super().model_validate, obj, **terms)
        return validated(cls.__name__, cls.model_fields, make)

    @classmethod
    @override
    def model_validate_json(
        cls, json_data: str | bytes | bytearray, **terms: Any
    ) -> Self:
        """Return the object of its JSON."""
        make = partial(super().model_validate_json, json_data, **terms)
        return validated(cls.__name__, cls.model_fields, make)


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
    kind = type(value)
    while kind.__name__ == "RunnableBinding":
        value, kind = value.bound, type(value.bound)
    ours = kind.__module__.partition(".")[0] in {"builtins", "langchain_dpicl"}
    is_model = any(base.__name__ == "BaseLanguageModel" for base in kind.__mro__)
    if ours and not callable(value) and not is_model:
        return value
    return _Name(getattr(value, "__name__", kind.__name__))


def _made(kind: Callable[..., T], values: dict[str, Any]) -> T:
    return kind(**values)
