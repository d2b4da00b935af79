"""Death at every single statement: a charge is there as a whole, or not at all."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.crash import accounts, invariants, releases
from support.crash.databases import Database, PostgresDatabase
from support.crash.nursery import Nursery
from support.postgres import PostgresServer

from langchain_dpicl.ledger import Ledger, SQLLedger

BEFORE = 2
"""Charges that were made before the crash."""


@dataclass(frozen=True)
class Points:
    """Where a piece of work can be stopped."""

    names: list[str]

    @property
    def commit(self) -> int:
        """The last point at which nothing can have been committed."""
        return self.names.index("before COMMIT")

    @property
    def certain(self) -> int:
        """The first point at which the commit has certainly happened."""
        end = "after the pipeline's end"
        return self.names.index(end if end in self.names else "after COMMIT")

    def charges(self, point: int) -> set[int]:
        """How many charges there may be if a worker dies at a point."""
        if point <= self.commit:
            return {0}
        return {1} if point >= self.certain else {0, 1}


def points_of(nursery: Nursery, **work: Any) -> Points:
    """Let a worker live through all points; return what they are."""
    seen = len(nursery.announced())
    assert nursery.wait(nursery.start("stop_at", point=-1, **work)) == 0
    return Points([s["what"] for s in nursery.announced()[seen:] if "what" in s])


def die(nursery: Nursery, point: int, **work: Any) -> None:
    """Let a worker die at a point; make sure that it did, and announced nothing."""
    seen = len(nursery.announced())
    code = nursery.wait(nursery.start("stop_at", point=point, **work))
    said = nursery.announced()[seen:]
    assert code == -signal.SIGKILL
    assert said[-1]["point"] == point, "the worker did not die where it should"
    assert not any("announced" in what for what in said)


def opened(database: Database, name: str) -> SQLLedger:
    ledger = SQLLedger(database.url)
    accounts.open_account(ledger, name)
    return ledger


@pytest.mark.parametrize("kind", ["plan", "zcdp", "capped"])
def test_a_charge_is_whole_or_not_there(
    database: Database, nursery: Nursery, kind: str
) -> None:
    name = f"{kind}-0"
    ledger = opened(database, name)
    for _ in range(BEFORE):
        ledger.charge(name, accounts.MIXES[kind][0])
    work = {"url": database.url, "name": name, "work": "charge"}
    points = points_of(nursery, **work)
    # Begin, two reads and a write, each on two sides.
    assert points.commit >= 8, points
    for point, what in enumerate(points.names):
        used = ledger.verify(name).used
        die(nursery, point, **work)
        database.settle()
        state, journal = ledger.verify(name), ledger.charges(name)
        assert state.used == len(journal), f"counter and journal part {what}"
        assert state.used - used in points.charges(point), f"half a charge {what}"
        invariants.journal_is_whole(journal)
        invariants.budget_is_kept(ledger, name, journal)
    assert ledger.charge(name, accounts.MIXES[kind][0]).sequence == state.used + 1
    ledger.dispose()
    database.check()


def test_an_account_of_a_corpus_is_opened_as_a_whole_or_not(
    database: Database, nursery: Nursery
) -> None:
    work = {"name": "capped-1", "work": "open"}
    opened(database, "capped-0").dispose()
    names = points_of(nursery, url=database.url, **work).names
    # It is looked for in a transaction of its own.
    first = names.index("after COMMIT") + 1
    commit = first + Points(names[first:]).commit
    # Begin, the registry, the corpus, its time, its accounts, and three writes.
    assert commit - first >= 20, names
    for point in range(first, len(names)):
        url, what = database.fresh(), names[point]
        ledger = opened(database, "capped-0")
        die(nursery, point, url=url, **work)
        database.settle()
        found = set(ledger.accounts()) - {"capped-0"}
        assert point > commit or not found, f"it is there {what}"
        assert found or point <= commit + 1, f"it is lost {what}"
        corpus = ledger.corpus(accounts.CORPUS.name)
        assert len(corpus.accounts) == 1 + len(found), f"half of it {what}"
        ledger.verify_accounts()
        for name in ledger.accounts():
            ledger.verify(name)
        assert ledger.open(accounts.terms_of("capped-1")).used == 0
        ledger.dispose()
        database.check()


def test_all_units_pay_or_none(database: Database, nursery: Nursery) -> None:
    name = "unit-0"
    ledger = opened(database, name)
    work = {"url": database.url, "name": name, "work": "charge_units"}
    points = points_of(nursery, **work)
    # Begin, a read, the price, the balances and their digest.
    assert points.commit >= 10, points
    for point, what in enumerate(points.names):
        before = _balances(ledger, name)
        die(nursery, point, **work)
        database.settle()
        ledger.verify(name)
        cost = ledger.charges(name)[-1].charge.cost
        paid = {now - before.get(t, 0) for t, now in _balances(ledger, name).items()}
        assert len(paid) == 1, f"some units pay and some don't {what}"
        assert paid <= {n * cost.loss for n in points.charges(point)}, what
    ledger.dispose()
    database.check()


def test_all_tags_have_a_fresh_key_or_none(
    database: Database, nursery: Nursery
) -> None:
    name = "unit-0"
    ledger = opened(database, name)
    charge = ledger.charge(name, accounts.MIXES["unit"][-1])
    answers = ledger.charge_units(charge, accounts.UNITS)
    paid = dict(zip(accounts.UNITS, answers, strict=True))
    work = {"url": database.url, "name": name, "work": "rotate_key"}
    points = points_of(nursery, **work)
    # Begin, two reads, the old rows, the new ones and the account's, on two sides.
    assert points.commit >= 12, points
    for point, what in enumerate(points.names):
        before = set(_balances(ledger, name))
        die(nursery, point, **work)
        database.settle()
        ledger.verify(name)
        after = _balances(ledger, name)
        rotated = int(not before & set(after))
        assert len(after) == sum(paid.values()), f"a balance is lost {what}"
        assert rotated or set(after) == before, f"some tags are rotated {what}"
        assert rotated in points.charges(point), what
        for unit in accounts.UNITS:
            spent = after.get(ledger.unit_tag(name, unit), 0)
            assert spent == charge.cost.loss * paid[unit], what
    ledger.dispose()
    database.check()


def test_a_step_is_stored_and_noted_or_neither(
    database: Database, nursery: Nursery
) -> None:
    name = "zcdp-0"
    ledger = opened(database, name)
    ledger.charge(name, accounts.MIXES["zcdp"][0])
    ledger.start_release(name, 1, accounts.RELEASES, "{}")
    work = {"url": database.url, "name": name, "work": "step"}
    points = points_of(nursery, **work)
    # Begin, three reads and three writes, each on two sides.
    assert points.commit >= 12, points
    for point, what in enumerate(points.names):
        before = len(ledger.releases(name, accounts.RELEASES)[0].steps)
        die(nursery, point, **work)
        database.settle()
        ledger.verify(name)
        after = len(ledger.releases(name, accounts.RELEASES)[0].steps)
        assert after - before in points.charges(point), f"half a step {what}"
    ledger.dispose()
    database.check()


@pytest.mark.parametrize("kind", sorted(releases.KINDS))
def test_what_was_paid_for_is_resumed_after_death_at_any_write(
    database: Database, nursery: Nursery, kind: str
) -> None:
    work = {"name": releases.ACCOUNT, "work": kind}
    points = points_of(nursery, url=database.fresh(), **work)
    writes = _writes_in_a_ledger(points)
    assert len(writes) > 8, points
    for point in writes:
        url = database.fresh()
        die(nursery, point, url=url, **work)
        database.settle()
        first = releases.release(kind, url)
        ledger = SQLLedger(url)
        assert len(ledger.charges(releases.ACCOUNT)) == 1, points.names[point]
        ledger.verify(releases.ACCOUNT)
        assert releases.release(kind, url) == first, "it was drawn again"
        ledger.dispose()
        database.check()


@pytest.mark.parametrize("kind", sorted(releases.ANSWERS))
def test_an_answer_is_never_drawn_for_after_death(
    database: Database, nursery: Nursery, kind: str
) -> None:
    work = {"name": releases.ACCOUNT, "work": kind}
    points = points_of(nursery, url=database.fresh(), **work)
    lost = set()
    for point in _writes_in_a_ledger(points):
        url = database.fresh()
        die(nursery, point, url=url, **work)
        database.settle()
        ledger = SQLLedger(url)
        begun = stored_steps(ledger)
        first = releases.release(kind, url)
        after, charges = stored_steps(ledger), ledger.charges(releases.ACCOUNT)
        is_lost = begun == [0]
        # A charge without a stored draw stays so; what was drawn may be worded later.
        assert (after[0] == 0) == is_lost, points.names[point]
        assert len(charges) == len(after) == 1 + is_lost, points.names[point]
        ledger.verify(releases.ACCOUNT)
        assert releases.release(kind, url) == first, "it was drawn again"
        lost.add(is_lost)
        ledger.dispose()
        database.check()
    assert lost == {True, False}


def stored_steps(ledger: SQLLedger) -> list[int]:
    """Return how many steps each answer has in the ledger, in the order of charges."""
    if releases.ACCOUNT not in ledger.accounts():
        return []
    return [len(one.steps) for one in ledger.releases(releases.ACCOUNT)]


def test_a_server_that_crashes_under_a_charge_makes_it_fail_or_stand(
    crash_server: PostgresServer, nursery: Nursery, tmp_path: Path
) -> None:
    """After a commit that nobody has confirmed, nothing may be said or done again."""
    database, name = PostgresDatabase(crash_server), "zcdp-0"
    ledger = opened(database, name)
    work = {"url": database.url, "name": name, "work": "charge"}
    points = points_of(nursery, **work)
    last = len(points.names) - 1
    assert last > points.commit + 2, "the flush is not there"
    for point in (0, points.commit, points.commit + 1, points.certain - 1, last):
        seen, used = len(nursery.announced()), ledger.verify(name).used
        go = tmp_path / f"go-{point}"
        worker = nursery.start("stop_at", point=point, until=str(go), **work)
        nursery.wait_for(seen, {"point": point, "what": points.names[point]})
        database.stop()
        database.start()
        go.touch()
        assert nursery.wait(worker) == 0
        said = nursery.announced()[seen:]
        announced = [what["announced"] for what in said if "announced" in what]
        invariants.nobody_was_alarmed(said)
        state, journal = ledger.verify(name), ledger.charges(name)
        assert state.used == len(journal)
        assert announced in ([], [used + 1]), points.names[point]
        assert announced or point not in (0, last), "what could be done was not"
        assert state.used >= used + len(announced), "it is lost"
        assert state.used <= used + 1, "it was charged twice"
    ledger.dispose()


def test_a_ledger_is_made_or_not_there(database: Database, nursery: Nursery) -> None:
    name = "plan-0"
    work = {"name": name, "work": "create"}
    points = points_of(nursery, url=database.fresh(), **work)
    writes = [p for p, what in enumerate(points.names) if _changes(what)]
    assert len(writes) > 6, points
    for point in writes:
        url = database.fresh()
        die(nursery, point, url=url, **work)
        database.settle()
        ledger = SQLLedger(url)
        assert ledger.accounts() in ([], [name])
        accounts.open_account(ledger, name)
        assert ledger.charge(name).sequence == 1
        assert ledger.verify(name).used == 1
        ledger.dispose()
        database.check()


def _writes_in_a_ledger(points: Points) -> list[int]:
    """Return the points after writes, from when the ledger is made.

    Death before that is the business of `test_a_ledger_is_made_or_not_there`.
    """
    made = max(p for p, what in enumerate(points.names) if "INTO dpicl_schema" in what)
    return [p for p, what in enumerate(points.names) if p > made and _changes(what)]


def _changes(what: str) -> bool:
    side, statement = what.split(" ", 1)
    reads = ("SELECT", "PRAGMA main.", "PRAGMA temp.", "BEGIN")
    return side == "after" and not statement.startswith(reads)


def _balances(ledger: Ledger, name: str) -> dict[str, int]:
    return {balance.tag: balance.spent.loss for balance in ledger.unit_balances(name)}
