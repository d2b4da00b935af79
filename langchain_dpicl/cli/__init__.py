"""The command line, `dpicl`: try it, plan a budget, look at a ledger."""

from langchain_dpicl.cli.commands import main

__all__ = ["main"]
