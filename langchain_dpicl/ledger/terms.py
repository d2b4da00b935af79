"""Terms of accounts: what an account promises, when it pays, and what it costs.

Terms are written once and never change. Their canonical JSON is what the ledger keeps,
and what its digests cover.
"""

from __future__ import annotations

import functools
import json
import re
from datetime import date, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from langchain_dpicl.accounting import UNITS, Charge, Cost, Event, Filter
from langchain_dpicl.accounting.events import Count, Positive
from langchain_dpicl.errors import (
    InvalidParameterError,
    LedgerError,
    PlanMismatchError,
)
from langchain_dpicl.public import Public

if TYPE_CHECKING:
    from langchain_dpicl.ledger.corpus import CorpusTerms

NOTHING = Cost(0, 0)
NO_LIMIT = 2**62
"""Above every cost, sum of costs and moment that a database's integer can hold."""

DAY = 86_400_000_000
"""Microseconds: the ledger's time is a whole number of them since 1970, in UTC."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_ONE_DAY = timedelta(days=1)
_FORM = re.compile(
    r"(?P<year>2\d{3})(?:-(?P<month>\d\d)(?:-(?P<day>\d\d))?)?", re.ASCII
)
_NAME_LIMIT = 200
# NaN stays: what is drawn is stored whatever it is.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def moment(time: int) -> datetime:
    """Return a moment of the ledger's time, in UTC."""
    return _EPOCH + timedelta(microseconds=time)


def minute(time: int) -> str:
    """Return a moment of the ledger's time as messages show it."""
    return f"{moment(time):%Y-%m-%d %H:%M} UTC"


# ---- Periods -------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def span_of(period: str) -> tuple[int, int]:
    """Return the first moment of a period, and the first one after it.

    Args:
        period: A year `2026`, a month `2026-12`, a day `2026-12-24`, or two days
            `2026-12-01/2026-12-15`, both of which belong to the period.

    Example:
        >>> start, end = span_of("2026-12")
        >>> (end - start) // DAY
        31
    """
    first, slash, last = period.partition("/")
    try:
        start, after = _days(first)
        is_period = True
        if slash:
            final, after = _days(last)
            is_period = start <= final and len(first) == len(last) == len("2026-12-24")
    except ValueError:
        is_period = False
    if not is_period:
        raise InvalidParameterError(
            f"{period[:40]!r} is no period. Write a year (2026), a month (2026-12), a "
            "day (2026-12-24), or its first and last day (2026-12-01/2026-12-15)."
        )
    return tuple((day - _EPOCH.date()).days * DAY for day in (start, after))  # type: ignore[return-value]  # two of them


def next_period(period: str) -> str:
    """Return the period of the same kind that begins when this one ends.

    Two days are followed by as many days.

    Example:
        >>> [next_period(period) for period in ("2026", "2026-12", "2026-12-31")]
        ['2027', '2027-01', '2027-01-01']
        >>> next_period("2026-12-01/2026-12-15")
        '2026-12-16/2026-12-30'
    """
    start, end = span_of(period)
    after = moment(end).date()
    if "/" in period:
        return f"{after}/{moment(2 * end - start).date() - _ONE_DAY}"
    return str(after)[: len(period)]


def _days(text: str) -> tuple[date, date]:
    """Return the first day of a year, a month or a day, and the first day after it."""
    parts = _FORM.fullmatch(text)
    if parts is None:
        raise ValueError
    first = date.fromisoformat((text + "-01-01")[:10])
    if parts["day"]:
        return first, first + _ONE_DAY
    # From the first day of a month or a year, always into the next one.
    after = first + timedelta(days=31 if parts["month"] else 366)
    return first, after.replace(day=1, month=after.month if parts["month"] else 1)


# ---- Terms ---------------------------------------------------------------------------


def _printable(name: str) -> str:
    if not (name.strip() and name.isprintable()):
        raise ValueError("It must be a printable string")
    return name


def _period(period: str) -> str:
    span_of(period)
    return period


Printable = Annotated[str, AfterValidator(_printable)]
Name = Annotated[Printable, Field(max_length=_NAME_LIMIT)]
Delta = Annotated[float, Field(gt=0, lt=1)]


def canonical(value: Public) -> str:
    """Return a public value's JSON: what the ledger keeps of it."""
    return dump(value.model_dump(mode="json"))


def dump(value: Any) -> str:
    """Return canonical JSON, in ASCII: every database keeps it as it is."""
    return _ENCODER.encode(value)


