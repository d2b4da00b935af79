"""An approximate index for each shard: searched shard by shard, and never over two."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from sqlalchemy import text
from support.known_corpus import DIMENSION, known_corpus
from support.pgvector_parts import SALT, VectorServer, table_of
from support.store_check import check_shard_store

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.errors import (
    GroupCallError,
    InvalidParameterError,
    UnsoundStoreError,
)
from langchain_dpicl.groups import shard_of
from langchain_dpicl.groups.stores.pgvector import partitions
from langchain_dpicl.groups.stores.pgvector.partitions import PGVectorPartitions

SHARDS = 4
Make = Callable[..., PGVectorPartitions]


class Near(Embeddings):
    """The nearer a text's number is to 0, the nearer is it to the question."""

    def embed_query(self, text: str) -> list[float]:
        number = float(text.rsplit(maxsplit=1)[-1])
        return [1.0, number / 1000, *[0.0] * (DIMENSION - 2)]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


def note(unit: str, number: int) -> Document:
    metadata = {"unit": unit, "visit": 1}
    return Document(f"note {number}", metadata=metadata, id=str(uuid.uuid4()))


@pytest.fixture
def make(vectors: VectorServer) -> Iterator[Make]:
    made = []

    def over(
        documents: Sequence[Document],
        embedding: Embeddings,
        kind: type[PGVectorPartitions] = PGVectorPartitions,
    ) -> PGVectorPartitions:
        made.append(kind(vectors.by_column(documents, embedding), "unit"))
        return made[-1]

    yield over
    for shards in made:
        shards.close()


def groups_of(shards: Any, n_groups: int = SHARDS, **terms: Any) -> RetrievedGroups:
    return RetrievedGroups.from_vectorstore(
        shards, unit_key="unit", n_groups=n_groups, salt=SALT, **terms
    )


def texts(groups: RetrievedGroups, question: str = "note 0") -> list[list[str]]:
    return [[one.page_content for one in slot] for slot in groups.draw(question)]


def together(groups: RetrievedGroups) -> list[str]:
    return [one for slot in texts(groups) for one in slot]


def crowd() -> list[Document]:
    return [note(f"p-{i}", 100 + i) for i in range(80)]


def test_the_partitions_conform(make: Make) -> None:
    check_shard_store(make)


def test_a_draw_goes_through_the_indexes(make: Make, vectors: VectorServer) -> None:
    shards = make(crowd(), Near())
    groups_of(shards)
    assert plan_of(shards).count("Index Scan using") >= SHARDS
    for shard in range(SHARDS):
        assert f"{shards._name}_{shard}_embedding_idx" in plan_of(shards)


def plan_of(shards: PGVectorPartitions) -> str:
    given = {
        "vector": str(Near().embed_query("note 0")),
        "n": 3,
        "corpus": shards._shards.corpus,
        "n_shards": SHARDS,
    }
    with shards._database.reading() as connection:
        connection.execute(partitions._SETTINGS, {"look": "100"})
        query = text(f"EXPLAIN {shards.partitions_query(SHARDS)}")
        return "\n".join(connection.execute(query, given).scalars())


def test_a_draw_asks_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = groups_of(make(crowd(), Near()))
    exactly: list[Any] = []
    true = PGVectorPartitions.best_query

    def best_query(self: Any, *given: Any) -> Any:
        exactly.append(given[3])
        return true(self, *given)

    monkeypatch.setattr(PGVectorPartitions, "best_query", best_query)
    expected = [
        [f"note {100 + i}" for i in range(80) if shard_of(f"p-{i}", SALT, SHARDS) == k]
        for k in range(SHARDS)
    ]
    assert texts(groups) == [slot[:4] for slot in expected]
    assert exactly == []


# -- one unit changes one slot ---------------------------------------------------------


class OneIndex(PGVectorPartitions):
    """The twin: searches one index of all shards, and filters what it found."""

    def refuse_unsound(self, *, exact: bool) -> None:
        pass

    def partitions_query(self, n_shards: int) -> str:
        return self._with_documents(
            " UNION ALL ".join(
                f"(SELECT {shard} AS shard, id, distance FROM (SELECT shard, id, "
                f"{self._distance} AS distance FROM {self._whole} "
                f"ORDER BY {self._distance} LIMIT 40) AS near WHERE shard = {shard} "
                "LIMIT :n)"
                for shard in range(n_shards)
            )
        )

    @property
    def _whole(self) -> str:
        return self._quoted(f"{self._name}_all")

    def _copy(self, connection: Any, n_shards: int) -> None:
        super()._copy(connection, n_shards)
        for statement in (
            f"DROP TABLE IF EXISTS {self._whole}",
            f"CREATE TABLE {self._whole} AS SELECT * FROM {self._quoted(self._name)}",
            f"CREATE INDEX ON {self._whole} USING hnsw (embedding vector_cosine_ops)",
        ):
            connection.execute(text(statement))

    def best_query(self, *given: Any) -> Any:
        # As a store that does not look again where a shard came short.
        vector, n, n_shards, *only = given
        return super().best_query(vector, n, n_shards, *([[-1]] if only else []))


