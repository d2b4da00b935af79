"""What a user gets of a `GDPTable`: statistics, rows, examples, chains."""

from __future__ import annotations

import pickle
from typing import Any, cast

import numpy as np
import pytest
from langchain_core.prompts import FewShotPromptTemplate, PromptTemplate
from support.table_parts import account, measured, people, people_schema

from langchain_dpicl import PrivacyBudgetHandler, ReleasedExamples
from langchain_dpicl.accounting import Pure
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    NoBudgetError,
    UnitError,
)
from langchain_dpicl.mechanisms.random import SeededRandom, seeded
from langchain_dpicl.mechanisms.tables import noisy_tallies
from langchain_dpicl.offline import OfflineChatModel
from langchain_dpicl.tabular import (
    CategoricalColumn,
    GDPTable,
    NoisyStatistics,
    NumericColumn,
    TableSchema,
)

LARGE = 1e4
"""An epsilon at which there is no noise to speak of."""


@pytest.fixture
def exact() -> GDPTable:
    return GDPTable(people(600), people_schema(), budget=account(LARGE))


def test_without_noise_the_statistics_are_the_tables_own(exact: GDPTable) -> None:
    found = exact.release().statistics
    table = people(600)
    for group, ill in enumerate(("0", "1")):
        rows = [row for row in table if row["ill"] == ill]
        assert found.described_group(group) == {"ill": {"0": "well", "1": "ill"}[ill]}
        assert found.sizes[group].value == pytest.approx(len(rows))
        assert found.mean(group, "pay").value == pytest.approx(
            np.mean([row["pay"] for row in rows]), abs=1e-3
        )
        mean = np.mean([row["age"] for row in rows])
        assert found.mean(group, "age").value == pytest.approx(mean, abs=1e-2)
        # A row shows an integer; the mean itself is more exact.
        age = found.typical(group)["age"]
        assert type(age) is int
        assert age == round(mean)
        jobs = [row["job"] for row in rows]
        assert found.shares(group, "job") == pytest.approx(
            [jobs.count(job) / len(jobs) for job in ("clerk", "diver", "nurse")]
        )


@pytest.mark.parametrize(
    "group_by", [[], ["ill"], ["job", "ill"], ["age"], ["age", "pay", "job", "ill"]]
)
def test_every_combination_of_declared_values_is_a_group(group_by: list[str]) -> None:
    table = GDPTable(
        people(600), people_schema(), budget=account(LARGE), group_by=group_by
    )
    found = table.release().statistics
    sizes = {"age": 3, "pay": 3, "job": 3, "ill": 2}
    assert found.terms.n_groups == np.prod([sizes[name] for name in group_by])
    assert sum(size.value for size in found.sizes) == pytest.approx(600)
    made = [tuple(found.described_group(g).values()) for g in range(len(found.sizes))]
    assert len(set(made)) == len(made)
    (row,) = table.sample(1)
    assert set(row) == {"age", "pay", "job", "ill"}
    (example,) = table.examples(1)
    # A column that makes the groups is known by its bin alone.
    bins = [table.schema.column("age").code_text(code) for code in range(3)]
    shown = any(f"The age is {name}." in example["text"] for name in bins)
    assert shown == ("age" in group_by)


def test_the_first_row_of_each_group_is_typical_and_labels_take_turns(
    exact: GDPTable,
) -> None:
    rows = exact.sample(6)
    assert {row["ill"] for row in rows[:2]} == {"0", "1"}
    assert [row["ill"] for row in rows[:2]] == [row["ill"] for row in rows[2:4]]
    found = exact.release().statistics
    assert rows[0] == found.typical(["0", "1"].index(rows[0]["ill"]))
    assert exact.sample(1)[0] == rows[0]


def test_further_rows_come_as_often_as_in_the_table(exact: GDPTable) -> None:
    rows = exact.sample(3000, balanced=False)
    table = people(600)
    for column in ("job", "ill"):
        for value in {row[column] for row in table}:
            share = sum(row[column] == value for row in table) / len(table)
            seen = sum(row[column] == value for row in rows) / len(rows)
            assert abs(seen - share) < 6 * (share * (1 - share) / len(rows)) ** 0.5


def test_bins_let_rows_differ_in_their_numbers() -> None:
    table = GDPTable(
        people(600), people_schema(), budget=account(LARGE), numeric="bins"
    )
    ages = {row["age"] for row in table.sample(200)}
    assert ages == {"below 40 years", "40 to 60 years", "60 or more years"}


def test_bounds_are_kept_and_integers_stay_integers_under_heavy_noise() -> None:
    for seed in range(30):
        table = GDPTable(
            people(3),
            people_schema(),
            budget=account(0.05),
            small_groups="keep",
            random=SeededRandom(seed),
        )
        for row in table.sample(4):
            assert type(row["age"]) is int
            assert 20 <= row["age"] <= 80
            assert -1.5 <= row["pay"] <= 8.5


