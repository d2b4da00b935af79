"""What errors mean in plain words.

Standard errors are of shares. A column's values have a share of 1 / d on average, so
an error of that size says that the column is noise.
"""

from __future__ import annotations

from collections.abc import Mapping

from langchain_dpicl.tabular.ldp.drawing import labels_without_weight
from langchain_dpicl.tabular.ldp.result import Collected

MOSTLY_NOISE = 0.5
"""Expected total variation distance from which on rows are called noise."""

ROUGH = 0.5
"""Error, in average shares, from which on only large shares stand out."""


def summary(found: Collected) -> str:
    """Return in plain words how well a collected table is known."""
    # Of the counts, not of the record, which a file may hold in any form.
    known = found.distribution
    errors = {
        name: (size, float(known.standard_errors(place).max()))
        for place, (name, size) in enumerate(found.terms.sizes.items())
    }
    return "\n".join(
        [
            _head(found),
            *(f"* {verdict(name, *clear)}" for name, clear in errors.items()),
            *conclusion(errors, known.kind, known.noise),
            *_pairs(found),
            *(
                f"Label {label!r} gets no weight: no row that is drawn has it."
                for label in labels_without_weight(found)
            ),
        ]
    )


def _head(found: Collected) -> str:
    told = f"{found.counts.n} report(s) at epsilon {found.record['epsilon']:g}"
    dropped = found.record["parameters"].get("n_dropped")
    more = f", {dropped} dropped" if type(dropped) is int and dropped else ""
    return f"{told}{more}:"


def _pairs(found: Collected) -> list[str]:
    """Return which columns a tree keeps together, and whether the label is alone.

    What the reports did not show is not in the tree, and not in its noise.
    """
    if found.distribution.kind == "joint":
        return []
    schema, edges = found.terms.schema, found.distribution.edges
    pairs = [f"{schema.names[i]!r} with {schema.names[j]!r}" for i, j in edges]
    lines = [
        f"The reports show that {', '.join(pairs)} go together; all else is drawn "
        "independently."
        if pairs
        else "The reports show no two columns that go together: all are drawn "
        "independently."
    ]
    if schema.names.index(schema.label) not in {end for edge in edges for end in edge}:
        lines.append(
            f"Nothing goes with the label {schema.label!r}: of rows that are drawn it "
            "is random. Show each label's first row only (k = the number of labels), "
            "or use more rows, a larger epsilon, fewer columns, fewer values."
        )
    return lines


def verdict(name: str, size: int, error: float) -> str:
    """Return in words how well a column is known.

    Args:
        name: The column.
        size: Its number of values.
        error: The standard error of its shares.

    Example:
        >>> verdict("job", 10, 0.2)
        "'job': the error of a share is 0.2, and a share 0.1 on average: the error of 'job' is larger than its shares, so that they are noise."
    """  # noqa: E501
    share = 1.0 / size
    said = f"{name!r}: the error of a share is {error:.2g}, and a share {share:.2g} "
    if not error < share:
        return (
            f"{said}on average: the error of {name!r} is larger than its shares, so "
            "that they are noise."
        )
    if error >= ROUGH * share:
        return f"{said}on average: only large shares stand out."
    return f"{said}on average: readable."


def conclusion(
    errors: Mapping[str, tuple[int, float]], model: str, noise: float
) -> list[str]:
    """Return what all columns together come to, and what to do about it.

    Args:
        errors: Each column's number of values and error of shares.
        model: `joint` or `tree`.
        noise: The expected total variation distance due to randomizing.
    """
    what = (
        "All columns together (a joint table)"
        if model == "joint"
        else "Of what a tree of pairs keeps"
    )
    lines = [
        f"{what}: about {noise:.0%} of the probability is "
        + (
            "misplaced, so that rows are mostly noise."
            if noise >= MOSTLY_NOISE
            else "misplaced."
        )
    ]
    drowned = [name for name, (size, error) in errors.items() if not error < 1 / size]
    if drowned or noise >= MOSTLY_NOISE:
        lines.append(
            "Epsilon is small for so few rows and so many values. What helps: more "
            "rows, a larger epsilon, fewer columns, fewer values or wider bins; "
            "split='domain', where columns of many values drown beside small ones."
        )
    return lines
