"""The pages have right types, links and places; that they run is tested elsewhere."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from promises import table
from support.check_types import OURS, PAGES, ROOT, check

import langchain_dpicl
from langchain_dpicl import errors
from langchain_dpicl.check import WAYS_OUT
from langchain_dpicl.parsers.prose import NOT_TOLD
from langchain_dpicl.parsers.vote import NONE, ONE_OPTION
from langchain_dpicl.release import record

BLOB = "https://github.com/langchain-dpicl/langchain-dpicl/blob/main/"


def test_twin_a_page_with_a_wrong_call_fails_the_type_check(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    for call, wrong in {"len([1])": "", "len(1)": f"{page}:6: error: "}.items():
        page.write_text(f"# A page\n\n```python\nfrom sys import path\n\n{call}\n```\n")
        assert check(OURS, [page]) == bool(wrong)
        assert wrong in capfd.readouterr().out


def test_the_readme_starts_with_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert readme.index("make demo") < readme.index("make test") < 400


def test_nothing_is_installed_by_a_name_that_others_may_take() -> None:
    texts = [*PAGES, *(ROOT / "langchain_dpicl").rglob("*.py")]
    assert [path for path in texts if "langchain-dpicl[" in path.read_text()] == []


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }


def broken_links(page: Path, root: Path = ROOT) -> list[str]:
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = link.removeprefix(BLOB).partition("#")
        if path.startswith(("http", "mailto:")):
            continue
        target = (root if link.startswith(BLOB) else page.parent) / path
        target = target if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_link_between_pages_leads_to_a_page_and_its_heading(page: Path) -> None:
    assert broken_links(page) == []


def test_twin_broken_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One, two\n\n[a](#one-two) [b](#three) [c](page.md#one-two) [d](no.md)\n"
        f"[e]({BLOB}page.md) [f]({BLOB}none.md)\n"
        "```\n# code\n```\n[g](#code)"
    )
    assert broken_links(page, tmp_path) == [
        "#three",
        "no.md",
        f"{BLOB}none.md",
        "#code",
    ]


@pytest.mark.parametrize("name", ["README.md", "SECURITY.md"])
def test_the_front_pages_are_short_and_link_absolutely(name: str) -> None:
    # PyPI shows the README, where a relative link leads nowhere.
    text = (ROOT / name).read_text()
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert [link for link in links if not link.startswith("https://")] == []


def test_every_page_is_in_the_navigation() -> None:
    docs = ROOT / "docs"
    patterns = re.findall(
        r"^(\w+/[\w*\[\]-]+)$", (docs / "index.md").read_text(), re.MULTILINE
    )
    shown = {page for pattern in patterns for page in docs.glob(f"{pattern}.md")}
    assert set(docs.rglob("[!_]*.md")) - shown == {docs / "index.md"}


def test_troubleshooting_names_every_error_finding_and_reason() -> None:
    page = (ROOT / "docs" / "operate" / "troubleshooting.md").read_text()
    named = set(re.findall(r"^\| `(\w+Error)`", page, re.MULTILINE))
    assert named | {"DPError", "InvalidParameterError"} == set(errors.__all__)
    assert set(re.findall(r"^\| `([a-z-]+)`", page, re.MULTILINE)) == set(WAYS_OUT)
    package = ROOT / "langchain_dpicl"
    files = [package / "release" / "record.py", *(package / "parsers").glob("*.py")]
    source = "".join(path.read_text() for path in files)
    reasons = re.split(r"\| reason \| cause.*\n.*\n", page)[1].split("\n\n")[0]
    named = set(re.findall(r"^\| ([^|]+) \|", reasons, re.MULTILINE))
    for reason in named:
        assert f'"{reason}"' in source or f"'{reason}'" in source
    general = {record.NO_LEAD, record.NO_OPTION, record.CALLS_FAILED, record.UNREADABLE}
    assert general | {NONE, ONE_OPTION, NOT_TOLD} < named


def test_every_file_that_a_reviewer_is_sent_to_is_there() -> None:
    reviewers = (ROOT / "docs" / "reviewers").glob("*.md")
    pages = [ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md")]
    text = "".join(page.read_text() for page in (*pages, *reviewers))
    named = set(re.findall(r"`([\w/]+/(?:\w+\.\w+)?)`", text))
    homes = (ROOT, ROOT / "langchain_dpicl")
    assert len(named) > 30
    assert [name for name in named if not any((h / name).exists() for h in homes)] == []


def test_the_guarantee_names_every_promise_once() -> None:
    page = (ROOT / "docs" / "reviewers" / "guarantee.md").read_text()
    shown = re.findall(r"`([a-z0-9-]+)`", page.partition("\n| of | promises |")[2])
    assert len(shown) == len(set(shown))
    kept = {row["id"]: row["test"] for row in table()}
    assert set(shown) <= set(kept)
    # What is promised of the project, and not of a release, is shown by its tests.
    assert all("/user/" in kept[promise] for promise in set(kept) - set(shown))


def documented() -> list[tuple[str, str, object]]:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return list(import_module("api_pages").entries())
    finally:
        sys.path.pop(0)


def test_every_public_name_is_in_the_api_reference_once() -> None:
    assert "\napi/*\n" in (ROOT / "docs" / "reference" / "api.md").read_text()
    for _, path, value in documented():
        home, _, name = path.rpartition(".")
        assert getattr(import_module(home), name) is value, path
    paths = [path for _, path, _ in documented()]
    assert len(paths) == len(set(paths))
    values = [id(value) for _, _, value in documented()]
    assert len(values) == len(set(values))
    for name in langchain_dpicl.__all__:
        value = getattr(langchain_dpicl, name)
        if isinstance(value, ModuleType):
            parts = [getattr(value, part) for part in value.__all__]
            wanted = {id(part) for part in parts if not isinstance(part, ModuleType)}
            assert wanted <= set(values), name
        elif name != "__version__":
            assert f"langchain_dpicl.{name}" in paths
