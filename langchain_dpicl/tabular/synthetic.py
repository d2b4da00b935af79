"""Synthetic people: rows drawn from a release, put into prose by a public model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.documents import Document
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import Runnable

from langchain_dpicl.common.progress import progress_bar
from langchain_dpicl.common.replies import answer_of
from langchain_dpicl.errors import PublicCallError
from langchain_dpicl.parsers.reading.refusal import says_nothing
from langchain_dpicl.parsers.words import domain_places, lemmas, tokenize
from langchain_dpicl.tabular.schema.columns import CategoricalColumn
from langchain_dpicl.tabular.schema.table import TableSchema

SOURCE = "synthetic"
"""What the metadata of each document says of where it comes from."""

UNSAID = frozenset({"none", "no", "unknown", "other", "not mentioned", "n/a"})
"""Values that a text need not name: prose leaves out what is not there."""

_TRIES = 2


@dataclass(frozen=True)
class SyntheticWriter:
    """Puts rows into prose, and checks what a model made of each.

    Attributes:
        schema: The public schema.
        binned: Whether numbers are shown by their bins.
        model: The model: it sees drawn rows, and no record.
        prompt: With `facts`.
        record: The release's record.
        most: Most calls at once; None leaves it to the model.
        progress: Whether to draw a progress bar.
    """

    schema: TableSchema
    binned: bool
    model: Runnable[Any, Any]
    prompt: BasePromptTemplate[Any]
    record: Mapping[str, Any]
    most: int | None
    progress: bool

    def write(self, rows: Sequence[Mapping[str, Any]]) -> list[Document]:
        """Return a document for each row.

        Raises:
            PublicCallError: If every call fails: a key or an argument is wrong.
        """
        texts: dict[int, str] = {}
        with progress_bar("Writing", len(rows), shown=self.progress) as advance:
            for _ in range(_TRIES):
                left = [place for place in range(len(rows)) if place not in texts]
                asked = [self._asked(rows[place]) for place in left]
                config: Any = {"max_concurrency": self.most}
                found = self.model.batch(asked, config, return_exceptions=True)
                failed = [one for one in found if isinstance(one, Exception)]
                if not texts and len(failed) == len(rows):
                    raise PublicCallError(
                        "The model failed on every row "
                        f"({type(failed[0]).__name__}). Call the model by itself, "
                        "model.invoke('Hello'), to see what is wrong. The release "
                        "stays paid for: call again."
                    )
                for place, reply in zip(left, found, strict=True):
                    text = "" if isinstance(reply, Exception) else answer_of(reply)
                    if self.keeps(text, rows[place]):
                        texts[place] = text.strip()
                        advance(1)
        return [self._document(row, texts.get(place)) for place, row in enumerate(rows)]

    def keeps(self, text: str, row: Mapping[str, Any]) -> bool:
        """Return whether a text says a row's values, and no other value of a column.

        A public rule about a text that a public model made of a released row.
        """
        if not text.strip() or says_nothing(text):
            return False
        words = set(tokenize(text))
        for name, value in row.items():
            column = self.schema.column(name)
            shown = column.value_text(value, binned=self.binned)
            if not isinstance(column, CategoricalColumn):
                if not {one for one in tokenize(shown) if one.isdigit()} <= words:
                    return False
                continue
            domain = [column.code_text(code) for code in range(column.domain_size)]
            (named,) = domain_places([text], domain, tokenizer=lemmas)
            own = set() if shown.casefold() in UNSAID else {domain.index(shown)}
            silent = {n for n, one in enumerate(domain) if one.casefold() in UNSAID}
            if named - silent != own:
                return False
        return True

    def _asked(self, row: Mapping[str, Any]) -> PromptValue:
        return self.prompt.invoke({"facts": self._plain(row)})

    def _plain(self, row: Mapping[str, Any]) -> str:
        column = self.schema.column
        return " ".join(
            column(name).sentence(value, binned=self.binned)
            for name, value in row.items()
        )

    def _document(self, row: Mapping[str, Any], text: str | None) -> Document:
        metadata = {
            "source": SOURCE,
            "written_by_model": text is not None,
            "row": json.dumps(dict(row)),
            "privacy": json.dumps(dict(self.record)),
        }
        return Document(self._plain(row) if text is None else text, metadata=metadata)
