"""Crowds of units whose scores are known."""

from __future__ import annotations

from typing import Any

import numpy as np

BINS = (0.8, 0.6, 0.4, 0.2)


COUNTS = (4, 3, 2, 5)


POOR = 3


class Found:
    """Eligible units with given scores."""

    def __init__(self, units: dict[str, float]) -> None:
        self.ids = list(units)
        self.scores = np.array(list(units.values()), float)

    def unit_ids(self, places: Any) -> list[str]:
        return [self.ids[place] for place in places]


CROWD = {
    f"{kind}-{edge}-{i}": edge + 0.02 * i
    for edge, payers in zip(BINS, COUNTS, strict=True)
    for kind, count in (("payer", payers), ("poor", POOR))
    for i in range(count)
}


TWICE = Found(CROWD | {f"{unit}'": score - 0.2 for unit, score in CROWD.items()})
