"""List and run the benchmarks: each figure beside what it is compared with.

    python -m benchmarks                          # what there is
    python -m benchmarks chain search --quick     # some, smaller
    python -m benchmarks speed                    # the five of speed
    python -m benchmarks utility_tables --data DIR --model openai:gpt-5

Figures of speed are medians of one run in which both sides take turns: look at the
ratios. The utility benchmarks ask the model that is named; without one they ask the
offline stand-in, whose figures are not a language model's.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from benchmarks.common import Options, table

SPEED = ("chain", "ledger", "mechanisms", "search", "tables")
NEEDS = {
    "utility_answers": "answers",
    "utility_tables": "data",
    "utility_few_shot": "data",
    "utility_facts": None,
    "insights": None,
    "models": "weights",
}
NAMES = (*SPEED, *NEEDS)


def about(name: str) -> str:
    """Return the first line of a benchmark's docstring, without running it."""
    text = (Path(__file__).parent / f"{name}.py").read_text("utf-8")
    return (ast.get_docstring(ast.parse(text)) or "").split("\n")[0]


def main(words: Sequence[str] | None = None) -> int:
    """Read the command line; list or run. Return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller runs")
    parser.add_argument("--data", type=Path, help="folder of data sets")
    parser.add_argument("--answers", type=Path, help="folder of recorded answers")
    parser.add_argument("--weights", type=Path, help="folder of `make test-models`")
    parser.add_argument("--model", default="offline", help="provider:name, to chat")
    parser.add_argument(
        "--next-token", help="transformers:PATH, or MODEL@URL of a vLLM server"
    )
    given = vars(parser.parse_args(words))
    names = given.pop("names")
    names = [each for name in names for each in (SPEED if name == "speed" else [name])]
    if unknown := sorted({*names} - {*NAMES}):
        parser.error(f"There is no {', '.join(unknown)}.")
    if not names:
        rows = [(name, about(name), NEEDS.get(name) or "") for name in NAMES]
        table("", ("name", "what it measures", "needs"), rows)
        return 0
    for name in names:
        if (need := NEEDS.get(name)) and given[need] is None:
            parser.error(f"{name} needs --{need} FOLDER.")
    if len(names) == 1:
        # Of plans with next to no noise, and what libraries say of themselves.
        warnings.simplefilter("ignore")
        print(f"## {names[0]}")
        import_module(f"benchmarks.{names[0]}").run(Options(**given))
        return 0
    # Each in a process of its own: none sees the memory and threads of another.
    passed = ["--quick"] if given.pop("quick") else []
    passed += [
        each
        for option, value in given.items()
        if value is not None
        for each in (f"--{option.replace('_', '-')}", str(value))
    ]
    start = [sys.executable, "-m", "benchmarks"]
    done = [subprocess.run([*start, name, *passed], check=False) for name in names]  # noqa: S603 - our own
    return int(any(one.returncode for one in done))


if __name__ == "__main__":
    sys.exit(main())
