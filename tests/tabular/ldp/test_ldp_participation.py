"""Who takes part: stated as public, or hidden among a fixed number of invitations.

An exact number of reports tells a table from the same with one person more. So either
the release says so, and no account that promises more takes it; or each of N
invitations has its reports, uniform ones where nobody answered.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare
from support.ldp_parts import CODES, MIXED, ROW, SCHEMA, joint_of, table_of
from support.randomized_reports import response_matrix

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.errors import InvalidParameterError, PlanMismatchError
from langchain_dpicl.ledger import CorpusTerms
from langchain_dpicl.operate import account_report, verify
from langchain_dpicl.tabular import GDPTable, LDPClient, LDPTable
from langchain_dpicl.tabular.rows import UnitRows

PEOPLE = [{**row, "who": f"p{n % 9}"} for n, row in enumerate(MIXED * 9)]
LEAST = 1e-6


def account(**terms: Any) -> PrivacyBudgetHandler:
    given = {"epsilon": 9.0, "delta": 1e-6, "ledger": ":memory:", **terms}
    return PrivacyBudgetHandler(accounting="renyi", **given)


@pytest.mark.parametrize(
    "terms",
    [
        {"participation": None},
        {"participation": "private"},
        {"participation": "public", "invited": 90},
        {"participation": True},
    ],
)
def test_who_takes_part_is_stated_in_one_way(terms: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r'"public".*invited=N'):
        table_of(MIXED, **terms)
    for invited in (0, -1, 2.0):
        with pytest.raises(InvalidParameterError, match="invited"):
            table_of(MIXED, invited=invited)


# -- the law of counts, and what a unit more or less changes of it ---------------------


def check_law(seen: np.ndarray, expected: np.ndarray) -> None:
    found = chisquare(seen.ravel(), expected.ravel(), sum_check=False)
    assert found.pvalue > LEAST


def law_of(row: tuple[int, ...], epsilon: float, sizes: tuple[int, ...]) -> np.ndarray:
    """Return how likely each report of a row is, as a table."""
    law = np.ones(())
    for code, size in zip(row, sizes, strict=True):
        law = np.multiply.outer(law, response_matrix(size, epsilon / len(sizes))[code])
    return law


def invited_counts() -> tuple[np.ndarray, np.ndarray]:
    """Return counts of 4,000 answers to 20,000 invitations, and what they should be."""
    table = table_of([ROW] * 4000, epsilon=3.0, invited=20_000).release()
    expected = 4000 * law_of(CODES, 3.0, (3, 3, 2)) + 16_000 / 18
    return joint_of(table), expected


def test_invitations_without_an_answer_are_uniform_reports() -> None:
    check_law(*invited_counts())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda n, domain_size: np.zeros(n, np.int64),
        lambda n, domain_size: np.random.default_rng(0).integers(0, 2, n),
    ],
)
def test_twin_of_other_reports_without_an_answer(
    wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langchain_dpicl.tabular.ldp.reports.null_reports", wrong)
    with pytest.raises(AssertionError):
        check_law(*invited_counts())


Law = dict[tuple[int, ...], float]


def counts_law(laws: list[np.ndarray]) -> Law:
    """Return how likely each vector of counts of independent reports is."""
    found: Counter[tuple[int, ...]] = Counter()
    cells = laws[0].size if laws else 0
    for told in itertools.product(range(cells), repeat=len(laws)):
        chance = math.prod(
            law.ravel()[cell] for law, cell in zip(laws, told, strict=True)
        )
        found[tuple(sorted(told))] += chance
    return found


def loss(one: Law, other: Law) -> float:
    """Return the largest log of a ratio, either way."""
    keys = one.keys() | other.keys()
    pairs = [(one.get(key, 0.0), other.get(key, 0.0)) for key in keys]
    if any((a == 0) != (b == 0) for a, b in pairs):
        return math.inf
    return max(abs(math.log(a / b)) for a, b in pairs)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
def test_a_person_more_changes_counts_of_invitations_by_epsilon(epsilon: float) -> None:
    sizes = (3, 2)
    null = np.full(sizes, 1 / 6)
    rows = [law_of(row, epsilon, sizes) for row in itertools.product(range(3), (0, 1))]
    losses = []
    for others in (rows[:2], rows[2:4], [null, rows[5]]):
        for own in rows:
            with_own, without = [*others, own], [*others, null]
            losses.append(loss(counts_law(with_own), counts_law(without)))
            # An exact number of reports tells with certainty.
            assert loss(counts_law(with_own), counts_law(others)) == math.inf
    assert 0 < max(losses) <= epsilon


def test_more_answers_than_invitations_are_refused_and_free() -> None:
    budget = account()
    for terms in ({"invited": 35}, {"invited": 4, "unit_key": "who"}):
        rows = PEOPLE if "unit_key" in terms else MIXED * 9
        with pytest.raises(InvalidParameterError, match="invited") as caught:
            table_of(rows, budget=budget, epsilon=0.5, **terms).release()
        assert "36" not in str(caught.value)
    assert budget.spent().queries == 0


# -- beside other releases -------------------------------------------------------------


def public(budget: Any) -> LDPTable:
    return table_of(PEOPLE, epsilon=0.5, budget=budget, unit_key="who")


def hidden(budget: Any) -> LDPTable:
    return table_of(PEOPLE, epsilon=0.5, budget=budget, unit_key="who", invited=50)


def counted(budget: Any) -> GDPTable:
    return GDPTable(PEOPLE, SCHEMA, epsilon=0.5, budget=budget, unit_key="who")


@pytest.mark.parametrize(
    ("first", "refused"),
    [(public, [hidden, counted]), (hidden, [public]), (counted, [public])],
)
def test_an_account_holds_no_release_that_promises_less(
    first: Any, refused: list[Any]
) -> None:
    budget = account()
    first(budget).release()
    for other in refused:
        with pytest.raises(PlanMismatchError):
            other(budget).release()
    for other in {hidden, counted}.difference(refused):
        record = other(budget).release().record()
        assert record["relation"] == "add_remove"


def test_a_corpus_of_people_takes_invitations_alone() -> None:
    corpus = CorpusTerms(name="clinic", unit_key="who", epsilon=20, delta=1e-5)
    budget = account(corpus=corpus)
    with pytest.raises(PlanMismatchError, match="clinic"):
        public(budget).release()
    hidden(budget).release()
    assert budget.spent().queries == 1


class Notes(UnitRows):
    """Rows that were each read from one patient's notes."""

    unit_key = "patient"

    def __iter__(self) -> Any:
        return iter(MIXED)