def slots_changed_by_a_crowd_of_one(make: Make, kind: type[PGVectorPartitions]) -> int:
    """Let one person with 60 records next to the question come; count slots."""
    shards = make(crowd(), Near(), kind)
    groups = groups_of(shards)
    before = [found(shards, slot) for slot in range(SHARDS)]
    shards._store.add_documents([note("newcomer", i) for i in range(60)])
    groups.refresh()
    after = [found(shards, slot) for slot in range(SHARDS)]
    changed = [one != other for one, other in zip(before, after, strict=True)]
    assert changed[shard_of("newcomer", SALT, SHARDS)]
    return sum(changed)


def found(shards: PGVectorPartitions, slot: int) -> list[str]:
    vector = np.asarray([Near().embed_query("note 0")], np.float32)
    hits = [hit for hit in shards.best(vector, 4, SHARDS) if hit.shard == slot]
    return [hit.document.page_content for hit in sorted(hits, key=lambda h: -h.score)]


def test_one_unit_changes_one_slot(make: Make) -> None:
    assert slots_changed_by_a_crowd_of_one(make, PGVectorPartitions) == 1


def test_twin_one_index_of_all_shards_changes_them_all(make: Make) -> None:
    assert slots_changed_by_a_crowd_of_one(make, OneIndex) == SHARDS


def test_twin_one_index_of_all_shards_does_not_conform(make: Make) -> None:
    with pytest.raises((AssertionError, UnsoundStoreError)):
        check_shard_store(lambda *given: make(*given, OneIndex))


def graph_input(make: Make, vectors: VectorServer, more: list[Document]) -> list[Any]:
    """Return each shard's records in the order in which its graph took them."""
    shards = make([*visits(), *more], Near())
    vectors.run(f"ANALYZE {table_of(shards._store)}")
    groups_of(shards)
    query = f"SELECT id FROM {shards._quoted(shards._name)} WHERE shard = %d"
    return [vectors.run(f"{query % k} ORDER BY ctid") for k in range(SHARDS)]


@functools.cache
def visits() -> list[Document]:
    return [note(f"p-{i % 40}", i) for i in range(200)]


def test_one_unit_does_not_reorder_what_other_graphs_are_built_from(
    make: Make, vectors: VectorServer
) -> None:
    """A graph depends on the order of its records, which a join need not keep."""
    before = graph_input(make, vectors, [])
    after = graph_input(make, vectors, [note("newcomer", i) for i in range(400)])
    own = shard_of("newcomer", SALT, SHARDS)
    assert [one != other for one, other in zip(before, after, strict=True)] == [
        slot == own for slot in range(SHARDS)
    ]


class OnePartition(PGVectorPartitions):
    """The copy holds several shards in one partition, which has one index."""

    def _copy(self, connection: Any, n_shards: int) -> None:
        super()._copy(connection, n_shards)
        copied, last = self._quoted(self._name), f"{self._name}_{n_shards - 1}"
        connection.execute(text(f"DROP TABLE {self._quoted(last)}"))
        connection.execute(
            text(f"CREATE TABLE {self._quoted(last)} PARTITION OF {copied} DEFAULT")
        )


def test_a_partition_of_several_shards_is_refused(make: Make) -> None:
    with pytest.raises(UnsoundStoreError, match="not partitioned by shard"):
        check_shard_store(lambda *given: make(*given, OnePartition))


def test_a_plain_table_in_the_place_of_the_copy_is_refused(
    make: Make, vectors: VectorServer
) -> None:
    shards = make(crowd(), Near())
    groups = groups_of(shards)
    copied = shards._quoted(shards._name)
    vectors.run(f"DROP TABLE {copied}")
    with pytest.raises(GroupCallError):
        groups.draw("note 0")
    vectors.run(f"CREATE TABLE {copied} (shard integer, id uuid, embedding vector(8))")
    with pytest.raises(UnsoundStoreError, match="not partitioned by shard"):
        groups.draw("note 0")


def test_an_index_of_all_records_is_refused_as_before(
    make: Make, vectors: VectorServer
) -> None:
    shards = make(crowd(), Near())
    groups = groups_of(shards)
    table = table_of(shards._store)
    vectors.run(f"CREATE INDEX ON {table} USING hnsw (embedding vector_cosine_ops)")
    with pytest.raises(UnsoundStoreError, match="approximate"):
        groups.draw("note 0")


