"""What was collected, and its public record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from langchain_dpicl.accounting import Event, Pure
from langchain_dpicl.common.outcome import Status
from langchain_dpicl.mechanisms.random import SecureRandom
from langchain_dpicl.release.record import release_record
from langchain_dpicl.tabular.distribution import Distribution
from langchain_dpicl.tabular.ldp.counts import ReportCounts
from langchain_dpicl.tabular.ldp.fitting import fit, share_errors
from langchain_dpicl.tabular.ldp.reconstruction import reconstruct
from langchain_dpicl.tabular.ldp.reporting import report_texts
from langchain_dpicl.tabular.ldp.terms import MECHANISM, RELATION, LDPTerms

Errors = dict[str, dict[str, tuple[float, float]]]

_SHOWN = 5
"""Shares of each column in a summary."""

_REACH = 1.96
"""Standard errors within which 95 % of estimates are."""


@dataclass(frozen=True)
class Spending:
    """What reports cost, and who paid.

    Attributes:
        events: What was charged, or what each person's client spent.
        epsilon: What all reports about one unit cost.
        charge: The charge's number; None where clients randomized.
        account: The account after it; None where clients randomized.
        by: Who randomized.
        unit: What is protected, if it isn't the terms' unit.
        neighbors: What it may change, if it isn't the terms' neighbors.
        random: What is wrong with the randomness of somebody else's noise.
    """

    events: tuple[Event, ...]
    epsilon: float
    charge: int | None
    account: dict[str, Any] | None
    by: str = "curator"
    unit: str | None = None
    neighbors: str | None = None
    random: str | None = None


@dataclass(frozen=True)
class Collected:
    """Reports, counted, and the distribution they were made into: all public.

    Attributes:
        terms: The public terms, with the epsilon that was paid.
        epsilons: Each column's epsilon for one row.
        counts: How often which values were reported.
        distribution: The rows' distribution as reconstructed.
        record: The public record.
    """

    terms: LDPTerms
    epsilons: dict[str, float]
    counts: ReportCounts
    distribution: Distribution
    record: dict[str, Any]

    @classmethod
    def of(
        cls,
        terms: LDPTerms,
        counts: ReportCounts,
        payment: Spending,
        random: SecureRandom | None,
        dropped: int = 0,
    ) -> Collected:
        """Return what counted reports say; post-processing, at no cost.

        Args:
            terms: The public terms, with the epsilon that was paid.
            counts: The reports, counted.
            payment: What they cost.
            random: Where their noise came from.
            dropped: Reports that could not be read.
        """
        epsilons = terms.described()["epsilons"]
        distribution = reconstructed(terms, epsilons, counts)
        errors = share_errors(counts, list(epsilons.values()))
        found = {
            "model": distribution.kind,
            "n_reports": counts.n,
            "n_dropped": dropped,
            "standard_errors": {
                name: float(np.max(own))
                for name, own in zip(terms.schema.names, errors, strict=True)
            },
        }
        record = record_of(terms, payment, found, random)
        return cls(terms, epsilons, counts, distribution, record)

    def standard_errors(self) -> Errors:
        """Return each column's estimated shares with their standard errors.

        The shares are those of the column's own reports, reconstructed and no more:
        right on average, and perhaps below 0. The distribution's are not: nothing in it
        is below 0, which moves every share.
        """
        found: Errors = {}
        epsilons = list(self.epsilons.values())
        errors = share_errors(self.counts, epsilons)
        for place, reports in enumerate(self.counts.singles):
            shares = reconstruct(reports / self.counts.n, [epsilons[place]])
            column = self.terms.schema.columns[place]
            texts = report_texts(column, len(shares))
            pairs = zip(shares.tolist(), errors[place].tolist(), strict=True)
            found[column.name] = dict(zip(texts, pairs, strict=True))
        return found

    def summary(self) -> str:
        """Return the largest shares of each column, with their margins, in words."""
        dropped = self.record["parameters"].get("n_dropped")
        more = f", {dropped} dropped" if type(dropped) is int and dropped else ""
        lines = [
            f"{self.counts.n} report(s) at epsilon {self.record['epsilon']:g}{more}:"
        ]
        for name, shares in self.standard_errors().items():
            largest = sorted(shares.items(), key=lambda one: -one[1][0])[:_SHOWN]
            said = ", ".join(
                f"{value} {share:.1%} +- {_REACH * error:.1%}"
                for value, (share, error) in largest
            )
            lines.append(f"  {name}: {said}{', ...' * (len(shares) > _SHOWN)}")
        lines.append("Each +- holds in 95 % of collections, taken by itself.")
        return "\n".join(lines)


def reconstructed(
    terms: LDPTerms, epsilons: Mapping[str, float], counts: ReportCounts
) -> Distribution:
    """Return the distribution behind counted reports.

    Raises:
        InvalidParameterError: If epsilon is so small that nothing finite comes out.
    """
    return fit(counts, list(epsilons.values()), model=terms.model)


def record_of(
    terms: LDPTerms,
    payment: Spending,
    found: Mapping[str, Any],
    random: SecureRandom | None,
) -> dict[str, Any]:
    """Return the public record of a collection.

    Args:
        terms: The public terms, with the epsilon that was paid.
        payment: What it cost.
        found: What is known about the estimate: sizes and errors, all of reports.
        random: Where the noise came from.
    """
    record = release_record(
        kind="table",
        status=Status.RELEASED.value,
        mechanism=MECHANISM,
        parameters={
            **terms.described(),
            "randomized_by": payment.by,
            **found,
            "text_key": "text",
            "label_key": "label",
        },
        unit=payment.unit or terms.unit,
        unit_key=terms.unit_key,
        relation=RELATION,
        neighbors=payment.neighbors or terms.neighbors,
        events=payment.events,
        epsilon=payment.epsilon,
        delta=0.0,
        charge=payment.charge,
        account=payment.account,
        random=random,
    )
    if payment.random is not None:
        record["random"] = payment.random
    return record


def trial_record(terms: LDPTerms, random: SecureRandom | None) -> dict[str, Any]:
    """Return a record such as a collection would have, before anything is charged."""
    epsilon = 1.0 if terms.epsilon is None else terms.epsilon
    payment = Spending((Pure(epsilon=epsilon),), epsilon, None, None)
    return record_of(replace(terms, epsilon=epsilon), payment, {}, random)