def test_rows_of_text_are_charged_to_the_people_they_are_about() -> None:
    table = table_of(Notes(), invited=9).release()
    record = table.record()
    # How many answered does not show.
    assert joint_of(table).sum() == table.n_reports == 9
    assert record["unit_key"] == "patient"
    assert "'patient'" in record["unit"]
    record = table_of(Notes()).release().record()
    assert record["unit_key"] == "reports of each patient"


def test_the_report_of_an_account_claims_no_more() -> None:
    told, kept = account(), account()
    for made in (public(told).release(), hidden(kept).release()):
        record = made.record()
        assert verify(record, made._budget.ledger).is_confirmed
        other = "replace" if record["relation"] == "add_remove" else "add_remove"
        false = {**record, "relation": other}
        assert not verify(false, made._budget.ledger).is_confirmed
    page, other = (account_report(b.ledger, "default").to_html() for b in (told, kept))
    assert "is public and not protected" in page
    assert "A unit is added or" not in page
    assert "is public and not protected" not in other
    assert "A unit is added or" in other


def test_invited_clients_all_have_a_report() -> None:
    client = LDPClient(SCHEMA, epsilon=6)
    reports = [*client.reports(MIXED), *(client.null_report() for _ in range(6))]

    def table(given: Any, **terms: Any) -> LDPTable:
        return LDPTable.from_reports(given, SCHEMA, epsilon=6, **terms)

    record = table(reports, invited=10).record()
    assert (record["relation"], record["epsilon"]) == ("add_remove", 6.0)
    twice = table(reports, invited=5, reports_per_unit=2).record()
    assert twice["relation"] == "add_remove"
    assert twice["epsilon"] == pytest.approx(12)
    assert table(reports).record()["relation"] == "replace"
    for invited in (9, 11, 4):
        with pytest.raises(InvalidParameterError, match="null_report"):
            table(reports, invited=invited)