# -- what others write -----------------------------------------------------------------


def test_who_is_deleted_is_deleted_in_the_copy(
    make: Make, vectors: VectorServer
) -> None:
    shards = make([*crowd(), note("gone", 0), note("erased", 1)], Near())
    groups = groups_of(shards)
    copied = shards._quoted(shards._name)
    assert vectors.run(f"SELECT count(*) FROM {copied}") == [(82,)]
    vectors.run(f"DELETE FROM {table_of(shards._store)} WHERE unit = 'gone'")
    assert groups.delete_unit("erased") == 1
    assert vectors.run(f"SELECT count(*) FROM {copied}") == [(80,)]
    assert "note 0" not in together(groups)
    assert "note 1" not in together(groups)


def test_what_is_written_later_comes_with_a_refresh(
    make: Make, vectors: VectorServer
) -> None:
    shards = make(crowd(), Near())
    groups = groups_of(shards)
    later = note("p-1", 0)
    shards._store.add_documents([later])
    table = table_of(shards._store)
    groups.draw("note 0")
    groups.refresh()
    assert texts(groups)[shard_of("p-1", SALT, SHARDS)][0] == "note 0"
    # Another vector, and another person: a draw does not fail, and a refresh shows it.
    other = str(Near().embed_query("note 900"))
    vectors.run(f"UPDATE {table} SET embedding = '{other}' WHERE content = 'note 0'")
    vectors.run(f"UPDATE {table} SET unit = 'p-2' WHERE content = 'note 105'")
    groups.draw("note 0")
    groups.refresh()
    assert "note 0" not in together(groups)
    (size,) = vectors.run(f"SELECT count(*) FROM {shards._quoted(shards._name)}")
    assert size == (81,)


def test_small_shards_and_long_slots_are_exact(make: Make) -> None:
    documents = [note(f"p-{i}", i) for i in range(9)]
    groups = groups_of(make(documents, Near()))
    assert sorted(together(groups)) == sorted(one.page_content for one in documents)
    long = groups_of(make(crowd(), Near()), docs_per_group=500)
    assert sum(map(len, texts(long))) == 80


@pytest.mark.parametrize("terms", [{"sampling_rate": 0.5}, {"score_threshold": 0.99}])
def test_samples_and_thresholds_are_searched_exactly(
    make: Make, monkeypatch: pytest.MonkeyPatch, terms: Any
) -> None:
    groups = groups_of(make(crowd(), Near()), grouping="shard", **terms)
    found = together(groups)
    assert found
    if "sampling_rate" in terms:
        monkeypatch.setattr(
            PGVectorPartitions, "partitions_query", lambda *_: pytest.fail("an index")
        )
        groups.draw("note 0")


def test_a_filter_is_searched_exactly(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = crowd()
    for number, one in enumerate(documents):
        one.metadata["visit"] = number % 4
    groups = groups_of(make(documents, Near()), docs_per_group=80).where({"visit": 3})
    monkeypatch.setattr(
        PGVectorPartitions, "partitions_query", lambda *_: pytest.fail("an index")
    )
    wanted = [one.page_content for one in documents if one.metadata["visit"] == 3]
    assert sorted(together(groups)) == sorted(wanted)


def test_vectors_without_a_direction_are_left_out(
    make: Make, vectors: VectorServer
) -> None:
    shards = make(crowd(), Near())
    table = table_of(shards._store)
    for number, size in ((100, 0.0), (101, 1e-20)):
        vector = str([size] * DIMENSION)
        where = f"content = 'note {number}'"
        vectors.run(f"UPDATE {table} SET embedding = '{vector}' WHERE {where}")
    assert len(together(groups_of(shards, docs_per_group=99))) == 78


def test_longer_vectors_than_an_index_takes_are_refused(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "_LONGEST", 7)
    with pytest.raises(InvalidParameterError, match="searches exactly"):
        groups_of(make(crowd(), Near()))


def test_a_role_that_may_only_read(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = make(crowd(), Near())

    def refused(*_: Any) -> None:
        from sqlalchemy.exc import ProgrammingError

        raise ProgrammingError("secret", {}, Exception("secret"))

    with monkeypatch.context() as patch:
        patch.setattr(PGVectorPartitions, "_copy", refused)
        with pytest.raises(GroupCallError) as caught:
            groups_of(shards)
        assert "secret" not in str(caught.value)
    expected = texts(groups_of(shards))
    monkeypatch.setattr(PGVectorPartitions, "_copy", refused)
    assert texts(groups_of(shards)) == expected


def test_the_corpus_is_one_in_which_an_index_finds_all() -> None:
    """`check_shard_store` compares with exact search: its shards are small enough."""
    assert len(known_corpus()) / 5 < partitions._LEAST_LOOK
