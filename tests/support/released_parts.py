"""Records, examples and files that the tests of released examples share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langchain_dpicl.accounting import Event, Gaussian, compose
from langchain_dpicl.released import ReleasedExamples

EVENTS = (Gaussian(noise_multiplier=4.0, count=30),)
DELTA = 1e-5

QUESTIONS = [
    {"text": "Who wrote Hamlet?", "label": "person"},
    {"text": "Where is the Louvre?", "label": "place"},
    {"text": "Who painted Guernica?", "label": "person"},
    {"text": "Who was the first president?", "label": "person"},
    {"text": "Where do penguins live?", "label": "place"},
    {"text": "When did Rome fall?", "label": "time"},
]


def as_json(*events: Event) -> list[dict[str, Any]]:
    """Return events as a record has them."""
    return [event.model_dump(mode="json") for event in events]


def record(
    events: tuple[Event, ...] = EVENTS, delta: float = DELTA, **fields: Any
) -> dict[str, Any]:
    """Return the record of a release, as a generator writes it."""
    return {
        "status": "released",
        "mechanism": "few-shot/gaussian",
        "parameters": {"labels": ["person", "place", "time"], "n_groups": 20},
        "unit": "all records of one patient_id",
        "unit_key": "patient_id",
        "relation": "replace",
        "neighbors": "all records of one unit added or removed",
        "events": as_json(*events),
        "epsilon": compose(events, delta) if delta else 0.0,
        "delta": delta,
        "charge": 1,
        "account": {"name": "notes", "accounting": "plan", "epsilon": 8.0},
        "model": "offline",
        "created": "2026-11-20T19:30:00+00:00",
        "library": "0.1.0",
        **fields,
    }


def public_record(**fields: Any) -> dict[str, Any]:
    """Return the record of examples that no private record had a part in."""
    free = {
        "status": "public",
        "mechanism": "few-shot/without-records",
        "unit": None,
        "unit_key": None,
        "relation": None,
        "neighbors": None,
        "events": [],
        "epsilon": 0.0,
        "delta": 0.0,
        "charge": None,
        "account": None,
    }
    return {**record(), **free, **fields}


def released(
    examples: list[dict[str, str]] | None = None, **fields: Any
) -> ReleasedExamples:
    return ReleasedExamples(
        QUESTIONS if examples is None else examples, record(**fields)
    )


def stored(path: Path) -> dict[str, Any]:
    """Read a file as anybody can, without the library."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def store(path: Path, content: Mapping[str, Any]) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def signed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file's content with its digest made to fit, as a forger would."""
    covered = {name: content.get(name) for name in ("examples", "record")}
    text = json.dumps(covered, sort_keys=True, separators=(",", ":"))
    return {**content, "sha256": hashlib.sha256(text.encode("ascii")).hexdigest()}
