"""Edited files: no edit of any field is believed, and no forged claim is too small."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.released_parts import (
    DELTA,
    QUESTIONS,
    record,
    released,
    signed,
    store,
    stored,
)

from langchain_dpicl.accounting import (
    Gaussian,
    compose,
    event_from_dict,
    event_to_dict,
)
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.released import ReleasedExamples

Keys = tuple[str | int, ...]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "examples.json"


def places(value: Any, here: Keys = ()) -> Iterator[Keys]:
    """Yield the keys to every value in nested JSON."""
    if here:
        yield here
    parts = value.items() if isinstance(value, dict) else ()
    for key, part in enumerate(value) if isinstance(value, list) else parts:
        yield from places(part, (*here, key))


def at(value: Any, keys: Keys) -> Any:
    for key in keys:
        value = value[key]
    return value


def edits(value: Any) -> Iterator[Any]:
    """Yield other values in place of one."""
    yield from (None, True, False, 0, 1, -1, 0.5, 1e300, "", "x", [], {}, [value])
    yield {"x": value}
    if isinstance(value, str):
        yield from (value + " ", value[:-1], value.upper(), value + "\u0301")
    elif isinstance(value, bool | int | float):
        yield from (value + 1, value - 1, value * 2, value / 2, value * 1.0001, -value)
    elif isinstance(value, list) and value:
        yield from (value[1:], value[:-1], value + value[:1], value[::-1])
    elif isinstance(value, dict):
        yield {**value, "more": "x"}
        yield {**value, "count": 10**12}


def edited(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every file that differs in one place."""
    for keys in places(content):
        original = at(content, keys)
        for value in edits(original):
            other = copy.deepcopy(content)
            at(other, keys[:-1])[keys[-1]] = value
            yield other
        shorter = copy.deepcopy(content)
        del at(shorter, keys[:-1])[keys[-1]]
        yield shorter


def small() -> ReleasedExamples:
    return released(QUESTIONS[:2], parameters={"labels": ["person"], "n": 20})


def same_json(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def test_no_edit_of_any_field_is_believed(path: Path) -> None:
    small().save(path)
    content = stored(path)
    count = 0
    for other in edited(content):
        if same_json(other, content):
            continue
        count += 1
        with pytest.raises(InvalidParameterError) as error:
            ReleasedExamples.load(store(path, other))
        assert "Hamlet" not in str(error.value)
    assert count > 500


def test_no_forged_file_claims_less_than_its_events_cost(path: Path) -> None:
    # The digest is no signature: here every edit comes with the digest that fits it.
    small().save(path)
    content = stored(path)
    believed = refused = 0
    for other in edited(content):
        try:
            loaded = ReleasedExamples.load(store(path, signed(other)))
        except InvalidParameterError:
            refused += 1
            continue
        believed += 1
        kept = loaded.record
        events = [event_from_dict(event) for event in kept["events"]]
        if kept["status"] == "public":
            assert not events
            continue
        assert events
        assert kept["epsilon"] * (1 + 1e-6) >= compose(events, kept["delta"])
        assert all(isinstance(t, str) for example in loaded for t in example.values())
    assert believed > 50
    assert refused > 300


@settings(
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(place=st.integers(0, 1500), width=st.integers(0, 3), other=st.binary(max_size=3))
def test_no_edited_byte_is_believed(
    path: Path, place: int, width: int, other: bytes
) -> None:
    small().save(path, overwrite=True)
    data = path.read_bytes()
    path.write_bytes(data[:place] + other + data[place + width :])
    try:
        loaded = ReleasedExamples.load(path)
    except InvalidParameterError:
        return
    assert loaded.digest == small().digest


def test_the_epsilon_of_a_file_is_computed_again(path: Path) -> None:
    content = signed(
        {
            **_content(),
            "record": record() | {"events": [event_to_dict(Gaussian(1.0))]},
        }
    )
    cost = compose([Gaussian(1.0)], DELTA)
    assert ReleasedExamples.load(store(path, content)).record["epsilon"] >= cost
    content["record"]["epsilon"] = cost * 0.999
    with pytest.raises(InvalidParameterError, match="its events cost"):
        ReleasedExamples.load(store(path, signed(content)))


def _content() -> dict[str, Any]:
    return {
        "format": "langchain-dpicl",
        "version": 1,
        "kind": "examples",
        "examples": QUESTIONS,
    }
