"""What came of a release: typed, and safe to show."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Status(str, Enum):
    """How an answer came about.

    A question about one person's record ends in `FALLBACK` or `ABSTAINED` by design:
    no group but one can agree with it.
    """

    RELEASED = "released"
    """Private data shaped the answer, through a charged mechanism."""

    FALLBACK = "fallback"
    """The groups did not agree; the answer is the public, zero-shot one."""

    ABSTAINED = "abstained"
    """The groups did not agree and there is no public answer: a refusal text."""

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
