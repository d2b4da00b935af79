"""A store that is read out: in memory, Chroma, Qdrant, PGVectorStore, or your own."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from langchain_qdrant import QdrantVectorStore
from qdrant_client import QdrantClient, models
from support.groups_fakes import bits
from support.known_corpus import DIMENSION, KnownEmbedding, known_corpus
from support.pgvector_parts import VectorServer
from support.store_parts import (
    EMBEDDING,
    QUESTION,
    chroma,
    chroma_client,
    ids,
    in_memory,
    opened,
    patients,
    qdrant,
    records,
)

from langchain_dpicl import (
    InvalidParameterError,
    RetrievedGroups,
    UnitError,
    UnsoundStoreError,
)
from langchain_dpicl.groups.readers import VectorReader

CANARY = "canary-7f3a"
SALT = bytes(range(32))
KNOWN = KnownEmbedding()
MAKERS = {"in memory": in_memory, "chroma": chroma, "qdrant": qdrant}
every_store = pytest.mark.parametrize("maker", MAKERS.values(), ids=list(MAKERS))


def new(unit: Any, text: str = "Lisinopril: a cough.", **terms: Any) -> Document:
    return Document(text, metadata={"patient": unit}, **terms)


def later(number: int = 999) -> str:
    return str(uuid.UUID(int=number))


def named_qdrant(documents: list[Document], distance: models.Distance) -> Any:
    client = QdrantClient(":memory:")
    params = models.VectorParams(size=DIMENSION, distance=distance)
    client.create_collection("notes", vectors_config={"dense": params})
    store = QdrantVectorStore(
        client,
        "notes",
        KNOWN,
        vector_name="dense",
        distance=distance,
        content_payload_key="t",
        metadata_payload_key="m",
    )
    store.add_documents(documents)
    return store


def face(document: Document) -> tuple[Any, ...]:
    # A column of one type makes texts of ids that are numbers.
    metadata = {**document.metadata, "unit": str(document.metadata["unit"])}
    return document.id, document.page_content, sorted(metadata.items())


def of_the_known(server: VectorServer) -> Iterator[tuple[str, Any]]:
    corpus = known_corpus()
    texts = [
        one.model_copy(
            update={"metadata": {**one.metadata, "unit": str(one.metadata["unit"])}}
        )
        for one in corpus
    ]
    yield "in memory", in_memory(corpus, KNOWN)
    yield "chroma", chroma(texts, KNOWN)
    yield "pgvector", server.store(texts)[0]
    for distance in models.Distance:
        yield distance.value, named_qdrant(corpus, distance)


def test_documents_and_vectors_are_what_was_put_in(server: VectorServer) -> None:
    corpus = known_corpus()
    given = {one.page_content for one in corpus}
    for what, store in of_the_known(server):
        groups = RetrievedGroups.from_vectorstore(
            store, unit_key="unit", n_groups=1, docs_per_group=999
        )
        (found,) = groups.draw("Who coughs?")
        assert sorted(map(face, found)) == sorted(map(face, corpus)), what
        for _, text, vector in bits(groups):
            own = np.asarray(KNOWN.embed_query(text))
            # Qdrant scales in single precision, and in a way of its own.
            cosine = np.frombuffer(vector, np.float32) @ own / np.linalg.norm(own)
            assert cosine > 1 - 1e-5, what
        assert {text for _, text, _ in bits(groups)} == given


@every_store
def test_what_others_write_shows_after_a_refresh(maker: Any, tmp_path: Path) -> None:
    documents = records(30, 0)
    store = maker(documents)
    groups = opened(store, n_groups=3, docs_per_group=1000)
    groups.save(tmp_path / "index")
    follower = RetrievedGroups.load(tmp_path / "index", EMBEDDING, follow=True)
    before = patients(groups.draw(QUESTION))
    store.add_documents([new("later", id=later()), new("unit-3", id=later(998))])
    store.delete(
        [str(one.id) for one in documents if one.metadata == {"patient": "unit-5"}]
    )
    assert patients(groups.draw(QUESTION)) == before
    groups.refresh(store)
    after = patients(groups.draw(QUESTION))
    # Nobody else moves.
    assert [slot - {"later"} for slot in after] == [
        slot - {"unit-5"} for slot in before
    ]
    assert set.union(*after) - set.union(*before) == {"later"}
    assert patients(follower.draw(QUESTION)) == before
    groups.save(tmp_path / "index")
    assert ids(follower.draw(QUESTION)) == ids(groups.draw(QUESTION))
    # An erasure of everybody is not refused for the sake of the groups.
    store.delete([*map(str, (one.id for one in documents)), later(), later(998)])
    groups.refresh(store)
    assert groups.draw(QUESTION) == [[], [], []]


def test_a_record_without_a_unit_is_refused() -> None:
    store = in_memory(records(30, 0))
    groups = opened(store, n_groups=3)
    before = ids(groups.draw(QUESTION))
    store.add_documents([Document(CANARY, metadata={"other": 1}, id=later())])
    for call in (lambda: opened(store, n_groups=3), lambda: groups.refresh(store)):
        with pytest.raises(UnitError, match="patient") as caught:
            call()
        assert CANARY not in str(caught.value)
    assert ids(groups.draw(QUESTION)) == before


class NeverSearched(QdrantClient):
    """It fails when it is asked to search."""

    def _search(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("The local mode was searched.")

    query_points = query_points_groups = query_batch_points = _search


def test_a_stores_own_search_is_never_used() -> None:
    """Qdrant's local mode scales its vectors at every search: scores would drift."""
    client = NeverSearched(":memory:")
    params = models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE)
    client.create_collection("notes", vectors_config=params)
    store = QdrantVectorStore(client, "notes", KNOWN)
    store.add_documents(known_corpus()[:80])
    groups = RetrievedGroups.from_vectorstore(store, unit_key="unit", n_groups=4)
    first = groups.draw("Who coughs?")
    assert groups.draw("Who coughs?") == first


