from __future__ import annotations

import enum
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from langchain_core.documents import Document
from scipy import stats
from support.groups_fakes import SALT, note

from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import UnitError
from langchain_dpicl.groups import shard_of
from langchain_dpicl.groups.lines import record_digest
from langchain_dpicl.groups.units import new_salt, unit_id_of

if TYPE_CHECKING:
    from collections.abc import Callable

SIGNIFICANCE = 1e-6


class Ward(str, enum.Enum):
    NORTH = "north"


@pytest.mark.parametrize(
    ("value", "unit_id"),
    [
        ("p1", "p1"),
        (7, "7"),
        ("7", "7"),
        (-7, "-7"),
        (0, "0"),
        (np.int64(7), "7"),
        (" p1\n", "p1"),
        ("e\u0301", "\u00e9"),
        (Ward.NORTH, "north"),
        ("\ud800", "\ud800"),
        ("P1", "P1"),
    ],
)
def test_unit_ids_are_strings_or_integers(value: Any, unit_id: Any) -> None:
    assert unit_id_of(note(value, "text"), "unit") == unit_id
    assert type(unit_id_of(note(value, "text"), "unit")) is str


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        np.True_,
        1.0,
        float("nan"),
        "",
        " \t\u00a0",
        ["p1"],
        ("p1",),
        {"id": "p1"},
        b"p1",
        1 << 5000,
        object(),
    ],
)
def test_other_unit_ids_are_refused(value: Any) -> None:
    with pytest.raises(UnitError, match=r"'unit' of document 3 "):
        unit_id_of(note(value, "text"), "unit", position=3)
    assert canonical_unit_id(value) is None


def test_a_missing_unit_id_is_refused() -> None:
    with pytest.raises(UnitError, match=r"Document 5 .* no metadata key 'patient'"):
        unit_id_of(Document("text", metadata={"secret": 1}), "patient", position=5)


def test_a_shard_depends_on_the_salt() -> None:
    units = [str(i) for i in range(1000)]
    other = bytes(reversed(SALT))
    moved = sum(shard_of(u, SALT, 100) != shard_of(u, other, 100) for u in units)
    assert moved > 950
    assert new_salt() != new_salt()
    assert len(new_salt()) == 32


def uniformity(slot_of: Callable[[str], int], n: int) -> float:
    """Return the p-value of the chi-square test of uniform slots."""
    counts = Counter(slot_of(f"patient-{i:05d}") for i in range(40_000))
    return float(stats.chisquare([counts[slot] for slot in range(n)]).pvalue)


def test_units_spread_evenly_over_shards() -> None:
    assert uniformity(lambda unit: shard_of(unit, SALT, 100), 100) > SIGNIFICANCE


@pytest.mark.parametrize(
    "twin",
    [
        lambda unit: shard_of(unit, SALT, 256) % 100,
        lambda unit: sum(unit.encode()) % 100,
        lambda unit: min(shard_of(unit, SALT, 101), 99),
    ],
)
def test_uneven_hashes_are_caught(twin: Any) -> None:
    assert uniformity(twin, 100) < SIGNIFICANCE


def test_digests_of_records_tell_contents_apart_and_nothing_else() -> None:
    document = note("p1", "text", tags=["a"])
    others = [
        document,
        note("p1", "texts", tags=["a"]),
        note("p2", "text", tags=["a"]),
        note("p1", "text", tags=["b"]),
        Document("text", metadata=document.metadata, id="1"),
    ]
    assert len({record_digest(others, row) for row in range(5)}) == 5
    again = [note("p0", "rash"), document]
    assert record_digest(others, 0) == record_digest(again, 1)


@pytest.mark.parametrize("odd", [{1, 2}, object(), {(1, 2): 3}])
def test_digests_stand_odd_content(odd: Any) -> None:
    assert len(record_digest([note("p1", "\ud800", odd=odd)], 0)) == 16
