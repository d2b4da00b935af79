"""What a test does at the moment when a ledger stores a draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger.book import Transaction


def before_draws(patch: pytest.MonkeyPatch, step: Callable[[int, Any], object]) -> None:
    """Call a function with each draw's number and value before it is stored."""
    append = Transaction.append

    def watched(self: Transaction, book: Any, kind: str, body: Any, **more: Any) -> Any:
        if kind == "draw":
            step(more["step"], body["value"])
        return append(self, book, kind, body, **more)

    patch.setattr(Transaction, "append", watched)


def full(*_: object) -> NoReturn:
    """Fail as a full disk does."""
    raise LedgerError("the disk is full")
