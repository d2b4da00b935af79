"""Released examples: a sequence that stays what was paid for, and its record."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn, overload

from langchain_core.embeddings import Embeddings
from langchain_core.example_selectors import (
    BaseExampleSelector,
    SemanticSimilarityExampleSelector,
)
from langchain_core.vectorstores import InMemoryVectorStore
from typing_extensions import Self, override

from langchain_dpicl.common import file_format, parameters
from langchain_dpicl.common.file_format import EXAMPLES
from langchain_dpicl.common.frozen import Frozen
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.released.checking import (
    checked_examples,
    checked_record,
    digest_of,
)
from langchain_dpicl.released.confirming import require_charged

TEXT_KEY, LABEL_KEY = "text", "label"


class ReleasedExamples(Frozen, Sequence[Mapping[str, str]]):
    """Examples that a generator released once, and the public record of that release.

    It is a sequence of mappings of text. It can't be changed: an example added later
    would stand under a guarantee that does not cover it. `list(examples)` is a list of
    your own, and `dict(example)` a dictionary, without the record.

    Generators make it with `of`, and `load` does. `of` is also for generators of your
    own: the record is checked for consistency and believed.

    Privacy:
        Everything here is the output of a differentially private release (or, with
        status `public`, of no private data at all), so using, saving and sharing it is
        post-processing and costs nothing. Unit, relation, events and epsilon at delta
        are those of the record.

    Example:
        >>> record = {
        ...     "status": "public", "mechanism": "few-shot/zero-shot",
        ...     "parameters": {}, "unit": None, "unit_key": None, "relation": None,
        ...     "neighbors": None, "events": [], "epsilon": 0.0, "delta": 0.0,
        ...     "charge": None, "account": None, "model": "offline",
        ...     "created": "2026-11-20T19:30:00+00:00", "library": "0.1.0",
        ... }
        >>> examples = ReleasedExamples.of(
        ...     [{"text": "Who?", "label": "person"}], record
        ... )
        >>> examples[0]["label"], examples.record["epsilon"]
        ('person', 0.0)
        >>> examples.selector(1).select_examples({"text": "What?"})
        [{'text': 'Who?', 'label': 'person'}]
    """  # fmt: skip

    def __init__(
        self, examples: Iterable[Mapping[str, str]], record: Mapping[str, Any]
    ) -> None:
        if hasattr(self, "_examples"):
            raise InvalidParameterError(
                "Released examples can't be changed: their record would no longer be "
                "true of them. list(examples) is a copy of your own."
            )
        plain = checked_examples(examples)
        checked = checked_record(record)
        self._examples = tuple(map(MappingProxyType, plain))
        # As text, it can't be changed through a reference to a part of it.
        self._record = json.dumps(checked)
        self._digest = digest_of(plain, checked)

    def __len__(self) -> int:
        return len(self._examples)

    @overload
    def __getitem__(self, index: int) -> Mapping[str, str]: ...

    @overload
    def __getitem__(self, index: slice) -> list[Mapping[str, str]]: ...

    @override
    def __getitem__(
        self, index: int | slice
    ) -> Mapping[str, str] | list[Mapping[str, str]]:
        found = self._examples[index]
        return list(found) if isinstance(found, tuple) else found

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list | ReleasedExamples):
            return list(self) == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def of(
        cls, examples: Iterable[Mapping[str, str]], record: Mapping[str, Any]
    ) -> Self:
        """Put examples and their record together, once and for all.

        Args:
            examples: Dictionaries of text, all with the same keys; none where a release
                was interrupted before its first one. Lone surrogates become U+FFFD.
            record: The public record; see `checking.checked_record`.

        Returns:
            The examples.

        Raises:
            InvalidParameterError: If the examples are of another shape, or the record's
                claims do not hold together.
        """
        return cls(examples, record)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, ledger: str | Ledger | None = None
    ) -> Self:
        """Read what `save` wrote, and verify it.

        Args:
            path: The file.
            ledger: The ledger that was charged (or its URL), to compare the record
                with; None leaves that out.

        Returns:
            The examples and their record.

        Raises:
            InvalidParameterError: If it is no such file or of a later format, examples
                and record are not those that were saved, an event can't be read, the
                stated epsilon is below what the events cost at delta, or the ledger
                does not have this charge.
            LedgerError: If the ledger can't be used or trusted.

        Privacy:
            Nothing is charged. The digest shows accidents and careless edits; it is
            no signature. Where a file comes from someone you don't trust, compare it
            with the ledger, and the examples with the sender's digest.
        """
        loaded = cls(**file_format.read(path, EXAMPLES))
        if ledger is not None:
            require_charged(loaded.record, ledger)
        return loaded

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write examples and record to a JSON file that `load` verifies.

        The file is complete on disk before it gets its name.

        Args:
            path: The file. One that holds this very release is left as it is.
            overwrite: Whether to replace anything else that is there.

        Raises:
            InvalidParameterError: If something else is there, or the file can't be
                written.
        """
        content = {"record": self.record, "examples": [dict(each) for each in self]}
        file_format.write(path, content, EXAMPLES, overwrite=overwrite)

    def selector(
        self, k: int | None = None, *, embedding: Embeddings | None = None
    ) -> BaseExampleSelector:
        """Return a selector for LangChain's few-shot prompts; selecting is free.

        Args:
            k: How many; None: all.
            embedding: Selects the k nearest to the prompt's variable that is called as
                the examples' text is (`SemanticSimilarityExampleSelector`). The
                *input* is not protected: its text goes to the embedding model. None:
                the first k.

        Raises:
            InvalidParameterError: If `k` is no count, or missing beside `embedding`.
        """
        plain = [dict(example) for example in self]
        if embedding is None:
            most = len(plain) if k is None else parameters.count(k, "k")
            return _FirstExamples(plain[:most])
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

    @property
    def record(self) -> dict[str, Any]:
        """A copy of the public record."""
        record: dict[str, Any] = json.loads(self._record)
        return record

    @property
    def digest(self) -> str:
        """SHA-256 of examples and record when they were released."""
        return self._digest

    def verify(self, ledger: str | Ledger | None = None) -> tuple[str, ...]:
        """Compare the record with the ledger.

        Args:
            ledger: The ledger that was charged, or its URL; None leaves that out.

        Returns:
            The names of what was not compared, as no ledger stores it: `examples` (the
            texts), and fields of the record. Without a ledger: all.

        Raises:
            InvalidParameterError: If the ledger does not have this charge, or what it
                stored beside it is something else.
            LedgerError: If the ledger can't be used or trusted.
        """
        record = json.loads(self._record)
        if ledger is None:
            return (*record, "examples")
        return require_charged(record, ledger)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ([dict(example) for example in self], self.record)

    def __repr__(self) -> str:
        record = json.loads(self._record)
        return (
            f"{type(self).__name__}({len(self)} examples, {record['mechanism']}, "
            f"epsilon={record['epsilon']:.6g}, delta={record['delta']:g}, "
            f"unit={record['unit']!r})"
        )


class _FirstExamples(BaseExampleSelector):
    """Examples that are the same for every input."""

    def __init__(self, examples: list[dict[str, str]]) -> None:
        self._examples = examples

    @override
    def select_examples(self, input_variables: dict[str, str]) -> list[dict[str, Any]]:
        return [dict(example) for example in self._examples]

    @override
    def add_example(self, example: dict[str, str]) -> NoReturn:
        raise InvalidParameterError(
            "Adding is refused: the record's guarantee covers what was released."
        )
