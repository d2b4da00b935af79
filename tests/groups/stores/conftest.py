"""The server that PGVectorStores are tested on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.pgvector_parts import VectorServer
from support.postgres import PostgresServer


@pytest.fixture(scope="session")
def vectors() -> Iterator[VectorServer]:
    server = PostgresServer()
    made = VectorServer(server)
    yield made
    made.close()
    server.close()
