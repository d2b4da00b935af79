"""A release that dies at any write goes on under its charge, and is drawn once.

Death is an error out of the database at the n-th statement. Whatever n is: the account
is charged at most once, what was shown before is what is shown after, and a release is
in the ledger before anybody sees it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from faces import (
    BudgetExhaustedError,
    DPError,
    LedgerError,
    counts,
    planned,
    table_of,
)
from sqlalchemy import event
from sqlalchemy.engine import Engine
from suite import WHOLE
from unit_tests.tables.parts import SCHEMA, person

ROWS = [person(number) for number in range(40)]
KINDS = ["GDPTable", "LDPTable"]


class DiedError(RuntimeError):
    """Stands for the death of the process at a statement."""


@contextmanager
def dying(at: int) -> Iterator[list[str]]:
    """Let the database fail at one statement; yield those that were begun."""
    seen: list[str] = []

    def begun(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)
        if len(seen) == at:
            raise DiedError

    event.listen(Engine, "before_cursor_execute", begun)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", begun)


def account(url: str = ":memory:") -> Any:
    """Return an account whose one release has much noise, so that two draws differ."""
    return planned(0.1, ledger=url)


def make(kind: str, url: str, rows: Any = ROWS, **terms: Any) -> Any:
    """Return a table that is not released yet, of an account in a file."""
    if kind == "GDPTable":
        terms["measure"] = ["job"]
    return table_of(kind, rows, SCHEMA, budget=account(url), **terms)


def values(table: Any, kind: str) -> Any:
    """Return what a table released."""
    return counts(table, "job") if kind == "GDPTable" else table.standard_errors()


def statements(kind: str, folder: Path) -> int:
    """Return how many statements a release takes."""
    table = make(kind, f"sqlite:///{folder / 'count.db'}")
    with dying(0) as seen:
        table.release()
    return len(seen)


def spent(url: str) -> int:
    """Return how many releases an account has paid for."""
    return int(account(url).spent().queries)


def check_once(shown: list[Any]) -> None:
    """Check that all that was shown is one draw."""
    assert all(values == shown[0] for values in shown)


@pytest.mark.promise("table-resume", "table-drawn-once")
@pytest.mark.parametrize("kind", KINDS)
def test_dead_at_any_statement_it_is_paid_once_and_drawn_once(
    kind: str, tmp_path: Path
) -> None:
    most = statements(kind, tmp_path)
    charges = []
    for at in range(1, most + 1, 1 if WHOLE else max(1, most // 8)):
        url = f"sqlite:///{tmp_path / f'{at}.db'}"
        shown = None
        table = make(kind, url)
        try:
            with dying(at):
                shown = values(table.release(), kind)
        except (DiedError, LedgerError):
            assert shown is None
        charges.append(spent(url))
        again = values(make(kind, url).release(resume=True), kind)
        assert spent(url) == 1
        check_once([again, values(make(kind, url).release(resume=True), kind)])
        check_once([again, again if shown is None else shown])
        # Without `resume` it would be a second release, which the plan doesn't pay.
        with pytest.raises(BudgetExhaustedError):
            make(kind, url).release()
        account(url).ledger.verify("default")
    # The charge is durable first, and the draw is stored after it.
    assert charges == sorted(charges)
    assert charges.count(1) > 1


@pytest.mark.promise("table-drawn-once", twin=True)
@pytest.mark.parametrize("kind", KINDS)
def test_twin_that_draws_again_for_the_same_charge(kind: str, tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path / name}.db" for name in "ab"]
    with pytest.raises(AssertionError):
        check_once([values(make(kind, url).release(), kind) for url in urls])


@pytest.mark.promise("table-drawn-once")
@pytest.mark.parametrize("kind", KINDS)
def test_a_complete_release_is_given_again_without_reading_rows(
    kind: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    first = values(make(kind, url).release(), kind)

    def never() -> Iterator[Any]:
        pytest.fail("rows were read")
        yield

    assert values(make(kind, url, never()).release(resume=True), kind) == first
    assert spent(url) == 1


@pytest.mark.promise("charge-before-noise")
@pytest.mark.parametrize("kind", KINDS)
def test_without_a_charge_nothing_is_released(kind: str) -> None:
    terms = {"measure": ["job"]} if kind == "GDPTable" else {}
    budget = account()
    table_of(kind, ROWS, SCHEMA, budget=budget, **terms).release()
    late = table_of(kind, ROWS, SCHEMA, budget=budget, **terms)
    with pytest.raises(BudgetExhaustedError):
        late.release()
    with pytest.raises(DPError):
        values(late, kind)
