"""No frame of a refused corpus holds a record, whoever refuses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from support.canaries import look, marker
from support.frames import locals_of, private_locals

import langchain_dpicl
from langchain_dpicl import (
    DPError,
    InvalidParameterError,
    RetrievedGroups,
    SampledGroups,
    UnitError,
)
from langchain_dpicl.offline import HashingEmbeddings

SECRET = marker("document", "text")
EMBEDDING = HashingEmbeddings()
PACKAGE = str(Path(langchain_dpicl.__file__).parent)


def document(number: int, **more: Any) -> Document:
    who = marker("unit", number)
    return Document(marker("document", number), metadata={"who": who}, **more)


GOOD = [document(number) for number in range(60)]


class Failing(HashingEmbeddings):
    """Fails, and quotes what it was asked."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise RuntimeError(texts[0])


class FailingServer(Failing):
    """Fails too; several calls of it run at once."""

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.embed_documents(texts)


class Short(HashingEmbeddings):
    """Gives fewer vectors than it was asked for."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return []


def stopped() -> Iterator[Document]:
    yield from GOOD
    raise OSError("The disk is gone.")


# The documents, the embedding, and the error.
CORPORA: dict[str, tuple[Callable[[], Any], Any, type[Exception]]] = {
    "no unit": (lambda: [*GOOD, Document(SECRET)], EMBEDDING, UnitError),
    "a list as unit": (
        lambda: [*GOOD, Document(SECRET, metadata={"who": [SECRET]})],
        EMBEDDING,
        UnitError,
    ),
    "no document": (lambda: [*GOOD, SECRET], EMBEDDING, InvalidParameterError),
    "a text": (lambda: SECRET, EMBEDDING, InvalidParameterError),
    "an id twice": (
        lambda: [*GOOD, document(1, id="a"), document(2, id="a")],
        EMBEDDING,
        InvalidParameterError,
    ),
    "a reader that fails": (stopped, EMBEDDING, OSError),
    "an embedding that fails": (lambda: GOOD, Failing(), RuntimeError),
    "a server that fails": (lambda: GOOD, FailingServer(), RuntimeError),
    "an embedding that gives less": (lambda: GOOD, Short(), InvalidParameterError),
}


def store(documents: Any) -> InMemoryVectorStore:
    made = InMemoryVectorStore(EMBEDDING)
    made.add_documents(documents)
    return made


def retrieved(documents: Any, embedding: Any) -> Any:
    return RetrievedGroups.from_documents(
        documents, embedding, unit_key="who", n_groups=4
    )


class Later(HashingEmbeddings):
    """An embedding that becomes another one after the first corpus."""

    now: Any = EMBEDDING

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = self.now.embed_documents(texts)
        return vectors


def refilled(documents: Any, embedding: Any) -> int:
    later = Later()
    groups = retrieved(GOOD[:20], later)
    later.now = embedding
    return groups.add_documents(documents)  # type: ignore[no-any-return]


MAKE: dict[str, Callable[[Any, Any], Any]] = {
    "from_documents": retrieved,
    "add_documents": refilled,
    "sampled": lambda documents, _: SampledGroups.from_documents(
        documents=documents, unit_key="who", n_groups=4, sampling_rate=0.5
    ),
    "sampled add": lambda documents, _: SampledGroups.from_documents(
        GOOD[:20], unit_key="who", n_groups=4, sampling_rate=0.5
    ).add_documents(documents),
}


@pytest.mark.parametrize("way", MAKE)
@pytest.mark.parametrize("name", CORPORA)
def test_no_frame_of_a_refused_corpus_holds_a_record(name: str, way: str) -> None:
    documents, embedding, kind = CORPORA[name]
    if embedding is not EMBEDDING and "sampled" in way:
        assert MAKE[way](documents(), embedding)
        return
    with pytest.raises(kind) as caught:
        MAKE[way](documents(), embedding)
    assert any("given=<hidden>" in each for each in locals_of(caught.value, __name__))
    private = private_locals(caught.value, __name__)
    if isinstance(embedding, Failing):
        # The frames of the embedding's client are its own, and what it quotes.
        private = [each for each in private if each.startswith(PACKAGE)]
    assert private == []
    if isinstance(caught.value, DPError):
        assert look(str(caught.value)).private == []
        assert caught.value.__context__ is None


@pytest.mark.parametrize("way", ["from_vectorstore", "refresh"])
def test_no_frame_of_a_refused_store_holds_a_record(way: str) -> None:
    bad = [Document(SECRET, metadata={"ward": SECRET})]
    held = store(GOOD if way == "refresh" else [*GOOD, *bad])
    terms: Any = {"unit_key": "who", "n_groups": 4}
    groups = RetrievedGroups.from_vectorstore(store(GOOD), **terms)
    if way == "refresh":
        groups = RetrievedGroups.from_vectorstore(held, **terms)
        held.add_documents(bad)
    with pytest.raises(UnitError) as caught:
        if way == "refresh":
            groups.refresh(held)
        else:
            RetrievedGroups.from_vectorstore(held, **terms)
    assert private_locals(caught.value, __name__) == []


def test_no_frame_of_an_unknown_unit_holds_its_id() -> None:
    unknown = marker("unit", "nobody")
    sampled = SampledGroups.from_documents(
        GOOD, unit_key="who", n_groups=4, sampling_rate=0.5
    )
    for groups in (retrieved(GOOD, EMBEDDING), sampled):
        with pytest.raises(UnitError) as caught:
            groups.delete_unit(unknown)
        assert private_locals(caught.value, __name__) == []
