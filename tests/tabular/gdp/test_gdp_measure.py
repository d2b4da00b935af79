"""What a user gets of a `GDPTable` that measures columns and pairs by name."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.draws import before_draws, full
from support.table_parts import CANARY, account, people, people_schema

from langchain_dpicl import ReleasedExamples
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    LedgerError,
    PlanMismatchError,
    UnitError,
)
from langchain_dpicl.mechanisms.exact import DiscreteLaplace
from langchain_dpicl.mechanisms.random import SeededRandom
from langchain_dpicl.offline import OfflineChatModel
from langchain_dpicl.tabular import CategoricalColumn, GDPTable, TableSchema
from langchain_dpicl.tabular.gdp.terms import GDPTerms

LARGE = 1e4
"""An epsilon at which there is no noise to speak of."""

MEASURE = [("job", "ill"), ("age", "job"), "age"]
BINS = ("below 40 years", "40 to 60 years", "60 or more years")
DRUGS = ("aspirin", "codeine", "lisinopril", "metformin")
EFFECTS = ("none", "cough", "nausea", "rash", "fatigue")
WARDS = ("north", "south")


def table_of(total: float = LARGE, rows: int = 600, **terms: Any) -> GDPTable:
    given = {"budget": account(total), "measure": MEASURE, **terms}
    return GDPTable(people(rows), people_schema(), **given)


def age_bin(row: dict[str, Any]) -> str:
    return BINS[(row["age"] >= 40) + (row["age"] >= 60)]


def test_values_come_ranked_and_by_condition() -> None:
    found = table_of().release().statistics
    expected = Counter(age_bin(row) for row in people(600) if row["job"] == "nurse")
    ranked = found.counts(of="age", where={"job": "nurse"})
    assert [value for value, _ in ranked] == [v for v, _ in expected.most_common()]
    assert [size.value for _, size in ranked] == pytest.approx(
        sorted(expected.values(), reverse=True)
    )
    # A number stands for its bin, and so does the bin's text.
    of_old = Counter(row["job"] for row in people(600) if row["age"] >= 60)
    for old in (71, 60.0, BINS[2]):
        jobs = dict(found.counts(of="job", where={"age": old}))
        assert {job: size.value for job, size in jobs.items()} == pytest.approx(of_old)


def test_tables_agree_whatever_the_noise() -> None:
    for seed in range(8):
        found = table_of(0.5, random=SeededRandom(seed)).release().statistics
        pairs = [found.table(own) for own in (("job", "ill"), ("age", "job"))]
        ages = found.table("age")
        assert all((one.counts >= 0).all() for one in (*pairs, ages))
        assert pairs[0].counts.sum(axis=1) == pytest.approx(
            pairs[1].counts.sum(axis=0), abs=1e-6
        )
        assert pairs[1].counts.sum(axis=1) == pytest.approx(ages.counts, abs=1e-6)
        told = found.sizes[0]
        assert ages.counts.sum() == pytest.approx(max(told.value, 0), abs=1e-6)
        # Noisy counts are as they were released: three tables, three totals.
        totals = {int(one.noisy.sum()) for one in (*pairs, ages)}
        assert len(totals) > 1


def test_errors_are_stated_for_what_they_belong_to() -> None:
    found = table_of(1.0).release().statistics
    scale = DiscreteLaplace.calibrated(1, 1 / 3).standard_deviation
    pairs, jobs = found.table(("job", "ill")), found.table("job")
    assert pairs.noise == pytest.approx(scale)
    # Of two pairs that have the column, the one with fewer cells tells it best.
    assert jobs.noise == pytest.approx(scale * math.sqrt(2))
    assert scale < pairs.margin < jobs.margin < 3 * jobs.noise
    first = found.counts(of="job")[0][1]
    assert (first.value, first.error) == (jobs.noisy.max(), jobs.noise)
    assert first.margin == jobs.margin
    assert found.noise("job x ill") == pytest.approx(scale)


def many_rows(n: int, seed: int = 0) -> list[dict[str, Any]]:
    """Patients whose side effects go with their drugs."""
    rng = np.random.default_rng(seed)
    drugs = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    effects = np.where(rng.random(n) < 0.6, (drugs + 1) % 5, rng.integers(0, 5, n))
    wards = rng.integers(0, 2, n)
    return [
        {"drug": DRUGS[d], "effect": EFFECTS[e], "ward": WARDS[w]}
        for d, e, w in zip(drugs, effects, wards, strict=True)
    ]


def drug_schema(label: str = "effect") -> TableSchema:
    return TableSchema(
        label=label,
        columns=[
            CategoricalColumn(name="ward", values=WARDS),
            CategoricalColumn(name="drug", values=DRUGS),
            CategoricalColumn(name="effect", values=EFFECTS),
        ],
    )


def drugs_of(total: float = LARGE, rows: int = 2000, **terms: Any) -> GDPTable:
    given = {
        "budget": account(total),
        "measure": [("drug", "effect"), "ward"],
        "random": SeededRandom(1),
        **terms,
    }
    return GDPTable(many_rows(rows), drug_schema(), **given)


@pytest.mark.parametrize("total", [0.3, 1.0, 20.0])
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_the_lead_over_another_count_is_the_least_one(total: float, kind: Any) -> None:
    table = drugs_of(total, noise=kind)
    lead = table.forecast(100).columns[0].lead
    assert lead is not None
    noise = table.release().statistics.table(("drug", "effect")).law.noise
    law = -np.diff([noise.reaches(k) for k in range(-1999, 2003)])
    difference = np.convolve(law, law[::-1])
    first = len(law) - 1 + lead
    assert difference[first:].sum() <= 0.05 < difference[first - 1 :].sum()


def test_the_noise_is_the_one_with_the_least_error() -> None:
    columns = [CategoricalColumn(name=f"c{n}", values=["a", "b"]) for n in range(12)]
    schema = TableSchema(label="c0", columns=columns)
    names = [f"c{n}" for n in range(12)]
    pairs = [(a, b) for n, a in enumerate(names) for b in names[:n]]
    rows = [dict.fromkeys(names, "a")] * 50
    for measure, kind in ((pairs, "gaussian"), (pairs[:2], "laplace")):
        chosen = GDPTable(rows, schema, budget=account(1.0), measure=measure).release()
        assert chosen.record()["parameters"]["noise_kind"] == kind
        other: Any = "laplace" if kind == "gaussian" else "gaussian"
        against = GDPTable(
            rows, schema, budget=account(1.0), measure=measure, noise=other
        ).release()
        assert chosen.statistics.table(pairs[0]).noise < (
            against.statistics.table(pairs[0]).noise
        )
        lead = chosen.forecast(50).columns[0].lead
        assert lead is not None
        assert 0 < lead < 100


@pytest.mark.parametrize(
    ("terms", "kind"),
    [
        ({}, "laplace"),
        ({"accounting": "renyi", "queries": 2}, "gaussian"),
    ],
)
def test_an_account_gets_the_kind_with_less_noise_for_what_it_pays(
    terms: dict[str, Any], kind: str
) -> None:
    table = drugs_of(budget=account(0.5, **terms), measure=["ward", "drug", "effect"])
    record = table.release().record()
    assert record["parameters"]["noise_kind"] == kind
    assert record["delta"] == (0 if kind == "laplace" else 1e-6)
    assert 0 < record["epsilon"] <= 0.5 * (1 + 1e-5)


def test_an_epsilon_of_ones_own_is_that_of_laplace_noise() -> None:
    split: Any = {("effect", "drug"): 0.75, "ward": 0.25}
    table = drugs_of(3.0, epsilon=1.0, split=split).release()
    parameters = table.record()["parameters"]
    assert table.record()["epsilon"] == pytest.approx(1.0)
    assert parameters["epsilons"] == {"drug x effect": 0.75, "ward": 0.25}
    assert parameters["measure"] == [["drug", "effect"], ["ward"]]
    found = table.statistics
    assert found.table("ward").noise > found.table(("drug", "effect")).noise


@pytest.mark.parametrize(
    ("terms", "named"),
    [
        ({"measure": []}, "measure must list"),
        ({"measure": "job"}, "measure must list"),
        ({"measure": {"job"}}, "measure must list"),
        ({"measure": [7]}, "measure must list"),
        ({"measure": [()]}, "measure must list"),
        ({"measure": [("job", 7)]}, "measure must list"),
        ({"measure": ["color"]}, "'color'"),
        ({"measure": [("job", "job")]}, "one column or of two"),
        ({"measure": [("job", "ill", "age")]}, "one column or of two"),
        ({"measure": [("job", "ill"), ("ill", "job")]}, "twice"),
        ({"measure": ["job", ("job",)]}, "twice"),
        ({"measure": ("job", "ill")}, "may mean one pair or two columns"),
        ({"group_by": "job"}, "group_by"),
        ({"group_by": []}, "group_by"),
        ({"noise": "uniform"}, "noise must be"),
        ({"sampling_rate": 0.5}, "leave out sampling_rate="),
        ({"noise": ["laplace"]}, "noise must be"),
        ({"noise": "gaussian", "epsilon": 1.0}, "epsilon="),
        ({"noise": "gaussian", "measure": None}, "measure="),
        ({"split": {"age": 1.0}, "epsilon": 1.0}, "split"),
        ({"split": {("job", "ill"): 1.0}}, "needs epsilon="),
    ],
)
def test_wrong_terms_are_named_before_the_charge(
    terms: dict[str, Any], named: str
) -> None:
    budget = account()
    with pytest.raises(InvalidParameterError, match=named):
        table_of(**{"budget": budget, **terms}).release()
    assert budget.spent().queries == 0


def test_a_value_that_the_column_lacks_is_not_asked_for_as_other() -> None:
    job = CategoricalColumn(
        name="job", values=["clerk", "diver", "nurse"], other="nurse", missing="diver"
    )
    found = GDPTable(
        people(60), people_schema(job=job), budget=account(LARGE), measure=MEASURE
    ).release()
    for value in ("pilot", None, float("nan")):
        with pytest.raises(InvalidParameterError, match="no value of column 'job'"):
            found.statistics.counts("ill", {"job": value})
    assert found.statistics.counts("ill", {"job": "nurse"})


def test_numbers_without_bins_and_too_many_cells_are_refused() -> None:
    age = people_schema().column("age").model_copy(update={"bins": ()})
    schema = people_schema(age=age)
    with pytest.raises(InvalidParameterError, match="'age', a number"):
        GDPTable([], schema, measure=["age"])
    # What is not measured needs no bins, and is checked all the same.
    table = GDPTable(
        people(50), schema, budget=account(LARGE), measure=["job", "ill"]
    ).release()
    assert dict(table.statistics.counts(of="ill"))["0"].value > 0
    budget = account()
    bad = [{**people(1)[0], "age": CANARY}]
    with pytest.raises(InvalidParameterError, match="'age'") as caught:
        GDPTable(bad, schema, budget=budget, measure=["job", "ill"]).release()
    assert CANARY not in str(caught.value)
    assert budget.spent().queries == 0
    values = list(map(str, range(1100)))
    wide = TableSchema(
        label="a",
        columns=[CategoricalColumn(name=name, values=values) for name in "ab"],
    )
    with pytest.raises(InvalidParameterError, match="measure fewer pairs"):
        GDPTable([], wide, measure=[("a", "b")])


def test_names_that_can_not_be_told_apart_are_refused() -> None:
    columns = [
        CategoricalColumn(name=name, values=["0", "1"]) for name in ("a", "b", "a x b")
    ]
    schema = TableSchema(label="a", columns=columns)
    with pytest.raises(InvalidParameterError, match="both called 'a x b'"):
        GDPTable([], schema, measure=["a x b", ("a", "b")])


@pytest.mark.parametrize(
    ("ask", "named"),
    [
        (lambda found: found.table("pay"), "'pay' was not measured"),
        (lambda found: found.table(("age", "ill")), "was not measured"),
        (lambda found: found.table(("job", "job")), "was not measured"),
        (lambda found: found.table(()), "was not measured"),
        (lambda found: found.table(7), "was not measured"),
        (lambda found: found.table([["job"]]), "was not measured"),
        (lambda found: found.counts("ill", {"age": 30}), "was not measured"),
        (lambda found: found.counts("ill", {"job": "pilot"}), "names 'pilot'"),
        (lambda found: found.counts("job", {"age": 81}), "names 81"),
        (lambda found: found.counts("job", "ill"), "where must be"),
        (lambda found: found.mean(0, "age"), "was not released so"),
    ],
)
def test_what_was_not_measured_is_not_told(ask: Any, named: str) -> None:
    with pytest.raises(InvalidParameterError, match=named):
        ask(table_of().release().statistics)


def test_groups_have_no_tables_by_name() -> None:
    found = table_of(measure=None).release().statistics
    with pytest.raises(InvalidParameterError, match="measure="):
        found.table("job")


@pytest.mark.parametrize("noise", ["auto", "gaussian", "laplace"])
@pytest.mark.parametrize("epsilon", [0.05, 5.0])
def test_a_release_is_found_again_by_the_same_terms(noise: Any, epsilon: float) -> None:
    budget = account(epsilon)
    first = drugs_of(budget=budget, noise=noise).release()
    # The account is spent, and planned for what was charged.
    with pytest.raises(BudgetExhaustedError, match=r"the only query.*resume=True"):
        drugs_of(budget=budget, noise=noise).release()
    again = drugs_of(budget=budget, noise=noise, rows=5).release(resume=True)
    assert again.record() == first.record()
    assert (
        again.statistics.table("ward").noisy == first.statistics.table("ward").noisy
    ).all()
    assert budget.spent().queries == 1
    other: Any = {"measure": [("drug", "effect"), "drug"]}
    with pytest.raises(BudgetExhaustedError, match="no release of these terms"):
        drugs_of(budget=budget, noise=noise, **other).release(resume=True)


@pytest.mark.parametrize(("total", "kind"), [(0.05, "gaussian"), (5.0, "laplace")])
def test_an_interrupted_release_is_drawn_for_its_own_charge(
    total: float, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever noise an account would get now: the charge says which was paid for."""
    budget = account(total, accounting="renyi")
    other = "laplace" if kind == "gaussian" else "gaussian"
    with monkeypatch.context() as patch:
        patch.setattr(
            GDPTerms, "settled", lambda self, budget: replace(self, noise=other)
        )
        before_draws(patch, full)
        with pytest.raises(LedgerError, match="disk is full"):
            drugs_of(budget=budget).release()
    assert budget.spent().queries == 1
    table = drugs_of(budget=budget).release(resume=True)
    assert table.record()["parameters"]["noise_kind"] == other
    (event,) = table.record()["events"]
    assert event["kind"] == {"gaussian": "gaussian", "laplace": "pure"}[other]
    assert budget.spent().queries == 1


