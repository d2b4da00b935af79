"""Progress bars: on a terminal they show, elsewhere they don't disturb."""

from __future__ import annotations

import io
import threading
import time
from typing import Any

import pytest
from support.chain_parts import EMBEDDING, PARSERS, QUESTION, record, reply, rich
from support.fakes import AsyncScriptedModel, ScriptedModel, notes

from langchain_dpicl import DPChain, RetrievedGroups
from langchain_dpicl.common.progress import GroupProgress, progress_bar

BY_SHARD = RetrievedGroups.from_documents(
    notes(300), EMBEDDING, unit_key="patient", n_groups=20
)
BY_UNIT = RetrievedGroups.from_documents(
    notes(50),
    EMBEDDING,
    unit_key="patient",
    n_groups=20,
    score_threshold=0.0,
)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("model", [ScriptedModel, AsyncScriptedModel])
@pytest.mark.parametrize("groups", [BY_SHARD, BY_UNIT], ids=["shard", "unit"])
async def test_it_runs_to_the_public_number_of_groups(
    groups: RetrievedGroups, model: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    moved: list[float] = []

    class Watched(GroupProgress):
        def asking(self, calls: int, groups: int) -> Any:
            assert groups == 20
            return super().asking(calls, groups)

        def _enter(self) -> Any:
            bars = super()._enter()
            advance = bars.advance
            bars.advance = lambda task, by: (moved.append(by), advance(task, by))
            return bars

    chain = DPChain(
        groups=groups,
        model=model(reply=reply),
        parser=PARSERS["joint"](),
        budget=rich(),
        progress=True,
    )
    object.__setattr__(chain._query.private, "progress", Watched(shown=True))
    assert record(chain.invoke(QUESTION))["status"] == "released"
    assert sum(moved) == pytest.approx(20)
    moved.clear()
    await chain.ainvoke(QUESTION)
    assert sum(moved) == pytest.approx(20)
    shown = capsys.readouterr()
    assert "Asking the groups" in shown.err
    assert not shown.out


def test_it_is_off_unless_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    chain = DPChain(
        groups=BY_SHARD,
        model=ScriptedModel(reply=reply),
        parser=PARSERS["vote"](),
        budget=rich(),
    )
    chain.invoke(QUESTION)
    shown = capsys.readouterr()
    assert not shown.err
    assert not shown.out


@pytest.mark.usefixtures("terminal")
def test_queries_at_the_same_time_share_the_screen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    chain = DPChain(
        groups=BY_SHARD,
        model=ScriptedModel(reply=reply),
        parser=PARSERS["vote"](),
        budget=rich(),
        progress=True,
    )
    found = chain.batch([QUESTION] * 5)
    assert [record(answer)["status"] for answer in found] == ["released"] * 5
    assert "Asking the groups" in capsys.readouterr().err
    _no_thread_stays()


@pytest.mark.usefixtures("terminal")
def test_a_bar_ends_with_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    progress = GroupProgress(shown=True)
    with pytest.raises(ValueError, match="no"), progress.asking(3, 3):
        raise ValueError("no")
    with progress.asking(3, 3) as advance:
        advance(3)
    with progress_bar("Counting", 2, shown=True) as advance:
        advance(2)
    assert "Counting" in capsys.readouterr().err
    _no_thread_stays()


class Gone(io.StringIO):
    """A terminal that nobody looks at any more."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        raise self.error


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("error", [BrokenPipeError(), ValueError("closed"), OSError()])
async def test_a_screen_that_is_gone_fails_no_query(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", Gone(error))
    chain = DPChain(
        groups=BY_SHARD,
        model=ScriptedModel(reply=reply),
        parser=PARSERS["vote"](),
        budget=rich(),
        progress=True,
    )
    assert record(chain.invoke(QUESTION))["status"] == "released"
    assert record(await chain.ainvoke(QUESTION))["status"] == "released"


@pytest.mark.usefixtures("terminal")
def test_a_bar_whose_end_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("Counting", None, shown=True, speed="rows/s") as advance:
        advance(1200)
        advance(34)
    shown = capsys.readouterr().err
    assert "Counting 1,234" in shown
    assert "rows/s" in shown
    assert "%" not in shown
    assert "?" not in shown.replace("\x1b[?", "")
    _no_thread_stays()


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("error", [BrokenPipeError(), ValueError("closed"), OSError()])
@pytest.mark.parametrize("total", [None, 3])
def test_a_bar_on_a_screen_that_is_gone_stops_no_work(
    total: int | None, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", Gone(error))
    done = 0
    with progress_bar("Counting", total, shown=True) as advance:
        for _ in range(3):
            advance(1)
            done += 1
    assert done == 3
    _no_thread_stays()


def _no_thread_stays() -> None:
    for _ in range(500):
        if not any("rich" in type(t).__module__ for t in threading.enumerate()):
            return
        time.sleep(0.01)
    raise AssertionError("a bar's thread stays")
