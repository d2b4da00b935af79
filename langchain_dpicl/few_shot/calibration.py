"""From a privacy budget to the noise of each token.

An example of label y is T token steps. Each draws a fresh Poisson sample of the label's
units, so that n examples are n T steps at the rate q = M N / |D_y|, and all of them
compose. A finished example is not free because the next one looks like it.

What is here are figures for one label alone, to choose parameters by. A generation is
charged through `PrivacyBudgetHandler.charge`, whose plan arrives at the same noise.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from langchain_dpicl.accounting import Charge, Gaussian, Pure
from langchain_dpicl.budget import planned
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError, PlanMismatchError
from langchain_dpicl.mechanisms import next_token

Mechanism = Literal["gaussian", "noisy_max"]

TokenEvent: TypeAlias = Gaussian | Pure
"""What the tokens of one label are charged, by mechanism."""


def release_name(mechanism: Mechanism) -> str:
    """Return the public name of a token's release."""
    return f"few-shot/{mechanism.replace('_', '-')}"


def token_charge(
    mechanism: Mechanism,
    noise_multiplier: float | None = None,
    epsilon: float | None = None,
    *,
    sampling_rate: float,
    count: int,
) -> Charge:
    """Return what `count` tokens of a label are charged; None leaves the noise open."""
    shape: dict[str, Any] = {
        "sampling_rate": sampling_rate,
        "count": count,
        "name": release_name(mechanism),
    }
    if mechanism == "gaussian":
        return next_token.charge(noise_multiplier=noise_multiplier, **shape)
    return next_token.max_charge(epsilon=epsilon, **shape)


def amount(event: TokenEvent) -> float:
    """Return a token's noise as a number: its noise multiplier, or its epsilon."""
    noise = event.noise_multiplier if isinstance(event, Gaussian) else event.epsilon
    if noise is None:
        raise TypeError("An event that was paid has no hole.")
    return noise


def sampling_rate(label_size: int, n_groups: int, records_per_group: float) -> float:
    """Return the rate at which each unit of a label is drawn for a token.

    `q = M N / |D_y|` for M groups of N units each, on average, and the public number
    `|D_y|` of units of this label, not of all labels.

    Raises:
        InvalidParameterError: If an argument is out of its range, or the label has
            fewer units than the groups are to hold.

    Privacy:
        q is what the sampling's amplification is computed with, so that `|D_y|` must be
        declared as public, and be the number of units that the steps draw from. With
        the number of all labels' units in its place q, and the noise, would be too
        small.
    """
    size = parameters.count(label_size, "label_size")
    groups = parameters.count(n_groups, "n_groups")
    each = parameters.positive("records_per_group", records_per_group)
    rate = groups * each / size
    if rate > 1:
        raise InvalidParameterError(
            f"{groups} groups of {each:g} need {groups * each:g} units, and the label "
            f"has {size}: ask for fewer or smaller groups, bring more records of this "
            "label, or leave it out."
        )
    if rate <= 0:
        raise InvalidParameterError("records_per_group is too small for a rate.")
    return rate


def calibrate(
    epsilon: float,
    delta: float,
    *,
    label_size: int,
    n_groups: int,
    records_per_group: float,
    max_tokens: int,
    per_label: int = 1,
    mechanism: Mechanism = "gaussian",
) -> float:
    """Return the noise with which examples of one label keep within a budget.

    Args:
        epsilon: Privacy loss bound of all examples of this label together; above 0.
        delta: Failure probability, above 0 and at most 1 / `label_size`.
        label_size: Public number `|D_y|` of units of this label.
        n_groups: Number M of groups.
        records_per_group: Mean number N of units in a group.
        max_tokens: Most tokens T of an example; all of them are paid for, used or not.
        per_label: Number n of examples.
        mechanism: `gaussian`, or `noisy_max` (report-noisy-max).

    Returns:
        For `gaussian` the noise multiplier z: each token's noise is N(0, 2 z^2) a
        coordinate (the sensitivity is sqrt(2); z is the paper's sigma). It is at most
        a thousandth above the least one that our accountant can prove.
        For `noisy_max` the epsilon of one token before sampling, likewise.

    Raises:
        InvalidParameterError: If an argument is out of its range, the label has fewer
            units than the groups are to hold, or no noise is enough.

    Privacy:
        Unit: a unit of the label's records; neighbors: one unit more or less.
        A token's sensitivity, noise and event: `mechanisms.next_token`, on a Poisson
        sample of rate q; n T of them, fixed in advance, compose. Gaussian figures are
        checked against prv-accountant. Labels of disjoint units each may spend all of
        (epsilon, delta): they compose in parallel (`accounting.Parallel`).

    Example:
        >>> agnews = {"label_size": 30_000, "n_groups": 10, "records_per_group": 2}
        >>> z = calibrate(4.0, 1 / 30_000, max_tokens=100, **agnews)
        >>> 0.38 < z < 0.39
        True
    """
    rate = sampling_rate(label_size, n_groups, records_per_group)
    epsilon = parameters.epsilon(epsilon)
    delta = parameters.delta(delta)
    tokens = parameters.count(max_tokens, "max_tokens")
    examples = parameters.count(per_label, "per_label")
    if mechanism not in ("gaussian", "noisy_max"):
        raise InvalidParameterError("mechanism must be 'gaussian' or 'noisy_max'.")
    if delta > 1 / label_size:
        raise InvalidParameterError(
            f"delta {delta:g} is too large for a label of {label_size} units: to "
            "publish one random unit's records would satisfy it. Choose "
            f"{1 / label_size:.2g} or less; below 1 / (number of all units) where one "
            "account pays for all labels."
        )
    charge = token_charge(mechanism, sampling_rate=rate, count=tokens * examples)
    try:
        events = planned(charge, epsilon, delta, 1)
    except PlanMismatchError as error:
        what = "even one example" if examples == 1 else f"{examples} examples"
        raise InvalidParameterError(
            f"The budget (epsilon {epsilon:g}, delta {delta:g}) is too small for "
            f"{what} of {tokens} tokens from {n_groups} groups of {label_size} units. "
            "Raise epsilon, or lower max_tokens, per_label or the number of groups. "
            f"({error})"
        ) from None
    paid: Any = events[0]
    return amount(paid)
