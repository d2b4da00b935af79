"""One record in a PGVector store fails nobody's query, and changes nobody's place."""

from __future__ import annotations

import json
import random
import secrets
import uuid
from typing import Any

import numpy as np
import pytest
from langchain_postgres import PGVector, PGVectorStore
from pgvector_parts import EMBEDDING, SALT, VectorServer, shards_of, table_of
from test_stores_pgvector import everything, people, schema_of, units

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.exceptions import (
    InvalidParameterError,
    UnitError,
    UnsoundStoreError,
)
from langchain_dpicl.groups.stores.known_corpus import DIMENSION
from langchain_dpicl.groups.stores.pgvector import PGVectorShards

QUESTION = np.asarray([EMBEDDING.embed_query("Who coughs?")], np.float32)
QUESTION /= np.linalg.norm(QUESTION)
HALF = "\ud83d"


def opened(store: Any) -> RetrievedGroups:
    return RetrievedGroups.from_vectorstore(
        store, unit_key="unit", n_groups=2, salt=SALT
    )


def put(vectors: VectorServer, store: PGVectorStore, *metadata: str) -> None:
    """Add records, their metadata as written."""
    table = table_of(store).replace("%", "%%")
    with vectors.connect() as connection, connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO {table} (langchain_id, content, embedding, "  # type: ignore[arg-type] # ours
            "langchain_metadata) VALUES (%s, 'Note.', %s, %s)",
            [(uuid.uuid4(), str([0.5] * DIMENSION), one) for one in metadata],
        )


def nested(depth: int, width: int = 1) -> str:
    """Return an array with `width` arrays of such a depth."""
    return "[" + ",".join(["[" * depth + "]" * depth] * width) + "]"


# -- JSON ------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [600, 5000, 16_000])
def test_deep_json_is_not_in_the_corpus(vectors: VectorServer, depth: int) -> None:
    store = vectors.by_json(people("p-1", "p-2"))
    groups = opened(store)
    drawn = groups.draw("Who coughs?")
    put(vectors, store, f'{{"unit": "p-1", "note": {nested(depth)}}}')
    assert groups.draw("Who coughs?") == drawn
    with shards_of(store) as shards:
        assert None in shards.unit_values()
    with pytest.raises(UnitError, match="no usable unit id"):
        groups.refresh()
    assert groups.draw("Who coughs?") == drawn


@pytest.mark.parametrize(
    "note",
    [
        nested(400),
        nested(20, 300),
        json.dumps([{"a": [1, {"b": []}]}] * 2000),
        json.dumps("[{" * 5000),
        json.dumps(['"[{' * 5000, "\\", '\\"[', {"[": "]"}, "é}" * 900]),
    ],
    ids=["below", "wide", "objects", "text", "quotes"],
)
def test_much_json_that_is_not_deep_is_read(vectors: VectorServer, note: str) -> None:
    store = vectors.by_json()
    put(vectors, store, f'{{"note": {note}, "unit": "p-1"}}')
    with shards_of(store) as shards:
        assert units(everything(shards)) == {"p-1"}


def test_the_least_stack_of_a_server_suffices(vectors: VectorServer) -> None:
    store = vectors.by_json(people("p-1"))
    put(vectors, store, f'{{"note": {nested(496)}, "title": "\\u0000", "unit": "p-2"}}')
    put(vectors, store, f'{{"note": {nested(29, 300)}, "unit": "p-3"}}')
    put(vectors, store, f'{{"note": {nested(700)}, "unit": "p-4"}}')
    least = f"{vectors.url}%20-cmax_stack_depth%3D100"
    with shards_of(store, connection=least) as shards:
        assert set(shards.unit_values()) == {"p-1", "p-2", "p-3", None}
        assert units(everything(shards)) == {"p-1", "p-2", "p-3"}


def test_json_of_any_size_fails_nothing(vectors: VectorServer) -> None:
    store = vectors.by_json(people("p-1"))
    note = json.dumps("\\" * 2**23)
    put(vectors, store, f'{{"unit": "p-1", "note": {note}}}')
    with shards_of(store) as shards:
        assert set(shards.unit_values()) == {"p-1", None}
        assert len(everything(shards)) == 1


