"""Writing to the store that the user gave, by LangChain's own methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_dpicl.embedding_calls import calls_of
from langchain_dpicl.exceptions import InvalidParameterError
from langchain_dpicl.progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langchain_core.documents import Document

_TITLE = "Adding documents"

_BATCH = 1000
"""Documents of one call: stores have limits of their own, Chroma one of 5461."""


class StoreWriter:
    """Adds documents to a LangChain vector store, or to an adapter that can add.

    The methods it calls report to no callback.

    Attributes:
        store: What the user gave.
    """

    def __init__(self, store: Any) -> None:
        self.store = store

    def add(
        self,
        documents: Sequence[Document],
        unit_ids: Sequence[str],
        batch_size: int | None,
        *,
        progress: bool,
    ) -> None:
        """Add documents, call by call: the store embeds those of one call together.

        Args:
            documents: The documents.
            unit_ids: The unit of each document.
            batch_size: How many documents share a call of the store, whatever their
                units; None: those of one unit.
            progress: Whether to draw a progress bar on standard error.

        Raises:
            InvalidParameterError: If the store can't be written to, or holds a
                document of the same id: it would replace it in silence. Then nothing
                is written.
        """
        add = self._method("add_documents")
        calls = calls_of(unit_ids, batch_size, most=_BATCH)
        for batch in _batches(documents):
            self._refuse_taken(batch)
        with progress_bar(_TITLE, len(documents), shown=progress) as advance:
            for places in calls:
                add([documents[place] for place in places])
                advance(len(places))

    async def aadd(
        self,
        documents: Sequence[Document],
        unit_ids: Sequence[str],
        batch_size: int | None,
        *,
        progress: bool,
    ) -> None:
        """Add documents; the async twin of `add`."""
        add = self._method("aadd_documents")
        calls = calls_of(unit_ids, batch_size, most=_BATCH)
        for batch in _batches(documents):
            await self._arefuse_taken(batch)
        with progress_bar(_TITLE, len(documents), shown=progress) as advance:
            for places in calls:
                await add([documents[place] for place in places])
                advance(len(places))

    def _method(self, name: str) -> Any:
        method = getattr(self.store, name, None)
        if not callable(method):
            raise InvalidParameterError(
                f"{type(self.store).__name__} has no method {name}: write to the store "
                "by its own means, and call refresh() then."
            )
        return method

    def _refuse_taken(self, batch: Sequence[Document]) -> None:
        ids = [document.id for document in batch if document.id is not None]
        look_up = getattr(self.store, "get_by_ids", None)
        if not ids or not callable(look_up):
            return
        try:
            taken = look_up(ids)
        except NotImplementedError:
            return
        _refuse(taken)

    async def _arefuse_taken(self, batch: Sequence[Document]) -> None:
        ids = [document.id for document in batch if document.id is not None]
        look_up = getattr(self.store, "aget_by_ids", None)
        if not ids or not callable(look_up):
            return
        try:
            taken = await look_up(ids)
        except NotImplementedError:
            return
        _refuse(taken)


def _refuse(taken: Sequence[Document]) -> None:
    if taken:
        raise InvalidParameterError(
            "The store holds a document with the id of one that was to be added. Give "
            "each document an id of its own or none; to replace a unit's documents, "
            "delete_unit() it first."
        )


def _batches(documents: Sequence[Document]) -> Iterator[list[Document]]:
    for start in range(0, len(documents), _BATCH):
        yield list(documents[start : start + _BATCH])
