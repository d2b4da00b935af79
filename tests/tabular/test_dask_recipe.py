"""The docs' recipe for Dask, on its threads, with the release at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from support.engine_visits import ROWS, exact, make_visits, whole
from support.engines.run_recipe import recipe

from langchain_dpicl.tabular import merge

PAGE = Path(__file__).parents[2] / "examples" / "spark_ray_dask.md"


# Dask's own use of pandas.
@pytest.mark.filterwarnings("ignore:The inplace keyword:DeprecationWarning")
def test_dask_counts_what_one_table_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, schema = make_visits(tmp_path)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    with dask.config.set(scheduler="threads"):
        for block in recipe("dask", PAGE):
            exec(compile(block, str(PAGE), "exec"), namespace)  # noqa: S102 - our docs
    last = PAGE.read_text().partition("```py\nbudget = ")[2].partition("```")[0]
    exec(f"budget = {last}", namespace)  # noqa: S102
    tallies = namespace["tallies"]
    own = whole(rows, schema, namespace["key"])
    assert len(tallies) > 1
    for one, other in zip(exact(merge(tallies)), own, strict=True):
        np.testing.assert_array_equal(one, other)
    assert own[-1] == ROWS
    assert namespace["table"].record()["charge"] == 1