def test_groups_hidden_by_noise_are_left_out_or_kept_by_choice() -> None:
    few = [{**row, "ill": "0"} for row in people(500)]
    # Seeded: in one release of a hundred an empty group looks like one that is not.
    seeded: dict[str, Any] = {"random": SeededRandom(3)}
    left_out = GDPTable(few, people_schema(), budget=account(1.0), **seeded)
    assert {row["ill"] for row in left_out.sample(5)} == {"0"}
    assert left_out.record()["parameters"]["groups_hidden_by_noise"] == 1
    kept = GDPTable(
        few, people_schema(), budget=account(1.0), small_groups="keep", **seeded
    )
    assert {row["ill"] for row in kept.sample(5)} == {"0", "1"}
    assert "too small to be told from none" in kept.release().statistics.summary()


def test_one_row_is_no_answer_and_says_so() -> None:
    budget = account(1.0)
    table = GDPTable(people(1), people_schema(), budget=budget, random=SeededRandom(3))
    with pytest.raises(UnitError, match="too few rows"):
        table.examples(2)
    assert budget.spent().queries == 1


def test_examples_are_text_and_label_with_a_record(exact: GDPTable) -> None:
    examples = exact.examples(4)
    assert isinstance(examples, ReleasedExamples)
    assert examples[0]["text"].startswith("The age is ")
    assert " years. The pay is " in examples[0]["text"]
    assert {example["label"] for example in examples} == {"well", "ill"}
    record = examples.record
    assert record["mechanism"] == "gdp_table"
    assert (record["relation"], record["unit"]) == ("add_remove", "one row")
    assert record["delta"] == 0
    assert record["charge"] == 1
    assert record["account"]["queries_spent"] == 1


def test_a_plan_pays_for_one_release_and_examples_are_free_afterwards() -> None:
    budget = account(2.0)
    table = GDPTable(people(600), people_schema(), budget=budget)
    assert budget.spent().queries == 0
    for k in (1, 2, 5):
        assert len(table.examples(k)) == k
    assert budget.spent().queries == 1
    record = table.record()
    assert 1.99 < record["epsilon"] <= 2.0001
    again = GDPTable(people(600), people_schema(), budget=budget)
    with pytest.raises(BudgetExhaustedError):
        again.release()


def test_a_selector_goes_into_any_few_shot_prompt(exact: GDPTable) -> None:
    prompt = FewShotPromptTemplate(
        example_selector=exact.examples(6).selector(2),
        example_prompt=PromptTemplate.from_template("Text: {text}\nLabel: {label}"),
        suffix="Text: {text}\nLabel:",
    )
    shown = prompt.format(text=exact.schema.text(people(1)[0]))
    assert shown.count("Label:") == 3


async def test_the_chain_classifies_rows() -> None:
    schema = TableSchema(
        label="size",
        columns=[
            CategoricalColumn(name="color", values=["red", "green"]),
            CategoricalColumn(name="size", values=["small", "large"]),
        ],
    )
    rows = [
        {"color": "red", "size": "large"},
        {"color": "green", "size": "small"},
    ] * 200
    table = GDPTable(rows, schema, budget=account())
    chain = table.classification_chain(OfflineChatModel(), k=4)
    red, green = {"color": "red"}, {"color": "green", "size": "small"}
    assert chain.invoke(red) == "large"
    assert chain.batch([red, green]) == ["large", "small"]
    assert await chain.ainvoke(green) == "small"
    with pytest.raises(InvalidParameterError, match="'color'"):
        chain.invoke({})
    with pytest.raises(InvalidParameterError, match="mapping"):
        chain.invoke(7)


async def test_everything_can_be_awaited() -> None:
    table = GDPTable(people(600), people_schema(), budget=account())
    assert (await table.arelease()) is table.release()
    assert len(await table.aexamples(3)) == 3


def test_the_paper_table_of_amplification() -> None:
    """Table of Carey et al., N and n of adult and blood; printed figures."""
    printed = {
        (3016, 30162): {1: 0.159, 5: 2.756, 10: 7.698, 25: 22.697},
        (300, 598): {1: 0.622, 5: 4.317, 10: 9.310, 25: 24.310},
    }
    for (n, total), column in printed.items():
        for epsilon, reached in column.items():
            table = GDPTable(
                people(2000),
                people_schema(),
                budget=account(epsilon + 1, delta=1e-9),
                sampling_rate=n / total,
                epsilon=epsilon,
                small_groups="keep",
            )
            record = table.release().record()
            assert record["epsilon"] == pytest.approx(reached, abs=6e-4)
            before = record["parameters"]["epsilon_before_sampling"]
            assert before == pytest.approx(epsilon, rel=1e-9)


