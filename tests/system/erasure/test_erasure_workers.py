"""Erasure over running processes, and death at every change of the disk."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.erasure_workers import DOCUMENTS, MARK, PERSON, saved
from support.groups_fakes import WordEmbedding
from support.nursery import DEADLINE_SECONDS, Nursery

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.cli import main
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.saved import read_revision
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.operate import ErasureCertificate, erase

SIGKILLED = -9


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    folder = tmp_path_factory.mktemp("erasure")
    with Nursery(folder, "support.erasure_workers") as found:
        yield found


@pytest.fixture
def nursery(workers: Nursery, tmp_path: Path) -> Iterator[Nursery]:
    (tmp_path / "announced").mkdir()
    workers.move_to(tmp_path / "announced")
    yield workers
    workers.move_to(tmp_path / "announced")


def asked(nursery: Nursery, path: Path, pids: list[int], number: int) -> list[Any]:
    """Have each worker answer once more; return what they say."""
    nursery_said = [{"serves": pid} for pid in pids]
    for said in nursery_said:
        nursery.wait_for(0, said)
    Path(f"{path}.ask-{number}").touch()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        found = [said for said in nursery.announced() if said.get("number") == number]
        if len(found) == len(pids):
            return sorted(found, key=lambda said: pids.index(said["worker"]))
        time.sleep(0.01)
    pytest.fail("a worker is stuck")


def test_running_workers_stop_seeing_an_erased_person(
    nursery: Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, url = saved(tmp_path / "index"), f"sqlite:///{tmp_path / 'ledger.db'}"
    Ledger(url).dispose()
    work = {"path": str(path), "url": url}
    # The last one is the twin: it does not follow.
    follows = (True, True, False)
    pids = [nursery.start("serve", follow=one, **work) for one in follows]
    for said in asked(nursery, path, pids, 0):
        assert (said["status"], said["sees"], said["others"]) == ("released", True, 30)
    file = tmp_path / "certificate.json"
    command = ["erase", PERSON, "--index", str(path), "--certificate", str(file)]
    assert main([*command, "--ledger", url, "--account", "default"]) == 0
    assert "Erased 2 documents" in capsys.readouterr().out
    answers = asked(nursery, path, pids, 1)
    assert [said["status"] for said in answers] == ["released"] * 3
    assert [said["others"] for said in answers] == [30] * 3, "others are gone as well"
    assert [said["sees"] for said in answers] == [False, False, True]
    (account,) = ErasureCertificate.load(file).accounts
    assert (account["releases"], account["queries"]) == (3, 9)
    assert PERSON not in file.read_text()
    assert MARK not in "".join(map(str, [file.read_text(), nursery.announced()]))


@pytest.mark.parametrize("work", ["erase", "save"])
def test_a_dead_writer_leaves_one_whole_revision(
    nursery: Nursery, tmp_path: Path, work: str
) -> None:
    template = saved(tmp_path / "template")
    units = len({document.metadata["unit"] for document in DOCUMENTS})
    nursery.wait(
        nursery.start("stop_at", path=str(_copy(template)), work=work, point=-1)
    )
    points = [said["what"] for said in nursery.announced()]
    assert "after replace" in points, points
    seen = set()
    for point, what in enumerate(points):
        path, file = _copy(template), tmp_path / f"certificate-{point}.json"
        arguments: dict[str, Any] = {"path": str(path), "work": work, "point": point}
        if work == "erase":
            arguments["certificate"] = str(file)
        pid = nursery.start("stop_at", **arguments)
        assert nursery.wait(pid) == SIGKILLED, what
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


def test_a_dead_first_writer_leaves_what_can_be_saved_over(
    nursery: Nursery, tmp_path: Path
) -> None:
    path = tmp_path / "first"
    nursery.wait(nursery.start("stop_at", path=str(path), work="save", point=-1))
    points = [said["what"] for said in nursery.announced()]
    for point, what in enumerate(points):
        shutil.rmtree(path)
        work = {"path": str(path), "work": "save", "point": point}
        assert nursery.wait(nursery.start("stop_at", **work)) == SIGKILLED, what
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
