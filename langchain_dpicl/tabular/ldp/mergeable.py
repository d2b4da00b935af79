"""Counts of parts of randomized reports, made by many workers; all of it is public."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import Self

from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.ldp.client_reports import Invalid, counts_of_reports
from langchain_dpicl.tabular.ldp.counts import ReportCounts
from langchain_dpicl.tabular.ldp.terms import LDPTerms
from langchain_dpicl.tabular.rows import CHUNK_SIZE
from langchain_dpicl.tabular.schema.table import TableSchema
from langchain_dpicl.tabular.split import Split

_FORMAT = "dpicl-report-tally-1"
_NO_TALLY = "These bytes are no dpicl-report-tally of this version, or not all of one."


@dataclass(frozen=True)
class ReportTally:
    """Counts of some clients' reports. Public, like the reports.

    Attributes:
        about: The clients' terms.
        counts: How often which values were reported.
        dropped: How many reports could not be read.
        parts: What tells the parts apart that it is the sum of.
    """

    about: Mapping[str, Any]
    counts: ReportCounts
    dropped: int
    parts: tuple[str, ...]

    def require(self, terms: LDPTerms) -> None:
        """Refuse reports of other terms.

        Raises:
            InvalidParameterError: If they are.
        """
        if dict(self.about) != about_reports(terms):
            raise InvalidParameterError(
                "The tallies are of reports of another schema, epsilon or split: give "
                "the clients' own."
            )

    @classmethod
    def merged(cls, tallies: Sequence[ReportTally]) -> ReportTally:
        """Return the sum of tallies of disjoint parts; see `merge`."""
        first = tallies[0]
        if any(one.about != first.about for one in tallies):
            raise InvalidParameterError(
                "The tallies are of reports of different schemas, epsilons or splits."
            )
        parts = [part for one in tallies for part in one.parts]
        if len(set(parts)) < len(parts):
            raise InvalidParameterError(
                "A tally is there twice: each part of the reports counts once."
            )
        counts = ReportCounts(first.counts.domain_sizes, first.counts.label)
        for one in tallies:
            counts.merge(one.counts)
        dropped = sum(one.dropped for one in tallies)
        return cls(first.about, counts, dropped, tuple(sorted(parts)))

    def to_bytes(self) -> bytes:
        """Return the tally for sending."""
        content = {
            "format": _FORMAT,
            "about": dict(self.about),
            "counts": self.counts.to_dict(),
            "dropped": self.dropped,
            "parts": list(self.parts),
        }
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the tally that `to_bytes` gave.

        Raises:
            InvalidParameterError: If these bytes hold none.
        """
        found = None
        try:
            content = json.loads(data)
            if content["format"] == _FORMAT:
                counts = ReportCounts.from_dict(content["counts"])
                parts = tuple(content["parts"])
                found = cls(content["about"], counts, content["dropped"], parts)
        except (InvalidParameterError, KeyError, RecursionError, TypeError, ValueError):
            found = None
        if found is None:
            raise InvalidParameterError(_NO_TALLY)
        return found


def tally_reports(
    reports: Iterable[Mapping[str, str]],
    schema: TableSchema,
    *,
    epsilon: float,
    split: Split = "even",
    invalid: Invalid = "refuse",
    chunk_size: int = CHUNK_SIZE,
) -> ReportTally:
    """Count a part of what clients reported, for `merge` and `LDPTable.from_tallies`.

    Args:
        reports: What `LDPClient.report` returned; there may be none.
        schema: The clients' schema.
        epsilon: The clients' epsilon.
        split: The clients' split.
        invalid: As for `LDPTable.from_reports`.
        chunk_size: How many reports are counted at once.

    Raises:
        InvalidParameterError: If an argument is out of its range, or a report can't be
            read; the column is named.

    Privacy:
        Post-processing of reports that are private already: no further cost, however
        often they are counted. Each report must be in one part, or it counts twice.
    """
    terms = LDPTerms(schema, parameters.epsilon(epsilon), split)
    terms.check()
    size = parameters.count(chunk_size, "chunk_size")
    counts, dropped = counts_of_reports(reports, terms, invalid, size)
    return ReportTally(about_reports(terms), counts, dropped, (secrets.token_hex(16),))


def about_reports(terms: LDPTerms) -> dict[str, Any]:
    """Return the terms that reports must share to be counted together, as of JSON."""
    own = terms.described()
    said = {name: own[name] for name in ("schema", "epsilon", "split")}
    found: dict[str, Any] = json.loads(json.dumps(said))
    return found
