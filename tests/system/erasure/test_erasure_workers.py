"""Erasure over running processes, and death at every change of the disk."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.erasure_workers import DOCUMENTS, MARK, PERSON, saved, serve, stop_at
from support.groups_fakes import WordEmbedding

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.cli import main
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.saved import read_revision
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.operate import ErasureCertificate, erase

SECONDS = 240
"""When a worker is held to be stuck: far beyond what the slowest machine needs."""
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["support.erasure_workers"])


def start(function: Callable[..., None], log: Path, /, **arguments: Any) -> Any:
    """Start a worker; it dies with this process."""
    process = FORKS.Process(
        target=function, args=(str(log),), kwargs=arguments, daemon=True
    )
    process.start()
    return process


def ended(log: Path, /, **arguments: Any) -> tuple[list[str], int | None]:
    """Return what a worker has changed on the disk, and how it has ended."""
    worker = start(stop_at, log, **arguments)
    worker.join(SECONDS)
    return [said["what"] for said in told(log)], worker.exitcode


def told(log: Path) -> list[dict[str, Any]]:
    # What follows the last line break is not whole yet.
    return [json.loads(line) for line in log.read_text().split("\n")[:-1]]


def asked(logs: list[Path], index: Path, number: int) -> list[dict[str, Any]]:
    """Have each worker answer once more; return what they say."""
    deadline = time.monotonic() + SECONDS
    Path(f"{index}.ask-{number}").touch()
    # One line says that it serves.
    while not all(log.exists() and len(told(log)) == number + 2 for log in logs):
        assert time.monotonic() < deadline, "a worker is stuck"
        time.sleep(0.01)
    return [told(log)[-1] for log in logs]


def test_running_workers_stop_seeing_an_erased_person(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, url = saved(tmp_path / "index"), f"sqlite:///{tmp_path / 'ledger.db'}"
    Ledger(url).dispose()
    work = {"path": str(path), "url": url}
    # The last one is the twin: it does not follow.
    follows = (True, True, False)
    logs = [tmp_path / f"{number}.jsonl" for number in range(len(follows))]
    workers = [
        start(serve, log, follow=one, **work)
        for log, one in zip(logs, follows, strict=True)
    ]
    for said in asked(logs, path, 0):
        assert (said["status"], said["sees"], said["others"]) == ("released", True, 30)
    file = tmp_path / "certificate.json"
    command = ["erase", PERSON, "--index", str(path), "--certificate", str(file)]
    assert main([*command, "--ledger", url, "--account", "default"]) == 0
    assert "Erased 2 documents" in capsys.readouterr().out
    answers = asked(logs, path, 1)
    for worker in workers:
        worker.kill()
        worker.join()
    assert [said["status"] for said in answers] == ["released"] * 3
    assert [said["others"] for said in answers] == [30] * 3, "others are gone as well"
    assert [said["sees"] for said in answers] == [False, False, True]
    (account,) = ErasureCertificate.load(file).accounts
    assert (account["releases"], account["queries"]) == (3, 9)
    assert PERSON not in file.read_text()
    assert MARK not in "".join(one.read_text() for one in (file, *logs))


@pytest.mark.parametrize("work", ["erase", "save"])
def test_a_dead_writer_leaves_one_whole_revision(tmp_path: Path, work: str) -> None:
    template = saved(tmp_path / "template")
    units = len({document.metadata["unit"] for document in DOCUMENTS})
    log = tmp_path / "all.jsonl"
    points, _ = ended(log, path=str(_copy(template)), work=work, point=-1)
    assert "after replace" in points, points
    seen = set()
    for point, what in enumerate(points):
        path, file = _copy(template), tmp_path / f"certificate-{point}.json"
        arguments: dict[str, Any] = {"path": str(path), "work": work, "point": point}
        if work == "erase":
            arguments["certificate"] = str(file)
        _, code = ended(tmp_path / f"{point}.jsonl", **arguments)
        assert code == -signal.SIGKILL, what
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


def test_a_dead_first_writer_leaves_what_can_be_saved_over(tmp_path: Path) -> None:
    path = tmp_path / "first"
    points, _ = ended(tmp_path / "all.jsonl", path=str(path), work="save", point=-1)
    for point, what in enumerate(points):
        shutil.rmtree(path)
        work: dict[str, Any] = {"path": str(path), "work": "save", "point": point}
        _, code = ended(tmp_path / f"{point}.jsonl", **work)
        assert code == -signal.SIGKILL, what
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
