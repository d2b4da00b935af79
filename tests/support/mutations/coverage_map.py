"""Which tests run a line, as one run of all tests has shown.

The run takes about as long as `make test` does. It is kept in a folder, with the text
of each file as it was, and serves until the code has changed much: of a file that has
changed since, a line stands for the same line of the text before.
"""

from __future__ import annotations

import ast
import difflib
import functools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import pytest
from coverage import CoverageData
from places import KINDS, PACKAGE, PARTS, ROOT

SECONDS = 25.0  # Of tests in the first set, by what they took in the recorded run.
MOST = 6000  # Tests in a set: to collect more takes longer than to run them.
DURATIONS = "DPICL_TEST_DURATIONS"  # Names the file that `pytest` writes them to.


def record(folder: Path) -> None:
    """Run all tests, and keep which lines each of them runs and how long it takes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "durations.jsonl").unlink(missing_ok=True)
    parts = ",".join(f"{PACKAGE.name}.{part}" for part in PARTS)
    config = f"[run]\nsource = {parts}\ndata_file = {folder / 'lines'}\n"
    (folder / "coveragerc").write_text(config, "utf-8")
    command = [sys.executable, "-m", "pytest", "-n", "auto", "-q"]
    command += ["-p", "coverage_map", "--cov", f"--cov-config={folder / 'coveragerc'}"]
    command += ["--cov-context=test", "--cov-report="]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parent),
        DURATIONS: str(folder / "durations.jsonl"),
    }
    subprocess.run(command, cwd=ROOT, env=environment, check=False)
    texts = {
        str(file.relative_to(ROOT)): file.read_text("utf-8")
        for part in PARTS
        for file in (PACKAGE / part).rglob("*.py")
    }
    (folder / "texts.json").write_text(json.dumps(texts), "utf-8")


def collected() -> set[str]:
    """Return the names of all tests, as they stand."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0"]
    listed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(listed.stdout.splitlines())


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write down what a test took; a plugin of the recorded run."""
    name = os.environ.get(DURATIONS)
    if name and report.when == "call" and report.passed:
        with Path(name).open("a", encoding="utf-8") as file:
            file.write(json.dumps([report.nodeid, report.duration]) + "\n")


class CoverageMap:
    """The recorded run in a folder."""

    def __init__(self, folder: Path) -> None:
        self._data = CoverageData(str(folder / "lines"))
        self._data.read()
        lines = (folder / "durations.jsonl").read_text("utf-8").splitlines()
        took: dict[str, float] = dict(json.loads(line) for line in lines)
        # Of one name that is no test any more pytest would run none of the others.
        self.seconds = {name: took[name] for name in collected() & took.keys()}
        self._texts = json.loads((folder / "texts.json").read_text("utf-8"))

    @functools.cache  # noqa: B019 - there is one map
    def _contexts(self, path: str) -> dict[int, set[str]]:
        # The run may have been made in another checkout.
        files = (f for f in self._data.measured_files() if f.endswith(f"/{path}"))
        found = self._data.contexts_by_lineno(next(files, ""))
        return {
            line: {c.rpartition("|")[0] for c in contexts} & self.seconds.keys()
            for line, contexts in found.items()
        }

    def tests(self, path: str, line: int) -> tuple[list[str], list[str]]:
        """Return the tests of a line, nearest first, and those of its whole file.

        A line that runs when the module is imported has those of the function or class
        around it, or of the file.
        """
        text = self._texts.get(path, "")
        contexts = self._contexts(path)
        all_of_file = set().union(*contexts.values()) if contexts else set()
        now = (ROOT / path).read_text("utf-8").splitlines()
        line = moved(now, text.splitlines(), line)
        own: set[str] = set()
        for lines in around(text, line):
            own = set().union(*(contexts.get(n, set()) for n in lines))
            if own:
                break
        first = self._chosen(path, own or all_of_file)
        rest = self._chosen(path, all_of_file - set(first), seconds=6 * SECONDS)
        return first, rest

    def _chosen(
        self, path: str, tests: Iterable[str], seconds: float = SECONDS
    ) -> list[str]:
        """Return its part's tests, quickest first, for half of the time, and others.

        Of the others few cases of one test come at first.
        """
        part, stem = Path(path).parts[1], Path(path).stem
        cases: Counter[str] = Counter()
        near: list[tuple[float | str, ...]] = []
        far: list[tuple[float | str, ...]] = []
        for test in sorted(tests, key=lambda t: (self.seconds[t], t)):
            function, took = test.partition("[")[0], self.seconds[test]
            if f"tests/{part}/" in test:
                near.append((took, test))
            else:
                cases[function] += 1
                place = 2 * ("tests/system/" in test) - (stem in Path(function).stem)
                far.append((cases[function] // 4, place, took, test))
        chosen, spent = [], 0.0
        for ranks, most in ((near, seconds / 2), (far, seconds)):
            for *_, test in sorted(ranks):
                took = self.seconds[str(test)]
                if spent + took <= most or not chosen:
                    chosen.append(str(test))
                    spent += took
        return chosen[:MOST]


def moved(now: Collection[str], before: Collection[str], line: int) -> int:
    """Return where a line stood in an earlier text."""
    matcher = difflib.SequenceMatcher(None, list(now), list(before), autojunk=False)
    for here, there, size in matcher.get_matching_blocks():
        if here <= line - 1 < here + size:
            return there + line - here
        if here > line - 1:
            return there + 1
    return len(before)


def around(text: str, line: int) -> Iterable[range]:
    """Yield the lines of the statement there, then of each function or class around."""
    tree = ast.parse(text)
    spans: list[tuple[int, range]] = []
    for node in ast.walk(tree):
        first: Any = getattr(node, "lineno", None)
        last: Any = getattr(node, "end_lineno", None)
        if isinstance(node, KINDS):
            spans.append((last - first + 1, range(first, last + 1)))
        elif isinstance(node, ast.stmt):
            inner: Any = getattr(node, "body", None)
            last = max(first, inner[0].lineno - 1) if inner else last
            spans.append((last - first, range(first, last + 1)))
    for _, span in sorted(spans, key=lambda pair: pair[0]):
        if line in span:
            yield span
