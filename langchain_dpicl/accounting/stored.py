"""Events as dictionaries, for JSON: what the ledger and every public record keep."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from langchain_dpicl.accounting.events import (
    EVENT_TYPES,
    MAX_BRANCHES,
    PLAIN_TYPES,
    Event,
    Parallel,
)
from langchain_dpicl.errors import InvalidParameterError

_BY_KIND: dict[str, type[Event]] = {cls.kind: cls for cls in EVENT_TYPES}


def event_to_dict(event: Event) -> dict[str, Any]:
    """Return an event as a dictionary that JSON stores exactly: `kind` and every field.

    Python writes the shortest decimal that reads back as the same double, so a round
    trip through `json` changes nothing. A parallel event's `branches` are lists of such
    dictionaries. What is not an event is a `InvalidParameterError`.

    Example:
        >>> from langchain_dpicl.accounting import Pure
        >>> event_to_dict(Pure(0.5, count=3))
        {'kind': 'pure', 'epsilon': 0.5, 'count': 3}
    """
    if isinstance(event, Parallel):
        return {
            "kind": event.kind,
            "branches": [list(map(event_to_dict, branch)) for branch in event.branches],
            "count": event.count,
            "partition": event.partition,
        }
    if not isinstance(event, PLAIN_TYPES):
        raise InvalidParameterError(f"Not a privacy event: {type(event).__name__}.")
    return {"kind": event.kind, **dataclasses.asdict(event)}


def event_from_dict(stored: Mapping[str, Any]) -> Event:
    """Return the event that `event_to_dict` wrote, from `kind` and every field of it.

    Fails closed: what was stored is accounted for exactly or not at all.

    Raises:
        InvalidParameterError: If the kind is unknown, a field is missing or too many,
            or a value is out of its range.

    Example:
        >>> event_from_dict({"kind": "pure", "epsilon": 0.5, "count": 3})
        Pure(epsilon=0.5, count=3)
    """
    if not isinstance(stored, Mapping):
        raise InvalidParameterError(
            f"An event is stored as a mapping, not {stored!r:.40}."
        )
    kind = stored.get("kind")
    cls = _BY_KIND.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise InvalidParameterError(
            f"Unknown event kind {kind!r:.40}; known are {', '.join(sorted(_BY_KIND))}."
        )
    names = {"kind", *(field.name for field in dataclasses.fields(cls))}
    if set(stored) != names:
        raise InvalidParameterError(
            f"A {kind} event has the fields {', '.join(sorted(names))}; "
            f"stored are {', '.join(sorted(map(str, stored)))}."
        )
    values = {name: stored[name] for name in names - {"kind"}}
    if cls is Parallel:
        values["branches"] = _read_branches(values["branches"])
    return cls(**values)


def _read_branches(stored: Any) -> list[list[Event]]:
    if not isinstance(stored, list) or not 0 < len(stored) <= MAX_BRANCHES:
        raise InvalidParameterError(
            f"Branches are stored as 1 to {MAX_BRANCHES} lists."
        )
    branches = []
    for branch in stored:
        if not isinstance(branch, list):
            raise InvalidParameterError("A branch is stored as a list of events.")
        # A parallel event inside is refused before it is read, however deep it is.
        if any(isinstance(e, Mapping) and e.get("kind") == "parallel" for e in branch):
            raise InvalidParameterError("A branch can't hold a parallel event.")
        branches.append([event_from_dict(event) for event in branch])
    return branches
