"""From reports that clients sent to counts: post-processing, nothing is charged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import islice
from typing import Any, Literal

import numpy as np

from langchain_dpicl.accounting import Pure
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import SecureRandom
from langchain_dpicl.released.checking import checked_record
from langchain_dpicl.tabular.ldp.collecting import counts_for
from langchain_dpicl.tabular.ldp.counts import ReportCounts
from langchain_dpicl.tabular.ldp.reporting import Reporter
from langchain_dpicl.tabular.ldp.result import Collected, Spending, record_of
from langchain_dpicl.tabular.ldp.terms import SECURE, LDPTerms
from langchain_dpicl.tabular.rows import ArrowRows, SQLRows, read_chunks
from langchain_dpicl.tabular.rows.frames import frame_library, is_lazy_frame
from langchain_dpicl.tabular.schema.cells import listed

Invalid = Literal["refuse", "drop"]

MAX_EPSILON = 1e300
"""Largest epsilon that a record can hold."""


def count_reports(
    reports: Iterable[Any],
    terms: LDPTerms,
    random: SecureRandom | None,
    *,
    invalid: Invalid,
    reports_per_unit: int,
    chunk_size: int,
    said: Mapping[str, Any] | None = None,
) -> Collected:
    """Count reports that clients made; post-processing, nothing is charged.

    Args:
        reports: What `LDPClient.report` returned, many of them.
        terms: The public terms of the clients: epsilon is what one report cost.
        random: Where rows are drawn with, later.
        invalid: What to do with a report that can't be read.
        reports_per_unit: Most reports of one person.
        chunk_size: How many reports are counted at once.
        said: The clients' own terms, which tell whether their noise was for tests.

    Raises:
        InvalidParameterError: If there are none, or one can't be read.

    Privacy:
        What goes in is what clients sent: each is epsilon-locally private for the one
        who sent it, and for somebody who sent m of them m epsilon. That m is at most
        `reports_per_unit` is the collector's word.
    """
    epsilon = parameters.epsilon(terms.epsilon)
    payment = _paid_by_clients(epsilon, reports_per_unit, said)
    # Before reports are read, which may come only once.
    checked_record(record_of(terms, payment, {}, random))
    counts, dropped = _counts_of(reports, terms, invalid, chunk_size)
    if not counts.n:
        raise InvalidParameterError(
            f"There are no reports that can be read ({dropped} were dropped)."
        )
    return Collected.of(terms, counts, payment, random, dropped)


def _counts_of(
    reports: Iterable[Any], terms: LDPTerms, invalid: Invalid, chunk_size: int
) -> tuple[ReportCounts, int]:
    """Return the reports' counts, and how many could not be read.

    Raises:
        InvalidParameterError: If one can't be read and is not to be dropped.
    """
    if invalid not in ("refuse", "drop"):
        raise InvalidParameterError("invalid must be 'refuse' or 'drop'.")
    epsilons = terms.row_epsilons(parameters.epsilon(terms.epsilon))
    # Nothing is randomized here.
    reporter = Reporter(terms.schema, epsilons, SecureRandom())
    counts = counts_for(terms)
    dropped = 0
    for block in _read(_mappings(reports, terms), reporter, chunk_size):
        kept = []
        for place, codes in block:
            if not isinstance(codes, str):
                kept.append(codes)
            elif invalid == "drop":
                dropped += 1
            else:
                raise InvalidParameterError(
                    f"Report {place} (counted from 0) can't be read: {codes}. Give "
                    "invalid='drop' to count the others, if clients of other schemas "
                    "or strangers may send reports."
                )
        if kept:
            counts.add(np.array(kept, dtype=np.int64))
    return counts, dropped


def _paid_by_clients(
    epsilon: float, reports_per_unit: int, said: Mapping[str, Any] | None
) -> Spending:
    """Return what clients have spent: on so many reports of one person each."""
    event = Pure(epsilon=epsilon, count=reports_per_unit)
    total = float(min(Fraction(epsilon) * reports_per_unit, Fraction(MAX_EPSILON)))
    if total >= MAX_EPSILON:
        raise InvalidParameterError(
            f"epsilon, reports_per_unit times, must be below {MAX_EPSILON:g}: beyond "
            "that no record of it can be written."
        )
    if Fraction(total) < Fraction(epsilon) * reports_per_unit:
        total = math.nextafter(total, math.inf)  # A claim is rounded up.
    return Spending(
        (event,),
        total,
        charge=None,
        account=None,
        by="clients",
        unit="one report"
        if reports_per_unit == 1
        else f"one person's reports, of which there are at most {reports_per_unit}",
        neighbors="the row behind every report of one unit replaced by any other; who "
        "reports, and how often, is public",
        random=None
        if said is None or said.get("random") == SECURE
        else "the clients' noise was for tests, not private",
    )


def _read(
    reports: Iterable[Any], reporter: Reporter, chunk_size: int
) -> Iterator[list[tuple[int, list[int] | str]]]:
    """Yield blocks of codes, or of what is wrong, with the reports' places."""
    numbered = enumerate(reports)
    while block := list(islice(numbered, chunk_size)):
        yield [(place, _codes_of(report, reporter)) for place, report in block]


def _mappings(reports: Any, terms: LDPTerms) -> Iterable[Any]:
    """Return reports one by one, also out of a frame or a database."""
    is_table = frame_library(reports) is not None or is_lazy_frame(reports)
    if not is_table and not isinstance(reports, (SQLRows, ArrowRows)):
        if isinstance(reports, str | bytes | Mapping) or not isinstance(
            reports, Iterable
        ):
            raise InvalidParameterError(
                "reports must be an iterable of what LDPClient.report returned, a "
                f"frame, SQLRows or ArrowRows, not {type(reports).__name__}."
            )
        return reports
    names = terms.schema.names
    return (
        dict(zip(names, values, strict=True))
        for chunk in read_chunks(reports, names)
        for values in zip(*(listed(chunk.columns[name]) for name in names), strict=True)
    )


def _codes_of(report: Any, reporter: Reporter) -> list[int] | str:
    try:
        return reporter.read(report)
    except InvalidParameterError as error:
        return str(error)
