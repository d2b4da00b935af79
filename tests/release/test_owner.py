"""Who draws for a charge, and how a release changes hands."""

from __future__ import annotations

import multiprocessing
import os
import time
from typing import Any

import pytest
from support.few_shot_fakes import budget_of

from langchain_dpicl.errors import LedgerError
from langchain_dpicl.mechanisms import voting
from langchain_dpicl.release.owner import Owner, is_gone
from langchain_dpicl.release.store import Entry, ReleaseStore


def begun(owner: Any) -> Entry:
    """Return a release that somebody has charged."""
    budget = budget_of(accounting="renyi", epsilon=50)
    budget.charge(voting.charge(name="test", noise_multiplier=9.0), unit_key="who")
    store = ReleaseStore(budget, "a kind", "a maker")
    header = {"charge": 1, "owner": owner}
    text = store.header_text(header)
    budget.ledger.start_release(budget.account, 1, store.kind, text)
    return Entry(store, 1, header)


def again(entry: Entry) -> Entry:
    (found,) = entry.store.entries()
    return found


def test_who_has_claimed_a_release_draws_and_the_one_before_stores_no_more() -> None:
    one, two = Owner(), Owner()
    with one, two:
        first = begun(one.public)
        assert first.release(0, [1]) == [1]
        second = again(first).claim(two)
        assert second is not None
        assert second.belongs_to(two)
        assert not second.belongs_to(one)
        with pytest.raises(LedgerError, match="goes on with this release"):
            first.release(1, [2])
        assert second.release(1, [3]) == [3]
        with pytest.raises(LedgerError, match="goes on with this release"):
            first.release(1, [2])
    assert [again(first).step(number) for number in range(3)] == [[1], [3], None]


def test_of_a_draw_and_a_claim_the_first_that_is_stored_counts() -> None:
    one, two = Owner(), Owner()
    with one, two:
        first = begun(one.public)
        late = again(first)
        first.release(0, [1])
        assert late.claim(two) is None
        assert first.release(1, [2]) == [2]
    assert again(first).steps == ("[1]", "[2]")
    assert again(first).belongs_to(one)


def test_an_owner_is_gone_when_it_ends_and_not_before() -> None:
    owner = Owner()
    with owner:
        assert not is_gone(owner.public)
    assert is_gone(owner.public)


def test_nobody_is_an_owner_that_is_gone() -> None:
    for nobody in (None, {}, {"name": "x"}, {"process": "1"}, "x"):
        assert is_gone(nobody)


def test_of_another_host_nobody_can_tell() -> None:
    owner = Owner()
    assert not is_gone({**owner.public, "host": "another"})


def wait(queue: Any) -> None:
    with Owner() as owner:
        queue.put(owner.public)
        time.sleep(60)


@pytest.mark.parametrize("reaped", [False, True])
def test_a_killed_process_is_gone(reaped: bool) -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=wait, args=(queue,))
    process.start()
    owner = queue.get(timeout=60)
    assert not is_gone(owner)
    # Another process of the same number, begun later, is another one.
    assert is_gone({**owner, "started": "0"})
    process.kill()
    if reaped:
        process.join()
    else:
        os.waitid(os.P_PID, process.pid or 0, os.WEXITED | os.WNOWAIT)
    assert is_gone(owner)
    process.join()
