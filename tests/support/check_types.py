"""Check the types of the examples and of the Python blocks of all pages, by mypy.

And that it refuses the wrong calls of `wrong_calls.py`.

Twice, strictly: as this repository is checked, and as a project without settings is,
which has not got pydantic's plugin.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import call
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("[!_]*.md")),
]
OURS = ["--config-file=pyproject.toml"]
PLAIN = [
    *("--config-file=", "--strict", "--ignore-missing-imports"),
    *("--follow-imports=silent", "--cache-dir=.mypy_cache/plain"),
]
WRONG = "wrong_calls.py"
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[str]:
    """Return the Python blocks of a page."""
    return _BLOCK.findall(page.read_text())


def program(page: Path) -> str:
    """Return the Python blocks of a page, on the lines on which they stand."""
    return "".join(
        "\n" + part if number % 2 else "\n" * part.count("\n")
        for number, part in enumerate(_BLOCK.split(page.read_text()))
    )


def check(options: Sequence[str], pages: Sequence[Path], *files: Path) -> int:
    """Run mypy over pages and files; return its exit status, 0 if all is well."""
    command = [sys.executable, "-m", "mypy", "--scripts-are-modules", *options]
    with TemporaryDirectory() as folder:
        for number, page in enumerate(pages):
            shadow = Path(folder, f"{number}.py")
            shadow.write_text(program(page))
            command += ["--shadow-file", str(page), str(shadow)]
        return call([*command, *map(str, [*pages, *files])], cwd=ROOT)


if __name__ == "__main__":
    files = [*sorted((ROOT / "examples").glob("*.py")), Path(__file__).with_name(WRONG)]
    sys.exit(max(check(options, PAGES, *files) for options in (OURS, PLAIN)))
