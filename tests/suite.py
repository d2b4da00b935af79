"""Which of the two suites runs: `make test`, or `make test-all` (WHOLE)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection
from typing import Any

WHOLE = os.environ.get("DPICL_SUITE") == "whole"


def pairs(cases: Collection[Any], ways: Collection[Any]) -> list[tuple[Any, Any]]:
    """Return each case with some ways, and each way with some cases; WHOLE: all."""
    if WHOLE:
        return list(itertools.product(cases, ways))
    count = max(len(cases), len(ways))
    turns = zip(itertools.cycle(cases), itertools.cycle(ways), strict=False)
    return list(itertools.islice(turns, count))
