"""A PGVectorStore finds the groups that the embedded index finds, and nobody else."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_postgres import Column
from support.known_corpus import known_corpus
from support.pgvector_parts import EMBEDDING, SALT, VectorServer, shards_of, table_of
from support.store_check import check_shard_store

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.stores.contract import StoredHit
from langchain_dpicl.groups.stores.pgvector.store import PGVectorShards

QUESTION = np.asarray([EMBEDDING.embed_query("Who coughs?")], np.float32)
QUESTION /= np.linalg.norm(QUESTION)
FEW = known_corpus()[:40]


def people(*units: Any, text: str = "Note.", **more: Any) -> list[Document]:
    return [Document(text, metadata={"unit": unit, **more}) for unit in units]


def everything(shards: PGVectorShards) -> list[StoredHit]:
    """Assign every unit to one shard, and return what is found."""
    shards.assign(dict.fromkeys(shards.unit_values(), 0), 1)
    return shards.best(QUESTION, 1000, 1)


def units(hits: list[StoredHit]) -> set[Any]:
    return {hit.document.metadata["unit"] for hit in hits}


def test_same_groups_as_the_embedded_index(vectors: VectorServer) -> None:
    def make(documents: Any, embedding: Any) -> PGVectorShards:
        return PGVectorShards(vectors.by_column(documents, embedding), "unit")

    check_shard_store(make)


@pytest.mark.parametrize("kind", ["json", "jsonb"])
def test_documents_are_those_of_the_stores_own_search(
    vectors: VectorServer, kind: str
) -> None:
    nested = people(
        "p-1", "p-2", visit=3, tags=["a", {"b": None}], note='"%s" ${x} é 🧪'
    )
    store = vectors.by_column([*nested, *people("p-3")])
    vectors.run(f"ALTER TABLE {table_of(store)} ALTER langchain_metadata TYPE {kind}")
    with shards_of(store) as shards:
        found = [hit.document for hit in everything(shards)]
    own = store.similarity_search("Note.", k=10)
    by_id = {document.id: document for document in own}
    assert {document.id: document for document in found} == by_id
    assert len(found) == 3


def test_columns_of_other_types(vectors: VectorServer) -> None:
    names = {"day": "DATE", "made": "TIMESTAMPTZ", "price": "NUMERIC", "more": "JSONB"}
    columns = [Column(name, kind) for name, kind in names.items()]
    store = vectors.by_column(people(7, 8), kind="BIGINT", further=columns)
    vectors.run(
        f"UPDATE {table_of(store)} SET day = CASE unit WHEN 7 THEN 'infinity'::date "
        "ELSE '2024-02-29' END, made = 'infinity', price = 'NaN', "
        """more = '{"deep": [1]}'"""
    )
    with shards_of(store) as shards:
        found = {
            hit.document.metadata["unit"]: hit.document.metadata
            for hit in everything(shards)
        }
    assert found[8]["day"] == dt.date(2024, 2, 29)
    assert found[7]["day"] == "infinity"  # No date of Python's; no reason to fail.
    assert found[7]["made"] == "infinity"
    assert found[7]["more"] == {"deep": [1]}


@pytest.mark.parametrize("kind", ["TEXT", "VARCHAR"])
def test_unit_ids_by_value(vectors: VectorServer, kind: str) -> None:
    values = ["7", "-1", "a b", " a b", "A B", "患者-🧪", "o'hara%s\\", "\ufdd1"]
    with shards_of(vectors.by_column(people(*values), kind=kind)) as shards:
        assert set(shards.unit_values()) == set(values)
        everything(shards)
        for nobodys in (7, True, 7.0, None, "\0", "\ud800", ["7"]):
            assert shards.delete(nobodys) == 0
        assert shards.delete("7") == 1
        assert set(shards.unit_values()) == {*values} - {"7"}


@pytest.mark.parametrize("kind", ["SMALLINT", "INTEGER", "BIGINT"])
def test_unit_ids_that_are_integers(vectors: VectorServer, kind: str) -> None:
    values = [0, 1, 7, -7]
    with shards_of(vectors.by_column(people(*values), kind=kind)) as shards:
        assert set(shards.unit_values()) == set(values)
        everything(shards)
        for nobodys in ("7", True, 1.0, None, 10**5000):
            assert shards.delete(nobodys) == 0
        assert shards.delete(7) == 1
        assert set(shards.unit_values()) == {0, 1, -7}


def test_no_unit_id(vectors: VectorServer) -> None:
    # Whatever its JSON says, a record is of the unit that its column names.
    store = vectors.by_column(people("p-1", "p-2"))
    vectors.run(
        f"UPDATE {table_of(store)} SET unit = NULL, "
        """langchain_metadata = '{"unit": "p-1"}' WHERE unit = 'p-2'"""
    )
    with shards_of(store) as shards:
        assert set(shards.unit_values()) == {"p-1", None}
        assert units(everything(shards)) == {"p-1"}
        assert shards.sizes(1) == [1]


def test_odd_escapes_in_the_json(vectors: VectorServer) -> None:
    # The type json keeps these escapes; whatever looks into it in SQL fails.
    odd = [
        *people("p-1", title="\0"),
        *people("p-2", title="\ud83d"),
        *people("p-3", title="\ude00\\ud83d\\"),
        *people("p-4", title="\\u0000 \\\\ud800"),
    ]
    store = vectors.by_column(odd)
    with shards_of(store) as shards:
        found = {
            hit.document.metadata["unit"]: hit.document.metadata["title"]
            for hit in everything(shards)
        }
        assert found == {one.metadata["unit"]: one.metadata["title"] for one in odd}
        assert shards.delete("p-1") == 1


def test_json_that_python_cannot_read(vectors: VectorServer) -> None:
    store = vectors.by_column(people("p-1", "p-2"))
    vectors.run(
        f"UPDATE {table_of(store)} SET langchain_metadata = "
        f"""'{{"n": {"9" * 5000}}}' WHERE unit = 'p-2'"""
    )
    with shards_of(store) as shards:
        found = [hit.document.metadata for hit in everything(shards)]
    assert {"unit": "p-2", "visit": None} in found


def test_vectors_without_a_direction_take_no_place(vectors: VectorServer) -> None:
    store = vectors.by_column(people("p-1", "zero", "none", "huge", "tiny"))
    table = table_of(store)
    vectors.run(f"ALTER TABLE {table} ALTER embedding DROP NOT NULL")
    for unit, value in {
        "zero": "'[0,0,0,0,0,0,0,0]'",
        "none": "NULL",
        "huge": "'[1e30,0,0,0,0,0,0,0]'",
        "tiny": "'[1e-30,0,0,0,0,0,0,0]'",
    }.items():
        vectors.run(f"UPDATE {table} SET embedding = {value} WHERE unit = '{unit}'")
    with shards_of(store) as shards:
        hits = everything(shards)
        assert units(hits) == {"p-1"}
        assert shards.sizes(1) == [1]
        assert units(shards.above(QUESTION, -2)) == {"p-1"}


def test_writers_beside_the_groups(vectors: VectorServer) -> None:
    store = vectors.by_column(people("p-1", "p-2"))
    with shards_of(store) as shards, shards_of(store) as elsewhere:
        everything(shards)
        store.add_documents(people("p-1", "p-3", text="Written later."))
        # A known unit's record counts at once, an unknown unit's does not.
        assert shards.sizes(1) == [3]
        assert units(shards.best(QUESTION, 9, 1)) == {"p-1", "p-2"}
        everything(elsewhere)
        assert shards.sizes(1) == [4]
        assert elsewhere.delete("p-1") == 2
        assert units(shards.above(QUESTION, -2)) == {"p-2", "p-3"}


def test_assignments_for_several_numbers_of_shards(vectors: VectorServer) -> None:
    store = vectors.by_column(people("p-1", "p-2", "p-3"))
    with shards_of(store) as shards, shards_of(store) as others:
        shards.assign({"p-1": 0, "p-2": 1, "p-3": 1}, 2)
        others.assign({"p-1": 4, "p-2": 4, "p-3": 0}, 5)
        assert shards.sizes(2) == [1, 2]
        assert others.sizes(5) == [1, 0, 0, 0, 2]
        # A unit in another shard: assigned with another salt, so all are replaced.
        shards.assign({"p-1": 1, "p-2": 1}, 2)
        assert shards.sizes(2) == [0, 2]
        shards.assign({"p-3": 0}, 2)
        assert shards.sizes(2) == [1, 2]
        assert others.sizes(5) == [1, 0, 0, 0, 2]
        assert shards.delete("p-1") == 1
        # Nothing of a deleted unit stays, under any number of shards.
        assert others.sizes(5) == [1, 0, 0, 0, 1]
        table = table_of(store).split(".")[0] + ".langchain_dpicl_shards"
        corpus = others.identity.replace("'", "''")
        kept = f"SELECT DISTINCT unit FROM {table} WHERE corpus = '{corpus}'"
        assert set(vectors.run(kept)) == {("p-2",), ("p-3",)}


def test_groups_of_two_processes_are_the_same(vectors: VectorServer) -> None:
    store = vectors.by_column(FEW)

    def draw() -> list[set[str]]:
        groups = RetrievedGroups.from_vectorstore(
            store, unit_key="unit", n_groups=4, docs_per_group=3, salt=SALT
        )
        return [{str(one.id) for one in slot} for slot in groups.draw("Who coughs?")]

    assert draw() == draw()


def test_an_index_of_the_unit_key_is_no_hindrance(vectors: VectorServer) -> None:
    store = vectors.by_column(people("p-1"))
    vectors.run(f"CREATE INDEX ON {table_of(store)} (unit)")
    with shards_of(store) as shards:
        shards.refuse_unsound(exact=False)
        assert units(everything(shards)) == {"p-1"}


def test_searching_before_assigning(vectors: VectorServer) -> None:
    with (
        shards_of(vectors.by_column(people("p-1"))) as shards,
        pytest.raises(InvalidParameterError, match="assign"),
    ):
        shards.above(QUESTION, 0)
