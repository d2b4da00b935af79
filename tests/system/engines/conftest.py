"""`--engines FOLDER` names a virtual environment with Spark, Ray and Dask.

`make test-engines` makes one. Without it the tests that need it are not collected.
"""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--engines", metavar="FOLDER", help="a virtual environment with the engines"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what needs the engines where none are named."""
    is_ours = collection_path.name == "test_engine_recipes.py"
    return True if is_ours and not config.getoption("--engines", None) else None


@pytest.fixture
def engines(request: pytest.FixtureRequest) -> Path:
    """The environment."""
    return Path(str(request.config.getoption("--engines"))).absolute()
