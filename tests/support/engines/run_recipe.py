"""Run one engine's recipe of the docs where it stands, and keep the sum of its tallies.

`python run_recipe.py ENGINE PAGE` runs in a folder with `schema.json`, `key` and the
rows in `visits`, by the Python of an environment that has the engine.
"""

from __future__ import annotations

import pickle
import re
import sys
from pathlib import Path
from typing import Any

ENGINES = {"dask": "import dask", "spark": "SparkSession", "ray": "import ray"}


def recipe(engine: str, page: Path) -> tuple[str, str]:
    """Return the page's first block, and the engine's.

    They stand in blocks of `py`: those of `python` are run without an engine.
    """
    blocks = re.findall(
        r"^```py\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL
    )
    (own,) = (block for block in blocks if ENGINES[engine] in block)
    return blocks[0], own


def run(engine: str, page: Path) -> None:
    """Run the recipe with the key of the folder, and write `merged`."""
    from langchain_dpicl.tabular import merge

    namespace: dict[str, Any] = {}
    first, own = recipe(engine, page)
    exec(first, namespace)  # noqa: S102 - our own docs
    # The test's key, so that it can tell what must come out.
    namespace["key"] = Path("key").read_bytes()
    exec(own, namespace)  # noqa: S102
    tallies = namespace["tallies"]
    Path("merged").write_bytes(pickle.dumps(merge(tallies)))
    print(len(tallies))  # noqa: T201 - for the test


if __name__ == "__main__":
    name = sys.argv[1]
    if name == "dask":
        from distributed import Client

        with Client(n_workers=2, threads_per_worker=1, dashboard_address=None):
            run(name, Path(sys.argv[2]))
    else:
        run(name, Path(sys.argv[2]))
