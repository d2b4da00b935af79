"""Speed of an account's report, at 2,000 charges: gathered, and in each form.

    python benchmarks/bench_report.py [--quick]

The target is 2 s for gathering and all three forms, in a process that is warm, and for
the command `dpicl report`, which first loads LangChain and SQLAlchemy, and for sampled
releases SciPy. The command runs several times; the table shows two medians. The first
is the time that a user waits, which means something only on an idle machine. The second
is the processors' time, which other work disturbs least.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from langchain_dpicl import PrivacyBudgetHandler, VoteOutputParser, report
from langchain_dpicl.ledger import SQLLedger

TARGET_SECONDS = 2.0
COLD_RUNS = 5
ACCOUNTS: dict[str, tuple[dict[str, Any], float]] = {
    "plan": ({}, 1.0),
    "zcdp": ({"accounting": "zcdp"}, 1.0),
    "renyi": ({"accounting": "renyi"}, 0.1),
    "plan, sampled": ({}, 0.1),
}


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    done = work()
    return time.perf_counter() - start, done


def cold_seconds(url: str, account: str, folder: str) -> tuple[float, float]:
    """Return the time and the processors' time of `dpicl report`, in a new process."""
    run = "import sys; from langchain_dpicl.cli import main; sys.exit(main())"
    out = f"{folder}/report.html"
    command = [sys.executable, "-c", run, "report", account, "--ledger", url]
    waited, found = [], []
    for _ in range(COLD_RUNS):
        start = time.perf_counter()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(  # noqa: S603 - our own command
            [*command, "--out", out], check=True, stdout=subprocess.DEVNULL
        )
        waited.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        user, system = (
            after.ru_utime - before.ru_utime,
            after.ru_stime - before.ru_stime,
        )
        found.append(user + system)
    return statistics.median(waited), statistics.median(found)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="200 charges")
    charges = 200 if options.parse_args().quick else 2000
    table = Table(
        "account",
        "charges",
        "gather, s",
        "forms, s",
        "together, s",
        "command, s",
        "CPU s",
        "target",
    )
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder)}/reported.db"
        ledger = SQLLedger(url)
        for name, (terms, rate) in ACCOUNTS.items():
            budget = PrivacyBudgetHandler(
                epsilon=8,
                delta=1e-6,
                queries=charges,
                ledger=ledger,
                account=name,
                **terms,
            )
            template = VoteOutputParser(labels=["a", "b"]).event_template(rate)
            for _ in range(charges):
                budget.charge(template)
            gathered, found = seconds(lambda name=name: report.of(url, name))  # type: ignore[misc]
            forms = (found.to_html, found.to_dict, found.to_registry)
            made, _ = seconds(lambda forms=forms: [form() for form in forms])  # type: ignore[misc]
            total = gathered + made
            cold, processors = cold_seconds(url, name, folder)
            kept = "kept" if max(total, cold) <= TARGET_SECONDS else "missed"
            times = (gathered, made, total, cold, processors)
            figures = (f"{value:.2f}" for value in times)
            table.add_row(name, str(found.releases), *figures, kept)
        ledger.dispose()
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
