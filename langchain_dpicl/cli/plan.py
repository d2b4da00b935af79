"""`dpicl plan`: what a budget buys with each method: leads, calls, money."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import click

from langchain_dpicl.accounting import Charge
from langchain_dpicl.budget import forecast
from langchain_dpicl.budget.forecast import (
    ANSWER_TOKENS,
    PROMPT_TOKENS,
    UNSEEN,
    Forecast,
)
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import (
    DPError,
    InvalidParameterError,
    PlanMismatchError,
)
from langchain_dpicl.operate.pages import Cell, table
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
        0,
        items_per_answer=1,
    ),
    "KSA-threshold, 2 words": Method(
        KSAThresholdOutputParser(items_per_answer=2).charge,
        0,
        items_per_answer=2,
    ),
    "KSA-joint": Method(KSAJointOutputParser(k=1, domain=["a", "b"]).charge, 1),
    "voting, ESA by vote": Method(VoteOutputParser(labels=["a", "b"]).charge, 0),
    "voting, drafted labels": Method(
        VoteOutputParser(labels="draft").charge, 1, drafted=True
    ),
    "voting by likelihood": Method(
        VoteOutputParser(labels=["a", "b"], read="likelihood").charge, 1
    ),
}


NOTES = """\
z: noise multiplier. epsilon: of one query's exponential mechanism. noise: standard
deviation on a count of groups. lead: by how many groups the answer must be ahead of the
next one to come out in 95 % of cases; for KSA-threshold how many groups must use a
word, whatever else they say. With less, KSA-joint and voting over labels that you give
may choose another one; the others give no answer. KSA-threshold counts only an answer's
first words. calls: model calls of a query that is released; ESA asks for its candidates
besides, and a chain that asks nothing else publicly tries its model once. Voting by
likelihood asks each group once more for each text of calibrate=."""


def plan(*, as_json: bool, **given: Any) -> int:
    """Print what a budget buys with each method."""
    sizes, terms = _checked(given)
    found = {name: _forecast(method, **terms) for name, method in METHODS.items()}
    if as_json:
        rows = {name: _row(one, sizes) for name, one in found.items()}
        click.echo(json.dumps(rows, indent=2))
        return 0
    rate = terms["rate"]
    click.echo(
        f"epsilon {terms['epsilon']:g}, delta {terms['delta']:g} for "
        f"{terms['queries']} queries over {terms['groups']} groups"
        + (f" (sampled at {rate:g})" if rate < 1 else "")
        + "\n"
    )
    lines: list[Sequence[Cell]] = []
    failed = []
    for name, one in found.items():
        if isinstance(one, DPError):
            failed.append(f"{name}: {one}")
            continue
        numbers = (one.noise_multiplier, one.epsilon, one.noise)
        figures = ("" if value is None else f"{value:.3g}" for value in numbers)
        lead = f"{one.required_lead:.1f}{'' if one.is_possible else ' (too many)'}"
        lines.append((name, *figures, lead, one.calls_per_query))
    click.echo(table(("method", "z", "epsilon", "noise", "lead", "calls"), lines))
    plans = {n: one for n, one in found.items() if isinstance(one, Forecast)}
    if impossible := [n for n, one in plans.items() if not one.is_possible]:
        failed.append(
            f"Not even a unanimous answer of {terms['groups']} groups stands out with "
            f"{', '.join(impossible)}. Use more groups (more people), fewer queries, "
            "or a larger epsilon."
        )
    most = max(plans.values(), key=lambda one: one.calls_per_query)
    for text in (*failed, NOTES, UNSEEN, *_priced(most, sizes)):
        click.echo("\n" + text)
    return 0


def _checked(given: dict[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return what calls cost, if it is asked, and the terms; refuse wrong numbers."""
    parameters.epsilon(given["epsilon"])
    parameters.delta(given["delta"])
    parameters.count(given["choices"], "choices", minimum=2)
    for name in ("queries", "groups"):
        parameters.count(given[name], name)
    rate = parameters.sampling_rate(given.pop("sampling_rate"))
    names = ("records_per_group", "tokens_per_record", "price_in", "price_out")
    sizes = {name: given.pop(name) for name in names}
    asked = {value for value in sizes.values() if value is not None}
    if asked and None in (sizes["records_per_group"], sizes["tokens_per_record"]):
        raise InvalidParameterError(
            "What the calls cost follows from both --records-per-group and "
            "--tokens-per-record."
        )
    if (sizes["price_in"] is None) != (sizes["price_out"] is None):
        raise InvalidParameterError("Give both --price-in and --price-out, or none.")
    return sizes if asked else None, {**given, "rate": rate}


def _forecast(method: Method, *, rate: float, **terms: Any) -> Forecast | DPError:
    try:
        return forecast(
            method.charge(rate),
            public_calls=method.public_calls,
            items_per_answer=method.items_per_answer,
            drafted=method.drafted,
            **terms,
        )
    except (PlanMismatchError, InvalidParameterError) as error:
        if rate == 1:
            raise
        return error


def _row(one: Forecast | DPError, sizes: dict[str, Any] | None) -> dict[str, Any]:
    if isinstance(one, DPError):
        return {"error": str(one)}
    cost = {} if sizes is None else {"cost": one.cost(**sizes)._asdict()}
    return {**asdict(one), "advice": one.advice(), "unseen": UNSEEN, **cost}


def _priced(most: Forecast, sizes: dict[str, Any] | None) -> list[str]:
    """Return what the method with the most model calls takes, in words."""
    if sizes is None:
        return []
    cost, n = most.cost(**sizes), most.queries
    price = "" if cost.price is None else f", for {n * cost.price:,.2f}"
    text = (
        f"All {n} queries make {n * most.calls_per_query:,} calls at most. They send "
        f"{n * cost.input_tokens:,} tokens, and {n * cost.output_tokens:,} come "
        f"back{price}. Assumed: every group has "
        f"{sizes['records_per_group']} records of {sizes['tokens_per_record']} tokens, "
        f"every call {PROMPT_TOKENS} tokens of question and instructions and "
        f"{ANSWER_TOKENS} of answer. A model that reasons writes many more, and "
        "embeddings come besides."
    )
    return [text]
