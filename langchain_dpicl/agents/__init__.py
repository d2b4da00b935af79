"""Differentially private answers in agents made with `langchain.agents.create_agent`.

`PrivacyBudgetMiddleware` brings the tool into the agent, and tells the agent, or ends
its run, when the budget can't pay for another question. It needs the `langchain`
package: `pip install langchain`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_dpicl.agents.middleware import PrivacyBudgetMiddleware

__all__ = ["PrivacyBudgetMiddleware"]

_NEEDED = {"langchain", "langgraph"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        middleware = import_module(f"{__name__}.middleware")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        missing = error.name
    else:
        return getattr(middleware, name)
    raise ImportError(
        f"{name} is made for LangChain's agents, and {missing!r} is not installed: "
        "pip install langchain.",
        name=missing,
    )


def __dir__() -> list[str]:
    return sorted(__all__)
