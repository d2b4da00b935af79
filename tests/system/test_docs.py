"""The code in the README and in the docs runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.check_types import OURS, PAGES, ROOT, blocks, check

import langchain_dpicl


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.name)
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), namespace)  # noqa: S102 - our own docs
    if page.name == "quickstart.md":
        # A first page whose example is refused would teach the wrong lesson.
        assert namespace["record"]["status"] == "released"  # type: ignore[index]
        assert namespace["answer"].content in page.read_text()  # type: ignore[attr-defined]


def test_twin_a_page_with_a_wrong_call_fails_the_type_check(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    for call, wrong in {"len([1])": "", "len(1)": f"{page}:6: error: "}.items():
        page.write_text(f"# A page\n\n```python\nfrom sys import path\n\n{call}\n```\n")
        assert check(OURS, [page]) == bool(wrong)
        assert wrong in capfd.readouterr().out


def test_the_readme_starts_with_the_two_commands_and_shows_a_real_answer(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    readme = (ROOT / "README.md").read_text()
    assert readme.index("make demo") < readme.index("make test") < 400
    monkeypatch.chdir(tmp_path)
    example = blocks(ROOT / "README.md")[0]
    exec(compile(example, "README.md", "exec"), {})  # noqa: S102 - our own docs
    content, status = capsys.readouterr().out.splitlines()
    assert f"# {content}" in example
    assert f"# {status}" in example


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_public_name_is_in_the_api_reference() -> None:
    reference = (ROOT / "docs" / "reference" / "api.md").read_text()
    for name in langchain_dpicl.__all__:
        assert f"`{name}`" in reference or f"`{name}(" in reference, name