@pytest.mark.parametrize("maker", [in_memory, qdrant])
def test_many_pages(maker: Any) -> None:
    documents = [new(f"p-{n}", f"Note {n % 50}.", id=later(n)) for n in range(1, 2301)]
    groups = opened(maker(documents), n_groups=1, docs_per_group=2400)
    assert groups.n_units == 2300
    assert set(*ids(groups.draw(QUESTION))) == {one.id for one in documents}


# ---- readers of one's own ------------------------------------------------------------


class Reader:
    """Reads what it is given."""

    embeddings = EMBEDDING

    def __init__(self, rows: Iterable[Any]) -> None:
        self.rows = rows

    def read(self) -> Iterable[Any]:
        return self.rows


def row(unit: Any, own: str | None = None, text: str = "A cough.") -> Any:
    return new(unit, text, id=own), EMBEDDING.embed_query(text)


def test_a_reader_of_ones_own() -> None:
    reader = Reader([row(unit, f"id-{unit}") for unit in range(9)])
    assert isinstance(reader, VectorReader)
    groups = opened(reader, n_groups=3, docs_per_group=9)
    assert groups.n_units == 9
    assert sum(map(len, groups.draw(QUESTION))) == 9
    # Documents without an id are never held to be the same.
    assert opened(Reader([row(1), row(1), row(2)]), n_groups=1).n_units == 2


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([row(1, "a"), row(2, "a")], UnsoundStoreError, "one record twice"),
        ([row(1, "a"), row(1, "a")], UnsoundStoreError, "one record twice"),
        ([row(1)[0]], InvalidParameterError, "pairs"),
        ([(CANARY, [1.0])], InvalidParameterError, "pairs"),
        ([(*row(1), 1)], InvalidParameterError, "pairs"),
        (7, InvalidParameterError, r"could not be read \(TypeError\)"),
        ([row(1), (new(2), [1.0])], InvalidParameterError, "dimension"),
        ([(new(1), CANARY)], InvalidParameterError, "one vector of numbers"),
    ],
    ids=lambda value: None if isinstance(value, list) else str(value),
)
def test_what_a_reader_must_not_return(rows: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        opened(Reader(rows), n_groups=1)
    assert CANARY not in str(caught.value)
    groups = opened(Reader([row(1), row(2)]), n_groups=1)
    before = ids(groups.draw(QUESTION))
    with pytest.raises(error):
        groups.refresh(Reader(rows))
    assert ids(groups.draw(QUESTION)) == before


def test_a_failing_client_is_not_quoted() -> None:
    def rows() -> Iterator[Any]:
        yield row(1, text=CANARY)
        raise RuntimeError(CANARY)

    with pytest.raises(InvalidParameterError, match=r"\(RuntimeError\)") as caught:
        opened(Reader(rows()), n_groups=1)
    assert CANARY not in str(caught.value)
    assert caught.value.__context__ is None


class Forgetful(QdrantClient):
    """Its scroll ends too early."""

    def scroll(self, *args: Any, **kwargs: Any) -> Any:
        points, _ = super().scroll(*args, **kwargs)
        return points[:-1], None


def test_a_store_that_loses_records_is_refused() -> None:
    client = Forgetful(":memory:")
    params = models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE)
    client.create_collection("notes", vectors_config=params)
    store = QdrantVectorStore(client, "notes", KNOWN)
    store.add_documents(known_corpus()[:80])
    with pytest.raises(UnsoundStoreError, match="fewer records than it holds"):
        RetrievedGroups.from_vectorstore(store, unit_key="unit", n_groups=4)


