"""What an account's charges released, in lines: equal ones once, with their dates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from langchain_dpicl.accounting import Event, Parallel
from langchain_dpicl.budget import Stored
from langchain_dpicl.ledger import Ledger, open_ledger
from langchain_dpicl.ledger.terms import moment
from langchain_dpicl.operate.proofs import Proof, proofs_of
from langchain_dpicl.public import Public

Kind = Literal["answer", "examples", "table", "reports"]
_MOST_CLASSES = 20
_REPORTS = "ldp_table"  # The mechanism's name; its room would bring the tables.


@contextmanager
def opened(ledger: Ledger | str) -> Iterator[Ledger]:
    """Open a ledger that is there, if it is not open; close it then."""
    book = open_ledger(ledger, create=False)
    try:
        yield book
    finally:
        if book is not ledger:
            book.dispose()


class ReleaseLine(Public):
    """Charges that released the same kind of thing, and cost the same."""

    kind: Kind
    """What was released."""

    mechanism: str
    """The mechanism's public name, where the ledger has it; else empty."""

    charges: int
    """How many charges there were."""

    first: str
    """When the first was charged, in UTC."""

    last: str
    """When the last was charged."""

    events: Annotated[tuple[Event, ...], Field(repr=False)]
    """What each of them was charged."""

    @property
    def short(self) -> str:
        """The events of one charge, in a few words."""
        return short_events(as_json(self.events))

    @property
    def event_kinds(self) -> set[str]:
        """The kinds of the events of one charge."""
        return {event.kind for event in plain(self.events)}

    @property
    def proofs(self) -> list[Proof]:
        """The proofs of what can have been released."""
        return proofs_of(self.kind, self.mechanism, self.event_kinds)


def release_lines(charges: Sequence[Stored]) -> tuple[ReleaseLine, ...]:
    """Return what charges of an account released, in the order of the first ones."""
    lines: dict[tuple[Kind, str, tuple[Event, ...]], list[str]] = {}
    for charge in charges:
        key = (*_named(charge.header), charge.events)
        at = moment(charge.at).isoformat(timespec="seconds")
        lines.setdefault(key, []).append(at)
    return tuple(
        ReleaseLine(
            kind=kind,
            mechanism=mechanism,
            charges=len(dates),
            first=dates[0],
            last=dates[-1],
            events=events,
        )
        for (kind, mechanism, events), dates in lines.items()
    )


def plain(events: Sequence[Event]) -> Iterator[Event]:
    """Yield events, those of each class of a parallel event by themselves."""
    for event in events:
        if isinstance(event, Parallel):
            for branch in event.branches:
                yield from branch
        else:
            yield event


def as_json(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return events as JSON-able values, as records have them."""
    return [event.model_dump(mode="json") for event in events]


def short_events(events: Sequence[dict[str, Any]]) -> str:
    """Return stored events in a few words.

    Example:
        >>> from langchain_dpicl.accounting import Gaussian
        >>> short_events(as_json([Gaussian(noise_multiplier=4.25, sampling_rate=0.5)]))
        'gaussian noise_multiplier=4.25 sampling_rate=0.5'
    """
    return "; ".join(map(_short, events))


def _named(header: Mapping[str, Any]) -> tuple[Kind, str]:
    """Return the kind and the mechanism of a charge by its release's stored header.

    What is released once stores one. A charge without one is a question's.
    """
    record = header.get("record")
    if not isinstance(record, dict):
        return "answer", ""
    mechanism = str(record.get("mechanism") or "")
    kind = "reports" if mechanism == _REPORTS else record.get("kind")
    known: dict[Any, Kind] = {name: name for name in get_args(Kind)}
    return known.get(kind, "answer"), mechanism


def _short(event: dict[str, Any]) -> str:
    if event["kind"] == "parallel":
        return _short_parallel(event)
    usual = {"kind": event["kind"], "sampling_rate": 1, "count": 1}
    figures = {name: value for name, value in event.items() if name not in usual}
    figures |= {name: event[name] for name in usual if event[name] != usual[name]}
    words = (
        f"{name}={value if isinstance(value, int) else f'{value:.4g}'}"
        for name, value in figures.items()
    )
    return " ".join([event["kind"], *words])


def _short_parallel(event: dict[str, Any]) -> str:
    """Return the classes of a parallel event, equal ones once."""
    classes = Counter(map(short_events, event["branches"]))
    lines = [
        f"- {branch} ({number} classes)" if number > 1 else f"- {branch}"
        for branch, number in classes.items()
    ]
    uses = f" {event['count']} times" if event["count"] > 1 else ""
    rule = f" by {event['partition']!r}" if event["partition"] else ""
    head = f"{len(event['branches'])} disjoint classes{rule}{uses}; the largest counts:"
    if more := len(lines[_MOST_CLASSES:]):
        lines[_MOST_CLASSES:] = [f"- {more} more"]
    return "\n".join([head, *lines])
