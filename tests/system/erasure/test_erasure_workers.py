"""Erasure over running processes, and death at every change of the disk."""

from __future__ import annotations

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from integration_tests.ledger.workers import CONTEXT, run
from support.erasure_workers import (
    DOCUMENTS,
    ENDED,
    MARK,
    PERSON,
    saved,
    serve,
    stop_at,
)
from support.groups_fakes import WordEmbedding

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.cli import main
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.saved import read_revision
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.operate import ErasureCertificate, erase

WHOLE = pytest.mark.whole

# The server that forks the workers loads once what each of them would have to.
CONTEXT.set_forkserver_preload(
    ["psycopg", "integration_tests.ledger.warm", "support.erasure_workers"]
)

SECONDS = 240
"""When a worker is held to be stuck: far beyond what the slowest machine needs."""


def points_of(log: Path, path: Path, work: str) -> list[str]:
    """Return all changes of the disk, in the order in which they are made."""
    *points, end = run(stop_at, log, str(path), work, -1)
    assert end["what"] == ENDED
    return [said["what"] for said in points]


def is_killed(log: Path, *arguments: Any) -> bool:
    return run(stop_at, log, *arguments)[-1]["what"] != ENDED


def asked(log: Path, index: Path, number: int) -> list[tuple[Any, ...]]:
    """Have each chain answer once more; return what it says."""
    deadline = time.monotonic() + SECONDS
    Path(f"{index}.ask-{number}").touch()
    while True:
        # What follows the last line break is not whole yet.
        lines = log.read_text().split("\n")[:-1] if log.exists() else []
        found = [
            said for line in lines if (said := json.loads(line))["number"] == number
        ]
        if len(found) == 4:
            names = ("follows", "status", "sees", "others")
            return sorted(tuple(said[name] for name in names) for said in found)
        assert time.monotonic() < deadline, "a worker is stuck"
        time.sleep(0.01)


def test_running_workers_stop_seeing_an_erased_person(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, url = saved(tmp_path / "index"), f"sqlite:///{tmp_path / 'ledger.db'}"
    Ledger(url).dispose()
    log, file = tmp_path / "told.jsonl", tmp_path / "certificate.json"
    with ThreadPoolExecutor() as pool:
        workers = pool.submit(run, serve, log, str(path), url, processes=2)
        everybody = ("released", True, 30)
        assert asked(log, path, 0) == [
            (follows, *everybody) for follows in (0, 0, 1, 1)
        ]
        command = ["erase", PERSON, "--index", str(path), "--certificate", str(file)]
        assert main([*command, "--ledger", url, "--account", "default"]) == 0
        assert "Erased 2 documents" in capsys.readouterr().out
        # Others are there as before, and the twin sees the person.
        seen, gone = (False, *everybody), (True, "released", False, 30)
        assert asked(log, path, 1) == [seen, seen, gone, gone]
        workers.result()
    (account,) = ErasureCertificate.load(file).accounts
    assert (account["releases"], account["queries"]) == (4, 9)
    assert PERSON not in file.read_text()
    assert MARK not in file.read_text() + log.read_text()


@pytest.mark.parametrize("work", ["erase", pytest.param("save", marks=WHOLE)])
def test_a_dead_writer_leaves_one_whole_revision(tmp_path: Path, work: str) -> None:
    template = saved(tmp_path / "template")
    units = len({document.metadata["unit"] for document in DOCUMENTS})
    log = tmp_path / "all.jsonl"
    points = points_of(log, _copy(template), work)
    assert "after replace" in points, points
    seen = set()
    for point, what in enumerate(points):
        path, file = _copy(template), tmp_path / f"certificate-{point}.json"
        assert is_killed(log, str(path), work, point, str(file)), what
        groups = RetrievedGroups.load(path, WordEmbedding())
        revision = read_revision(path)
        is_new = points[:point].count("after replace") + (what == "after replace") > 0
        assert revision.number == 1 + is_new, f"another revision {what}"
        assert groups.n_units == units - (is_new and work == "erase"), what
        made = erase(PERSON, index=path, certificate=file)
        assert made.index["documents_erased"] == 2, what
        assert ErasureCertificate.load(file).is_of(PERSON, path)
        _nothing_is_left(path, what)
        seen.add(is_new)
    assert seen == {True, False}


@WHOLE
def test_a_dead_first_writer_leaves_what_can_be_saved_over(tmp_path: Path) -> None:
    path = tmp_path / "first"
    log = tmp_path / "told.jsonl"
    points = points_of(log, path, "save")
    for point, what in enumerate(points):
        shutil.rmtree(path)
        assert is_killed(log, str(path), "save", point), what
        if not (path / "manifest.json").exists():
            with pytest.raises(InvalidParameterError, match="holds no saved groups"):
                RetrievedGroups.load(path, WordEmbedding())
        saved(path)
        erase(PERSON, index=path)
        _nothing_is_left(path, what)


def _copy(template: Path) -> Path:
    path = template.parent / "index"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(template, path)
    return path


def _nothing_is_left(path: Path, what: str) -> None:
    for file in path.iterdir():
        data = file.read_bytes()
        assert MARK.encode() not in data, f"{file.name} is left {what}"
        assert PERSON.encode() not in data, f"{file.name} is left {what}"
    assert len(list(path.iterdir())) == 3, what
