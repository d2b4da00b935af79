"""The docs' recipes, on local clusters of the engines (`make test-engines`)."""

from __future__ import annotations

import os
import pickle
import secrets
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support.check_types import ROOT
from support.engine_visits import exact, make_visits, whole
from support.engines.run_recipe import ENGINES

PAGE = ROOT / "examples" / "spark_ray_dask.md"
PROGRAM = ROOT / "tests" / "support" / "engines" / "run_recipe.py"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_recipe_adds_up_to_the_whole_table(
    engine: str, engines: Path, tmp_path: Path
) -> None:
    rows, schema = make_visits(tmp_path)
    key = secrets.token_bytes(32)
    (tmp_path / "key").write_bytes(key)
    python = engines / "bin" / "python"
    done = subprocess.run(
        [python, PROGRAM, engine, PAGE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={
            **os.environ,
            "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
            "PYSPARK_PYTHON": str(python),
            "RAY_USAGE_STATS_ENABLED": "0",
        },
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout.split()[-1]) > 1
    found = pickle.loads((tmp_path / "merged").read_bytes())
    for one, other in zip(exact(found), whole(rows, schema, key), strict=True):
        np.testing.assert_array_equal(one, other)
