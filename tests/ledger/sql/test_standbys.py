"""What a failover forgets: refused, or not forgotten. Real standbys."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.ledgers import Database, opened, postgres_database
from support.postgres import PostgresServer, Standby

from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.errors import BudgetExhaustedError, LedgerError
from langchain_dpicl.ledger import (
    AccountTerms,
    Ledger,
    SQLLedger,
    open_ledger,
)

NAMES = "synchronous_standby_names"
WAITING = "SELECT {} FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
FOLLOWS = "pg_stat_replication WHERE application_name = 'following'"
TAKES_OVER = "pg_stat_replication WHERE application_name = 'taking_over'"
TWENTY = AccountTerms("notes", 8.0, 1e-6, 20)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """A server of this file's own: it is stopped, and has others beside it."""
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[Database]:
    found = postgres_database(postgres)
    yield found
    found.execute("ALTER SYSTEM RESET ALL")
    found.execute("SELECT pg_reload_conf()")


@pytest.fixture(scope="module")
def following(postgres: PostgresServer) -> Iterator[Standby]:
    made = postgres.standby("following")
    yield made
    made.close()


@pytest.fixture
def standby(following: Standby, database: Database) -> Standby:
    """A standby that follows; nobody waits for it."""
    until(database, f"SELECT count(*) FROM {FOLLOWS}", 1)
    return following


@pytest.fixture
def taking_over(postgres: PostgresServer, database: Database) -> Iterator[Standby]:
    """A standby that may take the server's place."""
    made = postgres.standby("taking_over")
    until(database, f"SELECT count(*) FROM {TAKES_OVER}", 1)
    yield made
    postgres.start()
    database.execute("ALTER SYSTEM RESET ALL")
    database.execute("SELECT pg_reload_conf()")
    made.close()


def until(database: Database, question: str, answer: object) -> None:
    """Wait for a server's answer."""
    end = time.monotonic() + 60
    while database.execute(question) != [(answer,)]:
        assert time.monotonic() < end, question
        time.sleep(0.05)


def set_names(database: Database, names: str) -> None:
    database.execute(f"ALTER SYSTEM SET {NAMES} = '{names}'")
    database.execute("SELECT pg_reload_conf()")
    until(database, f"SHOW {NAMES}", names)


def wait_for(database: Database, standby: Standby) -> None:
    set_names(database, standby.name)
    states = "SELECT sync_state FROM pg_stat_replication WHERE application_name = "
    until(database, f"{states}'{standby.name}'", "sync")


def spend_all(ledger: Ledger) -> int:
    """Return how many charges were confirmed until the account was used up."""
    for confirmed in range(100):
        try:
            ledger.charge("notes")
        except BudgetExhaustedError:
            return confirmed
    raise AssertionError("the account never ends")


def handler(url: str | Ledger, **more: bool) -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(
        epsilon=8, delta=1e-6, queries=20, account="notes", ledger=url, **more
    )


def test_it_is_refused_where_it_has_to_be_waited_for(
    database: Database, standby: Standby
) -> None:
    opened(SQLLedger(database.url), TWENTY).charge("notes")
    uses: list[Callable[[], object]] = [
        lambda: SQLLedger(database.url, require_synchronous=True),
        lambda: open_ledger(database.url, require_synchronous=True),
        lambda: handler(database.url, require_synchronous=True),
    ]
    for use in uses:
        with pytest.raises(LedgerError, match=NAMES) as caught:
            use()
        assert "require_synchronous=True" in str(caught.value)
        assert caught.value.__cause__ is None
    wait_for(database, standby)
    for use in uses:
        use()
    assert handler(database.url, require_synchronous=True).spent().queries == 1


def test_a_failover_forgets_what_was_not_waited_for(
    database: Database, postgres: PostgresServer, taking_over: Standby
) -> None:
    """What `require_synchronous` is for: 39 releases for 20."""
    ledger = opened(SQLLedger(database.url), TWENTY)
    ledger.charge("notes")
    until(
        database,
        f"SELECT replay_lsn >= pg_current_wal_lsn() FROM {TAKES_OVER}",
        True,
    )
    taking_over.stop()
    acknowledged = 1 + spend_all(ledger)
    postgres.stop()
    taking_over.start()
    taking_over.promote()
    after = SQLLedger(taking_over.url(database.url))
    assert acknowledged + spend_all(after) == 39
    after.dispose()


