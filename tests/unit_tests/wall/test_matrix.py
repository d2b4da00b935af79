"""Nobody sees records, ids, answers or what calls failed of, however one asks.

Each record, metadata value, unit id, group answer and group call's usage is marked. All
observers look on at once. The twins break the test's side, and then each observer finds
a mark: one that finds none there is not an observer.
"""

from __future__ import annotations

import base64
import functools
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from faces import VoteOutputParser, open_for_tests
from suite import WHOLE
from unit_tests.wall.leaky import quoting
from unit_tests.wall.marks import mark, marks_in
from unit_tests.wall.observers import OBSERVERS, Run
from unit_tests.wall.ways import (
    FACES,
    MAY_SWALLOW,
    MODELS,
    QUESTION,
    RELEASE,
    WAYS,
    Face,
    ask,
)

CROWDS = [*MODELS]


def cases() -> list[Any]:
    """Half of the pairs of ways and faces; each of both also with each crowd."""
    chosen = [
        (way, face, CROWDS[(i // 2 + j // 2) % 2])
        for i, way in enumerate(WAYS)
        for j, face in enumerate(FACES)
        if (i + j) % 2 == 0
    ]
    return list(itertools.product(WAYS, FACES, CROWDS)) if WHOLE else chosen


@pytest.mark.promise("nobody-sees-a-record")
@pytest.mark.parametrize(("way", "face", "crowd"), cases())
def test_nobody_sees_anything_private(way: str, face: str, crowd: str) -> None:
    seen = ask(crowd, way, FACES[face])
    assert seen.marks == {}
    if seen.error is not None:
        assert isinstance(seen.error, FACES[face].raises)
    else:
        assert way in MAY_SWALLOW or not FACES[face].raises
        assert face not in RELEASE or "cough" in seen.said


# ---- twins ---------------------------------------------------------------------------

LABEL = mark("answer", "a label")


@contextmanager
def open_wall(_run: Run) -> Iterator[None]:
    with open_for_tests():
        yield


@contextmanager
def broken_thread(_run: Run) -> Iterator[None]:
    def fail() -> None:
        raise quoting(LABEL)

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    yield


TWINS: dict[str, dict[str, Any]] = {
    "wall": {"face": FACES["vote"], "during": open_wall},
    "stop": {"face": FACES["failing"], "during": open_wall},
    "terms": {
        "face": Face(
            lambda: VoteOutputParser(labels=(LABEL, "rash")),
            reply=lambda _prompt, _stop: LABEL,
        )
    },
    "hooks": {"face": FACES["vote"], "during": broken_thread},
}


@functools.cache
def broken(twin: str, crowd: str, way: str) -> dict[str, list[str]]:
    return ask(crowd, way, **TWINS[twin]).marks


@pytest.mark.promise("nobody-sees-a-record", twin=True)
@pytest.mark.parametrize("way", ["invoke", "astream"])
@pytest.mark.parametrize("name", OBSERVERS)
def test_each_observer_sees_what_a_broken_run_shows(name: str, way: str) -> None:
    where, twin, _ = OBSERVERS[name]
    for crowd in CROWDS if where == "both" else [where]:
        with pytest.raises(AssertionError):
            assert name not in broken(twin, crowd, way)


@pytest.mark.promise("wall-opens-in-one-context")
def test_the_wall_is_open_in_one_context_alone() -> None:
    """Another thread's question stays sealed, and so does a later one."""
    seen: list[Any] = []

    def beside() -> None:
        seen.append(ask("config", "invoke", FACES["vote"]).marks)

    with open_for_tests():
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
    beside()
    assert seen == [{}, {}]


@pytest.mark.promise("nobody-sees-a-record", twin=True)
@pytest.mark.parametrize("kind", ["plain", "hex", "base64", "utf-16", "deep"])
def test_a_mark_is_found_in_each_form(kind: str) -> None:
    text = f"a {mark('record', 1)} b"
    forms: dict[str, Any] = {
        "plain": text,
        "hex": text.encode().hex(),
        "base64": [base64.b64encode(b"x" * n + text.encode()) for n in range(3)],
        "utf-16": text.encode("utf-16-le"),
        "deep": [{"a": (RuntimeError("no", {"body": text}),)}],
    }
    assert marks_in(forms[kind]) == ["record"]
    assert marks_in(QUESTION) == []
