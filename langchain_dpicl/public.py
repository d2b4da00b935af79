"""The base of public values: terms, events, records.

A public value is frozen. It is made by its constructor alone, also as a copy, so what
holds for one that was constructed holds for all. Its canonical JSON is its identity.
People's records never pass through such a class: pydantic's own errors hold what was
given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import Self, override

from langchain_dpicl.errors import InvalidParameterError

_T = TypeVar("_T")


def validated(owner: str, fields: Mapping[str, Any], make: Callable[[], _T]) -> _T:
    """Return what `make` returns; raise what pydantic refuses as an error of ours.

    The message names the owner, declared fields and pydantic's reasons. The value that
    was given is not in it, and the error has neither cause nor context.

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
            place, reason = "", "It has no field of such a name"
        reasons.append(f"{place}: {reason}." if place in fields else f"{reason}.")
    raise InvalidParameterError(f"{owner} can't be made. {' '.join(reasons)}")


class Public(BaseModel):
    """Base of public values; see the module.

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

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def __init__(self, **values: Any) -> None:
        make = super().__init__
        validated(type(self).__name__, type(self).model_fields, lambda: make(**values))

    @classmethod
    @override
    def model_validate(cls, obj: Any, **terms: Any) -> Self:
        """Return the object of a mapping of its fields, or the object itself."""
        make = super().model_validate
        return validated(cls.__name__, cls.model_fields, lambda: make(obj, **terms))

    @classmethod
    @override
    def model_validate_json(
        cls, json_data: str | bytes | bytearray, **terms: Any
    ) -> Self:
        """Return the object of its JSON."""
        make = super().model_validate_json
        text = json_data
        return validated(cls.__name__, cls.model_fields, lambda: make(text, **terms))

    @classmethod
    @override
    def model_construct(  # type: ignore[override]  # pydantic's plugin has its own
        cls, _fields_set: Any = None, **values: Any
    ) -> Self:
        """Return `cls(**values)`: there is no way around the constructor."""
        return cls(**values)

    @override
    def model_copy(
        self, *, update: Mapping[str, Any] | None = None, deep: bool = False
    ) -> Self:
        """Return an object with some fields changed, made by the constructor."""
        return type(self)(**{**dict(self), **(update or {})})

    @override
    def copy(self, **changes: Any) -> Self:
        """Return `model_copy(...)`, by its name in pydantic 1."""
        return self.model_copy(**changes)

    @override
    def __copy__(self) -> Self:
        return self

    @override
    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).model_validate, (dict(self),)

    if not TYPE_CHECKING:  # Type checkers know that the fields can't be assigned.

        def __setattr__(self, name: str, value: Any) -> None:
            raise InvalidParameterError(
                f"{type(self).__name__} can't be changed. Use model_copy(update=...)."
            )

        def __delattr__(self, name: str) -> None:
            self.__setattr__(name, None)
