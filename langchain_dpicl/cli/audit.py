"""`dpicl audit`: what a person could lose, measured; one command for each audit."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

from langchain_dpicl.audit import AuditReport

Make = Callable[[argparse.Namespace], AuditReport]


def run(options: argparse.Namespace) -> int:
    """Make the report, save it, print it; return 1 where the claim is exceeded."""
    report = MAKERS[options.audit](options)
    for path in options.out or ():
        report.save(path)
    print(json.dumps(report.to_dict(), indent=2) if options.json else report)  # noqa: T201 - the command's output
    return 0 if report.is_sound else 1


MAKERS: dict[str, Make] = {}
"""What makes the report of each command that `cli/commands.py` lists."""
