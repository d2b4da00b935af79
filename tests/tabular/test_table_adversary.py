"""Attacks on what both tables share: what is charged, to whom, and when not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    PlanMismatchError,
)
from langchain_dpicl.mechanisms.random import SeededRandom
from langchain_dpicl.offline import OfflineChatModel
from langchain_dpicl.tabular import (
    CategoricalColumn,
    GDPTable,
    LDPTable,
    TableSchema,
)
from langchain_dpicl.tabular.rows import Chunk, RowReader

TABLES = [GDPTable, LDPTable]
ROWS = [{"job": "clerk", "ill": "no"}, {"job": "nurse", "ill": "yes"}] * 300
PEOPLE = [{**row, "who": f"p{place // 3}"} for place, row in enumerate(ROWS)]


def schema(*labels: str) -> TableSchema:
    return TableSchema(
        label="ill",
        columns=[
            CategoricalColumn(name="job", values=["clerk", "nurse"]),
            CategoricalColumn(name="ill", values=labels or ("no", "yes")),
        ],
    )


def account(**terms: Any) -> PrivacyBudgetHandler:
    given = {"epsilon": 3.0, "delta": 1e-6, "ledger": ":memory:", **terms}
    if "accounting" not in given:
        given["queries"] = 1
    return PrivacyBudgetHandler(**given)


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    ("use", "named"),
    [
        (lambda t: t.classification_chain(OfflineChatModel(), unknown="no"), "unknown"),
        (lambda t: t.classification_chain(OfflineChatModel(), unknown=3), "unknown"),
        (lambda t: t.classification_chain("a model's name"), "model"),
        (lambda t: t.classification_chain(OfflineChatModel(), k=0), "k must"),
    ],
)
def test_public_mistakes_are_refused_before_the_charge(
    kind: Any, use: Callable[[Any], Any], named: str
) -> None:
    budget = account()
    table = kind(ROWS, schema(), budget=budget)
    with pytest.raises(InvalidParameterError, match=named):
        use(table)
    assert budget.spent().queries == 0
    # The same use without the mistake is paid for.
    table.classification_chain(OfflineChatModel(), k=2)
    assert budget.spent().queries == 1


@pytest.mark.parametrize("kind", TABLES)
def test_labels_that_no_answer_tells_apart_are_refused_before_the_charge(
    kind: Any,
) -> None:
    budget = account()
    rows = [{"job": "clerk", "ill": "No"}, {"job": "nurse", "ill": "no"}] * 50
    table = kind(rows, schema("No", "no"), budget=budget)
    with pytest.raises(InvalidParameterError, match="the same once case"):
        table.classification_chain(OfflineChatModel())
    assert budget.spent().queries == 0


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("given", ["drop", None, ["refuse"], np.array(["ignore"] * 2)])
def test_extra_columns_are_checked_when_a_table_is_made(kind: Any, given: Any) -> None:
    with pytest.raises(InvalidParameterError, match="extra_columns"):
        kind(ROWS, schema(), extra_columns=given)


def test_both_tables_add_up_in_one_account_that_is_opened_anew(tmp_path: Path) -> None:
    def opened(**terms: Any) -> PrivacyBudgetHandler:
        url = f"sqlite:///{tmp_path / 'ledger.db'}"
        return account(accounting="renyi", ledger=url, **terms)

    charges = []
    for kind in (GDPTable, LDPTable, GDPTable):
        table = kind(PEOPLE, schema(), epsilon=0.2, budget=opened(), unit_key="who")
        charges.append(table.release().record()["charge"])
    assert charges == [1, 2, 3]
    assert 0.2 < opened().spent().epsilon <= 3.0
    with pytest.raises(BudgetExhaustedError):
        LDPTable(
            PEOPLE, schema(), epsilon=3.0, budget=opened(), unit_key="who"
        ).release()
    # Each release knows its own charge among them.
    again = GDPTable(PEOPLE, schema(), epsilon=0.2, budget=opened(), unit_key="who")
    assert again.release(resume=True).record()["charge"] == charges[2]
    with pytest.raises(PlanMismatchError, match="other terms"):
        opened(delta0_share=0.3)


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("person_first", [True, False])
def test_an_account_is_of_one_kind_of_unit(kind: Any, person_first: bool) -> None:
    budget = account(accounting="renyi")
    by_person = GDPTable(PEOPLE, schema(), epsilon=0.2, budget=budget, unit_key="who")
    by_row = kind(ROWS, schema(), epsilon=0.2, budget=budget)
    first, second = (by_person, by_row) if person_first else (by_row, by_person)
    first.release()
    with pytest.raises(PlanMismatchError, match="kind of unit"):
        second.release()
    assert budget.spent().queries == 1


def test_a_unit_is_one_whatever_type_its_ids_have_in_each_chunk() -> None:
    whole = pd.DataFrame({"code": range(400), "who": [n % 25 for n in range(400)]})
    mixed = [
        whole.iloc[:90],
        whole.iloc[90:150].astype({"who": str}),
        whole.iloc[150:220].astype({"who": "Int64"}),
        whole.iloc[220:300].astype({"who": "int8"}),
        whole.iloc[300:].astype({"who": "category"}),
    ]

    def read(data: Any, chunk_size: int) -> Counter[int]:
        reader = RowReader(
            data,
            ["code"],
            lambda chunk: {"code": _codes(chunk)},
            unit_key="who",
            rows_per_unit=3,
            sampling_rate=0.6,
            random=SeededRandom(5),
            chunk_size=chunk_size,
        )
        taken = [code for block in reader.blocks() for code in block["code"].tolist()]
        return Counter(taken)

    expected = read(whole, 1000)
    assert 0 < expected.total() < 75
    for size in (7, 64):
        assert read(mixed, size) == expected
        assert read(whole.sample(frac=1.0, random_state=size), size) == expected
    # Who is gone takes nobody else's rows along.
    fewer = read(whole[whole["who"] != 4], 50)
    assert not fewer - expected
    assert (expected - fewer).total() in (0, 3)


def _codes(chunk: Chunk) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.asarray(chunk.columns["code"], dtype=np.int64)
