"""What a chain reports of its questions: OpenTelemetry metrics, and a mark in traces.

The library reports by OpenTelemetry's API, as instrumented libraries do: where it is
not installed, or an application has set no `MeterProvider`, nothing is reported.

| metric | kind | attributes |
|---|---|---|
| `dpicl.questions` | counter | `dpicl.status`, `.mechanism`, `.account`; `error.type` |
| `dpicl.model_calls` | counter | `dpicl.account` |
| `dpicl.budget.epsilon_left` | gauge | `dpicl.account` |
| `dpicl.budget.queries_left` | gauge | `dpicl.account` |

Privacy:
    Each value is a function of an answer's public record, or the type of an error that
    its caller sees; reporting it is post-processing. Calls of the model are counted
    only where their number is public (`DPChain.pad_calls`). No duration of a group call
    is measured: it depends on what the group holds. For that reason the mark in a
    trace, "100 group calls", begins and ends at once, before the first of the calls.
    What a trace says of the whole question's duration, its caller sees too.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from langchain_core.callbacks import AsyncCallbackManager, CallbackManager

from langchain_dpicl._version import __version__
from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.chain.steps import Step


@functools.cache
def _instruments() -> dict[str, Any]:
    """Return the instruments by name; none where OpenTelemetry is not installed."""
    try:
        from opentelemetry import metrics
    except ImportError:
        return {}
    meter = metrics.get_meter("langchain_dpicl", __version__)
    return {
        "questions": meter.create_counter(
            "dpicl.questions", "{question}", "Questions, by how they ended."
        ),
        "calls": meter.create_counter(
            "dpicl.model_calls", "{call}", "Calls of the model, for empty groups too."
        ),
        "epsilon": meter.create_gauge(
            "dpicl.budget.epsilon_left", "1", "Epsilon that an account has left."
        ),
        "queries": meter.create_gauge(
            "dpicl.budget.queries_left", "{query}", "Queries that a plan has left."
        ),
    }


def report_answer(record: Mapping[str, Any]) -> None:
    """Count an answered question by its public record."""
    if not (instruments := _instruments()):
        return
    account = record["account"]
    name = {"dpicl.account": account["name"]}
    kinds = {"dpicl.status": record["status"], "dpicl.mechanism": record["mechanism"]}
    instruments["questions"].add(1, {**kinds, **name})
    if (calls := record.get("calls")) is not None:
        instruments["calls"].add(calls, name)
    left = max(0.0, account["epsilon"] - account["epsilon_spent"])
    instruments["epsilon"].set(left, name)
    # A per-unit account does not end: its queries are no limit.
    if account["queries"] is not None and account["scope"] == "corpus":
        spent = account["queries_spent"]
        instruments["queries"].set(account["queries"] - spent, name)


def report_error(error: BaseException) -> None:
    """Count a question that raised, by the type of its error."""
    if instruments := _instruments():
        instruments["questions"].add(1, {"error.type": type(error).__qualname__})


def mark(step: Step, callbacks: Any) -> None:
    """Put a mark into the trace where groups are about to be asked."""
    if isinstance(callbacks, CallbackManager) and (name := _mark_of(step, callbacks)):
        callbacks.on_chain_start(None, {}, name=name).on_chain_end({})


async def amark(step: Step, callbacks: Any) -> None:
    """Put a mark into the trace; see `mark`."""
    if isinstance(callbacks, AsyncCallbackManager) and (
        name := _mark_of(step, callbacks)
    ):
        begun = await callbacks.on_chain_start(None, {}, name=name)
        await begun.on_chain_end({})


def _mark_of(step: Step, callbacks: CallbackManager | AsyncCallbackManager) -> str:
    """Return the mark's name; none where there is none, or nobody sees it."""
    is_seen = any(
        not handler.ignore_chain and type(handler) is not PrivacyBudgetHandler
        for handler in callbacks.handlers
    )
    groups = step.details.get("groups") if step.name == "groups" else None
    return f"{groups} group calls" if groups and is_seen else ""
