"""Progress: on a terminal it shows, elsewhere it does not disturb."""

from __future__ import annotations

import io

import pytest

from langchain_dpicl.common.progress import progress_bar


class Terminal(io.StringIO):
    """A terminal, or one that nobody looks at any more."""

    error: Exception | None = None

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.error is not None:
            raise self.error
        return super().write(text)


def look(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Be at a terminal; in a test's body, as pytest sets stderr before it."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("langchain_dpicl.common.progress._PAUSE", -1.0)
    return terminal


def test_a_bar_moves_and_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = look(monkeypatch)
    with progress_bar("Counting", 4, shown=True, speed="rows/s") as advance:
        advance(1)
        advance(2)
    states = terminal.getvalue().split("\r")
    assert [text.split("] ")[1].split()[0] for text in states[1:]] == [
        *("1/4", "3/4"),
        "3/3",  # What turned out not to be needed.
    ]
    assert "rows/s" in states[-1]
    with pytest.raises(ValueError, match="no"), progress_bar("Bad", 3, shown=True):
        raise ValueError("no")
    assert terminal.getvalue().endswith("\n")


def test_a_bar_whose_end_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = look(monkeypatch)
    with progress_bar("Counting", None, shown=True, done=200) as advance:
        advance(1000)
        advance(34)
    shown = terminal.getvalue()
    assert "Counting 1,234" in shown
    assert "/" not in shown
    assert "[" not in shown


def test_a_file_gets_the_last_state_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("Counting", 3, shown=True) as advance:
        advance(1)
        advance(2)
    assert capsys.readouterr().err.count("Counting") == 1


@pytest.mark.parametrize("error", [BrokenPipeError(), ValueError("closed"), OSError()])
@pytest.mark.parametrize("total", [None, 3])
def test_a_bar_on_a_screen_that_is_gone_stops_no_work(
    total: int | None, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    look(monkeypatch).error = error
    done = 0
    with progress_bar("Counting", total, shown=True) as advance:
        for _ in range(3):
            advance(1)
            done += 1
    assert done == 3
