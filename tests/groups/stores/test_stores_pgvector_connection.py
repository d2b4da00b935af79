"""A PGVectorStore is asked through a connection of our own, which nobody watches."""

from __future__ import annotations

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_postgres import Column, PGEngine, PGVectorStore
from sqlalchemy import create_engine, event, make_url
from sqlalchemy.ext.asyncio import create_async_engine
from support.pgvector_parts import EMBEDDING, VectorServer, shards_of, table_of
from support.store_parts import account
from test_stores_chain import chain_over

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.budget import charges
from langchain_dpicl.errors import GroupCallError, InvalidParameterError
from langchain_dpicl.groups.filtering import UnitFilter
from langchain_dpicl.groups.stores.pgvector.connection import Database, _libpq
from langchain_dpicl.groups.stores.pgvector.store import PGVectorShards

QUESTION = np.asarray([EMBEDDING.embed_query("Who coughs?")], np.float32)
QUESTION /= np.linalg.norm(QUESTION)
PRIVATE = "canary-unit"


@pytest.fixture
def store(vectors: VectorServer) -> PGVectorStore:
    texts = [f"Note of {PRIVATE} {number}." for number in range(6)]
    return vectors.by_column(
        [
            Document(text, metadata={"unit": f"{PRIVATE}-{number}"})
            for number, text in enumerate(texts)
        ]
    )


def opened(store: Any, **more: Any) -> RetrievedGroups:
    return RetrievedGroups.from_vectorstore(store, unit_key="unit", n_groups=2, **more)


def chain(error: BaseException | None) -> list[BaseException]:
    found = []
    while error is not None:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ("postgresql+asyncpg://u:p@h:5/d", "postgresql+psycopg://u:p@h:5/d"),
        ("postgresql+psycopg2://u@h/d?sslmode=require", "same"),
        ("postgresql://u@/d?host=%2Frun%2Fpg", "same"),
        (
            "postgresql+asyncpg://u@/d?host=/run&ssl=require&statement_cache_size=0",
            "postgresql+psycopg://u@/d?host=/run&sslmode=require",
        ),
        (
            "postgresql+asyncpg://h/d?timeout=5",
            "postgresql+psycopg://h/d?connect_timeout=5",
        ),
    ],
)
def test_urls_in_our_drivers_words(given: str, ours: str) -> None:
    url = make_url(given)
    if ours == "same":
        assert _libpq(url) == url.set(drivername="postgresql+psycopg")
    else:
        assert _libpq(url) == make_url(ours)


@pytest.mark.parametrize(
    "url", ["sqlite://", "postgresql+pg8000://u:secret@h/d", "mysql://u:secret@h/d"]
)
def test_urls_of_other_databases(vectors: VectorServer, url: str) -> None:
    with pytest.raises(InvalidParameterError, match="connection=") as caught:
        PGVectorShards(vectors.by_column(), "unit", connection=url)
    assert "secret" not in str(caught.value)


def test_an_url_that_is_none(vectors: VectorServer) -> None:
    with pytest.raises(InvalidParameterError, match="can't be parsed"):
        PGVectorShards(vectors.by_column(), "unit", connection="no url")


def test_connections_made_by_a_function(vectors: VectorServer) -> None:
    engine = create_engine(vectors.url, creator=lambda: None)
    with pytest.raises(InvalidParameterError, match="a function of its own"):
        Database(engine, None)
    with pytest.raises(InvalidParameterError, match="without a URL"):
        Database(object(), None)


def test_an_engine_of_the_users_own(vectors: VectorServer, store: Any) -> None:
    engine = create_engine(vectors.url, hide_parameters=True)
    with shards_of(store, connection=engine) as shards:
        assert len(set(shards.unit_values())) == 6
    with pytest.raises(InvalidParameterError, match="hide_parameters"):
        PGVectorShards(store, "unit", connection=create_engine(vectors.url))


