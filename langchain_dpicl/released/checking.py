"""Whether examples and record are what a release can be: shape, claims, digest.

Records are checked where they are made and where they are read. All checks fail closed:
what is not understood is refused. Messages name fields, and repeat nothing that stands
in an example.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from langchain_dpicl.accounting import (
    Event,
    Exponential,
    Parallel,
    Pure,
    compose,
    read_events,
    sampled_epsilon,
)
from langchain_dpicl.common import file_format
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.release.record import ReleaseRecord

MAX_EVENTS = 20_000
"""Events of one record, two for each of many labels; more are only there to be slow."""

TOLERANCE = 1e-6
"""Relative rounding that a stated epsilon may lie below the recomputed one.

Bounds are computed numerically, and another version or processor may round otherwise.
"""


def checked_examples(examples: Iterable[Any]) -> list[dict[str, str]]:
    """Return examples as plain dictionaries of text that all have the same keys.

    Half characters that no encoding can write (lone surrogates) become U+FFFD: a model
    may spell them, and text that was paid for is not lost over them.

    Raises:
        InvalidParameterError: If one of them is of another shape.

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
        InvalidParameterError: If a field is missing or of another form, an event can't
            be read, the events cost more than the stated epsilon at delta, or a public
            record (status `public`) claims to have cost anything.
    """
    plain = _as_json(record)
    if not isinstance(plain, dict):
        raise InvalidParameterError("A release's record is a dictionary.")
    if plain.get("status") not in ("released", "public"):
        raise unfit("status", "is neither 'released' nor 'public'")
    name, reason = _misfit_of(plain)
    if name:
        raise unfit(name, reason)
    if plain["charge"] is not None and plain["account"] is None:
        raise unfit("account", "is missing beside a charge")
    events = events_of(plain)
    if plain["status"] == "public":
        _require_free(plain)
    elif not events:
        raise unfit("events", "is empty: what came from private data has a cost")
    else:
        _require_paid_in_full(plain, events)
    return plain


def events_of(record: Mapping[str, Any]) -> tuple[Event, ...]:
    """Return a record's events.

    Raises:
        InvalidParameterError: If one of them can't be read.
    """
    try:
        events = read_events(record["events"])
    except (InvalidParameterError, RecursionError) as error:
        raise unfit("events", f"can't be read ({error!s:.200})") from None
    if sum(map(_size, events)) > MAX_EVENTS:
        raise unfit("events", f"holds more than {MAX_EVENTS} of them")
    return events


def _size(event: Event) -> int:
    if isinstance(event, Parallel):
        return sum(map(len, event.branches))
    return 1


def digest_of(examples: Iterable[Mapping[str, str]], record: Mapping[str, Any]) -> str:
    """Return the digest that a file of examples and record has."""
    return file_format.digest(
        {"examples": [dict(example) for example in examples], "record": record}
    )


def unfit(name: str, reason: str) -> InvalidParameterError:
    """Return the error that says which field of a record does not hold."""
    return InvalidParameterError(
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


def _require_paid_in_full(record: Mapping[str, Any], events: tuple[Event, ...]) -> None:
    delta, stated = record["delta"], record["epsilon"]
    try:
        cost = compose(events, delta) if delta else pure_epsilon(events)
    except (InvalidParameterError, ArithmeticError) as error:
        raise unfit("events", f"can't be accounted for ({error!s:.200})") from None
    # Written so that NaN fails as well.
    if not cost <= stated * (1 + TOLERANCE):
        raise unfit(
            "epsilon", f"is {stated:.6g} at delta {delta:g}; its events cost {cost:.6g}"
        )


def pure_epsilon(events: Iterable[Event]) -> float:
    """Return the events' epsilon at delta 0: infinite unless all of them are pure.

    Example:
        >>> half = Pure(epsilon=0.5)
        >>> pure_epsilon([Parallel(branches=((half,), (half, half)), count=3)])
        3.0
    """
    total = 0.0
    for event in events:
        if isinstance(event, Parallel):
            total += event.count * max(map(pure_epsilon, event.branches))
        elif isinstance(event, Pure | Exponential):
            each = sampled_epsilon(event.epsilon or math.inf, event.sampling_rate)
            total += event.count * each
        else:
            return math.inf
    return total


def _as_json(record: Any) -> Any:
    try:
        return _well_formed_all(json.loads(json.dumps(record, allow_nan=False)))
    except (TypeError, ValueError, RecursionError):
        raise InvalidParameterError(
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


def _misfit_of(record: dict[str, Any]) -> tuple[str, str]:
    """Return the first field that is not as it should be, and why; or empty text."""
    try:
        ReleaseRecord.model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        missing = first["type"] == "missing" and len(first["loc"]) == 1
        name = str(first["loc"][0]) if first["loc"] else "record"
        reason = first["msg"][:1].lower() + first["msg"][1:]
        return name, "is missing" if missing else f"does not hold: {reason}"
    status = record["status"]
    for name in sorted({"epsilon", "delta"} | _OF_PRIVATE_DATA):
        optional = status == "public" and name in _OF_PRIVATE_DATA
        if record[name] is None and not optional:
            return name, "is null"
    return "", ""


_OF_PRIVATE_DATA = frozenset({"unit", "relation", "neighbors"})


def _misfit(position: int, reason: str) -> InvalidParameterError:
    return InvalidParameterError(
        f"Example {position} (counted from 0) {reason}. Examples are dictionaries of "
        "text, all with the same keys."
    )
