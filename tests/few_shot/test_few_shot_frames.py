"""No frame of a refusal holds a record: each kind of bad record, and errors of others.

Whoever prints a traceback with its locals (a debugger, an error tracker) sees them.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd
import pytest
from langchain_core.documents import Document
from support.canaries import look, marker
from support.few_shot_fakes import WordModel, budget_of, generator_of
from support.frames import chain_of, locals_of, private_locals

from langchain_dpicl.errors import DPError, InvalidParameterError, UnitError
from langchain_dpicl.few_shot import request

SECRET = marker("document", "text")


def record(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "text": f"red {marker('document', number)}",
        "label": "color",
        "who": marker("unit", number),
        "ward": marker("metadata", number),
        **changes,
    }


GOOD = [record(number) for number in range(60)]


class Broken(Mapping[str, Any]):
    """A record that can't be read, and quotes itself."""

    def __getitem__(self, key: str) -> Any:
        raise KeyError(SECRET)

    def __iter__(self) -> Iterator[str]:
        return iter(["text"])

    def __len__(self) -> int:
        return 1


BAD: dict[str, tuple[Any, type[BaseException]]] = {
    "no mapping": ([SECRET], InvalidParameterError),
    "a text": (SECRET, InvalidParameterError),
    "nothing": (None, InvalidParameterError),
    "a number as text": (record(1, text=917263548), InvalidParameterError),
    "an empty text": (record(1, text=" "), InvalidParameterError),
    "a list as text": (record(1, text=[SECRET]), InvalidParameterError),
    "no text": ({"label": "color", "who": SECRET}, InvalidParameterError),
    "a number as label": (record(1, label=917263548), InvalidParameterError),
    "no label": ({"text": SECRET, "who": SECRET}, InvalidParameterError),
    "another label": (record(1, label=SECRET), InvalidParameterError),
    "no unit": ({"text": SECRET, "label": "color"}, UnitError),
    "a list as unit": (record(1, who=[SECRET]), UnitError),
    "a number as unit": (record(1, who=9172.63548), UnitError),
    "a document without a label": (
        Document(SECRET, metadata={"who": SECRET}),
        InvalidParameterError,
    ),
    "a document without a unit": (
        Document(SECRET, metadata={"label": "color"}),
        UnitError,
    ),
    "a broken one": (Broken(), KeyError),
}


def reading() -> Iterator[Any]:
    yield from GOOD
    raise OSError("The database is gone.")


def interrupted() -> Iterator[Any]:
    yield from GOOD
    raise KeyboardInterrupt


class Frame:
    """What says that it is a frame, and quotes itself when it is read."""

    columns = ("text",)

    def to_dict(self, _: str) -> Any:
        raise ValueError(SECRET)


# The records, the generator's terms, and the error.
CORPORA: dict[str, tuple[Any, dict[str, Any], type[BaseException]]] = {
    "one mapping": (GOOD[0], {}, InvalidParameterError),
    "one text": (SECRET, {}, InvalidParameterError),
    "bytes": (SECRET.encode(), {}, InvalidParameterError),
    "no list": (917263548, {}, InvalidParameterError),
    "too few": (GOOD[:7], {}, UnitError),
    "too few declared": (GOOD, {"label_sizes": {"color": 7}}, UnitError),
    "more fields without a key": (GOOD, {"unit_key": None}, UnitError),
    "a frame": (pd.DataFrame([*GOOD, record(1, label=7)]), {}, InvalidParameterError),
    "a frame that fails": (Frame(), {}, ValueError),
    "a reader that fails": (reading, {}, OSError),
    "an interrupt": (interrupted, {}, KeyboardInterrupt),
}

WAYS = pytest.mark.parametrize("way", ["generate", "agenerate"])


def corpora() -> Iterator[Any]:
    for name, (bad, error) in BAD.items():
        for place, records in (
            ("first", [bad, *GOOD]),
            ("last", [*GOOD, bad]),
        ):
            yield pytest.param(records, {}, error, id=f"{name}-{place}")
    for name, (records, terms, error) in CORPORA.items():
        yield pytest.param(records, terms, error, id=name)


async def refused(
    records: Iterable[Any], terms: dict[str, Any], way: str
) -> BaseException:
    given = {"labels": ["color"], "unit_key": "who", "n_groups": 20, **terms}
    model = WordModel()
    budget = budget_of(accounting="renyi", epsilon=50)
    made = generator_of(model, budget=budget, **given)
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - looked at below
        if way == "generate":
            made.generate(records)
        else:
            await made.agenerate(records)
    assert (budget.spent().queries, model.calls) == (0, [])
    return caught.value


@WAYS
@pytest.mark.parametrize(("records", "terms", "kind"), list(corpora()))
async def test_no_frame_of_a_refusal_holds_a_record(
    records: Any, terms: dict[str, Any], kind: type[BaseException], way: str
) -> None:
    given = records() if callable(records) else records
    error = await refused(given, terms, way)
    assert isinstance(error, kind)
    frames = locals_of(error, __name__)
    assert any("hidden=<hidden>" in frame for frame in frames), "they are looked at"
    assert private_locals(error, __name__) == []
    if isinstance(error, DPError):
        assert look([str(each) for each in chain_of(error)]).private == []
        assert list(chain_of(error)) == [error]


async def test_twin_without_it_frames_hold_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request, "without_frames", lambda step: step())
    for records in ([*GOOD, SECRET], [*GOOD, Broken()]):
        frames = locals_of(await refused(records, {}, "generate"), __name__)
        assert look(frames).private == ["document", "metadata", "unit"]


async def test_an_error_of_the_callers_own_keeps_the_callers_own_frames() -> None:
    error = await refused(reading(), {}, "generate")
    *_, (last, _) = traceback.walk_tb(error.__traceback__)
    assert last.f_code is reading.__code__
