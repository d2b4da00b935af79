"""A ledger in PostgreSQL, and what a ledger does across a fork."""

from __future__ import annotations

import os
import traceback
from typing import Any

import pytest
from faces import Charge, LedgerError, open_account, open_ledger, read, verify
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from support.postgres import PostgresServer
from unit_tests.ledger.history import History


@pytest.mark.promise(
    "never-overspent", "acknowledged-is-stored", "one-draw-a-charge", "terms-are-fixed"
)
def test_any_history_agrees_with_a_dictionary(postgres: PostgresServer) -> None:
    machine = type("Here", (History,), {"place": postgres.new_database})
    steps = settings(stateful_step_count=10, phases=[Phase.explicit, Phase.generate])
    run_state_machine_as_test(machine, settings=steps)


@pytest.mark.promise("synchronous-where-asked")
def test_a_server_that_waits_for_no_standby_is_refused_where_one_is_asked_for(
    postgres: PostgresServer,
) -> None:
    url = postgres.new_database()
    with pytest.raises(LedgerError):
        open_account(url, queries=2, require_synchronous=True)
    with pytest.raises(LedgerError):
        open_ledger(":memory:", require_synchronous=True)
    open_account(url, queries=2).ledger.dispose()


@pytest.mark.promise("fail-closed", "no-password-is-shown")
def test_a_server_that_is_not_there_is_an_error_that_shows_no_password() -> None:
    url = "postgresql://ann:mellon@/db?host=/nowhere&sslpassword=friend"
    with pytest.raises(LedgerError) as caught:
        open_ledger(url)
    text = "".join(traceback.format_exception(caught.value))
    assert "mellon" not in text
    assert "friend" not in text


def in_child(work: Any) -> int:
    """Return how a forked child ends that does some work: 0 is well, 3 is refused."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        work()
        code = 0
    except LedgerError:
        code = 3
    finally:
        os._exit(code)


@pytest.mark.promise("fork-safe")
def test_a_forked_child_spends_the_same_budget(place: Any) -> None:
    account = open_account(place(), queries=3)
    Charge(account).give_up()
    assert in_child(lambda: Charge(account).give_up()) == 0
    assert Charge(account).number == 3
    verify(account.ledger)
    assert list(read(account).charges) == [1, 2, 3]
    account.ledger.dispose()


@pytest.mark.promise("fork-safe")
def test_a_ledger_in_memory_is_refused_after_a_fork() -> None:
    account = open_account(":memory:", queries=3)
    assert in_child(lambda: Charge(account)) == 3
    assert Charge(account).number == 1
