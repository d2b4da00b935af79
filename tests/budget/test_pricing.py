"""What one release may spend under a filter: its share, and no step more."""

from __future__ import annotations

from typing import Any

import pytest
from support.release_templates import template

from langchain_dpicl.accounting import (
    BUDGET_UNITS,
    ExponentialPart,
    Failure,
    Gaussian,
    GaussianPart,
    PrivacyFilter,
    PurePart,
)
from langchain_dpicl.budget import Bundle
from langchain_dpicl.budget.pricing import _Share, price_release
from langchain_dpicl.errors import InvalidParameterError, PlanMismatchError

VOTE = template("vote", (GaussianPart(),))
JOINT = template("joint", (ExponentialPart(),))
PURE = template("pf", (PurePart(),))
PTR = template("ksa/ptr", (GaussianPart(),), needs_delta0=True)
ZCDP = PrivacyFilter("zcdp", 8.0, 1e-6, delta0_share=0.2)


@pytest.mark.parametrize("queries", [1, 3, 7])
@pytest.mark.parametrize("shape", [VOTE, JOINT, PURE])
def test_open_noise_spends_its_share_to_the_last_step(shape: Any, queries: int) -> None:
    assert (
        ZCDP.cost(price_release(shape, ZCDP, queries)).loss == BUDGET_UNITS // queries
    )


@pytest.mark.parametrize("share", [0.25, 0.75])
def test_a_share_of_a_share_is_rounded_down_twice(share: float) -> None:
    asked = template("vote", (GaussianPart(),), share=share)
    steps = int(BUDGET_UNITS * share) // 3
    assert ZCDP.cost(price_release(asked, ZCDP, 3)).loss == steps


def test_what_is_fixed_is_priced_as_it_is_for_any_number_of_queries() -> None:
    fixed = template("vote", (GaussianPart(40.0),))
    for queries in (None, 1, 10**6):
        assert price_release(fixed, ZCDP, queries) == (Gaussian(40.0),)


def test_the_failures_of_a_release_are_its_share_of_those_of_the_account() -> None:
    """1/4 of a fifth of delta, over the sampling rate and the number of uses."""
    for rate, uses in ((1.0, 1), (0.25, 1), (0.25, 5)):
        shape = template("p", (GaussianPart(),), rate, needs_delta0=True, uses=uses)
        event = price_release(shape, ZCDP, 4)[-1]
        assert isinstance(event, Failure)
        # The event is charged as the rate times delta0, and `uses` times.
        assert event.delta0 * uses == pytest.approx(0.2e-6 / 4)
        assert event.delta0 * uses < 0.2e-6 / 4


def test_releases_that_share_units_share_the_failures() -> None:
    both = Bundle("both", (PTR, VOTE, PTR), disjoint=False)
    events = price_release(both, ZCDP, 4)
    failures = [event.delta0 for event in events if isinstance(event, Failure)]
    assert failures == pytest.approx([0.2e-6 / 8] * 2)
    assert ZCDP.cost(events).failure <= BUDGET_UNITS // 4


def test_a_share_above_one_has_all_failures_and_no_more() -> None:
    twice = template("p", (GaussianPart(),), needs_delta0=True, share=2.0)
    assert _Share(ZCDP, 2 * BUDGET_UNITS).delta0(twice, 1) == pytest.approx(0.2e-6)
    assert _Share(ZCDP, 2 * BUDGET_UNITS).delta0(twice, 4) == pytest.approx(0.1e-6)


def test_a_given_delta0_is_kept() -> None:
    given = template("p", (GaussianPart(),), needs_delta0=True, delta0=3e-9)
    assert price_release(given, ZCDP, 4)[-1] == Failure(3e-9)


def test_a_release_fails_in_half_of_all_cases_at_most() -> None:
    rare = template("p", (GaussianPart(),), 1e-3, needs_delta0=True)
    renyi = PrivacyFilter("renyi", 8.0, 0.01, delta0_share=0.2)
    event = price_release(rare, renyi, 1)[-1]
    assert event == Failure(0.5 * 1e-3)


@pytest.mark.parametrize("share", [0.0, 1e-12])
def test_without_a_part_of_delta_nothing_may_fail(share: float) -> None:
    found = PrivacyFilter("zcdp", 8.0, 1e-6, delta0_share=share)
    if share:
        assert price_release(PTR, found, 2)[-1].count == 1
        return
    with pytest.raises(PlanMismatchError, match="ksa/ptr release needs a delta0"):
        price_release(PTR, found, 2)


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        ((PurePart(),), "epsilon="),
        ((GaussianPart(),), "noise_multiplier="),
        ((ExponentialPart(), GaussianPart()), "noise_multiplier=, epsilon="),
    ],
)
@pytest.mark.parametrize("fails", [False, True])
def test_what_would_fix_the_noise_is_said(parts: Any, names: str, fails: bool) -> None:
    shape = template("mine", parts, needs_delta0=fails)
    said = rf"this mine release .* \({names}{', delta0=' if fails else ''}\), or give"
    with pytest.raises(InvalidParameterError, match=said):
        price_release(shape, ZCDP, None)


def test_it_is_said_once_for_all_releases_of_a_bundle() -> None:
    both = Bundle("both", (VOTE, JOINT, PTR, VOTE), disjoint=True)
    said = r"\(noise_multiplier=, epsilon=, delta0=\)"
    with pytest.raises(InvalidParameterError, match=said):
        price_release(both, ZCDP, None)


def test_too_small_a_share_for_any_noise_is_refused() -> None:
    small = PrivacyFilter("zcdp", 1e-5, 1e-6)
    many = template("vote", (GaussianPart(),), uses=10**9)
    with pytest.raises(PlanMismatchError, match="not even the largest noise") as caught:
        price_release(many, small, BUDGET_UNITS)
    assert "account by zcdp can't pay for a vote release" in str(caught.value)
