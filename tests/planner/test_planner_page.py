"""What the page says of the planner is what it prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from langchain_dpicl.cli import main
from langchain_dpicl.planner import plan

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "guides" / "choosing-a-method.md").read_text()


def test_the_command_of_the_page_prints_what_stands_below_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = re.search(r"```sh\ndpicl (.*?)\n```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    command, shown = found.groups()
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out.startswith(shown)


def test_the_figures_on_sampling_are_the_planners() -> None:
    page = " ".join(PAGE.split())
    found = re.search(r"right in (\d+) % of [^.]*? in (\d+) % over 50", page)
    assert found is not None
    everybody, sampled = (
        plan(
            3000,
            epsilon=1,
            parser="vote",
            groups=groups,
            stages=1,
            sampling_rate=rate,
        )
        for groups, rate in ((200, 1.0), (50, None))
    )
    told = [f"{one.right * 100:.0f}" for one in (everybody, sampled)]
    assert list(found.groups()) == told
    assert sampled.sampling_rate == 1 / 16
    assert plan(60, epsilon=20, share=0.8, runner_up=0.1).sampling_rate == 1.0
