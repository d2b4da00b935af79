"""Reading LangChain's in-memory store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.documents import Document

from langchain_dpicl.groups.stores.contract import VectorReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langchain_core.vectorstores import InMemoryVectorStore


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
