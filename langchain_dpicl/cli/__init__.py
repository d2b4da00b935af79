"""The command line, `dpicl`: try it, plan a budget, operate a ledger."""

from langchain_dpicl.cli.commands import main

__all__ = ["main"]
