"""`dpicl plan`: what a budget buys with each method: leads, calls, money."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from langchain_dpicl.accounting import Charge
from langchain_dpicl.budget import forecast
from langchain_dpicl.budget.forecast import (
    ANSWER_TOKENS,
    PROMPT_TOKENS,
    UNSEEN,
    Cost,
    Forecast,
)
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import (
    DPError,
    InvalidParameterError,
    PlanMismatchError,
)
from langchain_dpicl.parsers import (
    KSAJointOutputParser,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    VoteOutputParser,
)


class Method(NamedTuple):
    """A method to compare: what a release is charged, by the sampling rate of units.

    `public_calls` are those of one query, if it is released; `items_per_answer` is how
    many words an answer counts for, where there is a limit; `drafted` whether the model
    drafts the labels.
    """

    charge: Callable[[float], Charge]
    public_calls: int
    items_per_answer: int = 1
    drafted: bool = False


# The methods by name, as their parsers make them.
METHODS = {
    "KSA-PTR, one k": Method(KSAPTROutputParser().charge, 1),
    "KSA-PTR, range of k": Method(KSAPTROutputParser(k=(1, 3)).charge, 1),
    "KSA-threshold, 1 word": Method(
        KSAThresholdOutputParser(items_per_answer=1).charge,
        1,
        items_per_answer=1,
    ),
    "KSA-threshold, 2 words": Method(
        KSAThresholdOutputParser(items_per_answer=2).charge,
        1,
        items_per_answer=2,
    ),
    "KSA-joint": Method(KSAJointOutputParser(k=1, domain=["a", "b"]).charge, 1),
    "voting, ESA by vote": Method(VoteOutputParser(labels=["a", "b"]).charge, 0),
    "voting, drafted labels": Method(
        VoteOutputParser(labels="draft").charge, 1, drafted=True
    ),
}


def run(options: argparse.Namespace) -> int:
    """Print the table, or JSON."""
    _check(options)
    found = {name: _forecast(name, options) for name in METHODS}
    if options.json:
        shown: dict[str, Any] = {}
        for name, item in found.items():
            if isinstance(item, DPError):
                shown[name] = {"error": str(item)}
                continue
            shown[name] = asdict(item) | {"advice": item.advice(), "unseen": UNSEEN}
            if (cost := _cost(item, options)) is not None:
                shown[name]["cost"] = cost._asdict()
        print(json.dumps(shown, indent=2))  # noqa: T201 - the command's output
        return 0
    _print(options, found)
    return 0


def _check(options: argparse.Namespace) -> None:
    """Refuse numbers that are wrong for every method."""
    parameters.epsilon(options.epsilon)
    parameters.delta(options.delta)
    parameters.count(options.queries, "queries")
    parameters.count(options.groups, "groups")
    parameters.count(options.choices, "choices", minimum=2)
    parameters.sampling_rate(options.sampling_rate)
    sizes = (options.records_per_group, options.tokens_per_record)
    prices = (options.price_in, options.price_out)
    if None in sizes and {*sizes, *prices} != {None}:
        raise InvalidParameterError(
            "What the calls cost follows from both --records-per-group and "
            "--tokens-per-record."
        )
    if prices.count(None) == 1:
        raise InvalidParameterError("Give both --price-in and --price-out, or none.")


def _cost(item: Forecast, options: argparse.Namespace) -> Cost | None:
    if options.records_per_group is None:
        return None
    return item.cost(
        records_per_group=options.records_per_group,
        tokens_per_record=options.tokens_per_record,
        price_in=options.price_in,
        price_out=options.price_out,
    )


def _forecast(name: str, options: argparse.Namespace) -> Forecast | DPError:
    method = METHODS[name]
    rate = options.sampling_rate
    try:
        return forecast(
            method.charge(rate),
            epsilon=options.epsilon,
            delta=options.delta,
            queries=options.queries,
            groups=options.groups,
            public_calls=method.public_calls,
            choices=options.choices,
            items_per_answer=method.items_per_answer,
            drafted=method.drafted,
        )
    except (PlanMismatchError, InvalidParameterError) as error:
        if rate == 1:
            raise
        return error


def _print(options: argparse.Namespace, found: dict[str, Forecast | DPError]) -> None:
    console = Console()
    rate = options.sampling_rate
    console.print(
        f"epsilon {options.epsilon:g}, delta {options.delta:g} for "
        f"{options.queries} queries over {options.groups} groups"
        + (f" (sampled at {rate:g})" if rate < 1 else "")
    )
    table = Table("method")
    for heading in ("z", "epsilon", "noise", "lead", "calls"):
        table.add_column(heading, justify="right")
    for name, item in found.items():
        if isinstance(item, DPError):
            table.add_row(name, f"[dim]{item}[/]")
            continue
        lead = f"{item.required_lead:.1f}"
        table.add_row(
            name,
            _figure(item.noise_multiplier),
            _figure(item.epsilon),
            _figure(item.noise),
            lead if item.is_possible else f"[red]{lead}[/]",
            str(item.calls_per_query),
        )
    console.print(table)
    impossible = [
        name
        for name, item in found.items()
        if isinstance(item, Forecast) and not item.is_possible
    ]
    if impossible:
        console.print(
            f"[bold red]Not even a unanimous answer of {options.groups} groups stands "
            f"out with {', '.join(impossible)}.[/] Use more groups (more people), "
            "fewer queries, or a larger epsilon."
        )
    console.print(
        "z: noise multiplier. epsilon: of one query's exponential mechanism. noise: "
        "standard deviation on a count of groups. lead: by how many groups the answer "
        "must be ahead of the next one to come out in 95 % of cases; for KSA-threshold "
        "how many groups must use a word, whatever else they say. With less, KSA-joint "
        "and voting over labels that you give may choose another one; the others give "
        "the public answer. KSA-threshold counts only an answer's first words. calls: "
        "model calls of a query that is released; ESA asks for its candidates besides, "
        "and a chain's first question, or a vote without an answer, is asked alone."
    )
    console.print(UNSEEN)
    _print_cost(console, options, found)


def _print_cost(
    console: Console, options: argparse.Namespace, found: dict[str, Forecast | DPError]
) -> None:
    """Print what the method with the most model calls takes."""
    plans = [item for item in found.values() if isinstance(item, Forecast)]
    most = max(plans, key=lambda item: item.calls_per_query)
    cost = _cost(most, options)
    if cost is None:
        return
    n = options.queries
    price = "" if cost.price is None else f", for {n * cost.price:,.2f}"
    console.print(
        f"All {n} queries make {n * most.calls_per_query:,} calls at most. They send "
        f"{n * cost.input_tokens:,} tokens, and {n * cost.output_tokens:,} come "
        f"back{price}. Assumed: every group has "
        f"{options.records_per_group} records of {options.tokens_per_record} tokens, "
        f"every call {PROMPT_TOKENS} tokens of question and instructions and "
        f"{ANSWER_TOKENS} of answer. A model that reasons writes many more, and "
        "embeddings come besides."
    )


def _figure(value: Any) -> str:
    return "" if value is None else f"{value:.3g}"
