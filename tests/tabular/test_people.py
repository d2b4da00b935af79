"""Who takes part in a release, and with which rows: by the own rows and a key alone."""

from __future__ import annotations

import traceback
from collections import Counter
from typing import Any

import numpy as np
import pytest
from support.exact_laws import keeps_to

from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.mechanisms.random import seeded
from langchain_dpicl.tabular import CategoricalColumn, NumericColumn, TableSchema
from langchain_dpicl.tabular.people import People, read_people

KEY = bytes(range(32))
PRIVATE = "Zebediah-1847"
Row = dict[str, Any]


CODES = NumericColumn(name="code", kind="integer", lower=0, upper=2000, missing=0)
LABEL = CategoricalColumn(name="label", values=["a", "b"], missing="a")
SCHEMA = TableSchema(label="label", columns=[CODES, LABEL])


def read(rows: Any, **terms: Any) -> People:
    terms = {"unit_key": "who", "progress": False, **terms}
    return read_people(({"label": "a", **row} for row in rows), SCHEMA, **terms)


def codes_of(people: People) -> list[int]:
    return ((people.codes["code"] + 2000) // 2).tolist()


def taken(rows: Any, **terms: Any) -> Counter[int]:
    return Counter(codes_of(read(rows, key=KEY, **terms)))


def test_a_row_that_is_there_twice_has_twice_the_chance() -> None:
    rows = [{"who": 1, "code": code} for code in (7, 7, 8)]
    with seeded(1):
        drawn = [codes_of(read(rows))[0] for _ in range(600)]
    assert keeps_to(drawn, {7: 2 / 3, 8: 1 / 3})
    assert taken(rows, rows_per_unit=3) == Counter({7: 2, 8: 1})


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [("7", 7, True), (" 7 ", 7, True), ("07", 7, False), ("e\u0301", "\xe9", True)],
)
def test_ids_have_one_spelling(one: Any, other: Any, is_same: bool) -> None:
    found = read([{"who": one, "code": 1}, {"who": other, "code": 2}], key=KEY).units
    assert found is not None
    assert (len(found) == 1) is is_same


@pytest.mark.parametrize(
    "who",
    [None, "", 7.0, True, [7], np.timedelta64(3, "s"), np.datetime64("2020-01-01")],
)
def test_an_id_is_text_or_a_whole_number(who: Any) -> None:
    rows = [{"who": PRIVATE, "code": 1}, {"who": who, "code": 2}]
    with pytest.raises(UnitError, match=r"Row 1 .*'who'") as caught:
        read(rows)
    assert PRIVATE not in repr(locals_of(caught.value))


def locals_of(error: BaseException) -> list[dict[str, Any]]:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return [f.f_locals for f in frames if f.f_code.co_filename != __file__]


def test_what_is_refused_shows_no_row_in_its_frames() -> None:
    rows = [{"who": PRIVATE, "code": PRIVATE}]
    with pytest.raises(InvalidParameterError, match="'code'") as caught:
        read(rows)
    assert PRIVATE not in repr(locals_of(caught.value))
    assert repr(read([{"who": 1, "code": 3}])) == "People(<hidden>)"


def test_people_may_be_many() -> None:
    # More than one chunk.
    rows = [{"who": number // 3, "code": number % 7} for number in range(60_000)]
    found = read(rows, rows_per_unit=2)
    assert found.n_rows == 60_000
    assert len(found.codes["code"]) == 40_000
    assert found.codes["code"].dtype == np.int32
