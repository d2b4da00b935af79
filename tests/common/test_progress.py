"""Progress bars: on a terminal they show, elsewhere they don't disturb."""

from __future__ import annotations

import io
import threading
import time

import pytest

from langchain_dpicl.common.progress import progress_bar


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("terminal")
def test_a_bar_ends_with_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        pytest.raises(ValueError, match="no"),
        progress_bar("Failing", 3, shown=True),
    ):
        raise ValueError("no")
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
