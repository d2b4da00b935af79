"""The documentation runs as it stands, and is short enough to be read.

Every Python block of a page runs after the ones above it, in an empty folder. Every
example runs as a program, and shows what its noise can't change.
"""

from __future__ import annotations

import os
import re
import runpy
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from faces import random, seeded

ROOT = Path(__file__).parents[3]
DOCS, EXAMPLES = ROOT / "docs", ROOT / "examples"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FRONT = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "SECURITY.md")]
PAGES = [
    page
    for page in (*FRONT, *sorted(DOCS.rglob("[!_]*.md")))
    if "api" not in page.parts
]

SHOWN = {
    "agent_tool.py": ["calls ask_notes", "can't ask the notes any more", "node:"],
    "fastapi_service.py": ["event: record", "402 refused", "queries_spent 8"],
    "few_shot_generation.py": ["Right with private examples", "Spent: epsilon 4.00"],
    "insights.py": [
        "A topic comes out if at least 6 people have it",
        "claim status",
        "Spent: epsilon 3.00",
    ],
    "released_facts.py": [
        "Most frequent side effect of patients on lisinopril",
        "Facts answered 3 questions; the account of questions was charged for 0",
        "Spent: epsilon 3.00",
    ],
    "rag_before_after.py": ["Private phone number of Theo Ivanova: 555-", "refused:"],
}
"""What each example shows whatever its noise is."""

MOST_PAGES, MOST_TOGETHER, MOST_OF_A_PAGE = 25, 25_000, 1_200
LONG = {
    "README.md": 500,
    "output-parsers.md": 1_300,
    "tables.md": 1_300,
    "guarantee.md": 4_500,
    "figures.md": 1_400,
}
"""Most words of the other pages."""


def run(page: Path) -> dict[str, object]:
    """Run the blocks of a page one after another; return the names they leave."""
    names: dict[str, object] = {}
    for block in BLOCK.findall(page.read_text()):
        exec(compile(block, str(page), "exec"), names)  # noqa: S102 - our own docs
    return names


def wrong_outputs(page: Path, printed: str) -> list[str]:
    """Return what a page shows behind or under a `print`, and did not print.

    What noise decides is shown as `# for instance ...`; "..." ends what is long.
    """
    code = "".join(BLOCK.findall(page.read_text()))
    shown = re.findall(r"^ *print\(.*\)(?:  |\n)# (.*)$", code, re.MULTILINE)
    fixed = [text for text in shown if not text.startswith("for instance")]
    # A text without "..." is the whole line.
    starts = [f"{text}\n".removesuffix("...\n") for text in fixed]
    lines = printed.splitlines(keepends=True)
    return [
        text
        for text, start in zip(fixed, starts, strict=True)
        if not any(line.startswith(start) for line in lines)
    ]


def words(page: Path) -> int:
    """Return how many words a page has; the bars of a table are none."""
    return len(re.findall(r"[^\s|]*\w[^\s|]*", page.read_text()))


@pytest.mark.promise("docs-run")
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if BLOCK.search(page.read_text())],
    ids=lambda page: page.name,
)
def test_the_code_of_a_page_runs_and_prints_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Not by `capsys`, whose stderr is no file, which MCP's client needs.
    with redirect_stdout(StringIO()) as out, random.use(seeded(11)):
        run(page)
    assert wrong_outputs(page, out.getvalue()) == []


@pytest.mark.promise("docs-run", twin=True)
def test_twin_a_page_whose_second_block_needs_another_page_does_not_run(
    tmp_path: Path,
) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\na = 1\n```\ntext\n```python\nb = a\n```\n")
    assert run(page)["b"] == 1
    page.write_text("```python\na = 1\n```\ntext\n```python\nb = c\n```\n")
    with pytest.raises(NameError):
        run(page)


@pytest.mark.promise("docs-run", twin=True)
def test_twin_a_page_that_shows_another_output_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    code = "print(1)  # 2\nprint(3)\n# 3\nprint(4)  # for instance 5\n"
    page.write_text(f"```python\n{code}```\n")
    with redirect_stdout(StringIO()) as out:
        run(page)
    assert wrong_outputs(page, out.getvalue()) == ["2"]


def test_every_example_says_what_it_shows() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SHOWN)


@pytest.mark.promise("docs-run")
@pytest.mark.parametrize("name", sorted(SHOWN))
def test_an_example_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [name])
    # Whatever an example writes into the environment is taken back.
    monkeypatch.setattr("os.environ", os.environ.copy())
    with redirect_stdout(StringIO()) as out:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    shown = out.getvalue()
    assert [text for text in SHOWN[name] if text not in shown] == []
    # Phone numbers are in the one chain that is not private, and in the note shown.
    assert shown.count("555-") == (name == "rag_before_after.py")


@pytest.mark.promise("docs-short")
def test_the_pages_are_short_enough_to_be_read() -> None:
    pages = [page for page in PAGES if page.is_relative_to(DOCS)]
    found = {page: words(page) for page in (*pages, FRONT[0])}
    assert len(pages) <= MOST_PAGES
    assert sum(found.values()) <= MOST_TOGETHER
    most = {page: LONG.get(page.name, MOST_OF_A_PAGE) for page in found}
    assert [page.name for page in found if found[page] > most[page]] == []
