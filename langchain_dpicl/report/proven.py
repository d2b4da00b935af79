"""Where each release is proven, and the proofs of what an account has released.

The table names, for each release, the function that draws it, the template that prices
it, and the one file that holds both. What is said of sensitivity, noise, event and
source is the function's own docstring.
"""

from __future__ import annotations

import csv
import inspect
import re
from collections.abc import Collection
from dataclasses import dataclass
from importlib import resources

from langchain_dpicl import mechanisms

_SECTION = re.compile(r"^Privacy:\n((?:    .*\n|\n)+)", re.MULTILINE)
_PARTS = re.compile(r"(?<=\s)(?=(?:Sensitivity|Noise|Event|Source)\b[^.:]*: )")


@dataclass(frozen=True)
class Proof:
    """One row of the table.

    Attributes:
        release: What comes out.
        maker: The class that users call.
        function: What draws it, in `mechanisms`.
        template: What prices it.
        file: The file that holds the proof.
        events: The kinds of events that it is charged.
    """

    release: str
    maker: str
    function: str
    template: str
    file: str
    events: frozenset[str]

    @property
    def argument(self) -> tuple[str, ...]:
        """Unit and relation, sensitivity, noise, event and source, in its words."""
        text = inspect.getdoc(getattr(mechanisms, self.function)) or ""
        found = _SECTION.search(text + "\n")
        words = " ".join(found.group(1).split()) if found else ""
        return tuple(part.strip() for part in _PARTS.split(words) if part.strip())


def _read() -> tuple[Proof, ...]:
    table = resources.files(__package__).joinpath("proofs.csv").read_text("utf-8")
    return tuple(
        Proof(**{**row, "events": frozenset(row["events"].split())})  # type: ignore[arg-type]
        for row in csv.DictReader(table.splitlines())
    )


PROOFS = _read()
"""In the order of ARCHITECTURE.md, which shows the same table."""

_MAKERS = {
    "examples": "DPFewShotGenerator",
    "table": "GDPTable",
    "reports": "LDPTable",
}
_PARSERS = {
    "vote/": "VoteOutputParser",
    "esa/": "ESAOutputParser",
    "ksa/ptr": "KSAPTROutputParser",
    "ksa/threshold": "KSAThresholdOutputParser",
    "ksa/joint": "KSAJointOutputParser",
}


def proofs_of(kind: str, mechanism: str, charged: Collection[str]) -> list[Proof]:
    """Return the proofs of what a charge can have released.

    Args:
        kind: `answer`, `examples`, `table` or `reports`.
        mechanism: The mechanism's public name; empty where nobody knows.
        charged: The kinds of the events that were charged, the plain ones.
    """
    events = set(charged)
    named = (of for start, of in _PARSERS.items() if mechanism.startswith(start))
    maker = _MAKERS.get(kind) or next(named, None)
    rows = [
        proof
        for proof in PROOFS
        if (proof.maker == maker if maker else proof.maker not in _MAKERS.values())
    ]
    exact = [proof for proof in rows if proof.events == events]
    # Several releases may share a charge.
    return exact or [proof for proof in rows if proof.events <= events]
