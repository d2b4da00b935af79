"""People with an age, a job and a health, and what a release says of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from faces import counts, table_of, tabular

JOBS = ("clerk", "diver", "nurse")
AGES = ("below 40", "40 to 60", "60 or more")
SCHEMA = tabular.TableSchema(
    label="ill",
    columns=[
        tabular.NumericColumn(
            name="age", kind="integer", lower=20, upper=80, bins=[40, 60]
        ),
        tabular.CategoricalColumn(name="job", values=JOBS),
        tabular.CategoricalColumn(name="ill", values=["0", "1"]),
    ],
)
MEASURE = [("job", "ill"), "age"]

Row = dict[str, Any]


def person(number: int) -> Row:
    """Return a row that follows from its number."""
    ill = str(number * number % 7 % 2)
    return {"age": 20 + 7 * number % 61, "job": JOBS[number % 3], "ill": ill}


def people(count: int) -> list[Row]:
    """Return the rows of so many people, each with an id of its own."""
    return [{**person(number), "who": f"p{number}"} for number in range(count)]


def age_bin(age: Any) -> str:
    """Return the bin of an age, by the schema's edges."""
    return AGES[(float(age) >= 40) + (float(age) >= 60)]


def exact(rows: list[Row]) -> tuple[Counter[Any], Counter[Any]]:
    """Count what is measured, plainly."""
    pairs = Counter((row["job"], str(row["ill"]).strip()) for row in rows)
    return pairs, Counter((age_bin(row["age"]),) for row in rows)


def told(released_table: Any) -> tuple[dict[Any, int], dict[Any, int]]:
    """Return what a released table says of the same."""
    return counts(released_table, "job", "ill"), counts(released_table, "age")


def table(rows: Any, measure: Any = MEASURE, **terms: Any) -> Any:
    """Release a table of people; `seed`, `epsilon`, `noise`, `budget` and so on."""
    schema = terms.pop("schema", SCHEMA)
    terms = {"measure": measure, "unit_key": "who", **terms}
    return table_of("GDPTable", rows, schema, **terms).release()


def released(rows: Any, **terms: Any) -> tuple[dict[Any, int], dict[Any, int]]:
    """Release a table and return what it says."""
    return told(table(rows, **terms))


def moved(found: Any, other: Any) -> tuple[Counter[Any], Counter[Any]]:
    """Return by how much each count differs between two releases; zeros left out."""
    pairs, ages = (
        Counter({cell: a[cell] - b[cell] for cell in a if a[cell] != b[cell]})
        for a, b in zip(found, other, strict=True)
    )
    return pairs, ages
