"""Records of a legacy PGVector, or with the unit id in the JSON, move to a column."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_postgres import PGVector, PGVectorStore
from support.known_corpus import DIMENSION
from support.pgvector_parts import EMBEDDING, SALT, VectorServer, table_of

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.stores.pgvector.store import PGVectorShards

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "stores.md"
KEY = "patient_id"
NOTES = [
    Document(f"Note {n}.", metadata={KEY: str(n % 6), "visit": n}, id=f"note-{n}")
    for n in range(18)
]


def recipe(language: str, word: str) -> str:
    """Return the block of the page that holds a word."""
    found = re.findall(
        rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    (block,) = (one for one in found if word in one)
    return block


def moved(vectors: VectorServer, old: PGVector) -> PGVectorStore:
    # The utility looks for the old tables where names without a schema are found.
    engine = vectors.engine_of(old)
    namespace: dict[str, Any] = {}
    exec(recipe("python", "migrate_pgvector_collection"), namespace)  # noqa: S102 - our own docs
    name = old.collection_name
    made: PGVectorStore = namespace["move_collection"](
        engine, EMBEDDING, name, DIMENSION
    )
    return made


def draw(store: Any) -> list[list[Document]]:
    groups = RetrievedGroups.from_vectorstore(
        store, unit_key=KEY, n_groups=3, salt=SALT
    )
    return groups.draw("Who coughs?")


def test_a_legacy_store_is_refused_with_the_way_out(
    vectors: VectorServer,
) -> None:
    store = vectors.legacy(NOTES)
    said = "PGVectorStore.*migrate_pgvector_collection.*docs/guides/stores.md"
    with pytest.raises(InvalidParameterError, match=said):
        RetrievedGroups.from_vectorstore(store, unit_key=KEY, n_groups=3)
    with pytest.raises(InvalidParameterError, match=said):
        PGVectorShards(store, KEY)


def test_a_key_inside_the_json_is_refused_with_the_way_out(
    vectors: VectorServer,
) -> None:
    store = vectors.by_json()
    said = f"'{KEY}' is not a metadata column.*add a col.*metadata_columns=.*/stores.md"
    with pytest.raises(InvalidParameterError, match=said):
        RetrievedGroups.from_vectorstore(store, unit_key=KEY, n_groups=3)


def test_a_column_that_the_store_does_not_name_is_refused(
    vectors: VectorServer,
) -> None:
    store = vectors.by_json()
    vectors.run(f"ALTER TABLE {table_of(store)} ADD COLUMN {KEY} text")
    with pytest.raises(InvalidParameterError, match="metadata_columns="):
        PGVectorShards(store, KEY)


def test_vectors_without_a_length_are_refused(vectors: VectorServer) -> None:
    store = vectors.by_column()
    vectors.run(f"ALTER TABLE {table_of(store)} ALTER embedding TYPE vector")
    with pytest.raises(InvalidParameterError, match="how long its vectors are"):
        PGVectorShards(store, "unit")


def test_the_recipe_moves_a_collection(vectors: VectorServer) -> None:
    old = vectors.legacy(NOTES)
    found = draw(moved(vectors, old))
    vectors.run('DROP TABLE "public"."patient_notes"')
    beside = InMemoryVectorStore(EMBEDDING)
    beside.add_documents(NOTES)
    assert found == draw(beside)
    assert sum(map(len, found)) > 0


@pytest.mark.parametrize("kind", ["json", "jsonb"])
def test_the_recipe_adds_a_column(vectors: VectorServer, kind: str) -> None:
    ids: list[Any] = [7, "7", "two words", "患者-🧪", "o'hara\\", -1]
    notes = [
        Document(note.page_content, metadata={KEY: ids[n % 6], "visit": n}, id=None)
        for n, note in enumerate(NOTES)
    ]
    store = vectors.by_json(notes)
    table = table_of(store)
    vectors.run(f"ALTER TABLE {table} ALTER langchain_metadata TYPE {kind}")
    moving = recipe("sql", "ADD COLUMN").replace("patient_notes", table)
    looked, *changes = filter(None, moving.replace("\n", " ").split(";"))
    assert {row[0] for row in vectors.run(looked)} == {"string", "number"}
    for statement in changes:
        vectors.run(statement)
    inner = store._PGVectorStore__vs  # type: ignore[attr-defined]
    named = PGVectorStore.create_sync(
        vectors.psycopg,
        EMBEDDING,
        inner.table_name,
        schema_name=inner.schema_name,
        metadata_columns=[KEY],
    )
    groups = RetrievedGroups.from_vectorstore(named, unit_key=KEY, n_groups=3)
    # 7 and "7" are one person.
    assert groups.n_units == 5
    named.add_documents([Document("Later.", metadata={KEY: "two words"})])
    assert groups.delete_unit(7) == 6
    assert groups.delete_unit("two words") == 4
    # A writer that does not know of the column must not write records of nobody.
    with pytest.raises(Exception, match="not-null constraint"):
        store.add_documents([Document("Lost.", metadata={KEY: "p-1"})])
