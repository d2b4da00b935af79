"""`dpicl check`: whether a chain of yours can answer, tried on one public record."""

from __future__ import annotations

import argparse
import json

from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.cli.loading import load_chain


def run(options: argparse.Namespace) -> int:
    """Print the report, or JSON; return 1 where the chain will not answer."""
    chain, handlers = load_chain(options.chain)
    budgets = [one for one in handlers if isinstance(one, PrivacyBudgetHandler)]
    if budgets:
        chain = chain.model_copy(update={"budget": budgets[0]})
    report = chain.check(options.question, options.record)
    print(json.dumps(report.to_dict(), indent=2) if options.json else report)  # noqa: T201 - the command's output
    return 0 if report.ok else 1