def test_without_the_driver(
    vectors: VectorServer, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(InvalidParameterError, match=r"pip install"):
        PGVectorShards(store, "unit")


def test_the_stores_engine_and_the_loggers_see_nothing(
    vectors: VectorServer, caplog: pytest.LogCaptureFixture
) -> None:
    engine = create_async_engine(vectors.url, echo="debug")
    seen: list[str] = []
    listened = event.listens_for(engine.sync_engine, "before_cursor_execute")
    made = PGEngine.from_connection_string(vectors.url)
    name = vectors.name()
    made.init_vectorstore_table(
        name, 8, schema_name=vectors.schema, metadata_columns=[Column("unit", "TEXT")]
    )
    named: dict[str, Any] = {"metadata_columns": ["unit"]}
    filling = PGVectorStore.create_sync(
        made, EMBEDDING, name, schema_name=vectors.schema, **named
    )
    filling.add_documents(
        [
            Document(f"{PRIVATE} {n}", metadata={"unit": f"{PRIVATE}-{n}"})
            for n in range(5)
        ]
    )
    watched = PGVectorStore.create_sync(
        made, EMBEDDING, name, schema_name=vectors.schema, **named
    )
    # As if the application's engine had been watched all the time.
    watched._PGVectorStore__vs.engine = engine
    listened(lambda *arguments: seen.append(str(arguments)))
    caplog.set_level(logging.DEBUG)
    logging.getLogger("sqlalchemy").setLevel(logging.DEBUG)
    try:
        # All five, however the name of the table deals them to two groups.
        groups = opened(watched, docs_per_group=5)
        assert sum(map(len, groups.draw("Who coughs?"))) == 5
        groups.delete_unit(f"{PRIVATE}-0")
    finally:
        logging.getLogger("sqlalchemy").setLevel(logging.NOTSET)
        made._run_as_sync(made._pool.dispose())
    assert seen == []
    assert PRIVATE not in caplog.text
    assert "SELECT" not in caplog.text


@pytest.mark.parametrize(
    "setting",
    [
        *("datestyle=SQL,DMY", "datestyle=German", "timezone=Asia/Kolkata"),
        *("intervalstyle=sql_standard", "bytea_output=escape"),
        *("extra_float_digits=-15", "client_encoding=LATIN1"),
    ],
)
def test_a_servers_ways_of_writing_values_change_nothing(
    vectors: VectorServer, setting: str
) -> None:
    kinds = {
        "day": "DATE",
        "seen": "TIMESTAMPTZ",
        "stay": "INTERVAL",
        "scan": "BYTEA",
        "weight": "FLOAT8",
    }
    store = vectors.by_column(
        [Document(f"\u20ac {n}", metadata={"unit": f"\u0142-{n}"}) for n in range(3)],
        further=[Column(name, kind) for name, kind in kinds.items()],
    )
    vectors.run(
        f"UPDATE {table_of(store)} SET day = '2026-04-05', seen = "
        "'2026-04-05 06:07:08+00', stay = '1 day 2 hours', scan = '\\xff00', "
        "weight = 0.1::float8 + 0.2::float8"
    )
    # As the columns are written where nothing was set.
    only = {
        "day": "2026-04-05",
        "seen": "2026-04-05 06:07:08+00",
        "stay": "1 day 02:00:00",
        "scan": "\\xff00",
        "weight": "0.30000000000000004",
    }
    found = []
    for url in (vectors.url, f"{vectors.url}%20-c{setting}"):
        with shards_of(store, connection=url) as shards:
            shards.assign(dict.fromkeys(shards.unit_values(), 0), 1)
            filtered = shards.where(UnitFilter.of(only))
            hits = filtered.best(QUESTION, 9, 1)
            found.append(sorted(hits, key=lambda hit: str(hit.document.id)))
    assert len(found[0]) == 3
    assert [repr(hit.document.metadata) for hit in found[0]] == [
        repr(hit.document.metadata) for hit in found[1]
    ]
    assert found[0] == found[1]


def test_a_server_that_is_not_there(vectors: VectorServer, store: Any) -> None:
    nowhere = "postgresql+psycopg://postgres@/postgres?host=/nowhere"
    with pytest.raises(GroupCallError, match="OperationalError") as caught:
        PGVectorShards(store, "unit", connection=nowhere)
    assert len(chain(caught.value)) == 1


def test_a_database_that_fails_in_the_middle(vectors: VectorServer, store: Any) -> None:
    groups = opened(store)
    table = table_of(store)
    vectors.run(f"ALTER TABLE {table} DROP langchain_metadata")
    with pytest.raises(GroupCallError, match="UndefinedColumn, SQLSTATE 42703") as bad:
        groups.draw("Who coughs?")
    assert len(chain(bad.value)) == 1
    assert PRIVATE not in str(bad.value)


def test_a_database_that_fails_under_a_chain(vectors: VectorServer, store: Any) -> None:
    budget = account()
    chained = chain_over(opened(store), budget=budget)
    vectors.run(f"ALTER TABLE {table_of(store)} DROP langchain_metadata")
    with pytest.raises(GroupCallError) as caught:
        chained.invoke("Who coughs?")
    assert len(chain(caught.value)) == 1
    assert PRIVATE not in str(caught.value)
    assert len(charges(budget.ledger, "default")) == 1


def test_connections_that_broke_are_replaced(vectors: VectorServer, store: Any) -> None:
    with shards_of(store) as shards:
        values = set(shards.unit_values())
        with shards._database.reading() as connection:
            broken = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        vectors.run(f"SELECT pg_terminate_backend({broken})")
        assert set(shards.unit_values()) == values


def test_a_forked_child_leaves_its_parents_connections_alone(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shards_of(store) as shards:
        values = set(shards.unit_values())
        parents = shards._database._engine
        monkeypatch.setattr(os, "getpid", lambda: -1)
        assert set(shards.unit_values()) == values
        assert shards._database._engine is not parents
    parents.dispose()


def test_whoever_may_only_read(vectors: VectorServer, store: Any) -> None:
    vectors.run("DROP ROLE IF EXISTS reader")
    vectors.run("CREATE ROLE reader")
    vectors.run(f"GRANT USAGE ON SCHEMA {vectors.schema} TO reader")
    vectors.run(f"GRANT SELECT ON {table_of(store)} TO reader")
    reading = f"{vectors.url}%20-crole%3Dreader"
    with shards_of(store, connection=reading) as shards:
        # Somebody else has to make the table and assign the units.
        with pytest.raises(GroupCallError, match="InsufficientPrivilege") as caught:
            shards.assign(dict.fromkeys(shards.unit_values(), 0), 1)
        assert "langchain_dpicl_shards" in str(caught.value)
        with shards_of(store) as owners:
            owners.assign(dict.fromkeys(owners.unit_values(), 0), 1)
        vectors.run(
            f"GRANT SELECT ON {vectors.schema}.langchain_dpicl_shards TO reader"
        )
        shards.assign(dict.fromkeys(shards.unit_values(), 0), 1)
        assert len(shards.best(QUESTION, 9, 1)) == 6
        with pytest.raises(GroupCallError, match="InsufficientPrivilege"):
            shards.delete(f"{PRIVATE}-0")


def test_opened_and_drawn_from_by_many_at_once(vectors: VectorServer) -> None:
    store = vectors.by_column(
        [Document(f"{n}", metadata={"unit": f"p-{n}"}) for n in range(40)]
    )

    def draw(_number: int) -> list[list[Document]]:
        return opened(store).draw("Who coughs?")

    with ThreadPoolExecutor(6) as pool:
        drawn = list(pool.map(draw, range(6)))
    assert all(slots == drawn[0] for slots in drawn)


def test_searches_write_nothing(vectors: VectorServer, store: Any) -> None:
    with shards_of(store) as shards:
        shards.assign(dict.fromkeys(shards.unit_values(), 0), 1)
        seen: list[str] = []
        engine = shards._database._engine
        event.listen(
            engine,
            "before_cursor_execute",
            lambda c, *rest: seen.append(
                c.connection.driver_connection.read_only  # psycopg's own
            ),
        )
        shards.best(QUESTION, 3, 1)
        shards.above(QUESTION, 0)
        shards.assign(dict.fromkeys(shards.unit_values(), 0), 1)
    assert set(seen) == {True}
