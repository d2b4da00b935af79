"""Ctrl-C in the midst of starting threads, and of cleaning up."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from langchain_dpicl.errors import GroupCallError
from langchain_dpicl.release import fan_out as module
from langchain_dpicl.release.flow import in_thread
from langchain_dpicl.sealed.region import run_sealed


def test_an_interrupt_while_a_thread_starts_is_still_an_interrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Starting(threading.Thread):
        def start(self) -> None:
            # It has begun, and this thread has not seen it yet: join() would refuse.
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "Thread", Starting)
    calls: Any = [in_thread(lambda: None) for _ in range(3)]
    with pytest.raises(KeyboardInterrupt):
        module.fan_out(calls, 3, name="calls").blocking()


def test_a_lock_that_an_interrupt_left_behind_is_no_other_error() -> None:
    def step() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            # A second one came while a condition took its lock again.
            threading.Lock().release()

    with pytest.raises(KeyboardInterrupt):
        run_sealed(step)


def test_an_interrupt_that_the_caller_handles_is_not_the_steps() -> None:
    def step() -> None:
        raise ValueError

    def interrupted() -> None:
        raise KeyboardInterrupt

    try:
        interrupted()
    except KeyboardInterrupt:
        with pytest.raises(GroupCallError):
            run_sealed(step)
