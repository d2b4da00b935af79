"""How much code a reader meets: sizes, and the files that one release passes through.

    python benchmarks/structure.py [--json]

Counts the package's lines, files and awaiting twins (an `async def` beside a function
of the same name without its "a"), then traces four calls, each on objects that are
made before: a question (by `invoke` and `ainvoke`), a generation, a table and a charge.
A file or function counts where one of its lines runs for the call. To compare with
another state of the project, run this file with that state first on `PYTHONPATH`.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import statistics
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from rich.console import Console
from rich.table import Table

import langchain_dpicl
from langchain_dpicl import (
    DPChain,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.few_shot import DPFewShotGenerator
from langchain_dpicl.offline import (
    HashingEmbeddings,
    OfflineChatModel,
    OfflineNextTokenModel,
)
from langchain_dpicl.tabular import CategoricalColumn, GDPTable, TableSchema

PACKAGE = Path(langchain_dpicl.__file__).parent
QUESTION = "Which side effect do patients on iron report?"


def budget(**terms: Any) -> PrivacyBudgetHandler:
    given = {"epsilon": 8, "delta": 1e-6, "queries": 4, "ledger": ":memory:"}
    return PrivacyBudgetHandler(**{**given, **terms})


def question() -> tuple[Callable[[], Any], ...]:
    notes = [
        Document(f"Patient {n} got a cough from iron.", metadata={"patient": str(n)})
        for n in range(400)
    ]
    chain = DPChain(
        groups=RetrievedGroups.from_documents(
            notes, HashingEmbeddings(), unit_key="patient", n_groups=20
        ),
        model=OfflineChatModel(),
        parser=VoteOutputParser(labels=["cough", "rash"]),
        budget=budget(),
    )
    chain.invoke(QUESTION)
    return (
        lambda: chain.invoke(QUESTION),
        lambda: asyncio.run(chain.ainvoke(QUESTION)),
    )


def generation() -> Callable[[], Any]:
    records = [
        {"text": f"The parcel is late, order {n}.", "label": "late", "who": n}
        for n in range(900)
    ] + [
        {"text": f"The lamp is broken, order {n}.", "label": "broken", "who": 900 + n}
        for n in range(900)
    ]
    generator = DPFewShotGenerator(
        OfflineNextTokenModel(),
        "Given a subject, write a customer's message on that subject.",
        ["late", "broken"],
        n_groups=40,
        records_per_group=2,
        max_tokens=4,
        top_k_public=None,
        unit_key="who",
        budget=budget(queries=1, delta=1e-5),
    )
    return lambda: generator.generate(records, 1, progress=False)


def table() -> Callable[[], Any]:
    schema = TableSchema(
        label="pet",
        columns=[
            CategoricalColumn(name="job", values=["clerk", "nurse"]),
            CategoricalColumn(name="pet", values=["cat", "dog"]),
        ],
    )
    rows = [{"job": "clerk" if n % 3 else "nurse", "pet": "cat"} for n in range(500)]
    released = GDPTable(rows, schema, budget=budget(queries=1, delta=1e-6))
    return released.release


def charge() -> Callable[[], Any]:
    handler = budget()
    parser: Any = VoteOutputParser(labels=["a", "b"])
    # By their names before the cost moved to the mechanisms, for an older tree.
    template = getattr(parser, "event_template", None) or parser.demand
    pay = getattr(handler, "charge", None) or handler.admit  # type: ignore[attr-defined]
    asked = template()
    return lambda: pay(asked)


def traced(call: Callable[[], Any]) -> tuple[int, int]:
    """Return how many files and functions of the package run for a call."""
    seen: set[tuple[str, str]] = set()
    top = str(PACKAGE)

    def trace(frame: Any, event: str, _arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(top):
            seen.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return len({file for file, _ in seen}), len(seen)


def twins(tree: ast.AST) -> tuple[int, int]:
    """Return how many awaiting twins a module has, and their lines."""
    count = lines = 0
    for scope in ast.walk(tree):
        body = getattr(scope, "body", None)
        if not isinstance(body, list):
            continue
        plain = {node.name for node in body if isinstance(node, ast.FunctionDef)}
        for node in body:
            if isinstance(node, ast.AsyncFunctionDef):
                name = node.name
                bare = name.replace("a", "", 1)
                if name.lstrip("_").startswith("a") and bare in plain:
                    count += 1
                    lines += (node.end_lineno or 0) - node.lineno + 1
    return count, lines


def sizes() -> dict[str, int]:
    files = sorted(PACKAGE.rglob("*.py"))
    texts = [file.read_text() for file in files]
    trees = [ast.parse(text) for text in texts]
    found = [twins(tree) for tree in trees]
    functions = [
        (node.end_lineno or 0) - node.lineno + 1
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    lengths = [len(text.splitlines()) for text in texts]
    return {
        "lines": sum(lengths),
        "files": len(files),
        "longest file": max(lengths),
        "median function": int(statistics.median(functions)),
        "awaiting functions": sum(
            isinstance(node, ast.AsyncFunctionDef)
            for tree in trees
            for node in ast.walk(tree)
        ),
        "awaiting twins": sum(count for count, _ in found),
        "their lines": sum(lines for _, lines in found),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    options = parser.parse_args()
    blocking, awaiting = question()
    calls = {
        "question (invoke)": blocking,
        "question (ainvoke)": awaiting,
        "generation": generation(),
        "table": table(),
        "charge": charge(),
    }
    paths = {name: traced(call) for name, call in calls.items()}
    found = {"sizes": sizes(), "paths": paths}
    if options.json:
        sys.stdout.write(json.dumps(found) + "\n")
        return
    console = Console()
    console.print(f"{PACKAGE}")
    shown = Table("size", "value")
    for name, value in found["sizes"].items():
        shown.add_row(name, f"{value:,}")
    console.print(shown)
    shown = Table("one ...", "files", "functions")
    for name, (files, functions) in paths.items():
        shown.add_row(name, str(files), str(functions))
    console.print(shown)


if __name__ == "__main__":
    main()
