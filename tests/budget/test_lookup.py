"""Which budget a run charges: the one that is named, wherever it is named."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.callbacks import (
    BaseCallbackHandler,
    CallbackManager,
    CallbackManagerForChainRun,
)

from langchain_dpicl import NoBudgetError, PrivacyBudgetHandler
from langchain_dpicl.budget import find_budget


def handler(account: str = "mine") -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(
        epsilon=8, delta=1e-6, queries=4, ledger=":memory:", account=account
    )


def ways(*handlers: Any) -> list[Any]:
    """Return every form in which a run's handlers are passed on."""
    run = CallbackManager(handlers=[], inheritable_handlers=list(handlers))
    own = CallbackManager(handlers=list(handlers), inheritable_handlers=[])
    return [
        list(handlers),
        tuple(handlers),
        own,
        run,
        CallbackManager(handlers=list(handlers), inheritable_handlers=list(handlers)),
        own.on_chain_start({}, {}),
        SimpleNamespace(handlers=list(handlers)),
        SimpleNamespace(handlers=[], inheritable_handlers=list(handlers)),
        SimpleNamespace(handlers=(), inheritable_handlers=tuple(handlers)),
    ]


def test_a_budget_is_found_in_every_form_of_handlers() -> None:
    mine = handler()
    for callbacks in ways(BaseCallbackHandler(), mine):
        assert find_budget(None, callbacks) is mine
        assert find_budget(mine, callbacks) is mine
    for callbacks in (None, *ways(BaseCallbackHandler()), []):
        assert find_budget(mine, callbacks) is mine
        with pytest.raises(NoBudgetError, match="nothing was asked of the model"):
            find_budget(None, callbacks)


def test_a_run_inherits_it() -> None:
    mine = handler()
    manager = CallbackManager(handlers=[], inheritable_handlers=[mine])
    run = manager.on_chain_start({}, {})
    assert isinstance(run, CallbackManagerForChainRun)
    assert find_budget(None, run.get_child()) is mine


def test_several_accounts_are_named_and_none_is_taken() -> None:
    one, two, three = (handler(name) for name in ("one", "two", "three"))
    said = r"^2 privacy budgets apply to this run \('one', 'two'\)"
    for callbacks in ways(one, two):
        with pytest.raises(NoBudgetError, match=said):
            find_budget(None, callbacks)
    with pytest.raises(NoBudgetError, match=r"^3 .* \('three', 'one', 'two'\)"):
        find_budget(three, [one, two, one])
