"""`Topics`: the public list that people's conversations are compared with."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import Field, model_validator
from typing_extensions import Self

from langchain_dpicl.common import file_format
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.parsers.words import row, spelled, words_of
from langchain_dpicl.public import Public

MOST_TOPICS = 500


class Topics(Public):
    """A public list of topics, each in a group or in none.

    Attributes:
        names: The topics, in the order in which a model is shown them.
        groups: The group of each, or None.
        about: What people talk with, in a sentence; may be empty.

    Raises:
        InvalidParameterError: If there are none or more than `MOST_TOPICS`, one is
            blank, or two can't be told apart in a reply.

    Privacy:
        Public: topics are written, or drafted by a model, without looking at anybody.

    Example:
        >>> Topics.of({"money": ["refunds", "fees"]}).groups
        ('money', 'money')
        >>> Topics.of(["refunds", "Refund"])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        langchain_dpicl.errors.InvalidParameterError: Topics can't be made. ...
    """

    names: Annotated[
        tuple[str, ...], Field(min_length=1, max_length=MOST_TOPICS, strict=False)
    ]
    groups: Annotated[tuple[str | None, ...], Field(strict=False)]
    about: str = ""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        known: dict[str, str] = {}
        for name in self.names:
            key = row(words_of(spelled(name)))
            if not key:
                raise ValueError(f"{name[:40]!r} has no word in it")
            if key in known:
                raise ValueError(
                    f"{known[key][:40]!r} and {name[:40]!r} can't be told apart in a "
                    "reply: keep one of them"
                )
            known[key] = name
        if len(self.groups) != len(self.names):
            raise ValueError("Each topic has a group, or None")
        return self

    @classmethod
    def of(cls, value: Any, about: str = "") -> Topics:
        """Return the topics of a list of names, or of a mapping from group to names.

        Raises:
            InvalidParameterError: If it is none of these.
        """
        if isinstance(value, Topics):
            return value
        pairs: list[tuple[Any, Any]] = []
        if isinstance(value, Mapping):
            for group, names in value.items():
                is_list = isinstance(names, Iterable) and not isinstance(names, str)
                pairs += [(name, group) for name in (names if is_list else [names])]
        elif isinstance(value, Iterable) and not isinstance(value, str):
            pairs = [(name, None) for name in value]
        else:
            raise InvalidParameterError(
                "topics must be Topics, a list of names, or a mapping from a group's "
                f"name to its names, not {type(value).__name__}."
            )
        names = tuple(name for name, _ in pairs)
        groups = tuple(group for _, group in pairs)
        return cls(names=names, groups=groups, about=about)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the topics to a JSON file, to be read, edited and loaded."""
        content = self.model_dump(mode="json")
        file_format.write(path, content, file_format.TOPICS, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Topics:
        """Read what `save` wrote, and people have edited."""
        return cls(**file_format.read(path, file_format.TOPICS))
