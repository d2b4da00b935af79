"""What an account's charges released, in lines: equal ones once, with their dates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_dpicl.accounting import Event, Parallel
from langchain_dpicl.budget import Stored
from langchain_dpicl.ledger.terms import moment
from langchain_dpicl.report.proven import PROOFS, Proof, proofs_of

_MOST_CLASSES = 20
REPORTS = "ldp_table"
"""The mechanism's name; its room brings the tables, which a report needs not."""

WHAT = {
    "answer": "a question: an answer, or that nothing clear came out",
    "examples": "synthetic examples, written once",
    "table": "noisy statistics of a table, released once",
    "reports": "randomized reports of rows, collected once",
}


@dataclass(frozen=True)
class ReleaseLine:
    """Charges that released the same kind of thing, and cost the same.

    Attributes:
        kind: `answer`, `examples`, `table` or `reports`.
        mechanism: The mechanism's public name, where the ledger has it; else empty.
        count: How many charges there were.
        first: When the first was charged, in UTC.
        last: When the last was charged.
        events: What each of them was charged.
    """

    kind: str
    mechanism: str
    count: int
    first: str
    last: str
    events: tuple[Event, ...] = field(repr=False)

    @property
    def what(self) -> str:
        """What was released, in words."""
        return WHAT[self.kind]

    @property
    def short(self) -> str:
        """The events of one charge, in a few words."""
        return short_events(as_json(self.events))

    @property
    def proofs(self) -> list[Proof]:
        """The proofs of what can have been released."""
        kinds = {event.kind for event in plain(self.events)}
        return proofs_of(self.kind, self.mechanism, kinds)

    def to_dict(self) -> dict[str, Any]:
        """Return the line as JSON-able values."""
        return {
            "kind": self.kind,
            "mechanism": self.mechanism or None,
            "charges": self.count,
            "first": self.first,
            "last": self.last,
            "events": as_json(self.events),
        }


def release_lines(charges: Sequence[Stored]) -> tuple[ReleaseLine, ...]:
    """Return what charges of an account released, in the order of the first ones."""
    lines: dict[tuple[str, str, tuple[Event, ...]], list[str]] = {}
    for charge in charges:
        key = (*_named(charge.header), charge.events)
        at = moment(charge.at).isoformat(timespec="seconds")
        lines.setdefault(key, []).append(at)
    return tuple(
        ReleaseLine(kind, mechanism, len(dates), dates[0], dates[-1], events)
        for (kind, mechanism, events), dates in lines.items()
    )


def proofs(lines: Sequence[ReleaseLine]) -> list[Proof]:
    """Return the proofs of all lines, each once, in the table's order."""
    needed = {proof for line in lines for proof in line.proofs}
    return [proof for proof in PROOFS if proof in needed]


def plain(events: Sequence[Event]) -> Iterator[Event]:
    """Yield events, those of each class of a parallel event by themselves."""
    for event in events:
        if isinstance(event, Parallel):
            for branch in event.branches:
                yield from branch
        else:
            yield event


def _named(header: Mapping[str, Any]) -> tuple[str, str]:
    """Return the kind and the mechanism of a charge by its release's stored header.

    Whatever is released once stores one. A charge without one is a question's.
    """
    record = header.get("record")
    if not isinstance(record, dict):
        return "answer", ""
    mechanism = str(record.get("mechanism") or "")
    kind = "reports" if mechanism == REPORTS else record.get("kind")
    return (str(kind) if kind in WHAT else "answer"), mechanism


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


def _short(event: dict[str, Any]) -> str:
    if event["kind"] == "parallel":
        return _short_parallel(event)
    usual = {"kind": event["kind"], "sampling_rate": 1, "count": 1}
    figures = {name: value for name, value in event.items() if name not in usual}
    figures |= {name: event[name] for name in usual if event[name] != usual[name]}
    words = (f"{name}={_figure(value)}" for name, value in figures.items())
    return " ".join([event["kind"], *words])


def _short_parallel(event: dict[str, Any]) -> str:
    """Return the classes of a parallel event, equal ones once."""
    classes = Counter(map(short_events, event["branches"]))
    lines = [
        f"{branch} ({number} classes)" if number > 1 else branch
        for branch, number in classes.items()
    ]
    uses = f" {event['count']} times" if event["count"] > 1 else ""
    rule = f" by {event['partition']!r}" if event["partition"] else ""
    head = f"{len(event['branches'])} disjoint classes{rule}{uses}; the largest counts:"
    shown = [f"- {line}" for line in lines[:_MOST_CLASSES]]
    more = len(lines) - _MOST_CLASSES
    return "\n".join([head, *shown, *([f"- {more} more"] if more > 0 else [])])


def _figure(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4g}"
