"""What an adversarial review of `GDPTable` broke, and what must stay mended."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from support.draws import before_draws, full
from support.table_parts import JOBS, account, people, people_schema

from langchain_dpicl.errors import (
    InvalidParameterError,
    LedgerError,
    UnitError,
)
from langchain_dpicl.tabular import (
    CategoricalColumn,
    GDPTable,
    NumericColumn,
    TableSchema,
)


def n_charges(budget: Any) -> int:
    return int(budget.spent().queries)


def test_no_column_takes_the_name_of_the_number_of_rows() -> None:
    # Both would have had one share: three quantities, and two of them paid for.
    schema = TableSchema(
        label="y",
        columns=[
            NumericColumn(name="age", lower=0, upper=9),
            CategoricalColumn(name="(rows)", values=["a", "b"]),
            CategoricalColumn(name="y", values=["a", "b"]),
        ],
    )
    row = {"age": 3, "(rows)": "a", "y": "b"}
    with pytest.raises(InvalidParameterError, match="another name"):
        GDPTable([row] * 9, schema, budget=account())


class _Failing(Iterator[dict[str, Any]]):
    """Fails once in the midst of the rows and can be read on."""

    def __init__(self) -> None:
        self.rows = iter(people(40))
        self.place = 0

    def __next__(self) -> dict[str, Any]:
        self.place += 1
        if self.place == 20:
            raise ConnectionError
        return next(self.rows)


def test_a_refusal_does_not_make_a_broken_iterator_whole_again() -> None:
    budget = account()
    table = GDPTable(_Failing(), people_schema(), budget=budget)
    with pytest.raises(ConnectionError):
        table.release()
    for _ in range(3):
        with pytest.raises(InvalidParameterError, match="iterator"):
            table.release()
    assert n_charges(budget) == 0


def test_noise_that_can_not_be_drawn_is_refused_before_the_charge() -> None:
    budget = account(1e-3)
    wide = NumericColumn(kind="integer", name="age", lower=0, upper=2**31)
    rows = [{**row, "who": f"p{i}"} for i, row in enumerate(people(5))]
    table = GDPTable(
        rows,
        people_schema(age=wide),
        budget=budget,
        unit_key="who",
        rows_per_unit=1000,
    )
    for call in (table.release, lambda: table.forecast(100)):
        with pytest.raises(InvalidParameterError, match="'age'"):
            call()
    assert n_charges(budget) == 0


@pytest.mark.parametrize(
    "terms",
    [
        {"epsilon": np.float32(1)},
        {"sampling_rate": np.float32(0.5)},
        {"sampling_rate": Fraction(1, 3)},
        {"unit_key": "who", "rows_per_unit": np.int32(5000)},
        {
            "epsilon": 1,
            "split": {
                "age": np.float32(0.25),
                "pay": np.float32(0.25),
                "job": 0.25,
                "(rows)": np.float32(0.25),
            },
        },
    ],
    ids=",".join,
)
def test_numbers_of_any_kind_are_plain_from_the_start(terms: dict[str, Any]) -> None:
    rows = [{**row, "who": f"p{i}"} for i, row in enumerate(people(60))]
    table = GDPTable(
        rows,
        people_schema(),
        budget=account(4.0),
        extra_columns="ignore",
        **terms,
    )
    cap = int(terms.get("rows_per_unit", 1))
    parameters = table.release().record()["parameters"]
    assert type(parameters["sampling_rate"]) is float
    assert parameters["rows_per_unit"] == cap
    # The sum of pay moves by 2^20 steps a row, whatever 32 bits make of the product.
    spent = parameters["epsilons"]["pay"]
    scale = cap * 2**20 / spent
    assert parameters["noise"]["pay"] == pytest.approx(2**0.5 * scale, rel=1e-6)


def test_a_split_that_changes_later_changes_nothing() -> None:
    split = dict.fromkeys(("age", "pay", "job", "(rows)"), 0.25)
    table = GDPTable(
        people(60), people_schema(), budget=account(), epsilon=1, split=split
    )
    split["age"] = 40.0
    assert table.release().statistics.epsilons == (0.25,) * 4


@pytest.mark.parametrize(
    "terms",
    [
        {"group_by": 5},
        {"group_by": {"ill", "job"}},
        {"group_by": {"ill": 1}},
        {"numeric": np.array(["mean", "bins"])},
        {"small_groups": np.array(["keep", "leave_out"])},
        {"unit_key": " "},
    ],
    ids=["number", "set", "mapping", "numeric", "small_groups", "blank"],
)
def test_odd_terms_are_refused_with_their_name(terms: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError, match=next(iter(terms))):
        GDPTable(people(9), people_schema(), budget=account(), **terms)


def test_a_draw_that_was_not_stored_is_in_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget = account()
    refused: list[Any] = []
    before_draws(monkeypatch, lambda _, value: full(refused.append(value)))
    table = GDPTable(people(200), people_schema(), budget=budget)
    with pytest.raises(LedgerError) as caught:
        table.release()
    report = traceback.TracebackException.from_exception(
        caught.value, capture_locals=True
    )
    seen = [
        text
        for frame in report.stack
        if "langchain_dpicl" in frame.filename
        for text in (frame.locals or {}).values()
    ]
    assert seen
    assert len(refused) == 1
    assert not any(str(refused[0])[1:-1] in text or "array(" in text for text in seen)


def test_labels_take_turns_where_the_noise_hides_a_group() -> None:
    rows = [
        {"age": 30, "pay": 1.0, "job": job, "ill": "0"}
        for job in JOBS
        for _ in range(300)
    ]
    rows += [{"age": 50, "pay": 2.0, "job": "nurse", "ill": "1"}] * 200
    table = GDPTable(
        rows, people_schema(), budget=account(4000.0), group_by=["ill", "job"]
    )
    found = table.sample(24)
    assert Counter(row["ill"] for row in found) == {"0": 12, "1": 12}
    assert Counter(row["job"] for row in found if row["ill"] == "0") == dict.fromkeys(
        JOBS, 4
    )


def test_sampling_and_reading_out_refuse_what_makes_no_sense() -> None:
    table = GDPTable(people(400), people_schema(), budget=account(400.0))
    found = table.release().statistics
    for k in (0, -1, 1.5, "2", None, True):
        for balanced in (True, False):
            with pytest.raises(InvalidParameterError, match="k must"):
                table.sample(k, balanced=balanced)  # type: ignore[arg-type]
    for name, read in {
        "job": found.mean,
        "age": found.shares,
        "pay": found.most,
        "tail": found.share_error,
    }.items():
        with pytest.raises(InvalidParameterError, match=name):
            read(0, name)
    for group in (-1, 2):
        with pytest.raises(InvalidParameterError, match="Groups are numbered"):
            found.typical(group)


def test_times_are_no_numbers_no_categories_and_no_ids() -> None:
    number = NumericColumn(name="x", lower=0, upper=9)
    category = CategoricalColumn(name="x", values=["3", "?"], other="?")
    for kind in ("m8[ns]", "m8[s]", "M8[ns]", "M8[s]"):
        times = np.array([3, 4], dtype=kind)
        for cells in (times, list(times)):
            for read in (number.grid, category.codes):
                with pytest.raises(InvalidParameterError, match="'x'"):
                    read(cells)
        rows = [{**row, "who": times[0]} for row in people(3)]
        with pytest.raises(UnitError, match="who"):
            GDPTable(rows, people_schema(), budget=account(), unit_key="who").release()
