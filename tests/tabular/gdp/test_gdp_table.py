"""What a user gets of a `GDPTable`: counts, means, rows, examples, chains."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.draws import before_draws, full
from support.table_parts import CANARY, JOBS, account, people, people_schema

from langchain_dpicl.errors import (
    BudgetExhaustedError,
    DPError,
    InvalidParameterError,
    LedgerError,
    UnitError,
)
from langchain_dpicl.mechanisms.random import seeded
from langchain_dpicl.offline import OfflineChatModel
from langchain_dpicl.tabular import (
    CategoricalColumn,
    GDPTable,
    NumericColumn,
    TableSchema,
)
from langchain_dpicl.tabular.gdp.margins import SummedNoise
from langchain_dpicl.tabular.gdp.terms import GDPTerms

LARGE = 1e4
"""An epsilon at which there is no noise to speak of."""

BINS = ("below 40 years", "40 to 60 years", "60 or more years")
PAY = NumericColumn(name="pay", lower=-1.5, upper=8.5)
AGE = NumericColumn(name="age", kind="integer", lower=20, upper=80, unit="years")
SUMMED = people_schema(age=AGE, pay=PAY)
"""Age and pay have no bins here."""


def table_of(total: float = LARGE, rows: Any = 600, **terms: Any) -> GDPTable:
    """Return a table of people that is not released yet."""
    given = people(rows) if isinstance(rows, int) else rows
    schema = terms.pop("schema", people_schema())
    return GDPTable(given, schema, **{"budget": account(total), **terms})


def age_bin(row: dict[str, Any]) -> str:
    return BINS[(row["age"] >= 40) + (row["age"] >= 60)]


# --- counts and means -----------------------------------------------------------------


def test_the_stated_error_of_a_mean_is_that_of_the_noise() -> None:
    budget = account(30.0, queries=60)
    with seeded(1):
        tables = [table_of(rows=300, schema=SUMMED, budget=budget) for _ in range(60)]
        found = [t.release().statistics.mean("age", {"ill": "1"}) for t in tables]
    seen = np.std([mean.value for mean in found])
    assert seen == pytest.approx(found[0].error, rel=0.35)


def test_values_come_ranked_and_by_condition() -> None:
    found = table_of(measure=[("job", "ill"), ("age", "job"), "age"])
    counts = found.release().statistics.counts
    expected = Counter(age_bin(row) for row in people(600) if row["job"] == "nurse")
    ranked = counts(of="age", where={"job": "nurse"})
    assert [value for value, _ in ranked] == [v for v, _ in expected.most_common()]
    # A number stands for its bin, and so does the bin's text.
    of_old = Counter(row["job"] for row in people(600) if row["age"] >= 60)
    for old in (71, 60.0, BINS[2]):
        jobs = dict(counts(of="job", where={"age": old}))
        assert {job: size.value for job, size in jobs.items()} == dict(of_old)


def test_tables_agree_and_are_right_on_average_whatever_the_noise() -> None:
    nearer = 0.0
    for seed in range(12):
        table = table_of(0.5, measure=[("job", "ill"), ("age", "job"), "age"])
        with seeded(seed):
            found = table.release().statistics
        pairs, ages = found.table(("age", "job")), found.table("age")
        own = found.table(("job", "ill"))
        assert own.unbiased.sum(axis=1) == pytest.approx(pairs.unbiased.sum(axis=0))
        assert pairs.unbiased.sum(axis=1) == pytest.approx(ages.unbiased)
        # Noisy counts are as they were released: three tables, three totals.
        assert len({int(one.noisy.sum()) for one in (pairs, own, ages)}) > 1
        assert ages.error < ages.noise
        truth = Counter(age_bin(row) for row in people(600))
        true = np.array([truth[value] for value in ages.values[0]])
        nearer += float(np.square((ages.unbiased - true) / ages.error).mean())
    # Squares in standard errors have the mean 1.
    assert 0.5 < nearer / 12 < 1.8


@pytest.mark.parametrize(
    ("count", "terms", "kind"),
    [
        (3, {}, "laplace"),
        (66, {}, "gaussian"),
        (3, {"accounting": "renyi", "queries": 2}, "gaussian"),
    ],
)
def test_the_noise_is_the_smaller_one_for_what_the_account_pays(
    count: int, terms: dict[str, Any], kind: str
) -> None:
    names = [f"c{n}" for n in range(12)]
    columns = [CategoricalColumn(name=name, values=["a", "b"]) for name in names]
    schema = TableSchema(label="c0", columns=columns)
    pairs = [(a, b) for n, a in enumerate(names) for b in names[:n]][:count]
    rows = [dict.fromkeys(names, "a")] * 50
    margins = []
    for noise in (None, "laplace", "gaussian"):
        budget = account(0.5, **terms)
        table = GDPTable(rows, schema, measure=pairs, noise=noise, budget=budget)
        lead = table.forecast(50).lead
        found = table.release().statistics.table(pairs[0])
        assert lead == SummedNoise(found.law.noise, 2).threshold(0.05, among=1)
        margins.append((found.margin, table.record()))
    chosen, *others = margins
    assert chosen[0] == min(margin for margin, _ in others)
    assert chosen[1]["parameters"]["noise"] == kind
    assert chosen[1]["delta"] == (0 if kind == "laplace" else 1e-6)
    assert 0 < chosen[1]["epsilon"] <= 0.5 * (1 + 1e-5)


WRONG: list[tuple[dict[str, Any], str]] = [
    *(
        ({"measure": m}, "measure must be a list")
        for m in ([], "job", {"job"}, [7], [()])
    ),
    ({"measure": [("job", 7)]}, "measure must be a list"),
    ({"measure": ["color"]}, "'color'"),
    ({"measure": [("job", "job")]}, "one column or of two"),
    ({"measure": [("job", "ill", "age")]}, "one column or of two"),
    ({"measure": [("job", "ill"), ("ill", "job")]}, "twice"),
    ({"schema": SUMMED, "measure": [("age", "pay"), "ill"]}, "two numbers"),
    ({"schema": SUMMED, "measure": [("age", "ill"), "job"]}, "measure 'ill' too"),
    ({"schema": SUMMED, "measure": ["age"]}, "no count"),
    ({"schema": {"age": "int"}}, "TableSchema"),
    ({"noise": "uniform"}, "noise"),
    ({"rows_per_unit": 2}, "unit_key="),
    ({"unit_key": " "}, "unit_key"),
    ({"noise": "gaussian", "epsilon": 1.0}, "epsilon="),
    ({"epsilon": -1}, "epsilon"),
    ({"budget": 7}, "budget"),
]


@pytest.mark.parametrize(("terms", "named"), WRONG)
def test_wrong_terms_are_named_before_the_charge(
    terms: dict[str, Any], named: str
) -> None:
    budget = account()
    with pytest.raises(InvalidParameterError, match=named):
        table_of(rows=9, **{"budget": budget, **terms}).release()
    assert budget.spent().queries == 0


def test_too_many_cells_and_too_much_noise_are_refused_before_the_charge() -> None:
    values = list(map(str, range(1100)))
    wide = TableSchema(
        label="a", columns=[CategoricalColumn(name=n, values=values) for n in "ab"]
    )
    with pytest.raises(InvalidParameterError, match="Measure fewer pairs"):
        GDPTable([], wide, measure=[("a", "b")])
    budget = account(1e-3)
    far = people_schema(
        age=NumericColumn(kind="integer", name="age", lower=0, upper=2**30)
    )
    rows = [{**row, "who": f"p{i}"} for i, row in enumerate(people(5))]
    given = {"budget": budget, "unit_key": "who", "rows_per_unit": 1000}
    table = GDPTable(rows, far, noise="laplace", **given)
    for call in (table.release, lambda: table.forecast(100)):
        with pytest.raises(InvalidParameterError, match="noise"):
            call()
    assert budget.spent().queries == 0


ASKED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda found: found.table(("age", "job")), "was not measured"),
    (lambda found: found.table(("job", "job")), "was not measured"),
    (lambda found: found.table(()), "was not measured"),
    (lambda found: found.table([["job"]]), "was not measured"),
    (lambda found: found.counts("job", {"age": 30}), "was not measured"),
    (lambda found: found.counts("ill", {"job": "pilot"}), "'job': 'pilot' is none"),
    (lambda found: found.counts("ill", {"job": None}), "'job': None is none"),
    (lambda found: found.counts("ill", {"age": 81}), "'age': 81 is no bin"),
    (lambda found: found.counts("job", "ill"), "where must be"),
    (lambda found: found.mean("age"), "was not measured"),
]


@pytest.mark.parametrize(("ask", "named"), ASKED)
def test_what_was_not_measured_is_not_told(
    ask: Callable[[Any], Any], named: str
) -> None:
    job = CategoricalColumn(name="job", values=JOBS, other="nurse", missing="diver")
    found = table_of(rows=60, schema=people_schema(job=job)).release().statistics
    with pytest.raises(InvalidParameterError, match=named):
        ask(found)


# --- rows, examples, chains -----------------------------------------------------------


def test_the_first_row_of_each_label_is_typical_and_labels_take_turns() -> None:
    rows = table_of(schema=SUMMED).sample(6)
    assert [row["ill"] for row in rows[:2]] == [row["ill"] for row in rows[2:4]]
    for row in rows[:2]:
        own = [other for other in people(600) if other["ill"] == row["ill"]]
        jobs = Counter(r["job"] for r in own)
        assert jobs[row["job"]] == max(jobs.values())
        assert type(row["age"]) is int
        assert row["age"] == round(np.mean([r["age"] for r in own]))


def test_labels_hidden_by_noise_are_left_out() -> None:
    few = [{**row, "ill": "0"} for row in people(500)]
    budget = account(1.0)
    with seeded(3):
        assert {row["ill"] for row in table_of(1.0, few).sample(5)} == {"0"}
        with pytest.raises(UnitError, match="too few rows"):
            table_of(rows=1, budget=budget).examples(2)
    assert budget.spent().queries == 1


def test_examples_show_what_was_measured_and_nothing_else() -> None:
    table = table_of(measure=[("job", "ill")])
    (example,) = table.examples(1)
    assert example["text"].startswith("The job is")
    assert "age" not in example["text"]
    # What was not measured is left out of a question too.
    assert table.text(people(1)[0]) == f"The job is {people(1)[0]['job']}."
    for measure in (["ill"], ["job", "age"]):
        budget = account(LARGE)
        other = table_of(budget=budget, measure=measure)
        with pytest.raises(InvalidParameterError, match="'ill'"):
            other.examples(2)
        assert budget.spent().queries == 0
        assert set(other.sample(1)[0]) == set(measure)


async def test_the_chain_classifies_rows() -> None:
    schema = TableSchema(
        label="size",
        columns=[
            CategoricalColumn(name="color", values=["red", "green"]),
            CategoricalColumn(name="size", values=["small", "large"]),
        ],
    )
    red, green = {"color": "red"}, {"color": "green", "size": "small"}
    rows = [{**red, "size": "large"}, green] * 200
    table = await GDPTable(rows, schema, budget=account()).arelease()
    assert len(await table.aexamples(3)) == 3
    chain = table.classification_chain(OfflineChatModel(), k=4)
    assert chain.invoke(red) == "large"
    assert chain.batch([red, green]) == ["large", "small"]
    assert await chain.ainvoke(green) == "small"
    with pytest.raises(InvalidParameterError, match="'color'"):
        chain.invoke({})
    again = pickle.loads(pickle.dumps(chain.first))
    assert again.invoke(red) == table.text(red)


# --- charge, draw, resume -------------------------------------------------------------


def test_a_plan_pays_for_one_release_and_the_rest_is_free() -> None:
    budget = account(2.0)
    table = table_of(budget=budget)
    assert "released=False" in repr(table)
    for show in (table.record, table.summary, lambda: table.statistics):
        with pytest.raises(InvalidParameterError, match=r"release\(\)"):
            show()
    assert budget.spent().queries == 0
    for k in (1, 2, 5):
        assert len(table.examples(k)) == k
    assert "released=True" in repr(table.release())
    assert budget.spent().queries == 1
    record = table.record()
    assert 1.99 < record["epsilon"] <= 2.0001
    record["epsilon"] = 0
    assert table.record()["epsilon"] > 1
    with pytest.raises(BudgetExhaustedError, match="resume=True takes it"):
        table_of(budget=budget).release()
    with pytest.raises(BudgetExhaustedError, match="no release of these terms"):
        table_of(budget=budget, measure=["job"]).release(resume=True)
    with pytest.raises(TypeError):
        pickle.dumps(table)


@pytest.mark.parametrize("other", ["gaussian", "laplace"])
def test_an_interrupted_release_is_drawn_for_its_own_charge(
    other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever noise an account would get now: the charge says which was paid for."""
    budget = account(0.5, accounting="renyi", queries=2)
    with monkeypatch.context() as patch:
        patch.setattr(
            GDPTerms, "settled", lambda t, _: t.model_copy(update={"noise": other})
        )
        before_draws(patch, full)
        with pytest.raises(LedgerError, match="disk is full"):
            table_of(budget=budget).release()
    assert budget.spent().queries == 1
    table = table_of(budget=budget).release(resume=True)
    (event,) = table.record()["events"]
    assert event["kind"] == {"gaussian": "gaussian", "laplace": "pure"}[other]
    assert table.record()["parameters"]["noise"] == other
    assert budget.spent().queries == 1


