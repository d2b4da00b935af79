"""The server that tables of records are searched on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.pgvector_parts import VectorServer
from support.postgres import PostgresServer


@pytest.fixture(scope="session")
def server() -> Iterator[VectorServer]:
    postgres = PostgresServer()
    made = VectorServer(postgres)
    yield made
    made.close()
    postgres.close()
