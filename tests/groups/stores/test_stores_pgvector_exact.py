"""What a PGVectorStore searches is never an index that units share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from langchain_postgres import PGVectorStore
from sqlalchemy.dialects import postgresql
from support.known_corpus import DIMENSION, known_corpus
from support.pgvector_parts import EMBEDDING, SALT, VectorServer, shards_of, table_of

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.errors import InvalidParameterError, UnsoundStoreError
from langchain_dpicl.groups.ingest import embed_documents, take_documents
from langchain_dpicl.groups.shards import ShardIndex
from langchain_dpicl.groups.stores.pgvector.store import PGVectorShards
from langchain_dpicl.release.flow import result

QUESTION = np.asarray([EMBEDDING.embed_query("Who coughs?")], np.float32)
QUESTION /= np.linalg.norm(QUESTION)

INDEXES = {
    "hnsw": "USING hnsw (embedding vector_cosine_ops)",
    "other distance": "USING hnsw (embedding vector_l2_ops)",
    "ivfflat": "USING ivfflat (embedding vector_cosine_ops) WITH (lists = 4)",
    "partial": "USING hnsw (embedding vector_cosine_ops) WHERE content <> ''",
    "expression": "USING hnsw ((embedding::vector(8)) vector_cosine_ops)",
}


@pytest.fixture(scope="module")
def store(vectors: VectorServer) -> PGVectorStore:
    return vectors.by_column(known_corpus()[:120])


@pytest.fixture(params=list(INDEXES))
def index(request: pytest.FixtureRequest, vectors: VectorServer, store: Any) -> Any:
    name = f'{table_of(store).split(".")[0]}."its index"'
    vectors.run(
        f'CREATE INDEX "its index" ON {table_of(store)} {INDEXES[request.param]}'
    )
    yield request.param
    vectors.run(f"DROP INDEX {name}")


def test_an_approximate_index_is_refused(store: Any, index: str) -> None:
    method = "ivfflat" if index == "ivfflat" else "hnsw"
    with pytest.raises(UnsoundStoreError, match=rf"'its index' \({method}\)") as caught:
        RetrievedGroups.from_vectorstore(store, unit_key="unit", n_groups=4)
    assert "exact=True" in str(caught.value)
    assert "Drop it" in str(caught.value)


def test_exact_goes_around_the_index(store: Any, index: str) -> None:
    taken, unit_ids = take_documents(known_corpus()[:120], "unit")
    rows = result(embed_documents(EMBEDDING, taken, unit_ids, progress=False))
    embedded = ShardIndex.from_vectors(rows, taken, unit_ids, n_shards=4, salt=SALT)
    terms: dict[str, Any] = {"unit_key": "unit", "n_groups": 4, "salt": SALT}
    around = RetrievedGroups.from_vectorstore(store, exact=True, **terms)
    assert around.draw("Who coughs?") == embedded.top(QUESTION, 4, None)


def test_no_plan_reads_the_index(vectors: VectorServer, store: Any, index: str) -> None:
    with shards_of(store) as shards:
        shards.assign(dict.fromkeys(shards.unit_values(), 0), 1)
        for setting in ("on", "off"):
            plan = plan_of(vectors, shards, enable_seqscan=setting)
            assert "row_number" in plan
            assert "its index" not in plan


def test_twin_a_plain_search_does_read_it(vectors: VectorServer, store: Any) -> None:
    table = table_of(store)
    vectors.run(
        f'CREATE INDEX "its index" ON {table} USING hnsw (embedding vector_cosine_ops)'
    )
    with vectors.connect() as connection:
        connection.execute("SET enable_seqscan = off")
        question = str(QUESTION[0].tolist())
        plan = connection.execute(
            f"EXPLAIN SELECT content FROM {table} ORDER BY embedding <=> '{question}' "  # type: ignore[arg-type] # ours
            "LIMIT 3"
        ).fetchall()
    vectors.run(f'DROP INDEX {table.split(".")[0]}."its index"')
    assert "its index" in str(plan)


def plan_of(vectors: VectorServer, shards: PGVectorShards, **settings: str) -> str:
    query = shards.best_query(QUESTION, 3, 1)
    compiled = query.compile(dialect=postgresql.psycopg.dialect())
    with vectors.connect() as connection:
        for name, value in settings.items():
            connection.execute(f"SET {name} = {value}")  # type: ignore[arg-type] # ours
        rows = connection.execute(
            f"EXPLAIN VERBOSE {compiled}",  # type: ignore[arg-type] # ours
            compiled.params,
        )
        return "\n".join(row[0] for row in rows)


def test_an_index_made_later_is_refused_at_the_next_draw(
    vectors: VectorServer, store: Any
) -> None:
    groups = RetrievedGroups.from_vectorstore(store, unit_key="unit", n_groups=4)
    groups.draw("Who coughs?")
    vectors.run(
        f'CREATE INDEX "later" ON {table_of(store)} '
        "USING hnsw (embedding vector_ip_ops)"
    )
    with pytest.raises(UnsoundStoreError, match="later"):
        groups.draw("Who coughs?")
    vectors.run(f'DROP INDEX {table_of(store).split(".")[0]}."later"')
    groups.draw("Who coughs?")


def test_partitions_and_their_indexes(vectors: VectorServer) -> None:
    store = vectors.by_column()
    table = table_of(store)
    vectors.run(f"DROP TABLE {table}")
    vectors.run(
        f"CREATE TABLE {table} (langchain_id uuid PRIMARY KEY, content text NOT NULL, "
        f"unit text, embedding vector({DIMENSION}), visit integer, "
        "langchain_metadata json) PARTITION BY HASH (langchain_id)"
    )
    schema = table.split(".")[0]
    for number in range(2):
        vectors.run(
            f'CREATE TABLE {schema}."part {number}" PARTITION OF {table} '
            f"FOR VALUES WITH (MODULUS 2, REMAINDER {number})"
        )
    for unit in "abcdefgh":
        vectors.run(
            f"INSERT INTO {table} VALUES (gen_random_uuid(), 'Note {unit}.', '{unit}', "
            f"'{EMBEDDING.embed_query(unit)}', 1, '{{}}')"
        )
    with shards_of(store) as shards:
        shards.assign(dict.fromkeys("abcdefgh", 0), 1)
        # A record's place is told by its partition too.
        texts = {hit.document.page_content for hit in shards.best(QUESTION, 9, 1)}
        assert texts == {f"Note {unit}." for unit in "abcdefgh"}
        shards.refuse_unsound(exact=False)
        vectors.run(
            f'CREATE INDEX "of one part" ON {schema}."part 1" '
            "USING hnsw (embedding vector_cosine_ops)"
        )
        with pytest.raises(UnsoundStoreError, match="of one part"):
            shards.refuse_unsound(exact=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("ALTER TABLE {} ALTER embedding TYPE real[] USING '{{}}'", "type _float4"),
        ("ALTER TABLE {} DROP embedding", "missing"),
        ("ALTER TABLE {} ALTER unit TYPE uuid USING NULL", "type uuid"),
        ("ALTER TABLE {} ALTER unit TYPE boolean USING NULL", "type bool"),
        ("DROP TABLE {}", "not in the database"),
    ],
)
def test_what_cannot_be_searched(
    vectors: VectorServer, change: str, message: str
) -> None:
    store = vectors.by_column()
    vectors.run(change.format(table_of(store)))
    with pytest.raises(InvalidParameterError, match=message):
        PGVectorShards(store, "unit")


def test_a_view_is_refused(vectors: VectorServer) -> None:
    store = vectors.by_column()
    table = table_of(store)
    vectors.run(f'ALTER TABLE {table} RENAME TO "behind {table[-9:-1]}"')
    schema = table.split(".")[0]
    vectors.run(
        f'CREATE VIEW {table} AS SELECT * FROM {schema}."behind {table[-9:-1]}"'
    )
    with pytest.raises(InvalidParameterError, match="a view"):
        PGVectorShards(store, "unit")


def test_another_store(vectors: VectorServer) -> None:
    with pytest.raises(InvalidParameterError, match="not a object"):
        PGVectorShards(object(), "unit")
