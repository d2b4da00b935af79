"""A release that is cut leaves the same, and goes on the same, sync and async."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from support.chain_parts import EMBEDDING, QUESTION, reply
from support.fakes import ScriptedModel, notes
from support.few_shot_fakes import WordModel, budget_of, generator_of, records_of
from support.ldp_parts import MIXED
from support.ldp_parts import budget_of as ldp_budget
from support.ldp_parts import table_of as ldp_table
from support.table_parts import account, people, people_schema

from langchain_dpicl import (
    DPChain,
    KSAPTROutputParser,
    LedgerError,
    PrivacyBudgetHandler,
    RetrievedGroups,
)
from langchain_dpicl.chain.answers import CLOSED
from langchain_dpicl.ledger import MemoryLedger
from langchain_dpicl.tabular import GDPTable

GROUPS = RetrievedGroups.from_documents(
    notes(60), EMBEDDING, unit_key="patient", n_groups=20
)


def full() -> LedgerError:
    return LedgerError("The disk is full.")


class Stopped(BaseException):
    """An interrupt: no `except Exception` may hold it."""


CUTS: list[Callable[[], BaseException]] = [full, Stopped, asyncio.CancelledError]


class Points:
    """Counts the places that a release passes, and raises at one of them."""

    def __init__(self, at: int = -1, cut: Callable[[], BaseException] = full) -> None:
        self.at, self.cut, self.count = at, cut, 0

    def reach(self) -> None:
        self.count += 1
        if self.count == self.at + 1:
            raise self.cut()

    def wrapped(self, method: Any) -> Any:
        def watched(*given: Any, **named: Any) -> Any:
            self.reach()
            found = method(*given, **named)
            self.reach()
            return found

        return watched

    def ledger(self) -> MemoryLedger:
        found: Any = MemoryLedger()
        for name in ("charge", "releases", "store_step"):
            setattr(found, name, self.wrapped(getattr(found, name)))
        return found

    def rows(self, rows: list[Any]) -> Iterator[Any]:
        for number, row in enumerate(rows):
            if number % 100 == 0:
                self.reach()
            yield row


def renyi(ledger: Any) -> PrivacyBudgetHandler:
    return budget_of(ledger=ledger, accounting="renyi", order=8.0)


async def examples(points: Points, ledger: Any, *, is_async: bool, resume: bool) -> Any:
    model: Any = WordModel(ending=None)
    # A call for the groups that fails costs slots and stops nothing.
    model.top_tokens = points.wrapped(model.top_tokens)
    made = generator_of(model, budget=renyi(ledger), max_tokens=2)
    ways = {"resume": resume, "progress": False}
    if is_async:
        return list(await made.agenerate(records_of(), **ways))
    return list(made.generate(records_of(), **ways))


async def answer(points: Points, ledger: Any, *, is_async: bool, resume: bool) -> Any:
    chain = DPChain(
        groups=GROUPS,
        model=ScriptedModel(reply=reply),
        parser=KSAPTROutputParser(k=1),
        budget=PrivacyBudgetHandler(epsilon=30, delta=1e-6, queries=5, ledger=ledger),
        cache=True,
    )
    made = await chain.ainvoke(QUESTION) if is_async else chain.invoke(QUESTION)
    return made.content


async def table(points: Points, ledger: Any, *, is_async: bool, resume: bool) -> Any:
    rows, budget = points.rows(people(300)), account(ledger=ledger)
    made = GDPTable(rows, people_schema(), budget=budget)
    return await released(made, is_async=is_async, resume=resume)


async def reports(points: Points, ledger: Any, *, is_async: bool, resume: bool) -> Any:
    made = ldp_table(points.rows(MIXED * 50), budget=ldp_budget(ledger))
    return await released(made, is_async=is_async, resume=resume)


async def released(made: Any, *, is_async: bool, resume: bool) -> Any:
    if is_async:
        return (await made.arelease(resume=resume)).record()
    return made.release(resume=resume).record()


def left_in(ledger: MemoryLedger) -> list[tuple[int, ...]]:
    """Return for each account its number of charges, and of steps of each release."""
    return [
        (len(ledger.charges(name)), *(len(r.steps) for r in ledger.releases(name)))
        for name in ledger.accounts()
    ]


def drawn_in(ledger: MemoryLedger) -> list[str]:
    return [s for n in ledger.accounts() for r in ledger.releases(n) for s in r.steps]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("make", [answer, examples, table, reports])
async def test_a_cut_at_any_place_leaves_the_same_sync_and_async(
    make: Any, cut: Callable[[], BaseException]
) -> None:
    ends = Points()
    await make(ends, ends.ledger(), is_async=False, resume=False)
    assert ends.count > 5
    seen = set()
    for at in range(ends.count):
        left = []
        for is_async in (False, True):
            points = Points(at, cut)
            ledger = points.ledger()
            # Some are replaced; an answer whose wording can't be stored is given.
            with suppress(BaseException):
                await make(points, ledger, is_async=is_async, resume=False)
            assert points.count > at
            left.append(left_in(ledger))
            before, charged = (
                drawn_in(ledger),
                any(map(ledger.charges, ledger.accounts())),
            )
            first = await make(points, ledger, is_async=is_async, resume=True)
            after = drawn_in(ledger)
            assert after[: len(before)] == before, "a stored draw was drawn again"
            # An answer's draw that was lost is charged anew, everything else goes on.
            is_lost = make is answer and charged and not set(before) - {CLOSED}
            assert left_in(ledger)[0][0] == 1 + is_lost
            again = await make(points, ledger, is_async=not is_async, resume=True)
            assert (again, drawn_in(ledger)) == (first, after)
        assert left[0] == left[1], f"cut at {at}"
        seen.add(str(left[0]))
    assert len(seen) > 2, "nothing was cut between the charge and the end"
