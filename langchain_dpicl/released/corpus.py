"""Released facts as documents, for any RAG chain: paid for once, asked at no cost."""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from typing_extensions import Self, override

from langchain_dpicl.common import file_format, parameters
from langchain_dpicl.common.file_format import CORPUS
from langchain_dpicl.common.frozen import Frozen
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.parsers.reading.keywords import STOP_WORDS, lemma
from langchain_dpicl.parsers.words import tokenize
from langchain_dpicl.released.confirming import require_charged
from langchain_dpicl.released.examples import ReleasedExamples

SOURCE = "released fact"
"""What the metadata of each document says of where it comes from."""

_TEXT, _METADATA = "text", "metadata"
_SENTENCE = re.compile(r".*?[.:?!](?=\s|$)", re.DOTALL)
_REST = 0.2
"""What a word behind a document's beginning weighs, compared to one in it."""


class ReleasedCorpus(Frozen, Sequence[Document]):
    """Facts that were released once, as LangChain documents, with their record.

    It is a sequence of documents: any splitter, store, retriever or chain takes them.
    Each says in its metadata that it is a released fact, and holds its numbers and the
    release's record as JSON text (some vector stores keep no nested metadata). The
    corpus can't be changed: a document added later would stand under a guarantee that
    does not cover it. `GDPTable.documents()` makes one.

    Privacy:
        All of it is post-processing of one differentially private release. Asking it
        costs nothing, however often, by whomever, with whatever model. Unit, relation,
        events and epsilon at delta are those of `record`.

    Raises:
        InvalidParameterError: If a document has no text or metadata that JSON can't
            hold, or the record's claims do not hold together.

    Example:
        >>> record = {
        ...     "status": "public", "mechanism": "none", "parameters": {},
        ...     "unit": None, "unit_key": None, "relation": None, "neighbors": None,
        ...     "events": [], "epsilon": 0.0, "delta": 0.0, "charge": None,
        ...     "account": None, "model": None,
        ...     "created": "2026-11-20T19:30:00+00:00", "library": "0.1.0",
        ... }
        >>> corpus = ReleasedCorpus(
        ...     [Document("About 29 patients take lisinopril."),
        ...      Document("About 12 patients take metformin.")],
        ...     record,
        ... )
        >>> corpus.as_retriever(k=1).invoke("Who takes metformin?")[0].page_content
        'About 12 patients take metformin.'
    """  # fmt: skip

    def __init__(self, documents: Iterable[Document], record: dict[str, Any]) -> None:
        if hasattr(self, "_examples"):
            raise InvalidParameterError(
                "Released documents can't be changed: their record would no longer be "
                "true of them. list(corpus) is a copy of your own."
            )
        plain = [
            {_TEXT: one.page_content, _METADATA: _dumped(one.metadata)}
            for one in documents
        ]
        self._examples = ReleasedExamples.of(plain, record)

    def __len__(self) -> int:
        return len(self._examples)

    @overload
    def __getitem__(self, index: int) -> Document: ...

    @overload
    def __getitem__(self, index: slice) -> list[Document]: ...

    @override
    def __getitem__(self, index: int | slice) -> Document | list[Document]:
        # New ones each time: a document can be changed, what was released can't.
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        place = range(len(self))[index]
        one = self._examples[place]
        metadata = {
            "source": SOURCE,
            **json.loads(one[_METADATA]),
            "privacy": json.dumps(self.record),
        }
        return Document(one[_TEXT], metadata=metadata, id=f"{self.digest[:16]}-{place}")

    @override
    def __iter__(self) -> Iterator[Document]:
        return (self[place] for place in range(len(self)))

    def __repr__(self) -> str:
        record = self._examples.record
        return (
            f"{type(self).__name__}({len(self)} documents, "
            f"epsilon={record['epsilon']:.6g}, delta={record['delta']:g}, "
            f"unit={record['unit']!r})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._documents(), self.record)

    @property
    def record(self) -> dict[str, Any]:
        """A copy of the release's public record."""
        return self._examples.record

    @property
    def digest(self) -> str:
        """SHA-256 of documents and record."""
        return self._examples.digest

    def as_vectorstore(self, embedding: Embeddings | None = None) -> VectorStore:
        """Return the documents in a vector store in memory.

        Args:
            embedding: What embeds them; None compares words, rare ones before frequent
                ones, which suits facts that name the schema's values.
        """
        chosen = _WordEmbeddings(self) if embedding is None else embedding
        if not isinstance(chosen, Embeddings):
            raise InvalidParameterError(
                "embedding must be a LangChain Embeddings, not "
                f"{type(chosen).__name__}."
            )
        store = InMemoryVectorStore(chosen)
        self.add_to(store)
        return store

    def as_retriever(
        self, embedding: Embeddings | None = None, *, k: int = 4, **terms: Any
    ) -> BaseRetriever:
        """Return a retriever over the documents, for any chain that has one.

        Args:
            embedding: See `as_vectorstore`.
            k: How many documents a question gets.
            **terms: What else `VectorStore.as_retriever` takes.

        Raises:
            InvalidParameterError: If k is no count, or `embedding` is none.
        """
        wanted = {
            "k": parameters.count(k, "k"),
            **terms.pop("search_kwargs", {}),
        }
        store = self.as_vectorstore(embedding)
        return store.as_retriever(search_kwargs=wanted, **terms)

    def add_to(self, store: VectorStore) -> list[str]:
        """Add the documents to a vector store of yours; return their ids.

        The ids are the release's: adding it again replaces it, where the store does.
        """
        documents = list(self)
        return store.add_documents(documents, ids=[str(one.id) for one in documents])

    async def aadd_to(self, store: VectorStore) -> list[str]:
        """Add the documents without blocking the event loop; see `add_to`."""
        documents = list(self)
        ids = [str(one.id) for one in documents]
        return await store.aadd_documents(documents, ids=ids)

    def verify(self, ledger: str | Ledger | None = None) -> tuple[str, ...]:
        """Compare the documents with their digest, and all of it with the ledger.

        The ledger keeps what a `GDPTable` drew. Each document is compared with the one
        that is computed from the draw, its numbers and its sentences.

        Args:
            ledger: The ledger that was charged, or its URL; None leaves that out.

        Returns:
            The names of what was not compared, as no ledger stores it: `wording` (what
            people are called), `documents[3]` (one in a model's words), `documents`
            (of your own making), or a field of the record. Without a ledger: all.

        Raises:
            InvalidParameterError: If the documents are others, the ledger does not have
                this charge, or what it stored beside it is something else.
            LedgerError: If the ledger can't be used or trusted.
        """
        self._examples.verify()
        if ledger is None:
            return (*self.record, "documents")
        return require_charged(self.record, ledger, self._documents())

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write documents and record to a JSON file that `load` verifies.

        Args:
            path: The file. One that holds this very release is left as it is.
            overwrite: Whether to replace anything else that is there.

        Raises:
            InvalidParameterError: If something else is there, or the file can't be
                written.
        """
        documents = [
            {_TEXT: one[_TEXT], _METADATA: json.loads(one[_METADATA])}
            for one in self._examples
        ]
        content = {"record": self.record, "documents": documents}
        file_format.write(path, content, CORPUS, overwrite=overwrite)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, ledger: str | Ledger | None = None
    ) -> Self:
        """Read what `save` wrote, and verify it.

        Args:
            path: The file.
            ledger: See `verify`.

        Raises:
            InvalidParameterError: If it is no such file, was changed, or the ledger
                does not have this charge.
            LedgerError: If the ledger can't be used or trusted.
        """
        stored = file_format.read(path, CORPUS)
        shape = {_TEXT, _METADATA}
        for place, one in enumerate(stored["documents"]):
            known = isinstance(one, dict) and one.keys() == shape
            if not known or not isinstance(one[_TEXT], str):
                raise InvalidParameterError(
                    f"Document {place} of the file is not text."
                )
            if not isinstance(one[_METADATA], dict):
                raise InvalidParameterError(
                    f"Document {place} of the file has no metadata."
                )
        found = cls(
            (
                Document(one[_TEXT], metadata=one[_METADATA])
                for one in stored["documents"]
            ),
            stored["record"],
        )
        found.verify(ledger)
        return found

    def _documents(self) -> list[Document]:
        return [
            Document(one[_TEXT], metadata=json.loads(one[_METADATA]))
            for one in self._examples
        ]


class _WordEmbeddings(Embeddings):
    """Vectors of words, weighted by how few documents have them, and by place."""

    def __init__(self, documents: Iterable[Document]) -> None:
        texts = [_words(one.page_content) for one in documents]
        often = Counter(word for words in texts for word in set(words))
        self._places = {word: place for place, word in enumerate(often)}
        self._weights = {
            word: math.log1p(len(texts) / count) for word, count in often.items()
        }

    def embed_query(self, text: str) -> list[float]:
        return self._vector(_words(text))

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self._vector(*map(_words, _parts(text))) for text in texts]

    def _vector(self, first: list[str], rest: Sequence[str] = ()) -> list[float]:
        vector = [0.0] * (len(self._places) + 1)
        for words, weight in ((rest, _REST), (first, 1.0)):
            for word in words:
                if (place := self._places.get(word)) is not None:
                    vector[place] = weight * self._weights[word]
        # The last place keeps the length above 0, where no word is known.
        vector[-1] = 1e-6
        return vector


def _parts(text: str) -> tuple[str, str]:
    """Return what a document begins with, up to a colon or a full stop, and the rest.

    It says what the document is about.
    """
    found = _SENTENCE.match(text)
    end = found.end() if found else len(text)
    return text[:end], text[end:]


def _words(text: str) -> list[str]:
    return [lemma(word) for word in tokenize(text) if word not in STOP_WORDS]


def _dumped(metadata: dict[str, Any]) -> str:
    try:
        return json.dumps(metadata, allow_nan=False)
    except (TypeError, ValueError):
        pass
    raise InvalidParameterError("A document's metadata must be what JSON can hold.")
