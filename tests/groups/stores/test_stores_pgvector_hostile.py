"""One record in a PGVectorStore fails nobody's query, and changes nobody's place."""

from __future__ import annotations

import json
import secrets
from typing import Any

import numpy as np
import pytest
from langchain_postgres import PGVectorStore
from support.known_corpus import DIMENSION
from support.pgvector_parts import EMBEDDING, SALT, VectorServer, shards_of, table_of
from test_stores_pgvector import everything, people, units

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.errors import UnitError, UnsoundStoreError
from langchain_dpicl.groups.stores.pgvector.store import PGVectorShards

QUESTION = np.asarray([EMBEDDING.embed_query("Who coughs?")], np.float32)
QUESTION /= np.linalg.norm(QUESTION)
HALF = "\ud83d"


def opened(store: Any) -> RetrievedGroups:
    return RetrievedGroups.from_vectorstore(
        store, unit_key="unit", n_groups=2, salt=SALT
    )


def put(
    vectors: VectorServer, store: PGVectorStore, unit: str | None, metadata: str
) -> None:
    """Add a record, its metadata as written."""
    table = table_of(store).replace("%", "%%")
    with vectors.connect() as connection:
        connection.execute(
            f"INSERT INTO {table} (langchain_id, content, embedding, unit, "  # type: ignore[arg-type] # ours
            "langchain_metadata) VALUES (gen_random_uuid(), 'Note.', %s, %s, %s)",
            (str([0.5] * DIMENSION), unit, metadata),
        )


def nested(depth: int, width: int = 1) -> str:
    """Return an array with `width` arrays of such a depth."""
    return "[" + ",".join(["[" * depth + "]" * depth] * width) + "]"


# -- JSON ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "note",
    [nested(400), nested(16_000), nested(20, 300), json.dumps("\\" * 2**23)],
    ids=["below", "deep", "wide", "long"],
)
def test_json_of_any_kind_is_no_hindrance(vectors: VectorServer, note: str) -> None:
    # Also with the least stack that a server can be given.
    store = vectors.by_column(people("p-1"))
    put(vectors, store, "p-2", f'{{"note": {note}, "title": "\\u0000"}}')
    hurried = f"{vectors.url}%20-cmax_stack_depth%3D100%20-cstatement_timeout%3D60s"
    with shards_of(store, connection=hurried) as shards:
        assert set(shards.unit_values()) == {"p-1", "p-2"}
        assert units(everything(shards)) == {"p-1", "p-2"}
        assert shards.delete("p-2") == 1


def test_halves_of_pairs_take_no_time(vectors: VectorServer) -> None:
    store = vectors.by_column(people("p-1"))
    put(vectors, store, "p-2", json.dumps({"note": f"{HALF}x" * 100_000}))
    limited = f"{vectors.url}%20-cstatement_timeout%3D60s"
    with shards_of(store, connection=limited) as shards:
        assert units(everything(shards)) == {"p-1", "p-2"}


def test_a_record_of_nobody_is_not_in_the_corpus(vectors: VectorServer) -> None:
    store = vectors.by_column(people("p-1", "p-2"))
    groups = opened(store)
    drawn = groups.draw("Who coughs?")
    put(vectors, store, None, '{"unit": "p-1"}')
    assert groups.draw("Who coughs?") == drawn
    with pytest.raises(UnitError, match="no usable unit id"):
        groups.refresh()
    assert groups.draw("Who coughs?") == drawn


# -- ids -------------------------------------------------------------------------------


def test_unit_ids_of_any_length(vectors: VectorServer) -> None:
    # Random, so that PostgreSQL can't compress them to what a key can hold.
    long = secrets.token_urlsafe(4000)
    store = vectors.by_column(people("p-1", long))
    groups = opened(store)
    with shards_of(store) as shards:
        assert units(everything(shards)) == {"p-1", long}
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
    store = vectors.by_column(people("p-1", "p-2"))
    groups = opened(store)
    changed(vectors, store, IDS[change])
    with pytest.raises(UnsoundStoreError, match="primary key"):
        RetrievedGroups.from_vectorstore(
            store, unit_key="unit", n_groups=2, exact=exact
        )
    with pytest.raises(UnsoundStoreError, match="'langchain_id'"):
        groups.draw("Who coughs?")


def test_a_unique_index_is_as_good_as_a_key(vectors: VectorServer) -> None:
    store = vectors.by_column(people("p-1", "p-2"))
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
    store = vectors.by_column(people("p-1", "p-1", "p-2"))
    table = table_of(store)
    vectors.run(f"ALTER TABLE {table} ALTER embedding DROP NOT NULL")
    vectors.run(
        f"UPDATE {table} SET embedding = {value} WHERE langchain_id = "
        f"(SELECT langchain_id FROM {table} WHERE unit = 'p-1' LIMIT 1)"
    )
    # Of a unit that has no other record, and that nobody assigned.
    vectors.run(
        f"INSERT INTO {table} (langchain_id, content, embedding, unit) "
        f"VALUES (gen_random_uuid(), 'Note.', {value}, 'p-3')"
    )
    groups = opened(store)
    assert groups.delete_unit("p-1") == 2
    assert groups.delete_unit("p-3") == 1
    assert vectors.run(f"SELECT unit FROM {table}") == [("p-2",)]


# -- others who write ------------------------------------------------------------------


def test_best_and_sizes_are_of_one_moment(
    vectors: VectorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = vectors.by_column(people("p-1", "p-2", "p-3"))
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
