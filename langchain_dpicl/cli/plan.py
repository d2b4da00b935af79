"""`dpicl plan`: what a budget buys with each method, or how best to ask with it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from langchain_dpicl.accounting import EventTemplate
from langchain_dpicl.budget import forecast
from langchain_dpicl.budget.forecast import (
    ANSWER_TOKENS,
    PROMPT_TOKENS,
    UNSEEN,
    Cost,
    Forecast,
)
from langchain_dpicl.common import parameters
from langchain_dpicl.common.relation import Relation
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
from langchain_dpicl.planner import plan


class Method(NamedTuple):
    """A method to compare: what a release is charged, by the sampling rate of units.

    `public_calls` are those of one query, if it is released; `items_per_answer` is how
    many words an answer counts for, where there is a limit; `drafted` whether the model
    drafts the labels.
    """

    template: Callable[[float], EventTemplate[Any]]
    public_calls: int
    items_per_answer: int = 1
    drafted: bool = False


# The methods by name, as their parsers make them.
METHODS = {
    "KSA-PTR, one k": Method(KSAPTROutputParser().event_template, 1),
    "KSA-PTR, range of k": Method(KSAPTROutputParser(k=(1, 3)).event_template, 1),
    "KSA-threshold, 1 word": Method(
        KSAThresholdOutputParser(items_per_answer=1).event_template,
        1,
        items_per_answer=1,
    ),
    "KSA-threshold, 2 words": Method(
        KSAThresholdOutputParser(items_per_answer=2).event_template,
        1,
        items_per_answer=2,
    ),
    "KSA-joint": Method(KSAJointOutputParser(k=1, domain=["a", "b"]).event_template, 1),
    "voting, ESA by vote": Method(
        VoteOutputParser(labels=["a", "b"]).event_template, 0
    ),
    "voting, drafted labels": Method(
        VoteOutputParser(labels="draft").event_template, 1, drafted=True
    ),
}
GROUPS = 100
"""As many where nobody says how many, to compare methods."""

CHOICES = 10
"""The same for labels."""

GUESSES = ("share", "runner_up", "wanted", "parser", "stages")
"""Options that go with `--people-per-question`."""

PLOT_POINTS = (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0)


def run(options: argparse.Namespace) -> int:
    """Print the table, or JSON, and draw the plot if one is asked for."""
    if options.people_per_question is not None:
        return _choose(options)
    given = [name for name in GUESSES if getattr(options, name) is not None]
    if given:
        raise InvalidParameterError(
            f"--{given[0].replace('_', '-')} goes with --people-per-question: give "
            "a public guess of how many people have something to say on a question."
        )
    options.groups = GROUPS if options.groups is None else options.groups
    options.choices = CHOICES if options.choices is None else options.choices
    options.sampling_rate = (
        1.0 if options.sampling_rate is None else options.sampling_rate
    )
    _check(options)
    found = {name: _forecast(name, options, options.epsilon) for name in METHODS}
    if options.plot:
        _plot(options)
    if options.json:
        print(  # noqa: T201 - the command's output
            json.dumps(
                {
                    name: asdict(item)
                    | {"advice": item.advice(), "unseen": UNSEEN}
                    | ({"cost": asdict(cost)} if (cost := _cost(item, options)) else {})
                    if isinstance(item, Forecast)
                    else {"error": str(item)}
                    for name, item in found.items()
                },
                indent=2,
            )
        )
        return 0
    _print(options, found)
    return 0


def _choose(options: argparse.Namespace) -> int:
    """Print how best to ask, by a guess of how the groups answer."""
    if options.plot is not None or options.relation != Relation.REPLACE.value:
        raise InvalidParameterError(
            "--people-per-question plans for groups by shard, whose relation is "
            "replace, and draws no plot: leave out --plot and --relation."
        )
    guesses = {name: getattr(options, name) for name in (*GUESSES, "choices")}
    found = plan(
        options.people_per_question,
        epsilon=options.epsilon,
        delta=options.delta,
        queries=options.queries,
        groups=options.groups,
        sampling_rate=options.sampling_rate,
        records_per_group=options.records_per_group,
        tokens_per_record=options.tokens_per_record,
        price_in=options.price_in,
        price_out=options.price_out,
        **{name: value for name, value in guesses.items() if value is not None},
    )
    if options.json:
        told = asdict(found) | {"nothing": found.nothing, "unseen": UNSEEN}
        print(json.dumps(told, indent=2))  # noqa: T201 - the command's output
    else:
        print(found)  # noqa: T201 - the same
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


def _forecast(
    name: str, options: argparse.Namespace, epsilon: float
) -> Forecast | DPError:
    method = METHODS[name]
    rate = options.sampling_rate
    try:
        return forecast(
            method.template(rate),
            epsilon=epsilon,
            delta=options.delta,
            queries=options.queries,
            groups=options.groups,
            relation=Relation(options.relation),
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
    console.print(
        f"epsilon {options.epsilon:g}, delta {options.delta:g} for "
        f"{options.queries} queries over {options.groups} groups "
        f"({options.relation.replace('_', '/')}"
        + (
            f", sampled at {options.sampling_rate:g})"
            if options.sampling_rate < 1
            else ")"
        )
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
    _print_costs(console, options, found)


def _print_costs(
    console: Console, options: argparse.Namespace, found: dict[str, Forecast | DPError]
) -> None:
    if options.records_per_group is None:
        return
    table = Table("calls", title="what the calls take", title_justify="left")
    for heading in ("tokens in", "out", "price", "in all: in", "out", "price"):
        table.add_column(heading, justify="right")
    costs = {
        item.calls_per_query: _cost(item, options)
        for item in found.values()
        if isinstance(item, Forecast)
    }
    for calls, cost in sorted(costs.items()):
        if cost is not None:
            table.add_row(
                str(calls),
                f"{cost.input_tokens:,}",
                f"{cost.output_tokens:,}",
                _money(cost.price),
                f"{cost.total_input_tokens:,}",
                f"{cost.total_output_tokens:,}",
                _money(cost.total_price),
            )
    console.print(table)
    console.print(
        f"A question, and all {options.queries}: every group with "
        f"{options.records_per_group} records of {options.tokens_per_record} tokens. "
        f"Assumed: {PROMPT_TOKENS} tokens of question and instructions in every call, "
        f"and {ANSWER_TOKENS} of answer. A model that reasons writes many more, and "
        "embeddings come besides. Prices are for a million tokens."
    )


def _money(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"


def _figure(value: Any) -> str:
    return "" if value is None else f"{value:.3g}"


def _plot(options: argparse.Namespace) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidParameterError(
            "--plot needs matplotlib: pip install matplotlib."
        ) from None
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for name in METHODS:
        points = []
        for epsilon in PLOT_POINTS:
            try:
                item = _forecast(name, options, epsilon)
            except PlanMismatchError:
                continue
            if isinstance(item, Forecast):
                points.append((epsilon, item.required_lead))
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", label=name)
    axes.axhline(options.groups, color="black", linestyle="--", linewidth=1)
    axes.annotate(
        f"all {options.groups} groups",
        (PLOT_POINTS[-1], options.groups),
        ha="right",
        va="bottom",
    )
    axes.axvline(options.epsilon, color="gray", linestyle=":", linewidth=1)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel=f"total epsilon (delta {options.delta:g})",
        ylabel="lead needed for 95 %, in groups",
        title=f"{options.queries} queries, {options.relation.replace('_', '/')}",
    )
    axes.set_xticks(PLOT_POINTS, [f"{point:g}" for point in PLOT_POINTS])
    axes.minorticks_off()
    axes.legend()
    figure.savefig(options.plot, dpi=120)
