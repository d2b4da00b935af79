"""Where the ledgers of these tests are kept."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder without slow syncs: what is promised does not depend on them."""
    memory = Path("/dev/shm")  # noqa: S108 - only here, and only if it is there
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, folder: Path) -> Callable[[], str]:
    """Return the URLs of empty ledgers, one a call."""
    if request.param == "memory":
        return lambda: ":memory:"
    numbers = iter(range(1_000_000))
    return lambda: f"sqlite:///{folder}/{next(numbers)}.db"