def require_same(given: AccountTerms | CorpusTerms, stored: str) -> None:
    """Refuse to use an account or a corpus under other terms than it was opened with.

    The message names what differs.
    """
    before = type(given).model_validate_json(stored)
    pairs = [(name, value, getattr(before, name)) for name, value in given]
    if differing := "; ".join(
        f"{name} is {b}, not {a}" for name, a, b in pairs if a != b
    ):
        kind = "Account" if isinstance(given, AccountTerms) else "Corpus"
        raise PlanMismatchError(
            f"{kind} {given.name!r} is there with other terms: {differing}. What was "
            "promised can't be changed: use the stored terms, or another name."
        )


class AccountTerms(Public):
    """What an account promises in all: a plan of so many releases, or a filter.

    Example:
        >>> AccountTerms(name="notes", epsilon=8, delta=1e-6, queries=20).limit
        Cost(loss=20, failure=0)
    """

    name: Name
    """Name of the account, unique in its ledger."""

    epsilon: Positive
    """Total privacy loss bound."""

    delta: Delta
    """Total failure probability."""

    queries: Annotated[Count, Field(le=UNITS)] | None = None
    """Under a plan, how many releases the account pays for; None is a filter."""

    order: Annotated[float, Field(gt=1, allow_inf_nan=False)] | None = None
    """Order of the filter's Renyi divergences; None under a plan."""

    delta0_share: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Part of delta that a filter sets aside for failures; None under a plan."""

    scope: Literal["corpus", "unit"] = "corpus"
    """Whether a charge is everybody's, or that of the units that take part."""

    corpus: Name | None = None
    """The corpus whose people the account protects, and whose cap it counts for."""

    period: Annotated[str, AfterValidator(_period)] | None = None
    """When the account pays, as `span_of` reads it; None is without an end."""

    purpose: Printable | None = None
    """What the answers are for, in the operator's words."""

    @model_validator(mode="after")
    def _fits(self) -> AccountTerms:
        filters = (self.order is not None, self.delta0_share is not None)
        if filters != (self.queries is None,) * 2:
            raise ValueError(
                "An account has a plan (queries) or a filter (order and delta0_share)"
            )
        if self.period is not None and self.corpus is None:
            raise ValueError(
                "A period begins and ends by the time of a corpus: name the corpus"
            )
        return self

    @property
    def accounting(self) -> Literal["plan", "renyi"]:
        """How charges add up."""
        return "renyi" if self.queries is None else "plan"

    @property
    def span(self) -> tuple[int, int]:
        """The first moment when the account pays, and the first one after it."""
        return (0, NO_LIMIT) if self.period is None else span_of(self.period)

    @property
    def filter(self) -> Filter | None:
        """The filter that adds up what was charged; None under a plan."""
        return _filter(self) if self.queries is None else None

    @property
    def limit(self) -> Cost:
        """What may be charged in all: to the account, or to each unit."""
        return Cost(UNITS, UNITS) if self.queries is None else Cost(self.queries, 0)

    def cost(self, events: tuple[Event, ...]) -> Cost:
        """Return what a release costs: a use of the plan, or what the filter says."""
        return Cost(1, 0) if self.filter is None else self.filter.cost(events)


@functools.lru_cache(maxsize=256)
def _filter(terms: AccountTerms) -> Filter:
    if terms.order is None or terms.delta0_share is None:
        raise LedgerError(f"Account {terms.name!r} has terms that make no filter.")
    share = terms.delta0_share
    return Filter(
        epsilon=terms.epsilon, delta=terms.delta, order=terms.order, failure_share=share
    )


class Plan(Public):
    """What the releases of an account have in common, fixed at the first one.

    Example:
        >>> Plan(unit_key="patient").events
        ()
    """

    charge: Charge | None = None
    """What the releasing parser asks for; None under a filter."""

    events: Annotated[tuple[Event, ...], Field(strict=False)] = ()
    """The events of each release, with no hole left; none under a filter."""

    unit_key: str | None = None
    """The metadata key that names the protected unit."""

    @model_validator(mode="after")
    def _fits(self) -> Plan:
        parts = self.charge
        if bool(self.events) if parts is None else not parts.fits(self.events):
            raise ValueError("The events are not those of the charge")
        return self


class Head(Public):
    """A book at one moment, to be kept elsewhere; see `Ledger.verify`."""

    kind: str
    """`account`, `corpus` or `ledger`."""

    name: str
    """Name of the book."""

    entries: int
    """How many entries it had."""

    digest: str
    """Digest of the last of them, which covers all before it."""
