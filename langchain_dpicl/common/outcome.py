"""What came of a release: typed, and safe to show."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from langchain_dpicl.common.prompts import ABSTAIN_TEXT
from langchain_dpicl.errors import LedgerError

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
