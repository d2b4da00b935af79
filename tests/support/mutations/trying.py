"""Run tests on a copy of the code with one change.

Each run is a process that is forked from one that has imported the libraries, which
takes longer than most tests do.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from places import ROOT

MEMORY = 8 << 30  # Bytes of data for one process: a mutation may allocate for ever.
PATIENCE = 120.0  # Seconds that any set of tests may take,
SLOWER = 10  # and so many times what it took in the recorded run.
LIBRARIES = (
    "numpy", "scipy.stats", "faiss", "sqlalchemy", "alembic", "pydantic", "hypothesis",
    "langchain_core.language_models", "langchain_core.vectorstores", "langchain_openai",
    "prv_accountant", "dp_accounting.pld", "dp_accounting.rdp", "pytest", "rich",
    "langchain_core.callbacks", "langchain_core.runnables", "langchain_core.prompts",
)  # fmt: skip


def preload() -> None:
    """Import the libraries, so that processes that are forked have them."""
    for name in LIBRARIES:
        importlib.import_module(name)


def _run(tree: str, arguments: list[str], output: str) -> None:
    os.setsid()
    log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    # The tree's own package, not the one that is installed, here and in children.
    os.environ |= {"PYTHONPATH": tree, "PYTHONDONTWRITEBYTECODE": "1"}
    os.environ |= {"COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
    sys.dont_write_bytecode = True
    os.chdir(tree)
    sys.path[:] = [tree, *(p for p in sys.path if p != str(Path(__file__).parent))]
    import pytest

    # Libraries that are plugins too were imported before pytest could rewrite them.
    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    plugins = ["-p", "no:cacheprovider", "-p", "no:xdist"]
    status = pytest.main([*quiet, *plugins, *arguments])
    sys.stdout.flush()
    os._exit(int(status))


def failures(tree: Path, tests: Sequence[str], seconds: float) -> list[str]:
    """Return which test failed first, or `hangs: ...`; none where all passed."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "output")
        process = multiprocessing.get_context("fork").Process(
            target=_run, args=(str(tree), ["-x", *tests], str(output))
        )
        process.start()
        process.join(PATIENCE + SLOWER * seconds)
        hangs = process.exitcode is None
        try:
            os.killpg(process.pid or 0, signal.SIGKILL)  # And what it has started.
        except (ProcessLookupError, PermissionError):
            process.kill()
        process.join()
        said = output.read_text("utf-8", errors="replace") if output.exists() else ""
    if hangs:
        return [f"hangs: {tests[0]}"]
    if process.exitcode == 0:
        return []
    found = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.MULTILINE)
    # Nothing could be collected, for one.
    return found or [tests[0]]


def copied(to: Path) -> Path:
    """Copy what git knows of the tree, as it stands."""
    command = [str(shutil.which("git")), "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    return to


def broken_by(
    tree: Path, path: str, code: str, tests: Sequence[str], seconds: float
) -> tuple[bool | None, str, float]:
    """Return whether tests notice a file's new text, by which test, and the seconds.

    None: a test failed, and passed when it was run again.
    """
    start = time.monotonic()
    before = (tree / path).read_text("utf-8")
    (tree / path).write_text(code, "utf-8")
    caught: bool | None = False
    failed: list[str] = []
    try:
        failed = failures(tree, tests, seconds)
        if failed:
            hangs = failed[0].startswith("hangs: ")
            caught = hangs or bool(failures(tree, failed[:1], seconds)) or None
    finally:
        (tree / path).write_text(before, "utf-8")
    return caught, failed[0] if failed else "", round(time.monotonic() - start, 1)


class Worker:
    """A process's own copy of the tree."""

    folder: tempfile.TemporaryDirectory[str]
    tree: Path

    @classmethod
    def begin(cls) -> None:
        """Copy the tree and import the libraries; once a process."""
        cls.folder = tempfile.TemporaryDirectory()
        cls.tree = copied(Path(cls.folder.name))
        preload()

    @classmethod
    def try_out(
        cls, path: str, code: str, tests: Sequence[str], seconds: float
    ) -> tuple[bool | None, str, float]:
        """Run `broken_by` on this process's tree."""
        return broken_by(cls.tree, path, code, tests, seconds)

    @classmethod
    def failing(cls, test: str, seconds: float) -> bool:
        """Return whether a test fails on the code as it stands."""
        return bool(failures(cls.tree, [test], seconds))