def test_examples_of_gaussian_tables_are_saved_with_what_they_cost(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    table = drugs_of(budget=account(3.0, ledger=url), noise="gaussian")
    table.examples(5).save(tmp_path / "rows.json")
    loaded = ReleasedExamples.load(tmp_path / "rows.json", ledger=url)
    assert loaded.record["epsilon"] == pytest.approx(3.0, rel=1e-3)
    assert loaded.record["delta"] == 1e-6
    loaded.verify()


def test_noise_for_another_charge_is_refused() -> None:
    budget = account(1.0, queries=2)
    drugs_of(budget=budget, noise="laplace").release()
    with pytest.raises(PlanMismatchError):
        drugs_of(budget=budget, noise="gaussian").release(resume=True)


async def test_releases_are_made_without_blocking() -> None:
    table = await drugs_of().arelease()
    blocking = drugs_of().release()
    assert table.summary() == blocking.summary()
    examples = await table.aexamples(3)
    assert examples == blocking.examples(3)


def test_rows_go_together_as_the_pairs_do() -> None:
    table = drugs_of(measure=[("effect", "drug"), "ward"])
    rows = table.sample(4000, balanced=False)
    assert list(rows[0]) == ["ward", "drug", "effect"]
    own = many_rows(2000)
    for columns in (("drug", "effect"), ("ward",)):
        expected = Counter(tuple(row[c] for c in columns) for row in own)
        seen = Counter(tuple(row[c] for c in columns) for row in rows)
        for value, count in expected.items():
            share = count / len(own)
            error = math.sqrt(share * (1 - share) / len(rows))
            assert abs(seen[value] / len(rows) - share) < 6 * error
    # Labels take turns, and each has its own drugs.
    turns = table.sample(10)
    assert Counter(row["effect"] for row in turns) == dict.fromkeys(EFFECTS, 2)


def test_the_label_is_drawn_first_and_the_others_by_it() -> None:
    """A pair without the label is counted, and plays no part in the rows."""
    rows = {
        tuple(measure): drugs_of(measure=measure).sample(4000, balanced=False)
        for measure in (
            [("drug", "effect"), ("ward", "drug")],
            [("drug", "effect"), "ward"],
        )
    }
    for drawn in rows.values():
        pairs = Counter((row["ward"], row["drug"]) for row in drawn)
        wards, drugs = (Counter(row[n] for row in drawn) for n in ("ward", "drug"))
        for (ward, drug), count in pairs.items():
            assert abs(count - wards[ward] * drugs[drug] / 4000) < 200
    # Where the label was not measured, the first column leads.
    linked = drugs_of(measure=[("ward", "drug")]).sample(4000, balanced=False)
    own = Counter((row["ward"], row["drug"]) for row in many_rows(2000))
    seen = Counter((row["ward"], row["drug"]) for row in linked)
    for pair, count in own.items():
        assert abs(seen[pair] / 4000 - count / 2000) < 0.06


def test_examples_show_what_was_measured_and_nothing_else() -> None:
    table = drugs_of(measure=[("drug", "effect")])
    (example,) = table.examples(1)
    assert example["text"].startswith("The drug is")
    assert "ward" not in example["text"]
    # What was not measured is left out of a question too.
    assert table.text({"drug": "codeine", "ward": "north"}) == "The drug is codeine."
    chain = table.classification_chain(OfflineChatModel(), k=50)
    assert chain.invoke({"drug": "lisinopril", "ward": "north"}) == "rash"


@pytest.mark.parametrize("measure", [["effect"], ["drug", "ward"]])
def test_examples_without_label_or_feature_are_refused_before_the_charge(
    measure: Any,
) -> None:
    budget = account(LARGE)
    table = drugs_of(budget=budget, measure=measure)
    for show in (
        lambda: table.examples(2),
        lambda: table.classification_chain(OfflineChatModel()),
    ):
        with pytest.raises(InvalidParameterError, match="'effect'"):
            show()
    assert budget.spent().queries == 0
    assert set(table.sample(1)[0]) == set(measure)


def test_noise_that_hides_everything_gives_no_rows() -> None:
    table = drugs_of(0.01, rows=20)
    with pytest.raises(UnitError, match="too few rows"):
        table.sample(2)
    kept = drugs_of(0.01, rows=20, small_groups="keep", random=SeededRandom(2))
    assert len(kept.sample(3)) == 3
    assert "too small to be told from none" in kept.summary()


def test_what_is_told_before_and_after() -> None:
    table = drugs_of(2.0)
    before = table.forecast(2000)
    assert [one.name for one in before.columns] == ["drug x effect", "ward"]
    assert "2000 rows, known to +-" in before.advice()
    assert f"{before.columns[0].lead} (drug x effect)" in before.advice()
    assert "hides whether" in table.forecast(2).advice()
    summary = table.release().summary()
    assert "drug x effect: aspirin with cough" in summary
    assert "each +-" in summary
    assert "measure=[('drug', 'effect'), ('ward',)]" in repr(table)


def test_equal_measures_by_other_bins_are_one_release() -> None:
    """`numeric` says nothing about tables: numbers in them are in bins anyway."""
    budget = account(3.0)
    first = table_of(budget=budget).release()
    again = table_of(budget=budget, numeric="bins").release(resume=True)
    assert first.record() == again.record()