def test_halves_of_pairs_take_no_time(vectors: VectorServer) -> None:
    # Far from the limit; far beyond it where each is looked for from the beginning.
    store = vectors.by_json(people("p-1"))
    put(vectors, store, json.dumps({"unit": "p-2", "note": f"{HALF}x" * 100_000}))
    limited = f"{vectors.url}%20-cstatement_timeout%3D60s"
    with shards_of(store, connection=limited) as shards:
        assert units(everything(shards)) == {"p-1", "p-2"}


def test_ids_of_any_escapes(vectors: VectorServer) -> None:
    # Python's own reading says which ids are text that the database can hold.
    parts = [r"\ud83d", r"\ude00", r"\uD800", r"\uDFFF", r"\u0000", r"\\", r"\"", "x"]
    parts += [r"\u005c", "u0041", r"\uDBFF\uDC00", "é"]
    chosen = random.Random(5)
    written = {
        '"' + "".join(chosen.choices(parts, k=chosen.randrange(1, 9))) + '"'
        for _ in range(600)
    }
    store = vectors.by_json()
    put(vectors, store, *(f'{{"unit": {one}}}' for one in written))
    expected: set[Any] = {None}
    for value in map(json.loads, written):
        if "\0" not in value and value.encode(errors="replace").decode() == value:
            expected.add(value)
    assert len(expected) > 50
    with shards_of(store) as shards:
        assert set(shards.unit_values()) == expected


# -- ids -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["by_json", "by_column", "legacy"])
def test_unit_ids_of_any_length(vectors: VectorServer, kind: str) -> None:
    # Random, so that PostgreSQL can't compress them to what a key can hold.
    long = secrets.token_urlsafe(4000)
    store = getattr(vectors, kind)(people("p-1", long))
    groups = opened(store)
    with shards_of(store) as shards:
        assert units(everything(shards)) == {"p-1", long}
        assert units(shards.of_units(QUESTION, [long])) == {long}
    groups.refresh()
    assert groups.delete_unit(long) == 1
    with shards_of(store) as shards:
        assert set(shards.unit_values()) == {"p-1"}


IDS = {
    "no key": "ALTER TABLE {0} DROP CONSTRAINT {1}",
    "of two": "ALTER TABLE {0} DROP CONSTRAINT {1}, "
    "ADD PRIMARY KEY (langchain_id, content)",
    "partial": "ALTER TABLE {0} DROP CONSTRAINT {1}; "
    "CREATE UNIQUE INDEX ON {0} (langchain_id) WHERE content <> ''",
    "expression": "ALTER TABLE {0} DROP CONSTRAINT {1}; "
    "CREATE UNIQUE INDEX ON {0} ((langchain_id::text))",
    "nullable": "ALTER TABLE {0} DROP CONSTRAINT {1}; "
    "CREATE UNIQUE INDEX ON {0} (langchain_id); "
    "ALTER TABLE {0} ALTER langchain_id DROP NOT NULL",
    "inherited": 'CREATE TABLE {2}."child of {3}" () INHERITS ({0})',
}


def changed(vectors: VectorServer, store: PGVectorStore, change: str) -> None:
    table = table_of(store)
    key = vectors.run(
        "SELECT quote_ident(conname) FROM pg_constraint "
        f"WHERE conrelid = '{table}'::regclass AND contype = 'p'"
    )[0][0]
    schema, _, name = table.partition(".")
    for statement in change.format(table, key, schema, name.strip('"')).split("; "):
        vectors.run(statement)


@pytest.mark.parametrize("change", list(IDS))
@pytest.mark.parametrize("exact", [False, True])
def test_ids_that_are_not_unique_are_refused(
    vectors: VectorServer, change: str, exact: bool
) -> None:
    store = vectors.by_json(people("p-1", "p-2"))
    groups = opened(store)
    changed(vectors, store, IDS[change])
    with pytest.raises(UnsoundStoreError, match="primary key"):
        RetrievedGroups.from_vectorstore(
            store, unit_key="unit", n_groups=2, exact=exact
        )
    with pytest.raises(UnsoundStoreError, match="'langchain_id'"):
        groups.draw("Who coughs?")


