"""Every release held against its claim: worst-case neighbors, exactly or by draws."""

from __future__ import annotations

from collections.abc import Iterator

from langchain_dpicl.accounting import compose
from langchain_dpicl.audit.bounds import exact_epsilon, sampled_epsilon
from langchain_dpicl.audit.releases import RELEASES, Claim, Exact, Sampled
from langchain_dpicl.audit.report import AuditReport
from langchain_dpicl.common import parameters
from langchain_dpicl.common.progress import progress_bar

DRAWS = 8_000
"""Draws of a release in each of two worlds, where its law is not computed."""

THOROUGH = 10
"""By what a thorough audit multiplies them."""

_SLACK = 1e-9
_COLUMNS = ("release", "function", "delta", "claimed", "measured", "how")
_NOTES = (
    (
        "Measured is the epsilon that two neighbors show at the delta: exact where the "
        "law is finite or one word of randomness decides, else a lower bound by "
        "Clopper and Pearson, with the confidence divided among all events."
    ),
    (
        "A release that is sound stays below what is claimed. One that is far below is "
        "not safer: its event may tell more than the one that was looked at."
    ),
    "These are the mechanisms alone, and not who reaches them; `snapshot` audits that.",
)


def mechanisms(
    *, confidence: float = 0.99, thorough: bool = False, progress: bool = True
) -> AuditReport:
    """Run every release on its worst-case neighbors, and compare with what it claims.

    Args:
        confidence: That of all lower bounds together.
        thorough: Whether to draw ten times as often.
        progress: Whether to draw a progress bar on standard error.

    Returns:
        The report: one row for each release, in the order of ARCHITECTURE.md. It is not
        sound where a release shows more than its template is charged.

    Raises:
        InvalidParameterError: If the confidence is out of its range.

    Privacy:
        No record takes part.

    Example:
        `mechanisms().is_sound` is True; it takes half a minute.
    """
    level = parameters.delta(confidence, "confidence")
    draws = DRAWS * (THOROUGH if thorough else 1)
    rows, broken = [], []
    with progress_bar("Auditing", len(RELEASES), shown=progress) as advance:
        claims = [make() for make in RELEASES.values()]
        number = sum(1 for claim in claims for _ in _events(claim))
        # Two one-sided limits for each event.
        each = 1 - (1 - level) / max(number, 1)
        for (maker, function, _), claim in zip(RELEASES, claims, strict=True):
            claimed = compose(claim.events, claim.delta)
            found = measured(claim, draws, each)
            how = "drawn" if any(_events(claim)) else "exact"
            rows.append((maker, function, claim.delta, claimed, found, how))
            if found > claimed * (1 + _SLACK):
                broken.append(f"{maker}'s {function}")
            advance(1)
    summary = f"All {len(rows)} releases keep their claims."
    if broken:
        summary = f"More than is claimed: {', '.join(broken)}."
    return AuditReport(
        kind="mechanisms",
        title="Every release on its worst-case neighbors",
        summary=summary,
        is_sound=not broken,
        columns=_COLUMNS,
        rows=tuple(rows),
        notes=_NOTES,
        parameters={"confidence": level, "draws": draws},
    )


def measured(claim: Claim, draws: int, confidence: float) -> float:
    """Return the largest epsilon that the neighbors of a claim show."""
    found = [
        exact_epsilon(*pair.laws, claim.delta)
        for pair in claim.pairs
        if isinstance(pair, Exact)
    ]
    for pair in claim.pairs:
        if not isinstance(pair, Sampled):
            continue
        low, high = (pair.draw(world, draws * pair.times) for world in (0, 1))
        for cut in pair.cuts:
            found.append(
                sampled_epsilon(high >= cut, low >= cut, claim.delta, confidence)
            )
            found.append(
                sampled_epsilon(low < cut, high < cut, claim.delta, confidence)
            )
    return max(found)


def _events(claim: Claim) -> Iterator[float]:
    """Yield a cut for each event that is looked at: two a cut."""
    for pair in claim.pairs:
        if isinstance(pair, Sampled):
            yield from pair.cuts * 2
