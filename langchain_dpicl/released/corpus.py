"""Released facts as documents, for any RAG chain: paid for once, asked at no cost."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from typing_extensions import override

from langchain_dpicl.common import parameters
from langchain_dpicl.common.file_format import CORPUS
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.parsers.words import STOP_WORDS, lemma, tokenize
from langchain_dpicl.released.examples import Released

SOURCE = "released fact"
"""What the metadata of each document says of where it comes from."""

_TEXT, _METADATA = "text", "metadata"
_SENTENCE = re.compile(r".*?[.:?!](?=\s|$)", re.DOTALL)
_REST = 0.2
"""What a word behind a document's beginning weighs, compared to one in it."""


class ReleasedCorpus(Released[Document]):
    """Facts that were released once, as LangChain documents, with their record.

    It is a sequence of documents: any splitter, store, retriever or chain takes them;
    see `Released`. Each says in its metadata that it is a released fact, holds its
    numbers, and names release, unit and epsilon at delta as JSON text (some vector
    stores keep nothing nested). The whole record is `record`. `GDPTable.documents()`
    makes one.

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

    _kind, _field = CORPUS, "documents"

    def __init__(
        self, documents: Iterable[Document], record: Mapping[str, Any]
    ) -> None:
        super().__init__(documents, record)
        stated = {name: self.record[name] for name in ("epsilon", "delta", "unit")}
        self._privacy = json.dumps({"release": self.digest, **stated})

    @classmethod
    @override
    def _stored(cls, items: Iterable[Document]) -> list[dict[str, Any]]:
        return [{_TEXT: one.page_content, _METADATA: one.metadata} for one in items]

    @classmethod
    @override
    def _given(cls, stored: Sequence[Any]) -> list[Document]:
        for place, one in enumerate(stored):
            if (
                not isinstance(one, dict)
                or one.keys() != {_TEXT, _METADATA}
                or not isinstance(one[_TEXT], str)
                or not isinstance(one[_METADATA], dict)
            ):
                raise InvalidParameterError(
                    f"Document {place} of the file is not text with metadata."
                )
        return [Document(one[_TEXT], metadata=one[_METADATA]) for one in stored]

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
        one = json.loads(self._items[place])
        added = {"source": SOURCE, **one[_METADATA], "privacy": self._privacy}
        return Document(one[_TEXT], metadata=added, id=f"{self.digest[:16]}-{place}")

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
        wanted = {"k": parameters.count(k, "k"), **terms.pop("search_kwargs", {})}
        store = self.as_vectorstore(embedding)
        return store.as_retriever(search_kwargs=wanted, **terms)

    def add_to(self, store: VectorStore) -> list[str]:
        """Add the documents to a vector store of yours; return their ids.

        The ids are the release's: adding it again replaces it, where the store does.
        """
        documents = list(self)
        return store.add_documents(documents, ids=[str(one.id) for one in documents])


class _WordEmbeddings(Embeddings):
    """Vectors of words, weighted by how few documents have them, and by place.

    A document's beginning, up to a colon or a full stop, says what it is about.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        texts = [set(_words(one.page_content)) for one in documents]
        often = Counter(word for words in texts for word in words)
        self._places = {word: place for place, word in enumerate(often)}
        self._weights = [math.log1p(len(texts) / count) for count in often.values()]

    def embed_query(self, text: str) -> list[float]:
        return self._vector(text, "")

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        starts = [_SENTENCE.match(text) for text in texts]
        ends = [match.end() if match else None for match in starts]
        return [
            self._vector(text[:end], "" if end is None else text[end:])
            for text, end in zip(texts, ends, strict=True)
        ]

    def _vector(self, first: str, rest: str) -> list[float]:
        vector = [0.0] * len(self._places)
        for text, weight in ((rest, _REST), (first, 1.0)):
            for word in _words(text):
                if (place := self._places.get(word)) is not None:
                    vector[place] = weight * self._weights[place]
        # The last place keeps the length above 0, where no word is known.
        return [*vector, 1e-6]


def _words(text: str) -> list[str]:
    return [lemma(word) for word in tokenize(text) if word not in STOP_WORDS]
