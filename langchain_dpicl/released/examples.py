"""Released examples: a sequence that stays what was paid for, and its record."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, overload

from langchain_core.embeddings import Embeddings
from langchain_core.example_selectors import (
    BaseExampleSelector,
    LengthBasedExampleSelector,
    SemanticSimilarityExampleSelector,
)
from langchain_core.prompts import PromptTemplate
from langchain_core.vectorstores import InMemoryVectorStore
from typing_extensions import Self, override

from langchain_dpicl.common import parameters
from langchain_dpicl.common.file_format import EXAMPLES
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.released.checking import plain_json
from langchain_dpicl.released.release import Released

TEXT_KEY, LABEL_KEY = "text", "label"


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

    _kind, _field = EXAMPLES, "examples"

    @classmethod
    def of(
        cls, examples: Iterable[Mapping[str, str]], record: Mapping[str, Any]
    ) -> Self:
        """Put examples and their record together, once and for all."""
        return cls(examples, record)

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
