"""What a failover forgets: refused, or not forgotten. Real standbys."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.ledgers import PLANNED, VOTE, account_of
from support.postgres import PostgresServer, Standby

from langchain_dpicl.errors import BudgetExhaustedError, LedgerError
from langchain_dpicl.ledger import Ledger, open_ledger

TWENTY = PLANNED.model_copy(update={"queries": 20})
NAMES = "synchronous_standby_names"
WAITING = "SELECT {} FROM pg_stat_activity WHERE wait_event = 'SyncRep'"

pytestmark = pytest.mark.whole


class Server:
    """A server of this file's own: it is stopped, and has others beside it."""

    def __init__(self, postgres: PostgresServer) -> None:
        self.postgres, self.url = postgres, postgres.new_database()

    def execute(self, statement: str) -> list[Any]:
        with self.postgres.connect(self.url) as connection:
            found = connection.execute(statement)  # type: ignore[arg-type]  # not a literal
            return found.fetchall() if found.description else []

    def until(self, question: str, answer: object) -> None:
        """Wait for the server's answer."""
        end = time.monotonic() + 60
        while self.execute(question) != [(answer,)]:
            assert time.monotonic() < end, question
            time.sleep(0.05)

    def wait_for(self, standby: Standby) -> None:
        """Let commits wait for a standby."""
        self.execute(f"ALTER SYSTEM SET {NAMES} = '{standby.name}'")
        self.execute("SELECT pg_reload_conf()")
        state = f"WHERE application_name = '{standby.name}'"
        self.until(f"SELECT sync_state FROM pg_stat_replication {state}", "sync")

    def reset(self) -> None:
        self.execute("ALTER SYSTEM RESET ALL")
        self.execute("SELECT pg_reload_conf()")


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def server(postgres: PostgresServer) -> Iterator[Server]:
    server = Server(postgres)
    yield server
    server.reset()


@pytest.fixture(scope="module")
def following(postgres: PostgresServer) -> Iterator[Standby]:
    made = postgres.standby("following")
    yield made
    made.close()


@pytest.fixture
def taking_over(postgres: PostgresServer, server: Server) -> Iterator[Standby]:
    """A standby that may take the server's place."""
    made = postgres.standby("taking_over")
    yield made
    postgres.start()
    server.reset()
    made.close()


def charge(ledger: Ledger) -> int:
    return account_of(ledger, TWENTY).buy(VOTE).charge


def spend_all(ledger: Ledger) -> int:
    """Return how many charges were confirmed until the account was used up."""
    for confirmed in range(100):
        try:
            charge(ledger)
        except BudgetExhaustedError:
            return confirmed
    raise AssertionError("the account never ends")


def test_a_server_that_waits_for_none_is_refused_where_one_is_asked_for(
    server: Server, following: Standby
) -> None:
    Ledger(server.url).dispose()
    for use in (Ledger, open_ledger):
        with pytest.raises(LedgerError, match=NAMES):
            use(server.url, require_synchronous=True)
    server.wait_for(following)
    strict = Ledger(server.url, require_synchronous=True)
    assert open_ledger(strict, require_synchronous=True) is strict
    strict.dispose()
    with pytest.raises(LedgerError, match="takes it itself"):
        open_ledger(Ledger(":memory:"), require_synchronous=True)


def test_a_failover_forgets_what_was_not_waited_for(
    server: Server, postgres: PostgresServer, taking_over: Standby
) -> None:
    """What `require_synchronous` is for: 39 releases for 20."""
    ledger = Ledger(server.url)
    charge(ledger)
    replayed = "SELECT replay_lsn >= pg_current_wal_lsn() FROM pg_stat_replication"
    server.until(f"{replayed} WHERE application_name = 'taking_over'", True)
    taking_over.stop()
    acknowledged = 1 + spend_all(ledger)
    postgres.stop()
    taking_over.start()
    taking_over.promote()
    after = Ledger(taking_over.url(server.url))
    assert acknowledged + spend_all(after) == 39
    after.dispose()
    ledger.dispose()


def test_a_failover_keeps_what_was_waited_for(
    server: Server, postgres: PostgresServer, taking_over: Standby
) -> None:
    server.wait_for(taking_over)
    ledger = Ledger(server.url, require_synchronous=True)
    for _ in range(20):
        charge(ledger)
    postgres.stop()
    taking_over.promote()
    after = Ledger(taking_over.url(server.url))
    after.verify()
    assert after.state("notes").used == 20
    with pytest.raises(BudgetExhaustedError):
        charge(after)
    after.dispose()
    ledger.dispose()


def test_a_wait_that_somebody_cancels_confirms_nothing(
    server: Server, following: Standby
) -> None:
    """PostgreSQL then says that the commit went well, with a warning."""
    server.wait_for(following)
    ledger = Ledger(server.url, require_synchronous=True)
    charge(ledger)
    following.stop()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(charge, ledger)
        server.until(WAITING.format("count(*)"), 1)
        time.sleep(0.2)
        assert not waiting.done()
        server.execute(WAITING.format("pg_cancel_backend(pid)"))
        with pytest.raises(LedgerError, match="wait for a standby"):
            waiting.result(timeout=60)
    # What was written stands, and was given to nobody.
    assert ledger.state("notes").used == 2
    following.start()
    assert charge(ledger) == 3
    ledger.verify()
    ledger.dispose()
