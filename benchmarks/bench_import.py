"""Time of imports, beyond what LangChain's own core takes anyway.

    python benchmarks/bench_import.py [--quick]

Each import runs in a fresh interpreter, all of them in turn, with compiled files in
place. The package loads its parts when they are first named, so the chain's own cost
is what it takes beyond the foreign modules that it loads.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

from rich.console import Console
from rich.table import Table

DP_CHAIN = "from langchain_dpicl import DPChain"
CORE = "the modules of langchain_core that it loads"
FOREIGN = "all modules of others that it loads"
STATEMENTS = {
    "import langchain_core": "import langchain_core",
    "import numpy": "import numpy",
    "import langchain_dpicl": "import langchain_core\nimport langchain_dpicl",
    "import langchain_dpicl.mechanisms": "import langchain_dpicl.mechanisms",
    DP_CHAIN: DP_CHAIN,
}
COMPARISONS = [
    ("import langchain_dpicl", "import langchain_core", "<= 150 ms"),
    ("import langchain_dpicl.mechanisms", "import numpy", ""),
    (DP_CHAIN, CORE, ""),
    (DP_CHAIN, FOREIGN, ""),
]
MODULES = (
    "import sys\nbefore = set(sys.modules)\n{statement}\n"
    "print(' '.join(name for name in sys.modules if name not in before))"
)
IMPORT_ALL = (
    "import contextlib, importlib\n"
    "for name in {names!r}:\n"
    "    with contextlib.suppress(ImportError):\n"
    "        importlib.import_module(name)"
)
TIMED = (
    "import time\nstart = time.perf_counter()\n{statement}\n"
    "print(time.perf_counter() - start)"
)
HEAVY = ("langchain_core", "scipy", "pandas", "dp_accounting", "prv_accountant")
LOADED = (
    "import sys\n{statement}\n"
    "print(' '.join(name for name in {names!r} if name in sys.modules))"
)


def run(program: str) -> str:
    return subprocess.run(  # noqa: S603 - this interpreter, programs from this file
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.strip()


def foreign_imports() -> dict[str, str]:
    """Return programs that load what the chain loads, without the chain."""
    loaded = run(MODULES.format(statement=DP_CHAIN)).split()
    foreign = [name for name in loaded if name.partition(".")[0] != "langchain_dpicl"]
    core = [name for name in foreign if name.partition(".")[0] == "langchain_core"]
    return {
        CORE: IMPORT_ALL.format(names=core),
        FOREIGN: IMPORT_ALL.format(names=foreign),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    rounds = 3 if parser.parse_args().quick else 11

    statements = STATEMENTS | foreign_imports()
    taken: dict[str, list[float]] = {name: [] for name in statements}
    for turn in range(rounds + 1):
        for name, statement in statements.items():
            seconds = float(run(TIMED.format(statement=statement)))
            # The first turn compiles and fills the file cache.
            if turn:
                taken[name].append(seconds)
    medians = {name: statistics.median(times) for name, times in taken.items()}

    table = Table("figure", "ours", "compared with", "theirs", "beyond", "target")
    for ours, theirs, target in COMPARISONS:
        table.add_row(
            ours,
            milli(medians[ours]),
            theirs,
            milli(medians[theirs]),
            milli(medians[ours] - medians[theirs]),
            target,
        )
    console = Console(width=140)
    console.print(table)
    for statement in (
        "import langchain_dpicl",
        "import langchain_dpicl.mechanisms",
        "import langchain_dpicl.accounting",
        DP_CHAIN,
    ):
        loaded = run(LOADED.format(statement=statement, names=HEAVY))
        console.print(f"{statement}: loads {loaded or 'none'} of {', '.join(HEAVY)}")
        assert statement == DP_CHAIN or not loaded
        assert "scipy" not in loaded.split()


def milli(seconds: float) -> str:
    return f"{1e3 * seconds:,.1f} ms"


if __name__ == "__main__":
    main()
