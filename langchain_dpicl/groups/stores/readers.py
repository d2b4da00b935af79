"""Stores that are read out: LangChain's in-memory store and Chroma."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document

from langchain_dpicl.groups.stores.contract import VectorReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langchain_core.vectorstores import InMemoryVectorStore

from collections.abc import Iterator, Sequence

_PAGE = 1000  # Documents of one call: Chroma has a limit, of 5461 on many machines.


class InMemoryReader(VectorReader):
    """Reads an `InMemoryVectorStore`."""

    def __init__(self, store: InMemoryVectorStore) -> None:
        self._store = store

    def read(self) -> Iterator[tuple[Document, Sequence[float]]]:
        """Yield every document with its vector."""
        # A list: others may add to the store while it is read.
        for record in list(self._store.store.values()):
            document = Document(
                page_content=record["text"],
                metadata=record["metadata"],
                id=record["id"],
            )
            yield document, record["vector"]

    def delete(self, document_ids: Sequence[str]) -> None:
        """Delete documents from the store."""
        self._store.delete(list(document_ids))


class ChromaReader(VectorReader):
    """Reads the collection of a `langchain_chroma.Chroma`, which is never searched.

    A collection has one HNSW graph of everybody's vectors, which can't be switched off
    or built for one shard: whom it finds depends on who else is in it.
    """

    def __init__(self, store: Any) -> None:
        self._store = store

    def read(self) -> Iterator[tuple[Document, Sequence[float]]]:
        """Yield every document with its vector.

        A record without a text (an image, a vector alone) is left out, as by
        LangChain's own searches: there is nothing to put into a prompt.
        """
        for page in self._pages(["documents", "metadatas", "embeddings"]):
            for own, text, metadata, vector in zip(
                page["ids"],
                page["documents"],
                page["metadatas"],
                page["embeddings"],
                strict=True,
            ):
                if text is not None:
                    yield _document(own, text, metadata), vector

    def everything(self) -> Iterator[Document]:
        """Yield every record, also one without a text."""
        for page in self._pages(["metadatas"]):
            for own, metadata in zip(page["ids"], page["metadatas"], strict=True):
                yield _document(own, "", metadata)

    def _pages(self, include: list[str]) -> Iterator[dict[str, Any]]:
        # By id, not by offset: with an offset, a deletion meanwhile skips a record.
        ids: list[str] = self._store.get(include=[])["ids"]
        for start in range(0, len(ids), _PAGE):
            yield self._store.get(ids=ids[start : start + _PAGE], include=include)

    def delete(self, document_ids: Sequence[str]) -> None:
        """Delete documents from the collection."""
        for start in range(0, len(document_ids), _PAGE):
            self._store.delete(ids=list(document_ids[start : start + _PAGE]))


def _document(own: str, text: str, metadata: dict[str, Any] | None) -> Document:
    return Document(page_content=text, metadata=metadata or {}, id=own)
