"""`Topics`: the public list that people's conversations are compared with."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import groupby
from typing import Annotated, Any

from pydantic import Field, model_validator
from typing_extensions import Self

from langchain_dpicl.common import file_format
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.parsers.words import row, spelled, words_of
from langchain_dpicl.public import Public

MOST_TOPICS = 500
LONGEST_NAME = 100
_NO_NAME = re.compile(r"\W*(?:others?\W*(?::|$)|none\W*$|nothing\W*$)", re.IGNORECASE)


@lru_cache(maxsize=4096)  # Names are public.
def topic_key(name: str) -> str:
    """Return what two names have in common that a reply can't tell apart.

    Example:
        >>> topic_key("Claims: status") == topic_key("status, claim")
        True
    """
    return row(words_of(spelled(name)))


def is_name(text: str) -> bool:
    """Return whether a text can be a topic's name: one short line, and no "other".

    Example:
        >>> is_name("late fees"), is_name("..."), is_name("Other: late fees")
        (True, False, False)
    """
    is_line = len(text) <= LONGEST_NAME and text.isprintable()
    return is_line and bool(topic_key(text)) and _NO_NAME.match(text) is None


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
            key = topic_key(name)
            if not is_name(name):
                raise ValueError(
                    f"{name[:40]!r} can't be a topic: a name has words, in one line of "
                    f'{LONGEST_NAME} characters at most, and "other" and "none" stand '
                    "for all that is not listed"
                )
            if key in known:
                raise ValueError(
                    f"{known[key][:40]!r} and {name[:40]!r} can't be told apart in a "
                    "reply: keep one of them"
                )
            known[key] = name
        if len(self.groups) != len(self.names):
            raise ValueError("each topic has a group, or None")
        if not all(group is None or is_name(group) for group in self.groups):
            raise ValueError("a group's name must be one like a topic's")
        if len([*groupby(self.groups)]) > len(set(self.groups)):
            raise ValueError("the topics of a group must stand together")
        return self

    def __str__(self) -> str:
        return "\n".join(
            "\n".join([group, *(f"  {name}" for name in names)] if group else names)
            for group, names in self.tree.items()
        )

    @property
    def tree(self) -> dict[str, list[str]]:
        """The names by group, in order; those without one under ""."""
        made: dict[str, list[str]] = {}
        for name, group in zip(self.names, self.groups, strict=True):
            made.setdefault(group or "", []).append(name)
        return made

    @classmethod
    def of(cls, value: Any, about: str = "") -> Topics:
        """Return the topics of a list of names, or of a mapping from group to names.

        Raises:
            InvalidParameterError: If it is none of these.
        """
        if isinstance(value, Topics):
            return value
        lists = value if isinstance(value, Mapping) else {"": value}
        for names in lists.values():
            if not isinstance(names, Iterable) or isinstance(names, str | Mapping):
                raise InvalidParameterError(
                    "topics must be Topics, a list of names, or a mapping from a "
                    f"group's name to a list of names, not {type(names).__name__}."
                )
        own = ((group or None, names) for group, names in lists.items())
        pairs: list[tuple[Any, Any]] = [
            (name, at) for at, names in own for name in names
        ]
        names, groups = (tuple(pair[i] for pair in pairs) for i in (0, 1))
        return cls(names=names, groups=groups, about=about)

    def with_words(self, words: Iterable[str], model: Any) -> Topics:
        """Return these topics, and those behind words that a release has shown.

        In one public call the model names the topic behind each word, and its group. A
        word that it does not file is a topic of its own; one that is in a topic's name
        already is left out. Read what comes back before the next release.

        Args:
            words: Released words.
            model: A chat model or completion model.

        Raises:
            PublicCallError: If the model fails.

        Example:
            >>> from langchain_core.language_models import FakeListChatModel
            >>> model = FakeListChatModel(responses=["strike: postal strike (Orders)"])
            >>> print(Topics.of({"Orders": ["returns"]}).with_words(["strike"], model))
            Orders
              returns
              postal strike
        """
        from langchain_dpicl.insights.drafting import filed

        return filed(self, words, model)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the topics to a JSON file, to be read, edited and loaded.

        Raises:
            InvalidParameterError: If it can't be written, or something else is there.
        """
        topics = self.tree if any(self.groups) else list(self.names)
        content = {"about": self.about, "topics": topics}
        file_format.write(path, content, file_format.TOPICS, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Topics:
        """Return the topics of a file that `save` wrote, or somebody by hand.

        Raises:
            InvalidParameterError: If it can't be read, or holds no topics.
        """
        content = file_format.read(path, file_format.TOPICS)
        return cls.of(content["topics"], content.get("about", ""))
