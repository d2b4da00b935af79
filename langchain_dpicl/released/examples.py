"""Released examples: a list that stays what was paid for, and its record."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from typing_extensions import Self

from langchain_dpicl.common import file_format
from langchain_dpicl.common.file_format import EXAMPLES
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.released.checking import (
    checked_examples,
    checked_record,
    digest_of,
)
from langchain_dpicl.released.confirming import require_charged

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings

    from langchain_dpicl.released.selector import ReleasedExampleSelector


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise InvalidParameterError(
        "Released examples can't be changed: their record would no longer be true of "
        "them. list(examples) is a copy of your own, and dict(example) one of an "
        "example; copies have no record and no guarantee."
    )


class ReleasedExample(dict[str, str]):
    """One example of a release: a dictionary of text that can't be changed.

    Example:
        >>> dict(ReleasedExample(text="Who won?", label="person"), label="place")
        {'text': 'Who won?', 'label': 'place'}
    """

    __slots__ = ()

    if not TYPE_CHECKING:  # Callers keep the signatures of dict.
        __setitem__ = __delitem__ = __ior__ = _refuse
        clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


class ReleasedExamples(list[dict[str, str]]):
    """Examples that a generator released once, and the public record of that release.

    It is a list of example dictionaries, for LangChain and `json` alike. Unlike other
    lists it can't be changed: an example added later would stand under a guarantee that
    does not cover it. Slices, sums and `list(examples)` are ordinary lists, without the
    record.

    Generators make it with `of`, and `load` does. `of` is also for generators of your
    own: the record is checked for consistency and believed.

    Privacy:
        Everything here is the output of a differentially private release (or, with
        status `public`, of no private data at all), so using, saving and sharing it is
        post-processing and costs nothing. Unit, relation, events and epsilon at delta
        are those of the record. The digest, taken when the object is made, is compared
        whenever examples or record are handed on: changes that go around this class are
        noticed there.

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
        >>> examples.append({"text": "What Ann said", "label": "person"})
        Traceback (most recent call last):
        langchain_dpicl.errors.InvalidParameterError: Released examples can't ...
    """  # fmt: skip

    __slots__ = ("_digest", "_record")

    _digest: str
    _record: str

    def __init__(
        self, examples: Iterable[Mapping[str, str]], record: Mapping[str, Any]
    ) -> None:
        if hasattr(self, "_digest"):
            _refuse()
        plain = checked_examples(examples)
        checked = checked_record(record)
        super().__init__(map(ReleasedExample, plain))
        # As text, it can't be changed through a reference to a part of it.
        self._record = json.dumps(checked)
        self._digest = digest_of(plain, checked)

    if not TYPE_CHECKING:  # Callers keep the signatures of list.
        __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
        append = extend = insert = pop = remove = clear = sort = reverse = _refuse

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
            InvalidParameterError: If the examples were changed, something else is
                there, or the file can't be written.
        """
        content = {"record": self.record, "examples": [dict(each) for each in self]}
        file_format.write(path, content, EXAMPLES, overwrite=overwrite)

    def selector(
        self,
        k: int | None = None,
        *,
        embedding: Embeddings | None = None,
        label_key: str | None = None,
        text_key: str | None = None,
        input_key: str | None = None,
        escape_braces: bool | None = None,
    ) -> ReleasedExampleSelector:
        """Return a selector for few-shot prompts; see `ReleasedExampleSelector`."""
        from langchain_dpicl.released.selector import ReleasedExampleSelector

        return ReleasedExampleSelector(
            self,
            k=k,
            embedding=embedding,
            label_key=label_key,
            text_key=text_key,
            input_key=input_key,
            escape_braces=escape_braces,
        )

    @property
    def record(self) -> dict[str, Any]:
        """A copy of the public record.

        Raises:
            InvalidParameterError: If the examples are not those that were released.
        """
        self.verify()
        record: dict[str, Any] = json.loads(self._record)
        return record

    @property
    def digest(self) -> str:
        """SHA-256 of examples and record when they were released."""
        return self._digest

    def verify(self, ledger: str | Ledger | None = None) -> tuple[str, ...]:
        """Compare the examples with their digest, and their record with the ledger.

        Args:
            ledger: The ledger that was charged, or its URL; None leaves that out.

        Returns:
            The names of what was not compared, as no ledger stores it: `examples` (the
            texts), and fields of the record. Without a ledger: all.

        Raises:
            InvalidParameterError: If the examples are others, the ledger does not have
                this charge, or what it stored beside it is something else.
            LedgerError: If the ledger can't be used or trusted.
        """
        try:
            same = digest_of(self, json.loads(self._record)) == self._digest
        except (TypeError, ValueError):
            same = False
        if not same:
            raise InvalidParameterError(
                "These examples are not the ones that were released: somebody went "
                "around the class and changed them. Load a good copy."
            )
        record = json.loads(self._record)
        if ledger is None:
            return (*record, "examples")
        return require_charged(record, ledger)

    def __reduce__(self) -> tuple[Any, ...]:
        self.verify()
        return type(self), ([dict(example) for example in self], self.record)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __repr__(self) -> str:
        record = json.loads(self._record)
        return (
            f"{type(self).__name__}({len(self)} examples, {record['mechanism']}, "
            f"epsilon={record['epsilon']:.6g}, delta={record['delta']:g}, "
            f"unit={record['unit']!r})"
        )