def test_a_failover_keeps_what_was_waited_for(
    database: Database, postgres: PostgresServer, taking_over: Standby
) -> None:
    wait_for(database, taking_over)
    ledger = opened(SQLLedger(database.url, require_synchronous=True), TWENTY)
    for _ in range(20):
        ledger.charge("notes")
    postgres.stop()
    taking_over.promote()
    after = SQLLedger(taking_over.url(database.url))
    assert after.verify("notes").used == 20
    with pytest.raises(BudgetExhaustedError):
        after.charge("notes")
    after.dispose()


def test_the_server_after_a_failover_is_looked_at_too(
    database: Database, postgres: PostgresServer, standby: Standby
) -> None:
    wait_for(database, standby)
    ledger = opened(SQLLedger(database.url, require_synchronous=True), TWENTY)
    ledger.charge("notes")
    # The server comes back with other settings, as another one would have them.
    database.execute("ALTER SYSTEM RESET ALL")
    postgres.stop()
    postgres.start()
    with pytest.raises(LedgerError, match=NAMES):
        ledger.charge("notes")
    assert SQLLedger(database.url).state("notes").used == 1


def test_a_wait_that_somebody_cancels_confirms_nothing(
    database: Database, standby: Standby
) -> None:
    """PostgreSQL then says that the commit went well, with a warning."""
    wait_for(database, standby)
    ledger = opened(SQLLedger(database.url, require_synchronous=True), TWENTY)
    ledger.charge("notes")
    ledger.start_release("notes", 1, "a kind", "{}")
    standby.stop()
    uses: list[Callable[[], object]] = [
        lambda: ledger.charge("notes"),
        lambda: ledger.store_step("notes", 1, 0, "[17]"),
    ]
    for use in uses:
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(use)
            until(database, WAITING.format("count(*)"), 1)
            time.sleep(0.2)
            assert not waiting.done()
            database.execute(WAITING.format("pg_cancel_backend(pid)"))
            with pytest.raises(LedgerError, match="wait for a standby"):
                waiting.result(timeout=60)
    # What was written stands, and was given to nobody.
    assert ledger.state("notes").used == 2
    standby.start()
    assert ledger.charge("notes").sequence == 3
    assert ledger.store_step("notes", 1, 0, "[18]") == "[17]"


def test_a_charge_waits_as_long_as_the_server_says(
    database: Database, postgres: PostgresServer, standby: Standby
) -> None:
    """`remote_apply`: until queries on the standby see it."""
    wait_for(database, standby)
    database.execute("ALTER SYSTEM SET synchronous_commit = 'remote_apply'")
    database.execute("SELECT pg_reload_conf()")
    ledger = opened(SQLLedger(database.url), TWENTY)
    there = postgres.connect(standby.url(database.url))
    there.execute("SELECT pg_wal_replay_pause()")
    with there, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ledger.charge, "notes")
        until(database, WAITING.format("count(*)"), 1)
        time.sleep(0.2)
        assert not waiting.done()
        there.execute("SELECT pg_wal_replay_resume()")
        assert waiting.result(timeout=60).sequence == 1
        found = there.execute("SELECT used FROM dpicl_account").fetchall()
    assert found == [(1,)]


@pytest.mark.parametrize("url", [":memory:", "sqlite:///{}"])
def test_what_has_no_standby_can_wait_for_none(url: str, tmp_path: object) -> None:
    with pytest.raises(LedgerError, match="has no standby"):
        handler(url.format(f"{tmp_path}/ledger.db"), require_synchronous=True)


def test_a_ledger_that_is_open_says_for_itself_what_it_requires(
    database: Database, standby: Standby
) -> None:
    ledger = SQLLedger(database.url)
    with pytest.raises(LedgerError, match="takes it itself"):
        open_ledger(ledger, require_synchronous=True)
    wait_for(database, standby)
    strict = SQLLedger(database.url, require_synchronous=True)
    assert open_ledger(strict, require_synchronous=True) is strict
    for copied in (pickle.loads(pickle.dumps(strict)), copy.copy(strict)):
        assert copied.require_synchronous
        copied.dispose()
    ledger.dispose()
    strict.dispose()
