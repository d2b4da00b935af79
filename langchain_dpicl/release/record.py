"""What came of a release: its outcome, and its public record.

The record is the same for answers, examples and tables.

One versioned form. `record.schema.json` beside this file is its JSON Schema, for
programs in other languages; `ReleaseRecord` checks the same here.

Privacy:
    A record holds public parameters, what was charged, and what was released. Making,
    keeping and showing it is post-processing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from langchain_dpicl._version import __version__
from langchain_dpicl.accounting import Event, compose
from langchain_dpicl.accounting.events import HOLES
from langchain_dpicl.common.prompts import ABSTAIN_TEXT
from langchain_dpicl.errors import LedgerError
from langchain_dpicl.mechanisms.random import current

if TYPE_CHECKING:
    from langchain_dpicl.budget import PrivacyBudgetHandler, Stored

VERSION = 1
LARGEST = 1e300

NEIGHBORS = "all records of one unit added or removed"

NO_LEAD = "no answer leads clearly"
"""The reason where noise, or a close race, hides which answer is the first."""

NO_OPTION = "the model listed no option"
"""The reason where there is nothing to choose from."""

CALLS_FAILED = "too many calls to the model failed"
"""The reason where failed calls clearly lead every answer."""

UNREADABLE = "too many replies could not be read"
"""The reason where unreadable replies clearly lead every answer."""


class Status(str, Enum):
    """How an answer came about.

    A question about one person's record ends in `FALLBACK` or `ABSTAINED` by design:
    no group but one can agree with it.
    """

    RELEASED = "released"
    """Private data shaped the answer, through a charged mechanism."""

    FALLBACK = "fallback"
    """Nothing was released; the answer is the public, zero-shot one."""

    ABSTAINED = "abstained"
    """Nothing was released: the answer is a refusal, which says why."""

    CACHED = "cached"
    """An answer released before, given again at no charge."""


@dataclass(frozen=True)
class Outcome:
    """The output of a mechanism, before it is put into words.

    Everything in it is differentially private output or public.

    Attributes:
        status: `RELEASED`, or `FALLBACK` when the mechanism's test failed.
        text: The released answer, where the mechanism releases one.
        keywords: The released words, where it releases words.
        ranking: Public candidates, best first, where it orders them; `text` is the
            first.
        details: Further public values for the record.
    """

    status: Status
    text: str | None = None
    keywords: tuple[str, ...] = ()
    ranking: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)

    def refusal(self, own: str | None = None) -> str:
        """Return one sentence that says why there is no answer.

        Args:
            own: A user's own text, which is said instead.

        Example:
            >>> Outcome(Status.FALLBACK, details={"reason": NO_OPTION}).refusal()
            'No answer: the model listed no option.'
        """
        if own is not None:
            return own
        reason = self.details.get("reason", "nothing was released")
        return ABSTAIN_TEXT if reason == NO_LEAD else f"No answer: {reason}."

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON-able values, as it is stored."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Any) -> Outcome:
        """Return the outcome that is stored.

        Raises:
            LedgerError: If what is stored makes no sense.
        """
        try:
            return cls(
                Status(stored["status"]),
                stored["text"],
                tuple(stored["keywords"]),
                tuple(stored["ranking"]),
                dict(stored["details"]),
            )
        except (KeyError, TypeError, ValueError):
            pass
        raise LedgerError("A stored answer makes no sense: another version made it.")


def now() -> str:
    """Return the time as records have it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _is_date(text: str) -> str:
    datetime.fromisoformat(text)
    return text


Text = Annotated[str, Field(min_length=1, pattern=r"\S")]
Amount = Annotated[float, Field(ge=0, le=LARGEST)]
Date = Annotated[
    str,
    # Python 3.10 reads no other dates, and later versions read many.
    Field(
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
        r"(\.[0-9]{6})?[+-][0-9]{2}:[0-9]{2}$"
    ),
    AfterValidator(_is_date),
]
Release = Annotated[
    str,
    Field(
        pattern=r"^[0-9]{1,9}(\.[0-9]{1,9}){0,4}"
        r"([.+-]?[A-Za-z][A-Za-z0-9.+-]{0,40})?$"
    ),
]


class RecordAccount(BaseModel):
    """The account that paid, after the charge."""

    model_config = ConfigDict(extra="allow", strict=True)

    name: Text