def test_a_unique_index_is_as_good_as_a_key(vectors: VectorServer) -> None:
    store = vectors.by_json(people("p-1", "p-2"))
    changed(
        vectors,
        store,
        "ALTER TABLE {0} DROP CONSTRAINT {1}; "
        "CREATE UNIQUE INDEX ON {0} (langchain_id) INCLUDE (content); "
        "ALTER TABLE {0} ALTER langchain_id SET NOT NULL",
    )
    assert sum(map(len, opened(store).draw("Who coughs?"))) == 2


# -- vectors ---------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["NULL", "'[0,0,0,0,0,0,0,0]'"])
def test_a_deleted_unit_leaves_no_record(vectors: VectorServer, value: str) -> None:
    store = vectors.by_json(people("p-1", "p-1", "p-2"))
    table = table_of(store)
    vectors.run(f"ALTER TABLE {table} ALTER embedding DROP NOT NULL")
    vectors.run(
        f"UPDATE {table} SET embedding = {value} WHERE langchain_id = "
        f"(SELECT langchain_id FROM {table} "
        "WHERE langchain_metadata ->> 'unit' = 'p-1' LIMIT 1)"
    )
    # Of a unit that has no other record, and that nobody assigned.
    vectors.run(
        f"INSERT INTO {table} (langchain_id, content, embedding, langchain_metadata) "
        f"VALUES (gen_random_uuid(), 'Note.', {value}, '{{\"unit\": \"p-3\"}}')"
    )
    groups = opened(store)
    assert groups.delete_unit("p-1") == 2
    assert groups.delete_unit("p-3") == 1
    assert vectors.run(f"SELECT langchain_metadata ->> 'unit' FROM {table}") == [
        ("p-2",)
    ]


def test_a_deleted_unit_leaves_no_vector_of_another_length(
    vectors: VectorServer,
) -> None:
    store = vectors.legacy(people("p-1", "p-2"))
    add_short(vectors, store, ["p-1"])
    with shards_of(store) as shards:
        assert shards.delete("p-1") == 2
        assert set(shards.unit_values()) == {"p-2"}


def add_short(vectors: VectorServer, store: PGVector, values: list[str]) -> None:
    table = f"{schema_of(store)}.langchain_pg_embedding"
    for value in values:
        vectors.run(
            f"INSERT INTO {table} (id, collection_id, embedding, document, cmetadata) "
            f"SELECT gen_random_uuid(), collection_id, '[1,2]', 'Note.', "
            f'\'{{"unit": "{value}"}}\' FROM {table} LIMIT 1'
        )


def test_no_record_decides_how_long_vectors_are(vectors: VectorServer) -> None:
    store = vectors.legacy(people("p-1", "p-2"))
    add_short(vectors, store, ["p-3", "p-4", "p-5"])
    with shards_of(store) as shards:
        assert shards.dimension == DIMENSION
        assert units(everything(shards)) == {"p-1", "p-2"}
    with shards_of(vectors.legacy()) as empty:
        assert empty.dimension == DIMENSION


def test_nothing_says_how_long_vectors_are(vectors: VectorServer) -> None:
    store = vectors.legacy(people("p-1"))
    store.embedding_function = None  # type: ignore[assignment] # what a subclass may do
    with pytest.raises(InvalidParameterError, match="how long its vectors are"):
        PGVectorShards(store, "unit")


# -- others who write ------------------------------------------------------------------


def test_best_and_sizes_are_of_one_moment(
    vectors: VectorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = vectors.by_json(people("p-1", "p-2", "p-3"))
    with shards_of(store) as shards:
        everything(shards)
        search = PGVectorShards._hits

        def written_meanwhile(self: Any, *arguments: Any) -> Any:
            found = search(self, *arguments)
            vectors.run(f"DELETE FROM {table_of(store)}")
            store.add_documents(people("p-1"))
            return found

        monkeypatch.setattr(PGVectorShards, "_hits", written_meanwhile)
        hits, sizes = shards.best_and_sizes(QUESTION, 9, 1)
        assert units(hits) == {"p-1", "p-2", "p-3"}
        assert sizes == [3]
        assert shards.sizes(1) == [1]
