"""PostgreSQL is asked through connections of our own, which nobody watches."""

from __future__ import annotations

import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.documents import Document
from support.pgvector_parts import ASKED, EMBEDDING, VectorServer, ids, statements

from langchain_dpicl import GroupCallError, InvalidParameterError
from langchain_dpicl.groups.postgres import PostgresGroups

PRIVATE = "canary-unit"
NOTES = [
    Document(f"Note {n} of {PRIVATE}.", metadata={"unit": f"{PRIVATE}-{n}"})
    for n in range(6)
]


@pytest.fixture
def name(server: VectorServer) -> str:
    return server.table(NOTES)


def chain_of(error: BaseException | None) -> list[BaseException]:
    found = []
    while error is not None:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


@pytest.mark.parametrize(
    "url",
    ["sqlite://", "mysql://u:secret@h/d", "secret", "postgresql://u:secret@h:p/d", 7],
)
def test_urls_that_cannot_be_used(url: Any) -> None:
    with pytest.raises(InvalidParameterError, match="url must be") as caught:
        PostgresGroups(url, "notes", EMBEDDING, unit_key="unit", n_groups=1)
    assert "secret" not in str(caught.value)
    assert len(chain_of(caught.value)) == 1


def test_without_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InvalidParameterError, match="pip install"):
        PostgresGroups("postgresql://h/d", "n", EMBEDDING, unit_key="u", n_groups=1)


def test_the_loggers_see_nothing(
    server: VectorServer, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("sqlalchemy").setLevel(logging.DEBUG)
    try:
        groups = server.groups(name, docs_per_group=9)
        assert sum(map(len, groups.draw(ASKED))) == 6
        groups.delete_unit(f"{PRIVATE}-0")
    finally:
        logging.getLogger("sqlalchemy").setLevel(logging.NOTSET)
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
def test_a_servers_ways_of_writing_cells_change_nothing(
    server: VectorServer, setting: str
) -> None:
    kinds = {
        "day": "date",
        "seen": "timestamptz",
        "stay": "interval",
        "scan": "bytea",
        "weight": "float8",
    }
    name = server.table(
        [Document(f"\u20ac {n}", metadata={"unit": f"\u0142-{n}"}) for n in range(3)],
        **kinds,
    )
    server.run(
        "UPDATE {} SET day = '2026-04-05', seen = '2026-04-05 06:07:08+00', "
        "stay = '1 day 2 hours', scan = '\\xff00', weight = 0.1::float8 + 0.2::float8",
        name,
    )
    only = {
        "day": "2026-04-05",
        "seen": "2026-04-05 06:07:08+00",
        "stay": "1 day 02:00:00",
        "scan": "\\xff00",
        "weight": "0.30000000000000004",
    }
    found = [
        server.groups(name, url=url).where(only).draw(ASKED)
        for url in (server.url, f"{server.url}%20-c{setting}")
    ]
    assert len(found[0][0]) == 3
    assert repr(found[0]) == repr(found[1])


def test_a_server_that_is_not_there(server: VectorServer, name: str) -> None:
    nowhere = "postgresql+psycopg://postgres@/postgres?host=/nowhere"
    with pytest.raises(GroupCallError, match="OperationalError") as caught:
        server.groups(name, url=nowhere)
    assert len(chain_of(caught.value)) == 1


def test_a_database_that_fails_in_the_middle(server: VectorServer, name: str) -> None:
    groups = server.groups(name)
    server.run("ALTER TABLE {} DROP langchain_metadata", name)
    with pytest.raises(GroupCallError, match="UndefinedColumn, SQLSTATE 42703") as bad:
        groups.draw(ASKED)
    assert len(chain_of(bad.value)) == 1
    assert PRIVATE not in str(bad.value)


def test_connections_that_broke_are_replaced(server: VectorServer, name: str) -> None:
    groups = server.groups(name)
    before = ids(groups.draw(ASKED))
    server.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    assert ids(groups.draw(ASKED)) == before


def test_a_forked_child_leaves_its_parents_connections_alone(
    server: VectorServer, name: str
) -> None:
    groups = server.groups(name)
    before = ids(groups.draw(ASKED))
    child = os.fork()
    if child == 0:
        # It must not run what pytest does at an exit.
        os._exit(0 if ids(groups.draw(ASKED)) == before else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert ids(groups.draw(ASKED)) == before


def test_a_role_that_may_only_read(server: VectorServer, name: str) -> None:
    """One role draws, and can't erase."""
    server.run("CREATE ROLE reader")
    server.run(f"GRANT USAGE ON SCHEMA {server.schema} TO reader")
    server.run("GRANT SELECT ON {} TO reader", name)
    groups = server.groups(name, url=f"{server.url}%20-crole%3Dreader")
    assert sum(map(len, groups.draw(ASKED))) == 6
    with pytest.raises(GroupCallError, match="InsufficientPrivilege"):
        groups.delete_unit(f"{PRIVATE}-0")
    assert server.groups(name).n_units == 6


def test_a_draw_writes_nothing(server: VectorServer, name: str) -> None:
    groups = server.groups(name)

    def writing(statement: str) -> str:
        is_draw = statement.lstrip().startswith("WITH")
        return "CREATE TABLE more (one int)" if is_draw else statement

    with (
        statements(writing),
        pytest.raises(GroupCallError, match="ReadOnlySqlTransaction"),
    ):
        groups.draw(ASKED)


def test_drawn_from_by_many_at_once(server: VectorServer) -> None:
    groups = server.drawn(
        [Document(f"{n}", metadata={"unit": f"p-{n}"}) for n in range(40)], n_groups=3
    )
    with ThreadPoolExecutor(6) as pool:
        drawn = list(pool.map(lambda _: ids(groups.draw(ASKED)), range(12)))
    assert all(slots == drawn[0] for slots in drawn)
