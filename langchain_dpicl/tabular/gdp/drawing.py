"""Rows made of a table's noisy statistics: free, and public."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, cycle, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.errors import UnitError
from langchain_dpicl.mechanisms.random import SecureRandom
from langchain_dpicl.tabular.gdp.statistics import NoisyStatistics

_WORD = 2.0**-64


def draw_rows(
    found: NoisyStatistics,
    k: int,
    random: SecureRandom,
    *,
    balanced: bool,
    keeps_small: bool,
) -> list[dict[str, Any]]:
    """Return rows as mappings from column to value.

    Args:
        found: What was released.
        k: How many rows.
        random: Where they are drawn with; of what is public, any generator would do.
        balanced: Whether labels take turns, each with its groups in turn, larger ones
            first; the first row of each group is its typical one. Otherwise every row
            is drawn, groups by their noisy sizes.
        keeps_small: Whether groups that the noise can't tell from none take part.

    Raises:
        UnitError: If the noise hides every group.

    Privacy:
        Post-processing of noisy statistics.
    """
    groups = _groups(found, keeps_small=keeps_small)
    if found.terms.measure is not None:
        return _measured_rows(found, k, random, balanced=balanced)
    if not balanced:
        sizes = [max(found.sizes[group].value, 1e-9) for group in groups]
        chosen = [_pick(groups, sizes, _uniforms(random, 1)[0]) for _ in range(k)]
        return [_drawn(found, group, random) for group in chosen]
    rows = []
    shown: set[int] = set()
    for group in islice(_turns(found, groups), k):
        is_first = group not in shown
        shown.add(group)
        rows.append(found.typical(group) if is_first else _drawn(found, group, random))
    return rows


def _measured_rows(
    found: NoisyStatistics, k: int, random: SecureRandom, *, balanced: bool
) -> list[dict[str, Any]]:
    """Return rows of the measured columns, the label drawn first."""
    distribution, schema = found.distribution, found.terms.schema
    names = found.terms.measured_names
    if balanced and schema.label in names:
        weights = distribution.marginal(distribution.label)
        order = np.argsort(-weights, kind="stable").tolist()
        labels = [code for code in order if weights[code] > 0]
        codes: NDArray[np.int64] = np.empty((k, len(names)), dtype=np.int64)
        for turn, label in enumerate(labels[:k]):
            own = codes[turn :: len(labels)]
            own[:] = distribution.sample(len(own), random, label=label)
    else:
        codes = distribution.sample(k, random)
    return [
        {
            name: schema.column(name).code_value(code)
            for name, code in zip(names, row, strict=True)
        }
        for row in codes.tolist()
    ]


def _groups(found: NoisyStatistics, *, keeps_small: bool) -> list[int]:
    """Return the groups that rows come from, larger ones first."""
    groups = [
        group
        for group in range(found.terms.n_groups)
        if keeps_small or found.seen[group]
    ]
    if not groups:
        raise UnitError(
            "The noise hides how many rows any group has: there are too few rows for "
            "this epsilon and this many columns and groups. Use a larger epsilon, "
            "fewer columns or groups, or small_groups='keep' to see what is mostly "
            "noise."
        )
    return sorted(groups, key=lambda group: -found.sizes[group].value)


def _turns(found: NoisyStatistics, groups: Sequence[int]) -> Iterator[int]:
    """Yield groups without end: labels in turn, and each label's groups in turn."""
    label = found.terms.schema.label
    if label not in found.terms.group_by:
        yield from cycle(groups)
    place = found.terms.group_by.index(label)
    codes = found.terms.groups()
    # A label of which the noise hides a group must not come up less often.
    of_label: dict[int, list[int]] = {}
    for group in groups:
        of_label.setdefault(codes[group][place], []).append(group)
    for turn in count():
        for own in of_label.values():
            yield own[turn % len(own)]


def _drawn(found: NoisyStatistics, group: int, random: SecureRandom) -> dict[str, Any]:
    return found.drawn(group, _uniforms(random, len(found.terms.quantities)))


def _uniforms(random: SecureRandom, count: int) -> list[float]:
    return [float(word) * _WORD for word in random.words(count)]


def _pick(groups: Sequence[int], sizes: Sequence[float], uniform: float) -> int:
    left = uniform * sum(sizes)
    for group, size in zip(groups, sizes, strict=True):
        left -= size
        if left < 0:
            return group
    return groups[-1]