def test_a_draw_that_was_not_stored_is_in_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused: list[Any] = []
    before_draws(monkeypatch, lambda _, value: full(refused.append(value)))
    with pytest.raises(LedgerError) as caught:
        table_of(rows=200).release()
    report = traceback.TracebackException.from_exception(
        caught.value, capture_locals=True
    )
    seen = [
        text
        for frame in report.stack
        if "langchain_dpicl" in frame.filename
        for text in (frame.locals or {}).values()
    ]
    assert seen
    assert len(refused) == 1
    assert not any(str(refused[0])[1:-1] in text or "array(" in text for text in seen)


# --- what is private ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("age", CANARY),
        ("pay", float("nan")),
        ("job", {CANARY: CANARY}),
        ("skills", [CANARY, "a"]),
        ("skills", None),
    ],
)
def test_errors_name_the_column_and_hold_nothing_of_the_row(
    column: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    skills = CategoricalColumn(name="skills", values=["a", "b"], max_items=1)
    rows = [{**row, "skills": "a"} for row in people(20)]
    rows[7] = {**rows[7], column: value}
    # What is not measured is checked all the same.
    table = table_of(rows=rows, schema=people_schema(skills=skills), measure=["ill"])
    with pytest.raises(DPError, match=repr(column)) as caught:
        table.release()
    report = traceback.TracebackException.from_exception(
        caught.value, capture_locals=True
    )
    ours = "".join(report.format()).split("langchain_dpicl", 1)[1]
    for text in (str(caught.value), ours, caplog.text, repr(table)):
        assert CANARY not in text
