"""Print how long each folder is, beside its budget; fail where one is longer.

    python tests/support/line_budgets.py

Budgets stand in `pyproject.toml`, under `[tool.line-budgets]`. All tracked text of a
folder counts, subfolders included unless they have a budget of their own. Docstrings
count as lines, and their share is shown: in a folder of the package it may not fall
below a fifth, so that no budget is kept by taking away what teaches or proves. For the
same reason the file of a release says all that a proof needs, and no line of the
package is kept from the formatter.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from langchain_dpicl.operate.proofs import HEADINGS

ROOT = Path(__file__).parents[2]
TEXT = {
    ".csv",
    ".html",
    ".json",
    ".jsonl",
    ".mk",
    ".py",
    ".sql",
    ".toml",
    ".txt",
    ".yaml",
}
LEAST_DOCSTRINGS = 0.20
WAIVERS = ("fmt: off", "E501")


@dataclass
class Size:
    """What a folder holds."""

    files: int = 0
    lines: int = 0
    code: int = 0
    docstrings: int = 0

    def add(self, path: Path) -> None:
        """Count a file."""
        text = path.read_text("utf-8")
        self.files += 1
        self.lines += len(text.splitlines())
        if path.suffix == ".py":
            docstrings = sum(map(_length, _docstrings(ast.parse(text))))
            self.docstrings += docstrings
            kept = [line for line in text.splitlines() if line.strip()]
            comments = sum(line.lstrip().startswith("#") for line in kept)
            self.code += max(0, len(kept) - comments - docstrings)

    @property
    def share(self) -> float:
        """Return the share of docstrings in what is written in Python."""
        return self.docstrings / max(1, self.docstrings + self.code)


def _docstrings(tree: ast.AST) -> list[ast.expr]:
    """Return the strings that stand as statements: docstrings, of fields too."""
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]


def _length(node: ast.expr) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def sizes(folders: list[str], left_out: list[str]) -> dict[str, Size]:
    """Return the size of each folder; a file belongs to the longest that fits."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"],  # noqa: S607 - the git that the user runs
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    found = {folder: Size() for folder in folders}
    for name in listed:
        fitting = [f for f in folders if name == f or name.startswith(f"{f}/")]
        path = ROOT / name
        if fitting and name not in left_out and path.suffix in TEXT and path.exists():
            found[max(fitting, key=len)].add(path)
    return found


def unproven() -> list[str]:
    """Return what the package's files lack, a sentence each."""
    found = []
    for path in sorted((ROOT / "langchain_dpicl").rglob("*.py")):
        text, name = path.read_text("utf-8"), path.relative_to(ROOT)
        found += [f"{name} has '{waiver}'." for waiver in WAIVERS if waiver in text]
        if path.parent.name == "mechanisms" and "-> Charge:" in text:
            proof = ast.get_docstring(ast.parse(text)) or ""
            said = {line.partition("  ")[0] for line in proof.splitlines()}
            lacking = [heading for heading in HEADINGS if heading not in said]
            found += [f"{name} has no {heading!r}." for heading in lacking]
    return found


def main() -> int:
    """Print the table; return 1 where a folder is too long or says too little."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        table = tomllib.load(file)["tool"]["line-budgets"]
    budgets: dict[str, int] = table["folders"]
    few: list[str] = table["few-docstrings"]
    found = sizes(list(budgets), table["left-out"])
    failures = unproven()
    print(f"{'folder':<28}{'files':>6}{'lines':>8}{'budget':>8}{'code':>8}  docstrings")
    for folder, size in found.items():
        share = f"{size.share:.0%}"
        print(
            f"{folder:<28}{size.files:>6}{size.lines:>8}{budgets[folder]:>8}"
            f"{size.code:>8}{share:>7}"
        )
        if size.lines > budgets[folder]:
            failures.append(f"{folder} has {size.lines} lines, {budgets[folder]} fit.")
        is_taught = folder.startswith("langchain_dpicl") and folder not in few
        if is_taught and size.share < LEAST_DOCSTRINGS:
            failures.append(f"{folder} has {share} docstrings; a fifth is the least.")
    package = [s for f, s in found.items() if f.startswith("langchain_dpicl")]
    print(f"{'the package':<28}{'':>6}{sum(s.lines for s in package):>8}")
    for failure in failures:
        print(failure)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
