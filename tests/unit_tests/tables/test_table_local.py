"""A report of a row has the law of randomized response, at the client and the curator.

A column of d values says the true one with probability e^e / (d - 1 + e^e), and each
other with 1 / (d - 1 + e^e); columns are independent, and their e sum to epsilon. So no
row makes a report more than e^epsilon times as likely as another row does. What is
reconstructed from reports is right on average.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
from faces import (
    InvalidParameterError,
    PlanMismatchError,
    planned,
    reports,
    table_of,
    tabular,
)
from scipy.stats import chisquare
from suite import WHOLE
from unit_tests.tables.parts import AGES, JOBS, SCHEMA, Row, age_bin, people, person

EPSILON = 3.0
VALUES = {"age": AGES, "job": JOBS, "ill": ("0", "1")}
CELLS = list(itertools.product(*VALUES.values()))
MANY = 40_000 if WHOLE else 5_000
LEAST = 1e-6
RIGHT = dict.fromkeys(VALUES, EPSILON / 3)


def cell_of(row: Row) -> tuple[str, ...]:
    """Return a row's values as a report says them."""
    age = row["age"] if row["age"] in AGES else age_bin(row["age"])
    return (age, row["job"], row["ill"])


def law(row: Row, epsilons: dict[str, float]) -> dict[tuple[str, ...], float]:
    """Return how likely each report of a row is."""
    parts = []
    for value, (name, values) in zip(cell_of(row), VALUES.items(), strict=True):
        whole = math.exp(epsilons[name]) + len(values) - 1
        parts.append(
            {v: (math.exp(epsilons[name]) if v == value else 1) / whole for v in values}
        )
    return {
        cell: math.prod(part[v] for part, v in zip(parts, cell, strict=True))
        for cell in CELLS
    }


def check_law(found: Counter[Any], expected: dict[Any, float]) -> None:
    """Check counts of reports against their probabilities."""
    total = found.total()
    seen = [found[cell] for cell in expected]
    assert sum(seen) == total
    wanted = [share * total for share in expected.values()]
    assert chisquare(seen, wanted, sum_check=False).pvalue > LEAST


@cache
def client_reports(number: int) -> Counter[Any]:
    """Return how often each report of one person's row came."""
    found = reports([person(number)] * MANY, SCHEMA, EPSILON, seed=1)
    return Counter(map(cell_of, found))


@pytest.mark.promise("report-law")
@pytest.mark.parametrize("number", [0, 4])
def test_a_clients_report_has_the_law_of_randomized_response(number: int) -> None:
    check_law(client_reports(number), law(person(number), RIGHT))


@pytest.mark.promise("report-law", twin=True)
@pytest.mark.parametrize(
    "wrong",
    [
        dict.fromkeys(VALUES, EPSILON),  # The budget is not shared out.
        {"age": 1.5, "job": 1.5, "ill": 50.0},  # The label is told as it is.
        dict.fromkeys(VALUES, EPSILON / 3 * 1.2),
    ],
    ids=["not shared", "true label", "a fifth more"],
)
def test_twin_of_another_budget_of_a_column(wrong: dict[str, float]) -> None:
    with pytest.raises(AssertionError):
        check_law(client_reports(4), law(person(4), wrong))


@pytest.mark.promise("report-law")
def test_no_row_makes_a_report_likelier_than_epsilon_allows() -> None:
    laws = [law(person(number), RIGHT) for number in range(60)]
    worst = max(a[c] / b[c] for a, b in itertools.combinations(laws, 2) for c in CELLS)
    # Reached by rows that differ in every column, and not passed.
    assert worst == pytest.approx(math.exp(EPSILON))


def reported(row: Row) -> dict[str, dict[str, float]]:
    """Return the shares of what a curator's reports say, column by column."""
    table = table_of("LDPTable", [row] * MANY, SCHEMA, epsilon=EPSILON)
    found: dict[str, dict[str, float]] = {}
    for name, estimates in table.release().standard_errors().items():
        size = len(estimates)
        whole = math.exp(RIGHT[name]) + size - 1
        # The reports' share of a value, by the law, of its unbiased share.
        found[name] = {
            value: (1 + (math.exp(RIGHT[name]) - 1) * share) / whole
            for value, (share, _) in estimates.items()
        }
    return found


@pytest.mark.promise("report-law")
@pytest.mark.parametrize("number", [0, 4])
def test_a_curators_reports_have_the_same_law(number: int) -> None:
    own = law(person(number), RIGHT)
    for place, (name, found) in enumerate(reported(person(number)).items()):
        expected = {
            value: sum(p for cell, p in own.items() if cell[place] == value)
            for value in VALUES[name]
        }
        seen = Counter({value: round(share * MANY) for value, share in found.items()})
        assert seen.total() == MANY, "shares are counts of so many reports"
        check_law(seen, expected)


