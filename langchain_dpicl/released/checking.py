"""Whether examples and record are what a release can be: shape, claims, digest.

Records are checked where they are made and where they are read. All checks fail closed:
what is not understood is refused. Messages name fields, and repeat nothing that stands
in an example.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from langchain_dpicl.accounting import (
    Event,
    ExponentialEvent,
    ParallelEvent,
    PureEvent,
    compose,
    event_from_dict,
)
from langchain_dpicl.exceptions import ReleaseError
from langchain_dpicl.parameters import ParameterError
from langchain_dpicl.relation import Relation

MAX_EVENTS = 20_000
"""Events of one record, two for each of many labels; more are only there to be slow."""

TOLERANCE = 1e-6
"""Relative rounding that a stated epsilon may lie below the recomputed one.

Bounds are computed numerically, and another version or processor may round otherwise.
"""

# Python 3.10 reads no other dates, and later versions read many.
_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?[+-]\d\d:\d\d", re.ASCII)
_LARGEST = 1e300
_VERSION = re.compile(
    r"\d{1,9}(\.\d{1,9}){0,4}([.+-]?[A-Za-z][A-Za-z0-9.+-]{0,40})?", re.ASCII
)
_RELATIONS = frozenset(relation.value for relation in Relation)


def checked_examples(examples: Iterable[Any]) -> list[dict[str, str]]:
    """Return examples as plain dictionaries of text that all have the same keys.

    Half characters that no encoding can write (lone surrogates) become U+FFFD: a model
    may spell them, and text that was paid for is not lost over them.

    Raises:
        ReleaseError: If one of them is of another shape.

    Example:
        >>> checked_examples([{"text": "Who won?", "label": "person"}])
        [{'text': 'Who won?', 'label': 'person'}]
    """
    checked: list[dict[str, str]] = []
    for position, example in enumerate(examples):
        if not isinstance(example, Mapping) or not example:
            raise _misfit(position, "is not a dictionary of text")
        if not all(isinstance(key, str) and key for key in example):
            raise _misfit(position, "has a key that is not text")
        plain = {well_formed(key): value for key, value in example.items()}
        if len(plain) < len(example):
            raise _misfit(position, "has two keys that no encoding can tell apart")
        for key, value in plain.items():
            if not isinstance(value, str):
                raise _misfit(position, f"holds no text under {key!r:.40}")
            plain[key] = well_formed(value)
        if checked and plain.keys() != checked[0].keys():
            raise _misfit(position, "has other keys than the first one")
        checked.append(plain)
    return checked


def checked_record(record: Any) -> dict[str, Any]:
    """Return a public record as JSON has it, if its claims hold together.

    A generator can call this before it charges: `charge` and `account` may be None.

    Args:
        record: `status`, `mechanism`, `parameters`, `unit`, `unit_key`, `relation`,
            `neighbors`, `events`, `epsilon`, `delta`, `charge`, `account`, `model`,
            `created` and `library`; others may stand beside them.

    Returns:
        A copy in the types of JSON.

    Raises:
        ReleaseError: If a field is missing or of another form, an event can't be
            read, the events cost more than the stated epsilon at delta, or a public
            record (status `public`) claims to have cost anything.
    """
    plain = _as_json(record)
    if not isinstance(plain, dict):
        raise ReleaseError("A release's record is a dictionary.")
    status = plain.get("status")
    if status not in ("released", "public"):
        raise unfit("status", "is neither 'released' nor 'public'")
    for name, (fits, form) in _FORMS.items():
        if name not in plain:
            raise unfit(name, "is missing")
        optional = status == "public" and name in _OF_PRIVATE_DATA
        if not fits(plain[name]) and not (optional and plain[name] is None):
            raise unfit(name, f"is not {form}")
    if plain["charge"] is not None and plain["account"] is None:
        raise unfit("account", "is missing beside a charge")
    events = events_of(plain)
    if status == "public":
        _require_free(plain)
    elif not events:
        raise unfit("events", "is empty: what came from private data has a cost")
    else:
        _require_paid_in_full(plain, events)
    return plain


def events_of(record: Mapping[str, Any]) -> list[Event]:
    """Return a record's events.

    Raises:
        ReleaseError: If one of them can't be read.
    """
    try:
        events = [event_from_dict(event) for event in record["events"]]
    except (ParameterError, TypeError, OverflowError, RecursionError) as error:
        raise unfit("events", f"can't be read ({error!s:.200})") from None
    if sum(map(_size, events)) > MAX_EVENTS:
        raise unfit("events", f"holds more than {MAX_EVENTS} of them")
    return events


def _size(event: Event) -> int:
    if isinstance(event, ParallelEvent):
        return sum(map(len, event.branches))
    return 1


def digest_of(examples: Iterable[Mapping[str, str]], record: Mapping[str, Any]) -> str:
    """Return the SHA-256 of examples and record, as canonical JSON.

    Keys sorted, no spaces, ASCII with escapes: anybody can compute it again. It shows
    accidents and careless edits. It is no signature: whoever writes a file can write
    its digest.

    Example:
        >>> digest_of([{"text": "a"}], {})[:16]
        '47bdcf0b275b21bd'
    """
    content = {"examples": [dict(example) for example in examples], "record": record}
    canonical = json.dumps(
        content, sort_keys=True, separators=(",", ":"), allow_nan=False
    )
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def unfit(name: str, reason: str) -> ReleaseError:
    """Return the error that says which field of a record does not hold."""
    return ReleaseError(
        f"The record of these examples can't be trusted: {name!r} {reason}. Load a "
        "good copy, or generate the examples again."
    )


def well_formed(text: str) -> str:
    r"""Return a text that every encoding of Unicode can write.

    Example:
        >>> well_formed("a\ud83d\ude00b") == "a\U0001f600b"
        True
        >>> well_formed("a\ud83db") == "a\ufffdb"
        True
    """
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _require_free(record: Mapping[str, Any]) -> None:
    for name in ("epsilon", "delta"):
        if record[name] != 0:
            raise unfit(name, "is not 0, though status is 'public'")
    if record["events"]:
        raise unfit("events", "is not empty, though status is 'public'")
    if record["charge"] is not None:
        raise unfit("charge", "is named, though status is 'public'")


def _require_paid_in_full(record: Mapping[str, Any], events: list[Event]) -> None:
    delta, stated = record["delta"], record["epsilon"]
    try:
        cost = compose(events, delta) if delta else pure_epsilon(events)
    except (ParameterError, ArithmeticError) as error:
        raise unfit("events", f"can't be accounted for ({error!s:.200})") from None
    # Written so that NaN fails as well.
    if not cost <= stated * (1 + TOLERANCE):
        raise unfit(
            "epsilon", f"is {stated:.6g} at delta {delta:g}; its events cost {cost:.6g}"
        )


def pure_epsilon(events: Iterable[Event]) -> float:
    """Return the events' epsilon at delta 0: infinite unless all of them are pure.

    Example:
        >>> pure_epsilon([PureEvent(0.5, count=3)])
        1.5
        >>> pure_epsilon([ParallelEvent([[PureEvent(0.5)], [PureEvent(0.75)]])])
        0.75
    """
    total = 0.0
    for event in events:
        if isinstance(event, ParallelEvent):
            total += event.count * max(map(pure_epsilon, event.branches))
        elif isinstance(event, PureEvent | ExponentialEvent):
            total += event.count * event.epsilon
        else:
            return math.inf
    return total


def _as_json(record: Any) -> Any:
    try:
        return _well_formed_all(json.loads(json.dumps(record, allow_nan=False)))
    except (TypeError, ValueError, RecursionError):
        raise ReleaseError(
            "The record holds what JSON can't express. Keep text, finite numbers, "
            "booleans, lists and dictionaries with text keys in it."
        ) from None


def _well_formed_all(value: Any) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [_well_formed_all(item) for item in value]
    if isinstance(value, dict):
        return {well_formed(k): _well_formed_all(item) for k, item in value.items()}
    return value


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_text_or_none(value: Any) -> bool:
    return value is None or _is_text(value)


def _is_number(value: Any) -> bool:
    # Python compares integers of any size with floats, and can't convert them all.
    return type(value) in (int, float) and 0 <= value <= _LARGEST


def _is_date(value: Any) -> bool:
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


_FORMS = {
    "mechanism": (_is_text, "text"),
    "parameters": (lambda v: isinstance(v, dict), "a dictionary"),
    "unit": (_is_text, "text"),
    "unit_key": (_is_text_or_none, "text or null"),
    "relation": (
        lambda v: isinstance(v, str) and v in _RELATIONS,
        "a relation of slots that is known",
    ),
    "neighbors": (_is_text, "text"),
    "events": (lambda v: isinstance(v, list), "a list"),
    "epsilon": (_is_number, "a number from 0 to 1e300"),
    "delta": (lambda v: _is_number(v) and v < 1, "a number from 0 to below 1"),
    "charge": (lambda v: v is None or (type(v) is int and v > 0), "a count or null"),
    "account": (
        lambda v: v is None or (isinstance(v, dict) and _is_text(v.get("name"))),
        "null or a dictionary with a name",
    ),
    "model": (_is_text_or_none, "text or null"),
    "created": (_is_date, "a date and time with a time zone, in ISO 8601"),
    "library": (
        lambda v: isinstance(v, str) and _VERSION.fullmatch(v) is not None,
        "a version number",
    ),
}
_OF_PRIVATE_DATA = frozenset({"unit", "relation", "neighbors"})


def _misfit(position: int, reason: str) -> ReleaseError:
    return ReleaseError(
        f"Example {position} (counted from 0) {reason}. Examples are dictionaries of "
        "text, all with the same keys."
    )