class ReleaseRecord(BaseModel):
    """What may be known about a release. Further fields may stand beside these."""

    model_config = ConfigDict(
        extra="allow",
        strict=True,
        json_schema_extra={"$schema": "https://json-schema.org/draft/2020-12/schema"},
    )

    version: Literal[1] = 1
    """The form of the record."""

    kind: Literal["answer", "examples", "table"] = "examples"
    """What was released."""

    status: Literal["released", "fallback", "abstained", "cached", "public"]
    """How it came about; `public`: no private record had a part in it."""

    mechanism: Text
    """The mechanism's public name."""

    parameters: dict[str, Any]
    """Its public parameters, the noise among them."""

    unit: Text | None
    """What is protected."""

    unit_key: Text | None
    """The field that names a record's unit; None: each record is one."""

    relation: Literal["add_remove", "replace"] | None
    """How what the mechanism reads differs between neighbors."""

    neighbors: Text | None
    """How the private records of neighbors differ."""

    events: list[dict[str, Any]]
    """What was charged, as `accounting.read_events` reads it."""

    epsilon: Amount | None
    """What the events cost at `delta`; None: see the account."""

    delta: Annotated[float, Field(ge=0, lt=1)] | None
    """The delta of `epsilon`."""

    charge: Annotated[int, Field(gt=0)] | None
    """The number of the charge in the account's journal."""

    account: RecordAccount | None
    """The account that paid, after it."""

    model: Text | None
    """The language model's name."""

    created: Date
    """When the release was charged."""

    library: Release
    """The version of the library."""

    calls: Annotated[int, Field(ge=0)] | None = None
    """How many calls of the model an answer took, by public numbers: one for each
    padded slot that was asked, and the public ones. Absent where calls are not
    padded."""


def release_record(  # noqa: D417, PLR0913  # the fields of a record
    *,
    kind: Literal["answer", "examples", "table"],
    status: str,
    mechanism: str,
    parameters: Mapping[str, Any],
    unit: str | None,
    unit_key: str | None,
    relation: str | None,
    neighbors: str | None,
    events: Sequence[Event | Mapping[str, Any]] = (),
    epsilon: float | None = None,
    delta: float | None = None,
    model: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return a record as JSON-able values; see `ReleaseRecord` for the fields.

    It says where the context's noise is for tests.

    Args:
        **more: What only this kind of release has, and other values of fields.
    """
    record: dict[str, Any] = {
        "version": VERSION,
        "kind": kind,
        "status": status,
        "mechanism": mechanism,
        "parameters": dict(parameters),
        "unit": unit,
        "unit_key": unit_key,
        "relation": relation,
        "neighbors": neighbors,
        "events": [
            dict(event) if isinstance(event, Mapping) else event.model_dump(mode="json")
            for event in events
        ],
        "epsilon": epsilon,
        "delta": delta,
        "charge": None,
        "account": None,
        "model": model,
        "created": now(),
        "library": __version__,
        **more,
    }
    if (source := current()).is_seeded:
        record["random"] = f"{source!r}: for tests, not private"
    return record


def noise_of(events: Iterable[Event]) -> dict[str, float]:
    """Return the parameters of the mechanism that was paid for, by their names."""
    return {HOLES[e.kind]: getattr(e, HOLES[e.kind]) for e in events if e.kind in HOLES}


def paid_part(budget: PrivacyBudgetHandler, stored: Stored) -> dict[str, Any]:
    """Return what a charge adds to the record of its release."""
    return {
        "events": [event.model_dump(mode="json") for event in stored.events],
        "charge": stored.charge,
        "account": budget.public_state(stored),
    }


def charged_record(
    record: Mapping[str, Any], stored: Stored, delta: float
) -> dict[str, Any]:
    """Return the record of a release with its noise, and what was charged for it."""
    return {
        **record,
        "parameters": {**record["parameters"], **noise_of(stored.events)},
        "events": [event.model_dump(mode="json") for event in stored.events],
        "epsilon": compose(stored.events, delta),
        "delta": delta,
        "charge": stored.charge,
    }


def damaged() -> LedgerError:
    """Return the error for what no release of these terms has stored."""
    return LedgerError(
        "What the ledger stored of this release makes no sense: it was made by another "
        "version, or somebody has edited it. Nothing is released on it."
    )


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a record, which `record.schema.json` holds."""
    return ReleaseRecord.model_json_schema()
