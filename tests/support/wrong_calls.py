"""Calls that type checkers must refuse: an ignore that nothing needs is an error."""

from __future__ import annotations

from langchain_dpicl import DPChain


def wrong() -> None:
    """Make chains that can't be made; never called."""
    DPChain(nonsense=1)  # type: ignore[call-arg]
    DPChain(groups=3)  # type: ignore[arg-type, call-arg]
