"""Each promise has a test, and what was wrong elsewhere has a twin, too."""

from __future__ import annotations

import pytest
from promises import held, table

ROWS, HELD = table(), list(held())


@pytest.mark.promise("promises-held")
def test_the_table_and_the_markers_say_the_same() -> None:
    ids = [row["id"] for row in ROWS]
    assert len(ids) == len(set(ids))
    assert {mark.id for mark in HELD} == set(ids)
    marks = set(HELD)
    for row in ROWS:
        assert (row["id"], row["test"], False) in marks, row["id"]
        assert not row["twin"] or (row["id"], row["twin"], True) in marks, row["id"]
        assert row["promise"], row["id"]
        assert row["source"], row["id"]


@pytest.mark.promise("promises-held")
def test_what_was_wrong_elsewhere_has_a_twin() -> None:
    assert all(row["twin"] for row in ROWS if "privacy 9" in row["source"])


@pytest.mark.promise("promises-held", twin=True)
def test_a_promise_without_its_test_is_noticed() -> None:
    missing = [mark for mark in HELD if mark.id != "vote-price"]
    assert ("vote-price" in {mark.id for mark in missing}) is False
    assert {mark.id for mark in missing} != {row["id"] for row in ROWS}