def test_a_vector_without_a_direction_is_left_out() -> None:
    size = len(EMBEDDING.embed_query(QUESTION))
    rows = [row(1), (new(2), [0.0] * size), (new(3), [float("nan")] * size)]
    assert opened(Reader([*rows, row(4)]), n_groups=1).n_units == 2
    with pytest.raises(UnitError, match="no documents"):
        opened(Reader(rows[1:]), n_groups=1)


def test_what_is_no_record() -> None:
    """An image without a text in Chroma, a point without its vector in Qdrant."""
    images = chroma(records(30, 0))
    images._collection.add(
        ids=["image"],
        embeddings=[EMBEDDING.embed_query(QUESTION)],
        metadatas=[{"patient": "image"}],
    )
    assert opened(images, n_groups=3).n_units == 30
    store = named_qdrant(known_corpus()[:20], models.Distance.COSINE)
    empty = models.PointStruct(id=5, vector={}, payload={"m": {"unit": "p-new"}})
    store.client.upsert("notes", [empty], wait=True)
    found = RetrievedGroups.from_vectorstore(store, unit_key="unit", n_groups=1)
    assert found.n_units == len({d.metadata["unit"] for d in known_corpus()[:20]})


# ---- what is refused -----------------------------------------------------------------


class Unknown(VectorStore):
    """A store that nobody has written a reader for."""

    similarity_search = from_texts = None  # type: ignore[assignment]


RETRIEVER = InMemoryVectorStore(EMBEDDING).as_retriever()


@pytest.mark.parametrize("store", [Unknown(), None, "chroma", Chroma, RETRIEVER])
def test_an_unknown_store_is_told_the_way_out(store: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r"no reader.*\.vectorstore"):
        opened(store, embedding=EMBEDDING)


class Custom(InMemoryVectorStore):
    """A user's own subclass."""


def test_a_subclass_of_a_known_store_is_known() -> None:
    store = Custom(EMBEDDING)
    store.add_documents(records(30, 0))
    assert opened(store).n_units == 30


def test_a_store_without_an_embedding() -> None:
    name = f"c{uuid.uuid4().hex}"
    Chroma(name, EMBEDDING, client=chroma_client()).add_documents(records(30, 0))
    store = Chroma(name, client=chroma_client())
    with pytest.raises(InvalidParameterError, match="embedding="):
        opened(store)
    assert opened(store, embedding=EMBEDDING).draw(QUESTION)
    with pytest.raises(InvalidParameterError, match="LangChain Embeddings"):
        opened(store, embedding=CANARY)


def test_no_store_library_is_imported_for_another_store() -> None:
    code = (
        "import sys\n"
        "from langchain_core.vectorstores import InMemoryVectorStore\n"
        "from langchain_core.documents import Document\n"
        "from langchain_dpicl import RetrievedGroups\n"
        "from langchain_dpicl.offline import HashingEmbeddings\n"
        "store = InMemoryVectorStore(HashingEmbeddings())\n"
        "store.add_documents([Document('a', metadata={'u': i}) for i in range(9)])\n"
        "RetrievedGroups.from_vectorstore(store, unit_key='u', n_groups=2)\n"
        "names = {'chromadb', 'langchain_chroma', 'qdrant_client', 'psycopg',\n"
        "         'langchain_qdrant', 'langchain_postgres'}\n"
        "assert not names & set(sys.modules), names & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
