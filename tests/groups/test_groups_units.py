from __future__ import annotations

import enum
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from scipy import stats
from support.groups_fakes import SALT, note

from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.groups.units import (
    canonical_unit_id,
    keyed_slot,
    new_salt,
    tie_key,
    unit_id_of,
)

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


@given(st.text(), st.binary(min_size=32, max_size=32), st.integers(1, 1000))
@settings(deadline=None, max_examples=200)
def test_keyed_slot_is_a_function_into_the_slots(
    unit_id: Any, salt: Any, n: Any
) -> None:
    slot = keyed_slot(salt, unit_id, n)
    assert 0 <= slot < n
    assert slot == keyed_slot(salt, unit_id, n)


def test_keyed_slot_never_changes() -> None:
    # Indexes are saved with their salt: another hash would scatter their units.
    assert [keyed_slot(SALT, unit, 1000) for unit in ("", "p1", "7", "\ud800")] == [
        717,
        26,
        696,
        111,
    ]


def test_keyed_slot_depends_on_the_salt() -> None:
    units = [str(i) for i in range(1000)]
    other = bytes(reversed(SALT))
    moved = sum(keyed_slot(SALT, u, 100) != keyed_slot(other, u, 100) for u in units)
    assert moved > 950
    assert new_salt() != new_salt()
    assert len(new_salt()) == 32


def test_keyed_slot_needs_a_slot() -> None:
    with pytest.raises(InvalidParameterError, match="at least 1"):
        keyed_slot(SALT, "p1", 0)


def uniformity(slot_of: Callable[[str], int], n: int) -> float:
    """Return the p-value of the chi-square test of uniform slots."""
    counts = Counter(slot_of(f"patient-{i:05d}") for i in range(40_000))
    return float(stats.chisquare([counts[slot] for slot in range(n)]).pvalue)


def test_units_spread_evenly_over_shards() -> None:
    assert uniformity(lambda unit: keyed_slot(SALT, unit, 100), 100) > SIGNIFICANCE


@pytest.mark.parametrize(
    "twin",
    [
        lambda unit: keyed_slot(SALT, unit, 256) % 100,
        lambda unit: sum(unit.encode()) % 100,
        lambda unit: min(keyed_slot(SALT, unit, 101), 99),
    ],
)
def test_uneven_hashes_are_caught(twin: Any) -> None:
    assert uniformity(twin, 100) < SIGNIFICANCE


def test_tie_keys_tell_contents_apart_and_nothing_else() -> None:
    document = note("p1", "text", tags=["a"])
    same = Document("text", metadata={"tags": ["a"], "unit": "p1"})
    assert tie_key(SALT, document) == tie_key(SALT, same)
    others = [
        note("p1", "texts", tags=["a"]),
        note("p2", "text", tags=["a"]),
        note("p1", "text", tags=["b"]),
        Document("text", metadata=document.metadata, id="1"),
    ]
    assert len({tie_key(SALT, other) for other in [document, *others]}) == 5
    assert tie_key(SALT, document) != tie_key(bytes(32), document)


@pytest.mark.parametrize("odd", [{1, 2}, object(), {(1, 2): 3}])
def test_tie_keys_stand_odd_content(odd: Any) -> None:
    tie_key(SALT, note("p1", "\ud800", odd=odd))
