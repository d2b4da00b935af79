"""Values that nobody listed: what comes out, what a person moves, what is charged."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from support.exact_laws import keeps_to
from support.table_parts import account
from support.text_parts import Reader

from langchain_dpicl.accounting import Failure, Gaussian, Pure
from langchain_dpicl.budget import charges
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    NoBudgetError,
    PublicCallError,
    UnitError,
)
from langchain_dpicl.mechanisms import keyword_threshold
from langchain_dpicl.mechanisms.random import SeededRandom, use
from langchain_dpicl.tabular import CategoricalColumn, TableSchema, discover

RARE = "Xylophonitis"


def people(**times: int) -> list[dict[str, Any]]:
    rows = [value for value, count in times.items() for _ in range(count)]
    return [{"ill": value, "who": number} for number, value in enumerate(rows)]


ROWS = people(gout=60, Flu=50, **{RARE: 1})


def test_what_many_have_comes_out_and_what_one_has_does_not() -> None:
    budget = account()
    found = discover(ROWS, "ill", budget=budget)
    assert set(found.values) == {"gout", "flu"}
    assert found.counts["gout"] == pytest.approx(60, abs=25)
    assert budget.spent().queries == 1
    record = found.record
    assert record["epsilon"] == pytest.approx(budget.spent().epsilon)
    assert record["parameters"]["people_for_95_percent"] == found.people
    assert RARE.casefold() not in str(record).casefold()
    column = found.column()
    assert isinstance(column, CategoricalColumn)
    assert column.values == (*found.values, "other")
    schema = TableSchema(
        label="ill", columns=[column, CategoricalColumn(name="who", values=["a", "b"])]
    )
    assert schema.column("ill").codes([RARE, "gout"]).tolist()[0] == 2
    empty = discover(people(one=1, two=1), "ill", budget=account())
    assert empty.values == ()
    with pytest.raises(InvalidParameterError, match="takes about"):
        empty.column()


@pytest.mark.parametrize(("most", "noise"), [(1, "laplace"), (3, "gaussian")])
def test_the_law_of_coming_out(noise: Any, most: int) -> None:
    budget = account(epsilon=60.0, queries=121)
    terms = {"noise": noise, "max_values": most, "budget": budget}
    people_at_95 = discover(ROWS, "ill", **terms).people
    events = charges(budget.ledger, budget.account)[0].events
    kind = Pure if noise == "laplace" else Gaussian
    assert isinstance(events[0], kind)
    assert isinstance(events[1], Failure)
    count = people_at_95 - 1
    rate = keyword_threshold.pass_rate(
        count, (events[0], events[1]), "add_remove", items_per_answer=most
    )
    assert 0.5 < rate < 0.95
    with use(SeededRandom(1)):
        drawn = [
            discover(people(gout=count), "ill", **terms).values == ("gout",)
            for _ in range(120)
        ]
    assert keeps_to(drawn, {True: rate, False: 1 - rate})
    assert not keeps_to(drawn, {True: 1 - rate, False: rate})


def test_the_better_noise_is_taken_by_public_numbers() -> None:
    found = {
        (most, noise): discover(
            ROWS, "ill", budget=account(epsilon=1.0), max_values=most, noise=noise
        )
        for most in (1, 5)
        for noise in ("laplace", "gaussian", None)
    }
    for most in (1, 5):
        own = [found[most, noise].people for noise in ("laplace", "gaussian", None)]
        assert own[2] == min(own[:2])
    assert found[1, None].record["parameters"]["noise"] == "laplace"
    assert found[5, None].record["parameters"]["noise"] == "gaussian"


def test_resuming_takes_what_was_paid_for(tmp_path: Path) -> None:
    budget = account(ledger=f"sqlite:///{tmp_path / 'ledger.db'}")
    found = discover(ROWS, "ill", budget=budget)
    again = discover([], "ill", budget=budget, resume=True)
    assert again.counts == found.counts
    assert again.record["charge"] == found.record["charge"] == 1
    with pytest.raises(BudgetExhaustedError, match="resume=True"):
        discover(ROWS, "ill", budget=budget)


def fail(prompt: str) -> str:
    raise RuntimeError(prompt)


def documents(**times: int) -> list[Document]:
    return [
        Document(f"It was {row['ill']}.", metadata={"who": row["who"]})
        for row in people(**times)
    ]


@pytest.mark.parametrize(
    ("rows", "terms", "kind", "named"),
    [
        (ROWS, {"budget": None}, NoBudgetError, "budget"),
        ([], {}, UnitError, "no rows"),
        ([{"ill": 0.5}], {}, InvalidParameterError, "'ill': a cell is neither"),
        ([{"sick": "a"}], {}, InvalidParameterError, "no column 'ill'"),
        (ROWS, {"max_values": 0}, InvalidParameterError, "items_per_answer"),
        (ROWS, {"noise": "none"}, InvalidParameterError, "noise must be"),
        (ROWS, {"unit_key": "id"}, InvalidParameterError, "no column 'id'"),
        ([Document("x")], {"model": Reader()}, InvalidParameterError, "unit_key"),
        (
            documents(gout=9),
            {"unit_key": "who", "model": Reader(reply=fail)},
            PublicCallError,
            "RuntimeError",
        ),
    ],
)
def test_mistakes_cost_nothing(
    rows: Any, terms: dict[str, Any], kind: type[Exception], named: str
) -> None:
    budget = account()
    with pytest.raises(kind, match=named):
        discover(rows, "ill", **{"budget": budget, **terms})
    assert budget.spent().queries == 0


def test_free_text_is_read_person_by_person() -> None:
    asked: list[str] = []

    def reply(prompt: str) -> str:
        asked.append(prompt)
        paid.append(budget.spent().queries)
        if "broken" in prompt:
            raise RuntimeError(RARE)
        return "- Gout attacks" if "gout" in prompt else "none"

    budget, paid = account(), list[int]()
    found = discover(
        documents(gout=70, nothing=20, broken=3),
        "illnesses",
        budget=budget,
        unit_key="who",
        model=Reader(reply=reply),
    )
    assert found.values == ("gout attack",)
    # One public call, and one for each person.
    assert len(asked) == 1 + 93
    assert Counter("It was" in prompt for prompt in asked)[True] == 93
    assert all(prompt.count("It was") <= 1 for prompt in asked)
    # The charge comes before anybody's text is shown.
    assert paid == [0] + [1] * 93
