"""`RowReader`: all rows are checked, the sample decides who takes part."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.typing import NDArray

from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.mechanisms.random import SecureRandom, SeededRandom
from langchain_dpicl.tabular.rows import Chunk, RowReader, SQLRows

CANARY = 8675309
ROWS = [{"person": f"p-{i // 2}", "age": i} for i in range(40)]


def encode(chunk: Chunk) -> dict[str, NDArray[np.int64]]:
    ages = np.asarray(chunk.columns["age"])
    if ages.max() > 1000:
        raise InvalidParameterError("column 'age' is out of its bounds.")
    return {"age": ages}


def reader(data: Any = ROWS, **options: Any) -> RowReader:
    given = {
        "unit_key": "person",
        "random": SeededRandom(3),
        "chunk_size": 7,
        "progress": False,
    }
    return RowReader(data, ["age"], encode, **{**given, **options})


def ages(found: RowReader) -> list[int]:
    return sorted(age for block in found.blocks() for age in block["age"].tolist())


def test_sources_of_every_kind_give_the_same_sample(tmp_path: Any) -> None:
    expected = ages(reader(sampling_rate=0.5))
    assert 0 < len(expected) < 20
    url = f"sqlite:///{tmp_path / 'people.db'}"
    pd.DataFrame(ROWS).to_sql("people", url, index=False)
    for data in (
        iter(ROWS),
        pd.DataFrame(ROWS),
        pl.DataFrame(ROWS),
        pl.DataFrame(ROWS).lazy(),
        SQLRows(url, "SELECT * FROM people ORDER BY random()"),
    ):
        found = reader(data, sampling_rate=0.5)
        assert ages(found) == expected
        assert found.n_rows == 40


def test_everybody_takes_part_at_rate_one() -> None:
    assert ages(reader(rows_per_unit=2)) == list(range(40))
    rows = [{"age": row["age"]} for row in ROWS]
    found = reader(rows, unit_key=None)
    assert ages(found) == list(range(40))
    assert found.n_rows == 40


def test_the_sample_is_fresh_every_time() -> None:
    random = SecureRandom()
    samples = {tuple(ages(reader(sampling_rate=0.5, random=random))) for _ in range(20)}
    assert len(samples) > 10


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "value": ({"person": "q", "age": CANARY}, InvalidParameterError, "out of its"),
    "unit": ({"person": None, "age": 3}, UnitError, "'person'"),
    "column": ({"person": "q"}, InvalidParameterError, "no column 'age'"),
    "kind": ([CANARY], InvalidParameterError, "is a list"),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize("bad", BAD)
def test_errors_do_not_tell_who_is_in_the_sample(bad: str, size: int) -> None:
    row, error, match = BAD[bad]
    messages = set()
    for seed in range(30):
        # At this rate hardly anybody is in the sample.
        found = reader(
            [*ROWS, row, *ROWS],
            sampling_rate=0.01,
            random=SeededRandom(seed),
            chunk_size=size,
        )
        with pytest.raises(error, match=match) as caught:
            ages(found)
        messages.add(str(caught.value))
        assert str(CANARY) not in str(caught.value)
    assert len(messages) == 1


def test_errors_without_units_do_not_tell_it_either() -> None:
    rows: list[dict[str, int]] = [{"age": i} for i in (*range(30), CANARY)]
    for seed in range(30):
        found = reader(
            rows, unit_key=None, sampling_rate=0.01, random=SeededRandom(seed)
        )
        with pytest.raises(InvalidParameterError, match="out of its bounds"):
            ages(found)


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("kind", [list, iter, pd.DataFrame, pl.DataFrame])
def test_no_frame_of_ours_shows_a_row(bad: str, kind: Any) -> None:
    row = BAD[bad][0]
    if kind in (pd.DataFrame, pl.DataFrame) and bad in ("kind", "column"):
        row = BAD["value"][0]
    rows: Any = [{"person": f"{CANARY}", "age": 5}, row]
    if kind is pl.DataFrame:
        rows = pl.DataFrame(rows, strict=False)
    elif kind is pd.DataFrame:
        # A column of Python's integers.
        rows = pd.DataFrame(rows).astype({"age": object})
    else:
        rows = kind(rows)
    with pytest.raises((InvalidParameterError, UnitError)) as caught:
        ages(reader(rows))
    shown = traceback.TracebackException.from_exception(
        caught.value, capture_locals=True
    )
    ours = [frame for frame in shown.stack if "langchain_dpicl" in frame.filename]
    assert ours
    for frame in ours:
        assert str(CANARY) not in str(frame.locals)


def test_an_error_of_the_callers_own_iterable_passes_through() -> None:
    def torn() -> Iterator[dict[str, Any]]:
        yield ROWS[0]
        raise OSError("the tape is torn")

    with pytest.raises(OSError, match="the tape is torn"):
        ages(reader(torn()))


def test_a_database_is_let_go_where_encoding_fails(tmp_path: Any) -> None:
    from sqlalchemy import create_engine

    engine = create_engine(f"sqlite:///{tmp_path / 'people.db'}")
    frame = pd.DataFrame([*ROWS, {"person": "q", "age": CANARY}, *ROWS])
    with engine.begin() as connection:
        frame.to_sql("people", connection, index=False)
    found = reader(SQLRows(engine, "SELECT * FROM people"))
    with pytest.raises(InvalidParameterError, match="out of its") as caught:
        ages(found)
    # Even while somebody holds the error.
    assert caught.value is not None
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined] # a queue
    engine.dispose()


def test_a_table_is_read_once_and_counted_at_the_end() -> None:
    found = reader()
    blocks = found.blocks()
    with pytest.raises(InvalidParameterError, match="read to its end"):
        assert found.n_rows
    next(blocks)
    with pytest.raises(InvalidParameterError, match="once"):
        found.blocks()
    assert list(blocks) == []
    assert found.n_rows == 40


@pytest.mark.parametrize("key", ["person", None])
def test_a_table_without_rows(key: str | None) -> None:
    found = reader([], unit_key=key)
    assert ages(found) == []
    assert found.n_rows == 0


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (np.zeros, "type float64 .* of 'age'"),
        (lambda n: np.zeros(n, bool), "type bool"),
        (lambda n: np.zeros((n, 2), int), r"of shape \(7, 2\)"),
        (lambda n: np.zeros(n + 1, int), r"of shape \(8,\)"),
    ],
)
def test_what_encode_makes_is_checked(made: Any, match: str) -> None:
    found = RowReader(
        ROWS,
        ["age"],
        lambda chunk: {"age": made(chunk.size)},
        unit_key="person",
        random=SeededRandom(1),
        chunk_size=7,
    )
    with pytest.raises(InvalidParameterError, match=match):
        ages(found)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"rows_per_unit": 0}, "rows_per_unit must be at least 1"),
        ({"rows_per_unit": 2, "unit_key": None}, "rows_per_unit needs unit_key"),
        ({"sampling_rate": 0}, "greater than 0"),
        ({"sampling_rate": 1.5}, "at most 1"),
        ({"unit_key": ""}, "not blank"),
        ({"chunk_size": 0}, "chunk_size"),
        ({"random": np.random.default_rng(1)}, "random must be a SecureRandom"),
    ],
)
def test_wrong_arguments_of_a_reader(options: Any, match: str) -> None:
    with pytest.raises(InvalidParameterError, match=match):
        reader(**options)


def test_it_shows_and_keeps_nothing() -> None:
    found = reader([{"person": "a", "age": 5}])
    assert repr(found) == "RowReader(<hidden>)"
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(found)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(Chunk({"age": [1]}, 1, None))


def test_a_bar_shows_how_fast_it_goes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert len(ages(reader(progress=True))) == 20
    shown = capsys.readouterr()
    assert "Reading rows 40" in shown.err
    assert "rows/s" in shown.err
    assert "%" not in shown.err
    assert not shown.out
    assert len(ages(reader())) == 20
    assert not capsys.readouterr().err