def test_a_forecast_tells_the_error_before_anything_is_paid() -> None:
    budget = account(1.0)
    table = GDPTable(people(4000), people_schema(), budget=budget)
    told = table.forecast(4000)
    assert budget.spent().queries == 0
    found = table.release().statistics
    assert told.size_error == pytest.approx(found.sizes[0].error)
    for column in told.columns:
        if column.name in ("age", "pay"):
            width = {"age": 60, "pay": 10}[column.name]
            mean = found.mean(0, column.name)
            # The release's own error also has the part of the number of rows.
            assert column.error * width == pytest.approx(mean.error, rel=0.5)
    assert told.is_possible
    assert not table.forecast(3).is_possible
    assert "larger epsilon" in table.forecast(3).advice()
    assert "Mostly noise" in table.forecast(60).advice()


def test_the_stated_error_is_the_error_of_the_noise() -> None:
    """Standard errors against many draws of the same release."""
    measured_once, table = measured(
        people(3000), people_schema(), account(0.5), epsilon=0.5
    )
    stated = table.release().statistics.mean(0, "age").error
    exact = measured_once.tallies
    found = []
    for seed in range(400):
        made = table.release().statistics
        with seeded(seed):
            noisy = noisy_tallies(
                exact, cast("Pure", made.paid), bounds=made.terms.bounds
            )
        again = NoisyStatistics.of(
            made.terms,
            made.paid,
            [int(number) for tally in noisy for number in tally.ravel()],
        )
        assert again is not None
        size = again.sizes[0].value
        found.append(float(again.tallies[0][0, 0]) / size / 2)
    assert np.std(found) == pytest.approx(stated, rel=0.25)


def test_what_was_not_released_yet_is_not_shown_and_not_charged() -> None:
    budget = account()
    table = GDPTable(people(600), people_schema(), budget=budget)
    for show in (table.record, table.summary, lambda: table.statistics):
        with pytest.raises(InvalidParameterError, match=r"release\(\)"):
            show()
    assert budget.spent().queries == 0
    assert table.release() is table
    assert table.summary() == table.statistics.summary()
    record = table.record()
    record["epsilon"] = 0
    assert table.record()["epsilon"] > 3


@pytest.mark.parametrize("group", [-1, 2])
def test_groups_beyond_the_last_are_refused(exact: GDPTable, group: int) -> None:
    found = exact.release().statistics
    with pytest.raises(InvalidParameterError, match="from 0 to 1"):
        found.described_group(group)
    with pytest.raises(InvalidParameterError, match="from 0 to 1"):
        found.mean(group, "pay")


def test_the_repr_says_what_is_public(exact: GDPTable) -> None:
    assert "released=False" in repr(exact)
    exact.release()
    assert "released=True" in repr(exact)
    seeded = GDPTable([], people_schema(), random=SeededRandom(1))
    assert "NOT SECURE" in repr(seeded)


def test_a_table_is_not_pickled(exact: GDPTable) -> None:
    with pytest.raises(TypeError):
        pickle.dumps(exact)


def test_without_a_budget_nothing_happens() -> None:
    def never() -> Any:
        raise AssertionError("read")
        yield

    with pytest.raises(NoBudgetError):
        GDPTable(never(), people_schema()).release()


def test_accounts_that_charge_units_are_refused() -> None:
    budget = PrivacyBudgetHandler(
        epsilon=1, delta=1e-6, queries=1, scope="unit", ledger=":memory:"
    )
    with pytest.raises(InvalidParameterError, match="units one by one"):
        GDPTable(people(9), people_schema(), budget=budget).release()


def test_numbers_without_bins_make_no_groups() -> None:
    plain = NumericColumn(name="age", kind="integer", lower=20, upper=80)
    with pytest.raises(InvalidParameterError, match="'age'"):
        GDPTable([], people_schema(age=plain), group_by="age")
    with pytest.raises(InvalidParameterError, match="'age'"):
        GDPTable([], people_schema(age=plain), numeric="bins")


def test_rows_to_classify_may_have_what_the_table_left_out() -> None:
    rows = [{**row, "who": place} for place, row in enumerate(people(600))]
    table = GDPTable(rows, people_schema(), budget=account(), unit_key="who")
    chain = table.classification_chain(OfflineChatModel(), k=2)
    assert chain.invoke(rows[0]) in ("well", "ill")
    with pytest.raises(InvalidParameterError, match="'note'"):
        chain.invoke({**rows[0], "note": "x"})
    noted = [{**row, "note": "x"} for row in people(600)]
    lenient = GDPTable(noted, people_schema(), budget=account(), extra_columns="ignore")
    assert lenient.text(noted[0]) == table.text(rows[0])


def test_a_chain_holds_what_is_public_and_can_be_pickled(exact: GDPTable) -> None:
    chain = exact.classification_chain(OfflineChatModel(), k=2)
    again = pickle.loads(pickle.dumps(chain.first))
    assert again.invoke(people(1)[0]) == exact.text(people(1)[0])