def collected(found: list[Row], epsilon: float) -> Any:
    """Return a table of clients' reports."""
    return tabular.LDPTable.from_reports(found, SCHEMA, epsilon=epsilon)


@cache
def estimates(seed: int, epsilon: float) -> list[tuple[float, float, float]]:
    """Return each share that clients' reports give, its error, and the true one."""
    rows = [person(number) for number in range(300)]
    found = collected(reports(rows, SCHEMA, epsilon, seed), epsilon)
    truth = [Counter(column) for column in zip(*map(cell_of, rows), strict=True)]
    return [
        (share, error, truth[place][value] / len(rows))
        for place, name in enumerate(VALUES)
        for value, (share, error) in found.standard_errors()[name].items()
    ]


def check_unbiased(found: list[tuple[float, float, float]]) -> None:
    """Check that shares are the true ones on average, and their errors as stated."""
    off = np.array([(share - real) / error for share, error, real in found])
    assert abs(off.mean()) < 5 / math.sqrt(len(off) / 3)
    # The true share is within 1.96 errors in 95 % of collections.
    assert np.mean(np.abs(off) <= 1.96) > 0.9


@pytest.mark.promise("reports-unbiased")
def test_what_is_reconstructed_is_right_on_average() -> None:
    found = [one for seed in range(40) for one in estimates(seed, EPSILON)]
    check_unbiased(found)
    assert any(share < 0 for seed in range(9) for share, *_ in estimates(seed, 0.3))


@pytest.mark.promise("reports-unbiased", twin=True)
def test_twin_that_takes_reports_for_the_truth() -> None:
    found = []
    for seed in range(40):
        for place, (share, error, real) in enumerate(estimates(seed, EPSILON)):
            size = 2 if place >= 6 else 3
            whole = math.e + size - 1
            found.append(((1 + (math.e - 1) * share) / whole, error, real))
    with pytest.raises(AssertionError):
        check_unbiased(found)


@pytest.mark.promise("reports-claim")
def test_the_record_claims_what_a_report_says_and_not_that_it_was_made() -> None:
    table = table_of("LDPTable", people_rows(50), SCHEMA, epsilon=EPSILON).release()
    record = table.record()
    assert table.n_reports == 50
    assert record["relation"] == "replace"
    assert "public" in record["neighbors"]
    assert (record["epsilon"], record["delta"]) == (EPSILON, 0.0)


def check_one_promise(accounts: list[Any]) -> None:
    """Check that what accounts paid for promises the same of a person."""
    promises, ways = set(), [{}, {"participation": None, "invited": 60}]
    for terms, budget in zip(ways, accounts, strict=True):
        table = table_of("LDPTable", people_rows(50), SCHEMA, budget=budget, **terms)
        with contextlib.suppress(PlanMismatchError):
            promises.add(table.release().record()["relation"])
    assert len(promises) == 1


@pytest.mark.promise("reports-claim")
def test_an_account_takes_no_exact_number_of_reports_beside_another_promise() -> None:
    check_one_promise([planned(accounting="renyi", queries=2)] * 2)


@pytest.mark.promise("reports-claim", twin=True)
def test_twin_of_an_account_for_each() -> None:
    with pytest.raises(AssertionError):
        check_one_promise([planned(), planned()])


@pytest.mark.promise("report-law")
def test_one_report_has_the_law_of_many() -> None:
    alone = (reports([person(4)], SCHEMA, EPSILON, seed=n)[0] for n in range(1000))
    check_law(Counter(map(cell_of, alone)), law(person(4), RIGHT))


@pytest.mark.promise("reports-claim")
def test_a_person_reports_so_many_rows_at_most_within_the_same_budget() -> None:
    rows = [{**row, "who": f"p{n % 5}"} for n, row in enumerate(people(40))]
    terms = {"unit_key": "who", "rows_per_unit": 2}
    table = table_of("LDPTable", rows, SCHEMA, epsilon=EPSILON, **terms).release()
    assert table.n_reports == 10
    assert table.record()["epsilon"] == EPSILON
    assert sum(table.epsilons.values()) * 2 <= EPSILON * (1 + 1e-9)


@pytest.mark.promise("table-refuses")
def test_reports_of_others_are_refused() -> None:
    good = reports(people_rows(5), SCHEMA, EPSILON)
    for bad in ({**good[0], "job": "spy"}, {"job": "nurse"}):
        with pytest.raises(InvalidParameterError) as caught:
            collected([*good, bad], EPSILON)
        assert "spy" not in str(caught.value)


def people_rows(count: int) -> list[Row]:
    """Return rows without ids."""
    return [person(number) for number in range(count)]
