"""Several processes that do the same on one ledger at once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

from langchain_dpicl.ledger import SQLLedger

WORKERS, TURNS = 3, 15
Task = Callable[[str, int], object]

_ledgers: dict[str, SQLLedger] = {}


def kept(url: str) -> SQLLedger:
    """Return this process's ledger."""
    if url not in _ledgers:
        _ledgers[url] = SQLLedger(url)
    return _ledgers[url]


def _work(task: Task, url: str, start: Any, results: Any) -> None:
    start.wait()
    for turn in range(TURNS):
        try:
            results.put(task(url, turn))
        except Exception as error:  # noqa: BLE001 - the parent shows it
            results.put(repr(error))
    for ledger in _ledgers.values():
        ledger.dispose()


def race(task: Task, url: str) -> list[Any]:
    """Return what all processes found, each turn of each."""
    context = multiprocessing.get_context("forkserver")
    # What takes long to import is imported once.
    context.set_forkserver_preload(["langchain_dpicl.ledger.sql.ledger"])
    start, results = context.Barrier(WORKERS), context.Queue()
    workers = [
        context.Process(target=_work, args=(task, url, start, results))
        for _ in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=60) for _ in range(WORKERS * TURNS)]
    for worker in workers:
        worker.join()
    results.close()
    results.join_thread()
    return found
