"""The collector that traces are sent to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.leaks.collector import Collector, collecting


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    with collecting() as server:
        yield server
