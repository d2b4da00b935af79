"""Draws that somebody takes out of the ledger, so that they are made again and again.

The mean of many draws for one charge has hardly any noise: the charge would have paid
for one of them.
"""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Text, create_engine, inspect
from support import few_shot_fakes, table_parts
from support.few_shot_fakes import (
    WordModel,
    budget_of,
    generator_of,
    records_of,
    watched_noise,
)
from support.ledgers import Database
from support.table_parts import people, people_schema

from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.chain.answers import forget
from langchain_dpicl.errors import LedgerError, PublicCallError
from langchain_dpicl.tabular import GDPTable
from langchain_dpicl.tabular.gdp import release

ONCE = "Noise is drawn once for a charge, and never again"


def taking_back(database: Database, begins: str = "[") -> list[str]:
    """Return what deletes the rows with a text like a list of numbers, say.

    Args:
        database: The ledger; its accounts and charges are left alone.
        begins: How the text begins.
    """
    engine = create_engine(database.url)
    inspector = inspect(engine)
    wanted = [
        f"DELETE FROM {table} WHERE \"{column['name']}\" LIKE '{begins}%'"
        for table in set(inspector.get_table_names())
        - {"dpicl_account", "dpicl_charge"}
        for column in inspector.get_columns(table)
        if isinstance(column["type"], Text)
    ]
    engine.dispose()
    return wanted


def take_back(database: Database, begins: str = "[") -> None:
    for statement in taking_back(database, begins):
        database.execute(statement)


def table_of(budget: PrivacyBudgetHandler) -> GDPTable:
    return GDPTable(people(60), people_schema(), budget=budget)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Whatever noise was drawn for tables."""
    drawn: list[Any] = []
    noisy = release.noisy_tallies

    def watched(*given: Any, **named: Any) -> Any:
        drawn.append(noisy(*given, **named))
        return drawn[-1]

    monkeypatch.setattr(release, "noisy_tallies", watched)
    return drawn


def test_two_hundred_draws_of_one_charge_are_one(
    database: Database, tables: list[Any]
) -> None:
    budget = table_parts.account(ledger=database.url)
    table_of(budget).release()
    statements = taking_back(database)
    for _ in range(200):
        for statement in statements:
            database.execute(statement)
        with pytest.raises(LedgerError, match=ONCE):
            table_of(budget).release(resume=True)
    assert len(tables) == 1
    with pytest.raises(LedgerError, match=ONCE):
        table_parts.account(ledger=database.url)
    assert len(tables) == 1


@pytest.mark.parametrize("begins", ["[", "{", ""], ids=["step", "header", "all"])
def test_a_table_whose_draw_was_taken_back_is_not_drawn_again(
    database: Database, tables: list[Any], begins: str
) -> None:
    budget = table_parts.account(ledger=database.url, queries=5)
    table_of(budget).release()
    take_back(database, begins)
    with pytest.raises(LedgerError, match=ONCE):
        table_of(budget).release(resume=True)
    assert len(tables) == 1


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("begins", ["[", "{", ""], ids=["steps", "header", "all"])
def test_examples_whose_tokens_were_taken_back_are_not_drawn_again(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    begins: str,
    complete: bool,
) -> None:
    used = watched_noise(monkeypatch)
    budget = budget_of(ledger=database.url)
    if complete:
        generator_of(budget=budget).generate(records_of())
    else:
        with pytest.raises(PublicCallError):
            generator_of(few_shot_fakes.BrokenModel(4), budget=budget).generate(
                records_of()
            )
    drawn = len(used)
    assert drawn > 1
    take_back(database, begins)
    again = generator_of(WordModel(), budget=budget)
    for resume in (
        lambda: again.generate(records_of(), resume=True),
        again.released,
        lambda: budget_of(ledger=database.url),
    ):
        with pytest.raises(LedgerError, match=ONCE):
            resume()
    assert len(used) == drawn


async def test_the_same_while_it_runs_beside_an_event_loop(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = watched_noise(monkeypatch)
    budget = budget_of(ledger=database.url)
    await generator_of(budget=budget).agenerate(records_of())
    drawn = len(used)
    take_back(database)
    with pytest.raises(LedgerError, match=ONCE):
        await generator_of(budget=budget).agenerate(records_of(), resume=True)
    assert len(used) == drawn


def test_clearing_the_answers_lets_nothing_be_drawn_again(
    database: Database, tables: list[Any]
) -> None:
    budget = table_parts.account(ledger=database.url)
    first = table_of(budget).release().statistics
    assert forget(budget.ledger, budget.account) == 0
    found = table_of(budget).release(resume=True).statistics
    for one, two in zip(first.tallies, found.tallies, strict=True):
        assert (one == two).all()
    assert len(tables) == 1
