"""Write down the versions of this environment as constraints for pip.

    python tests/support/write_constraints.py constraints.txt

Names and versions alone: where packages come from is for each machine to say.
"""

from __future__ import annotations

import sys
from importlib.metadata import distributions
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

_OLDEST = "3.10"
_HEADER = """\
# The versions that `make lint`, `make docs` and `make test` are known to pass with.
# `make constraints` raises them, once the tests pass with the newest ones.
# A version that a Python can't have binds the others only: pip chooses one for it.
"""
# pip raises itself first, and the package under test has no pinned version.
_LEFT_OUT = {"langchain-dpicl", "pip", "setuptools", "wheel"}


def main(path: str) -> None:
    """Write one line a package."""
    lines = set()
    for package in distributions():
        name = canonicalize_name(package.metadata["Name"])
        # torch of the CPU and torch of the index have one version here.
        line = f"{name}=={Version(package.version).public}"
        wanted = package.metadata["Requires-Python"]
        if wanted and not SpecifierSet(wanted).contains(_OLDEST):
            line += f'; python_version >= "{_oldest(wanted)}"'
        if name not in _LEFT_OUT:
            lines.add(line)
    Path(path).write_text(_HEADER + "\n".join(sorted(lines)) + "\n", encoding="utf-8")


def _oldest(wanted: str) -> str:
    pythons = (f"3.{minor}" for minor in range(10, sys.version_info.minor + 1))
    return next(one for one in pythons if SpecifierSet(wanted).contains(f"{one}.99"))


if __name__ == "__main__":
    main(*sys.argv[1:])
