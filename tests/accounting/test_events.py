"""The contract of events, which later versions keep; and a charge with holes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from true_losses import E, G, P

from langchain_dpicl.accounting import (
    Charge,
    Exponential,
    Failure,
    Gaussian,
    Parallel,
    Pure,
    compose,
    merge,
    read_events,
)
from langchain_dpicl.errors import InvalidParameterError

OPEN = Gaussian(noise_multiplier=None)
# What is stored today is read by every later version: nothing here ever changes.
STORED: list[tuple[Any, dict[str, Any]]] = [
    (G(2.0), {"kind": "gaussian", "noise_multiplier": 2.0}),
    (E(0.5, 0.25), {"kind": "exponential", "epsilon": 0.5, "sampling_rate": 0.25}),
    (P(0.5, n=3), {"kind": "pure", "epsilon": 0.5, "count": 3}),
    (Failure(delta0=1e-9), {"kind": "failure", "delta0": 1e-9}),
    (
        Parallel(branches=((G(2.0),),), partition="label"),
        {
            "kind": "parallel",
            "branches": [[{"kind": "gaussian", "noise_multiplier": 2.0}]],
            "partition": "label",
        },
    ),
]


@pytest.mark.parametrize(("event", "stored"), STORED)
def test_stored_events_are_read(event: Any, stored: dict[str, Any]) -> None:
    assert read_events([stored]) == (event,)
    written = event.model_dump(mode="json")
    assert read_events([written]) == (event,)
    assert {key: written[key] for key in stored if key != "branches"} == {
        key: value for key, value in stored.items() if key != "branches"
    }


@pytest.mark.parametrize("event", [event for event, _ in STORED])
def test_an_event_stays_what_its_constructor_made(event: Any) -> None:
    with pytest.raises(InvalidParameterError, match="model_copy"):
        event.count = 2
    with pytest.raises(InvalidParameterError, match="model_copy"):
        del event.count
    for same in (
        copy.copy(event),
        copy.deepcopy(event),
        pickle.loads(pickle.dumps(event)),
        event.model_copy(),
        type(event).model_construct(**dict(event)),
        type(event).model_validate(dict(event)),
        type(event).model_validate_json(event.model_dump_json()),
    ):
        assert same == event
        assert hash(same) == hash(event)
    for change in (
        lambda: event.model_copy(update={"count": 0}),
        lambda: type(event).model_construct(**{**dict(event), "count": -1}),
        lambda: type(event).model_validate({**dict(event), "count": True}),
    ):
        with pytest.raises(InvalidParameterError, match="count"):
            change()


@pytest.mark.parametrize(
    "call",
    [
        lambda: Gaussian(noise_multiplier="Ada Lovelace"),
        lambda: Gaussian(noise_multiplier=1.0, noise="Ada Lovelace"),
        lambda: Parallel(branches=((G(1.0),), ("Ada Lovelace",))),
        lambda: Parallel.model_validate_json('{"branches": "Ada Lovelace"}'),
        lambda: Charge(name="x", parts=({"kind": "Ada Lovelace"},)),
        lambda: read_events([{"kind": "pure", "epsilon": "Ada Lovelace"}]),
        lambda: read_events("Ada Lovelace"),
    ],
)
def test_a_refusal_does_not_show_what_was_given(call: Any) -> None:
    with pytest.raises(InvalidParameterError) as refused:
        call()
    shown = f"{refused.value!r} {refused.value.__cause__} {refused.value.__context__}"
    assert "ovelace" not in shown


@pytest.mark.parametrize(
    "call",
    [
        lambda: G(float("nan")),
        lambda: G(2e6),
        lambda: G(1.0, 1.1),
        lambda: G(1.0, n=10**12 + 1),
        lambda: G(True),
        lambda: Parallel(branches=()),
        lambda: Parallel(branches=((),)),
        lambda: Parallel(branches=((Parallel(branches=((G(1.0),),)),),)),
        lambda: Parallel(branches=((G(1.0),),), partition="x" * 201),
        lambda: merge([3]),
        lambda: merge([OPEN]),
        lambda: merge([Parallel(branches=((OPEN,),))]),
        lambda: merge([G(1.0, n=10**12)], uses=2),
        lambda: compose(["gaussian"], 1e-6),
    ],
)
def test_what_is_out_of_its_range_or_unknown_is_refused(call: Any) -> None:
    with pytest.raises(InvalidParameterError):
        call()


def test_numbers_of_numpy_are_numbers() -> None:
    event = Gaussian(noise_multiplier=np.float64(2), count=np.int64(3), sampling_rate=1)
    assert event == G(2.0, n=3)
    assert type(event.noise_multiplier) is float
    assert type(event.count) is int


def test_equal_events_are_one() -> None:
    assert merge([G(2.0), P(1.0), G(2.0, n=2), Failure(delta0=0.0)]) == merge(
        [P(1.0), G(2.0, n=3)]
    )
    assert merge([G(2.0)], uses=20) == (G(2.0, n=20),)
    two = Parallel(branches=((G(2.0), G(2.0)), (Failure(delta0=0.0),)))
    assert merge([two]) == (
        Parallel(branches=((G(2.0, n=2),), (Failure(delta0=0.0),))),
    )


# ---- charges ---------------------------------------------------------------------

CHOICE = (Exponential(epsilon=None), OPEN, Failure(delta0=None))
CHARGE = Charge(name="ksa/ptr", parts=CHOICE, shares=(0.25, 0.75, 1.0))


def test_open_parts_get_their_share_of_the_loss() -> None:
    choice, test, failure = CHARGE.at(4.0, delta0=1e-9)
    assert isinstance(choice, Exponential)
    assert isinstance(test, Gaussian)
    # Divergences at order a, over a: s / (2 t^2).
    assert (choice.epsilon or 0) ** 2 / 8 == pytest.approx(0.25 / 32)
    assert 1 / (2 * (test.noise_multiplier or 0) ** 2) == pytest.approx(0.75 / 32)
    assert failure == Failure(delta0=1e-9)
    pure = Charge(name="x", parts=(Pure(epsilon=None),)).at(4.0)
    assert pure == (P(0.25),)  # epsilon^2 / 2 is 1 / (2 t^2).


def test_events_fit_a_charge_of_their_kinds_rates_and_counts() -> None:
    filled = CHARGE.at(4.0, delta0=1e-9)
    assert CHARGE.fits(filled)
    choice, test, failure = filled
    for wrong in (
        (choice, test),
        (test, choice, failure),
        (choice, G(3.0, 0.5), failure),
        (E(1.0, n=2), test, failure),
        CHARGE.parts,
    ):
        assert not CHARGE.fits(wrong)
    fixed = Charge(name="x", parts=(G(3.0), Failure(delta0=None)))
    assert fixed.fits((G(3.0), Failure(delta0=0.1)))
    assert not fixed.fits((G(2.0), Failure(delta0=0.1)))


def test_disjoint_classes_may_be_open_alone() -> None:
    classes = Parallel(branches=((OPEN,), (G(3.0),)), partition="label")
    charge = Charge(name="few-shot", parts=(classes,))
    assert charge.is_open
    assert charge.fits(charge.at(2.0))
    other = Parallel(branches=((G(2.0),), (G(3.0),)), partition="other")
    short = Parallel(branches=((G(2.0),),), partition="label")
    long = Parallel(branches=((G(2.0),), (G(3.0),), (G(3.0),)), partition="label")
    assert not any(charge.fits((wrong,)) for wrong in (other, short, long, G(2.0)))
    with pytest.raises(InvalidParameterError, match="alone"):
        Charge(name="x", parts=(classes, G(2.0)))


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        ({"parts": ()}, "parts"),
        ({"parts": (E(1.0, 0.5), G(2.0, 0.5))}, "one sample"),
        ({"parts": (G(2.0, 0.5), Failure(delta0=0.1))}, "one sampling rate"),
        ({"parts": (G(2.0), Failure(delta0=0.1, count=2))}, "one count"),
        ({"parts": (G(2.0),), "shares": (0.5, 0.5)}, "share"),
        ({"parts": (G(2.0),), "shares": (0.0,)}, "shares"),
        (
            {"parts": (Parallel(branches=((E(1.0, 0.5), G(2.0, 0.5)),)),)},
            "one sample",
        ),
    ],
)
def test_a_charge_that_is_not_sound_is_refused(
    terms: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidParameterError, match=reason):
        Charge(name="x", **terms)


def test_a_charge_comes_back_from_its_json() -> None:
    again = Charge.model_validate_json(CHARGE.model_dump_json())
    assert again == CHARGE
    assert hash(again) == hash(CHARGE)
