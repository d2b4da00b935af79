"""What was released once: its record, its digest, its file; and examples of that kind.

A file is one envelope (`common.file_format`): record, items, and the SHA-256 of both.
The digest shows accidents and careless edits; it is no signature. Where a file comes
from someone you don't trust, compare it with the ledger.
"""

from __future__ import annotations

import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar, overload

from langchain_core.embeddings import Embeddings
from langchain_core.example_selectors import (
    BaseExampleSelector,
    LengthBasedExampleSelector,
    SemanticSimilarityExampleSelector,
)
from langchain_core.prompts import PromptTemplate
from langchain_core.vectorstores import InMemoryVectorStore
from typing_extensions import Self, override

from langchain_dpicl.common import file_format, parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.public import Frozen
from langchain_dpicl.released.checking import (
    checked_record,
    plain_json,
    require_charged,
)

TEXT_KEY, LABEL_KEY = "text", "label"

T = TypeVar("T")


class Released(Frozen, Sequence[T], ABC):
    """A sequence that stays what was released, and the public record of that release.

    It can't be changed: an item added later would stand under a guarantee that does not
    cover it. `list(...)` is a copy of your own, without the record.

    Privacy:
        All of it is the output of a differentially private release (or, with status
        `public`, of no private data at all), so using, saving and sharing it is
        post-processing and costs nothing. Unit, relation, events and epsilon at delta
        are those of the record, which is checked for consistency and believed.
    """

    _kind: ClassVar[file_format.Kind]
    _field: ClassVar[str]
    """What the items are called in a file."""

    def __init__(self, items: Iterable[T], record: Mapping[str, Any]) -> None:
        if hasattr(self, "_items"):
            raise InvalidParameterError(
                "What was released can't be changed: its record would no longer be "
                "true of it. list(...) is a copy of your own."
            )
        stored = plain_json(self._stored(items))
        checked = checked_record(record)
        # As text, they can't be changed through a reference to a part of them.
        self._items = tuple(map(json.dumps, stored))
        self._record = json.dumps(checked)
        self._digest = file_format.digest(self._content())

    @classmethod
    @abstractmethod
    def _stored(cls, items: Iterable[T]) -> list[dict[str, Any]]:
        """Return items as a file has them, or refuse them."""

    @classmethod
    @abstractmethod
    def _given(cls, stored: Sequence[Any]) -> list[T]:
        """Return the items of a file, or refuse what are none."""

    def _content(self) -> dict[str, Any]:
        return {"record": self.record, self._field: self._plain()}

    def _plain(self) -> list[Any]:
        return [json.loads(item) for item in self._items]

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        record = self.record
        return (
            f"{type(self).__name__}({len(self)} {self._field}, {record['mechanism']}, "
            f"epsilon={record['epsilon']:.6g}, delta={record['delta']:g}, "
            f"unit={record['unit']!r})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._given(self._plain()), self.record)

    @property
    def record(self) -> dict[str, Any]:
        """A copy of the public record."""
        record: dict[str, Any] = json.loads(self._record)
        return record

    @property
    def digest(self) -> str:
        """SHA-256 of items and record, which a file has, too."""
        return self._digest

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write items and record to a JSON file that `load` verifies.

        The file is complete on disk before it gets its name.

        Args:
            path: The file. One that holds this very release is left as it is.
            overwrite: Whether to replace anything else that is there.

        Raises:
            InvalidParameterError: If something else is there, or the file can't be
                written.
        """
        file_format.write(path, self._content(), self._kind, overwrite=overwrite)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, ledger: str | Ledger | None = None
    ) -> Self:
        """Read what `save` wrote, and verify it; nothing is charged.

        Args:
            path: The file.
            ledger: See `verify`.

        Raises:
            InvalidParameterError: If it is no such file or of a later format, items and
                record are not those that were saved, an event can't be read, the stated
                epsilon is below what the events cost at delta, or the ledger does not
                have this charge.
            LedgerError: If the ledger can't be used or trusted.
        """
        stored = file_format.read(path, cls._kind)
        loaded = cls(cls._given(stored[cls._field]), stored["record"])
        if ledger is not None:
            loaded.verify(ledger)
        return loaded

    def verify(self, ledger: str | Ledger | None = None) -> tuple[str, ...]:
        """Compare the release with the ledger that was charged.

        The ledger keeps what a `GDPTable` drew: each document is compared with the one
        that is computed from the draw, its numbers and its sentences.

        Args:
            ledger: The ledger that was charged, or its URL; None leaves that out.

        Returns:
            The names of what was not compared, as no ledger stores it: the texts of
            `examples`, `wording` (what people are called), `documents` (of your own
            making), or a field of the record. Without a ledger: all.

        Raises:
            InvalidParameterError: If the ledger does not have this charge, or what it
                stored beside it is something else.
            LedgerError: If the ledger can't be used or trusted.
        """
        if ledger is None:
            return (*self.record, self._field)
        items: Any = self._given(self._plain())
        return require_charged(self.record, ledger, self._field, items)


class ReleasedExamples(Released[Mapping[str, str]]):
    """Examples that a generator released once, and the public record of that release.

    It is a sequence of mappings of text, all with the same keys; see `Released`. None
    are there where a release was interrupted before its first one. Lone surrogates
    become U+FFFD.

    Raises:
        InvalidParameterError: If the examples are of another shape, or the record's
            claims do not hold together.

    Example:
        >>> record = {
        ...     "status": "public", "mechanism": "none", "parameters": {},
        ...     "unit": None, "unit_key": None, "relation": None, "neighbors": None,
        ...     "events": [], "epsilon": 0.0, "delta": 0.0, "charge": None,
        ...     "account": None, "model": "offline",
        ...     "created": "2026-11-20T19:30:00+00:00", "library": "0.1.0",
        ... }
        >>> examples = ReleasedExamples([{"text": "Who?", "label": "person"}], record)
        >>> examples[0]["label"], examples.record["epsilon"]
        ('person', 0.0)
        >>> examples.selector(1).select_examples({"text": "What?"})
        [{'text': 'Who?', 'label': 'person'}]
    """  # fmt: skip

    _kind, _field = file_format.EXAMPLES, "examples"

    @classmethod
    @override
    def _stored(cls, items: Iterable[Any]) -> list[dict[str, Any]]:
        plain: list[dict[str, Any]] = []
        for place, one in enumerate(items):
            if not isinstance(one, Mapping) or not one or not _is_text([*one.items()]):
                raise InvalidParameterError(
                    f"Example {place} is not a dictionary of text."
                )
            plain.append(plain_json(dict(one)))
            if plain[-1].keys() != plain[0].keys() or len(plain[-1]) < len(one):
                raise InvalidParameterError(
                    f"Example {place} has other keys than the first one, or keys that "
                    "no encoding can tell apart."
                )
        return plain

    @classmethod
    @override
    def _given(cls, stored: Sequence[Any]) -> list[Any]:
        return list(stored)

    @overload
    def __getitem__(self, index: int) -> Mapping[str, str]: ...

    @overload
    def __getitem__(self, index: slice) -> list[Mapping[str, str]]: ...

    @override
    def __getitem__(
        self, index: int | slice
    ) -> Mapping[str, str] | list[Mapping[str, str]]:
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        return MappingProxyType(json.loads(self._items[index]))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list | ReleasedExamples):
            return list(self) == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def selector(
        self, k: int | None = None, *, embedding: Embeddings | None = None
    ) -> BaseExampleSelector:
        """Return one of LangChain's selectors for few-shot prompts; selecting is free.

        Args:
            k: How many; None: all.
            embedding: Selects the k nearest to the prompt's variable that is called as
                the examples' text is (`SemanticSimilarityExampleSelector`). The
                *input* is not protected: its text goes to the embedding model. None:
                the first k.

        Raises:
            InvalidParameterError: If `k` is no count, or missing beside `embedding`.
        """
        plain = self._plain()
        if embedding is None:
            most = len(plain) if k is None else parameters.count(k, "k")
            return LengthBasedExampleSelector(
                examples=plain[:most],
                example_prompt=PromptTemplate.from_template(""),
                max_length=sys.maxsize,
            )
        if not isinstance(embedding, Embeddings):
            raise InvalidParameterError(
                "embedding must be a LangChain Embeddings, not "
                f"{type(embedding).__name__}."
            )
        return SemanticSimilarityExampleSelector.from_examples(
            plain,
            embedding,
            InMemoryVectorStore,
            k=parameters.count(k, "k"),
            input_keys=[self.key("text_key", TEXT_KEY)],
        )

    def key(self, name: str, default: str) -> str:
        """Return the examples' key of the text or the label, as the record names it.

        Args:
            name: `text_key` or `label_key`.
            default: The key where the record names none.

        Raises:
            InvalidParameterError: If the examples have no such key.
        """
        key = str(self.record["parameters"].get(name, default))
        if not self or key not in self[0]:
            raise InvalidParameterError(f"There are no examples with the key {key!r}.")
        return key


def _is_text(items: list[tuple[Any, Any]]) -> bool:
    return all(
        isinstance(key, str) and key and isinstance(value, str) for key, value in items
    )
