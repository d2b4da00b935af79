"""What the workers of the crash tests do. Each function runs in a process of its own.

A worker announces a charge after the ledger has returned it: that line is the answer
that somebody has seen. Where the ledger fails nothing is announced, and the worker
goes on. Whatever is no `LedgerError` ends the worker, and fails the test.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import Engine, event
from sqlalchemy.engine.default import DefaultDialect

from langchain_dpicl.errors import BudgetExhaustedError, LedgerError
from langchain_dpicl.ledger import Charge, Ledger, SQLLedger
from langchain_dpicl.ledger.sql import rows
from support.crash import accounts, releases
from support.crash.nursery import Log

Lives = Callable[[], bool]


def warm_up() -> None:
    """Do once what every worker would have to do for itself."""
    assert psycopg.__version__
    for kind in accounts.KINDS:
        terms = accounts.terms_of(f"{kind}-0")
        assert terms.limit
        for mix in accounts.MIXES[kind]:
            assert terms.filter is None or terms.filter.cost(mix)


def charge_rounds(
    log: Log, parent_lives: Lives, *, url: str, seed: int, shift_seconds: float
) -> None:
    """Charge account after account until killed."""
    draws = random.Random(seed)
    _shift_clock(shift_seconds)
    ledger = _patiently(log, parent_lives, lambda: SQLLedger(url))
    turn, is_open = -1, False
    while parent_lives():
        try:
            if turn < 0:
                turn = accounts.last_turn(ledger)
            name = accounts.account_of(turn)
            if not is_open:
                accounts.open_account(ledger, name)
                is_open = True
            if _charge_one(log, ledger, name, draws):
                continue
        except LedgerError as error:
            _note(log, error)
            continue
        log.write(end=name)
        turn, is_open = turn + 1, False


def charge_few(
    log: Log,
    parent_lives: Lives,
    *,
    url: str,
    name: str,
    times: int,
    shift_seconds: float = 0,
) -> None:
    """Charge an account a few times, by a clock that is wrong."""
    _shift_clock(shift_seconds)
    ledger = SQLLedger(url)
    accounts.open_account(ledger, name)
    for _ in range(times):
        assert _charge_one(log, ledger, name, random.Random(0))
    ledger.dispose()


def stop_at(
    log: Log,
    parent_lives: Lives,
    *,
    url: str,
    name: str,
    work: str,
    point: int,
    until: str | None = None,
) -> None:
    """Die by SIGKILL, or wait, at a certain point of one piece of work.

    The points lie before and after every statement and every commit. Each one is
    announced when it is reached; a negative `point` lets the worker live.

    Args:
        log: For announcements.
        parent_lives: Whether to wait any longer.
        url: The ledger.
        name: The account.
        work: `create` (ledger, account and plan), `open` (an account of a
            corpus), `charge`, `charge_units`, `rotate_key`, `step` (storing the next
            step of the first release), or a kind of release that `releases` makes.
        point: Which point to stop at.
        until: The file to wait for; None to die.
    """

    def stop() -> None:
        if until is None:
            os.kill(os.getpid(), signal.SIGKILL)
        while until and parent_lives() and not Path(until).exists():
            time.sleep(0.01)

    arm = partial(_arm, log, url, point, stop)
    if _needs_no_account(log, url, name, work, arm):
        return
    units = list(accounts.UNITS)
    ledger = SQLLedger(url)
    accounts.open_account(ledger, name)
    # Cheap, so that units can pay at every point.
    events = accounts.MIXES[accounts.kind_of(name)][-1]
    if work == "charge":
        arm()
        try:
            # The one kind whose charges have all that a charge may write.
            within = accounts.FREE if name.startswith("capped") else None
            charge = ledger.charge(name, events, within=within)
            log.write(announced=charge.sequence)
        except LedgerError as error:
            log.write(error=str(error))
    elif work == "rotate_key":
        arm()
        log.write(announced=ledger.rotate_key(name))
    elif work == "step":
        (release,) = ledger.releases(name, accounts.RELEASES)
        arm()
        drawn = ledger.store_step(name, release.charge, len(release.steps), "[17]")
        log.write(announced=drawn)
    else:
        charge = ledger.charge(name, events)
        arm()
        paid = ledger.charge_units(charge, units)
        log.write(announced=charge.sequence, paid=sum(paid))


def _needs_no_account(
    log: Log, url: str, name: str, work: str, arm: Callable[[], None]
) -> bool:
    """Do work that makes its own account; return False if it is of another kind."""
    if work == "create":
        arm()
        accounts.open_account(SQLLedger(url), name)
    elif work == "open":
        ledger = SQLLedger(url)
        ledger.create_corpus(accounts.CORPUS)
        arm()
        log.write(announced=ledger.open(accounts.terms_of(name)).used)
    elif work in {*releases.KINDS, *releases.ANSWERS}:
        arm()
        log.write(announced=releases.release(work, url))
    else:
        return False
    return True


def fill_disk(log: Log, parent_lives: Lives, *, url: str, name: str, how: str) -> None:
    """Charge until there is no room, try again in vain, then go on with room.

    Args:
        log: For announcements.
        parent_lives: Not used.
        url: A SQLite ledger.
        name: The account.
        how: `file size` lets the operating system refuse to write, `page count`
            lets SQLite find the disk full.
    """
    draws = random.Random(1)
    ledger = SQLLedger(url)
    accounts.open_account(ledger, name)
    assert _charge_one(log, ledger, name, draws)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    if how == "file size":
        size = Path(str(ledger._database.engine.url.database)).stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1_500, hard))
    else:
        with ledger._database.engine.connect() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        _limit_pages(ledger, pages)
    refused = 0
    while refused < 5 and parent_lives():
        try:
            assert _charge_one(log, ledger, name, draws), "the disk never was full"
        except LedgerError:
            log.write(refused=True)
            refused += 1
    if how == "file size":
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    else:
        _limit_pages(ledger, 2**30)
    log.write(room=True)
    for _ in range(3):
        assert _charge_one(log, ledger, name, draws)
    ledger.dispose()


def _limit_pages(ledger: SQLLedger, pages: int) -> None:
    ledger.dispose()
    event.listen(
        ledger._database.engine,
        "connect",
        lambda connection, _: connection.execute(f"PRAGMA max_page_count={pages}"),
    )


def _charge_one(log: Log, ledger: Ledger, name: str, draws: random.Random) -> bool:
    """Charge and announce one release; return False if not even that fits."""
    kind = accounts.kind_of(name)
    within = draws.choice(accounts.CALLERS) if kind == "plan" else None
    for mix in (draws.choice(accounts.MIXES[kind]), accounts.MIXES[kind][-1]):
        try:
            events = None if kind == "plan" else mix
            charge = ledger.charge(name, events, within=within)
        except BudgetExhaustedError:
            within = None
            continue
        said: dict[str, Any] = {
            "account": charge.account,
            "sequence": charge.sequence,
            "events": accounts.as_announced(charge.events),
        }
        if kind == "unit":
            units = accounts.some_units(draws)
            paid = ledger.charge_units(charge, units)
            said["paid"] = [u for u, did in zip(units, paid, strict=True) if did]
            said["refused"] = [u for u, did in zip(units, paid, strict=True) if not did]
        if draws.random() < 0.1:
            said["steps"] = _steps(ledger, charge, draws)
        log.write(**said)
        # The price list itself has no end.
        return kind != "unit" or charge.sequence < accounts.USES
    return False


def _steps(ledger: Ledger, charge: Charge, draws: random.Random) -> list[str]:
    ledger.start_release(charge.account, charge.sequence, accounts.RELEASES, "{}")
    return [
        ledger.store_step(
            charge.account, charge.sequence, number, f"{draws.getrandbits(64)}"
        )
        for number in range(3)
    ]


def _patiently(
    log: Log, parent_lives: Lives, opening: Callable[[], SQLLedger]
) -> SQLLedger:
    while parent_lives():
        try:
            return opening()
        except LedgerError as error:
            _note(log, error)
    raise SystemExit(0)


def _note(log: Log, error: LedgerError) -> None:
    log.write(error=str(error))
    # A server that is coming back must not drown in those who ask for it.
    time.sleep(random.uniform(0.1, 0.5))


def _shift_clock(seconds: float) -> None:
    shift = timedelta(seconds=seconds)

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz or timezone.utc) + shift

    rows.datetime = Shifted  # type: ignore[misc]


def _arm(log: Log, url: str, point: int, stop: Callable[[], None]) -> None:
    """Stop at a point, counted from now on."""
    reached = 0

    def reach(what: str) -> None:
        nonlocal reached
        log.write(point=reached, what=" ".join(what.split())[:60])
        reached += 1
        if reached == point + 1:
            stop()

    if url.startswith("sqlite"):
        event.listen(Engine, "before_cursor_execute", _says("before", reach))
        event.listen(Engine, "after_cursor_execute", _says("after", reach))
        _watch(DefaultDialect, "do_commit", "COMMIT", reach)
        _watch(os, "link", "LINK", reach)
    else:
        # Below SQLAlchemy: what is sent without it is seen here too.
        _watch(psycopg.Cursor, "execute", None, reach)
        _watch(psycopg.Connection, "commit", "COMMIT", reach)
        _watch(psycopg.Pipeline, "__exit__", "the pipeline's end", reach)


def _says(side: str, reach: Callable[[str], None]) -> Callable[..., None]:
    return lambda _connection, _cursor, statement, *_rest: reach(f"{side} {statement}")


def _watch(
    owner: Any, method: str, called: str | None, reach: Callable[[str], None]
) -> None:
    """Reach a point before and after a method, called like its first argument."""
    inner = getattr(owner, method)

    def watched(self: Any, *values: Any, **named: Any) -> Any:
        what = called or str(values[0])
        reach(f"before {what}")
        found = inner(self, *values, **named)
        reach(f"after {what}")
        return found

    setattr(owner, method, watched)
