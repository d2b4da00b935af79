"""Where each release is proven, and the proofs of what an account has released.

The table names, for each release, the function that draws it, the function that says
what it is charged, and the one file that holds both. The argument is the docstring of
that file, under its headings.
"""

from __future__ import annotations

import csv
import inspect
import re
from collections.abc import Collection
from dataclasses import dataclass
from importlib import import_module, resources
from pathlib import Path
from types import ModuleType

from langchain_dpicl import mechanisms

HEADINGS = (
    "Input",
    "Neighbors",
    "Sensitivity",
    "Noise",
    "Event",
    "What is free",
    "Tested by",
)
"""What the file of every release says, in this order; others may stand between."""

_PART = re.compile(r"^([A-Z][a-zA-Z ]*?)  +(\S.*\n(?:  .*\n)*)", re.MULTILINE)


@dataclass(frozen=True)
class Proof:
    """One row of the table.

    Attributes:
        release: What comes out.
        maker: The class that users call.
        function: What draws it.
        charge: What says what it is charged.
        file: The file that holds both, and the proof.
        events: The kinds of events that it is charged.
    """

    release: str
    maker: str
    function: str
    charge: str
    file: str
    events: frozenset[str]

    @property
    def module(self) -> ModuleType:
        """The module that holds the proof."""
        return import_module(f"{mechanisms.__name__}.{Path(self.file).stem}")

    @property
    def argument(self) -> dict[str, str]:
        """What the file says under each of its headings."""
        text = inspect.getdoc(self.module) or ""
        parts = _PART.findall(text + "\n")
        return {name: " ".join(part.split()) for name, part in parts}


def _read() -> tuple[Proof, ...]:
    table = resources.files(__package__).joinpath("proofs.csv").read_text("utf-8")
    return tuple(
        Proof(**{**row, "events": frozenset(row["events"].split())})  # type: ignore[arg-type]
        for row in csv.DictReader(table.splitlines())
    )


PROOFS = _read()
"""In the order of the guarantee's page, which shows the same table."""

_MAKERS = {
    "examples": "DPFewShotGenerator",
    "table": "GDPTable",
    "reports": "LDPTable",
}
_NAMED = {
    "vote/": "VoteOutputParser",
    "esa/": "ESAOutputParser",
    "ksa/ptr": "KSAPTROutputParser",
    "ksa/threshold": "KSAThresholdOutputParser",
    "ksa/joint": "KSAJointOutputParser",
    "prose/": "ProseOutputParser",
    "discover": "discover",
    "insights": "insights",
}


def proofs_of(kind: str, mechanism: str, charged: Collection[str]) -> list[Proof]:
    """Return the proofs of what a charge can have released.

    Args:
        kind: `answer`, `examples`, `table` or `reports`.
        mechanism: The mechanism's public name; empty where nobody knows.
        charged: The kinds of the events that were charged, the plain ones.
    """
    events = set(charged)
    named = (of for start, of in _NAMED.items() if mechanism.startswith(start))
    maker = next(named, None) or _MAKERS.get(kind)
    rows = [
        proof
        for proof in PROOFS
        if (proof.maker == maker if maker else proof.maker not in _MAKERS.values())
    ]
    exact = [proof for proof in rows if proof.events == events]
    # Several releases may share a charge.
    return exact or [proof for proof in rows if proof.events <= events]
