"""Records in the store that the user gave, written to by LangChain's own methods."""

from __future__ import annotations

import threading
from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_dpicl.common.progress import progress_bar
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.records import Records
from langchain_dpicl.release.flow import Do, in_thread
from langchain_dpicl.sealed.embedding_calls import calls_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings

    from langchain_dpicl.groups.terms import RetrievalTerms
    from langchain_dpicl.release.flow import Flow

_TITLE = "Adding documents"

_BATCH = 1000
"""Documents of one call: stores have limits of their own, Chroma one of 5461."""


class StoreRecords(Records):
    """Records in a LangChain vector store (`given`), or behind an adapter.

    The methods of the store that are called here report to no callback.
    """

    def __init__(
        self,
        terms: RetrievalTerms,
        embedding: Embeddings,
        given: Any,
        searched_by: str,
    ) -> None:
        self._terms = terms
        self._embedding = embedding
        self._given = given
        self._searched_by = searched_by
        self._name = type(given).__name__
        self._writing = threading.Lock()

    @property
    def embedding(self) -> Embeddings:
        """The embedding of the stored vectors."""
        return self._embedding

    @property
    def description(self) -> Mapping[str, Any]:
        """The store's class, and what searches."""
        return {"store": self._name, "searched_by": self._searched_by}

    def add(
        self,
        documents: Iterable[Document],
        batch_size: int | None = None,
        *,
        progress: bool = False,
    ) -> Flow[int]:
        """Add documents to the store, which embeds them, and refresh.

        A store that can't be written to, or holds a document of the same id, which it
        would replace in silence, is refused before anything is written.
        """
        taken, unit_ids = self._take(documents)
        calls = calls_of(unit_ids, batch_size, most=_BATCH)
        for start in range(0, len(taken), _BATCH):
            yield from self._refuse_known(taken[start : start + _BATCH])
        with progress_bar(_TITLE, len(taken), shown=progress) as advance:
            for places in calls:
                yield self._call("add_documents", [taken[place] for place in places])
                advance(len(places))
        yield in_thread(self.refresh)
        return len(taken)

    @abstractmethod
    def _take(self, documents: Iterable[Document]) -> tuple[list[Document], list[str]]:
        """Return checked copies of documents, and the unit id of each."""

    def _refuse_known(self, documents: Sequence[Document]) -> Flow[None]:
        ids = [document.id for document in documents if document.id is not None]
        if not ids or not callable(getattr(self._given, "get_by_ids", None)):
            return
        try:
            known = yield self._call("get_by_ids", ids)
        except NotImplementedError:
            return
        if known:
            raise InvalidParameterError(
                "The store holds a document with the id of one that was to be added. "
                "Give each document an id of its own or none; to replace a unit's "
                "documents, delete_unit() it first."
            )

    def _call(self, name: str, argument: Any) -> Do:
        """Return the call of a method of the store, whose async twin may be missing."""
        method = getattr(self._given, name, None)
        if not callable(method):
            raise InvalidParameterError(
                f"{self._name} has no method {name}: write with the store's own "
                "methods, then call refresh()."
            )
        call, twin = partial(method, argument), getattr(self._given, f"a{name}", None)
        return Do(call, partial(twin, argument)) if callable(twin) else in_thread(call)
