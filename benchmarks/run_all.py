"""Run every benchmark in turn: python benchmarks/run_all.py [--quick]."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from rich.console import Console


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller runs")
    options = ["--quick"] if parser.parse_args().quick else []
    console = Console(width=140)
    failed = []
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        console.rule(path.name)
        command = [sys.executable, str(path), *options]
        if subprocess.run(command, check=False).returncode:  # noqa: S603 - our own files
            failed.append(path.name)
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}.")


if __name__ == "__main__":
    main()
