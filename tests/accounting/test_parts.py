"""The parts of a charge, and the templates that are made of them: there and back."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, cast

import pytest

from langchain_dpicl.accounting import (
    CurvePart,
    Divergence,
    Event,
    EventTemplate,
    Exponential,
    ExponentialPart,
    Failure,
    FixedSampleGaussianEvent,
    Gaussian,
    GaussianPart,
    Pure,
    PurePart,
    RenyiEvent,
    Template,
    ZCDPEvent,
    sampled_epsilon,
    unsampled_epsilon,
)
from langchain_dpicl.accounting.parts import ROUNDING, Part
from langchain_dpicl.accounting.template import CURVE_DELTA0_SHARE, NoiseRule
from langchain_dpicl.errors import InvalidParameterError

# -- parts ----------------------------------------------------------------------------

OPEN: list[tuple[Part, float, Event, Any]] = [
    (GaussianPart(), 1.0, Gaussian(4.0, 1.0, 3), 4.0),
    (GaussianPart(), 0.5, Gaussian(4.0, 0.5, 3), 4.0),
    (GaussianPart(2.0), 0.5, Gaussian(2.0, 0.5, 3), 2.0),
    (PurePart(), 1.0, Pure(0.25, 3), 0.25),
    (PurePart(2.0), 1.0, Pure(2.0, 3), 2.0),
    (ExponentialPart(), 1.0, Exponential(0.5, 3), 0.5),
    (ExponentialPart(ratio=3.0), 1.0, Exponential(0.75, 3), 0.75),
    (ExponentialPart(2.0), 1.0, Exponential(2.0, 3), 2.0),
    (CurvePart(8.0), 1.0, RenyiEvent(8.0, 0.25, 3), Divergence(8.0, 0.25, 1.0)),
    (CurvePart(8.0), 0.5, RenyiEvent(8.0, 0.0625, 3), Divergence(8.0, 0.0625, 0.5)),
    (CurvePart(8.0, 2.0), 0.5, RenyiEvent(8.0, 2.0, 3), Divergence(8.0, 2.0, 0.5)),
]


@pytest.mark.parametrize(("part", "rate", "event", "noise"), OPEN)
def test_a_part_is_charged_at_a_scale_and_read_back(
    part: Part, rate: float, event: Event, noise: Any
) -> None:
    assert part.event(4.0, rate, 3) == event
    assert part.read(event, rate) == noise


@pytest.mark.parametrize(
    ("part", "epsilon"),
    [
        (PurePart(), 0.25),
        (PurePart(2.0), 2.0),
        (ExponentialPart(), 0.5),
        (ExponentialPart(2.0), 2.0),
    ],
)
def test_a_sampled_pure_part_is_charged_what_sampling_makes_of_it(
    part: Part, epsilon: float
) -> None:
    charged = sampled_epsilon(epsilon, 0.5)
    assert part.event(4.0, 0.5, 3) == Pure(charged, 3)
    assert part.read(Pure(charged), 0.5) == unsampled_epsilon(charged, 0.5)
    # An exponential mechanism that is sampled is of no bounded range.
    with pytest.raises(InvalidParameterError, match="do not fit"):
        part.read(Exponential(charged), 0.5)
    assert part.read(Pure(0.5), 1.0) == 0.5


MISFITS: list[tuple[Part, Event, float]] = [
    (GaussianPart(), Gaussian(1.0, 0.5), 0.25),
    (GaussianPart(), Gaussian(1.0, 0.5), 1.0),
    (GaussianPart(), FixedSampleGaussianEvent(1.0, 0.5), 0.5),
    (GaussianPart(), Pure(1.0), 1.0),
    (PurePart(), Exponential(1.0), 1.0),
    (PurePart(), Gaussian(1.0), 1.0),
    (ExponentialPart(), Gaussian(1.0), 1.0),
    (CurvePart(8.0), ZCDPEvent(1.0), 1.0),
]


@pytest.mark.parametrize(("part", "event", "rate"), MISFITS)
def test_an_event_of_another_part_is_refused(
    part: Part, event: Event, rate: float
) -> None:
    with pytest.raises(
        InvalidParameterError, match="The charged events do not fit the rel"
    ):
        part.read(event, rate)


@pytest.mark.parametrize(
    ("part", "is_fixed"),
    [
        (GaussianPart(), False),
        (GaussianPart(1.0), True),
        (PurePart(), False),
        (PurePart(1.0), True),
        (ExponentialPart(), False),
        (ExponentialPart(1.0), True),
        (CurvePart(), False),
        (CurvePart(2.0), False),
        (CurvePart(divergence=2.0), False),
        (CurvePart(2.0, 2.0), True),
    ],
)
def test_a_part_is_fixed_where_nothing_is_open(part: Part, *, is_fixed: bool) -> None:
    assert part.is_fixed is is_fixed
    template = EventTemplate("x", (part,), float)
    assert template.is_fixed is is_fixed
    assert not EventTemplate("x", (part,), float, needs_delta0=True).is_fixed
    known = EventTemplate("x", (part,), float, needs_delta0=True, delta0=0.1)
    assert known.is_fixed is is_fixed
    assert not EventTemplate("x", (part, GaussianPart()), float).is_fixed
    with pytest.raises(dataclasses.FrozenInstanceError):
        cast("Any", part).order = 3.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        cast("Any", template).uses = 3


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_what_is_fixed_must_be_a_parameter(bad: float) -> None:
    for make in (
        lambda: GaussianPart(bad),
        lambda: PurePart(bad),
        lambda: ExponentialPart(bad),
        lambda: ExponentialPart(ratio=bad),
        lambda: CurvePart(bad),
        lambda: CurvePart(2.0, bad),
    ):
        with pytest.raises(InvalidParameterError):
            make()
    for make in (lambda: GaussianPart(1e-7), lambda: GaussianPart(1e7)):
        with pytest.raises(InvalidParameterError, match="noise_multiplier"):
            make()
    with pytest.raises(dataclasses.FrozenInstanceError):
        cast("Any", Divergence(2.0, 1.0, 1.0)).order = 3.0


def test_a_curve_without_its_order_has_no_event() -> None:
    with pytest.raises(InvalidParameterError, match="chosen by its account"):
        CurvePart().event(4.0, 1.0, 3)


# -- templates ------------------------------------------------------------------------


def values(*found: Any) -> tuple[Any, ...]:
    return found


class Own:
    def __init__(self, *values: Any) -> None:
        self.values = values


def test_a_template_as_it_is_by_default() -> None:
    plain = EventTemplate("vote", (GaussianPart(),), values)
    assert plain.to_dict() == {
        "uses": 1,
        "parts": [{"kind": "GaussianPart", "noise_multiplier": None}],
        "sampling_rate": 1.0,
        "needs_delta0": False,
        "delta0": None,
    }
    assert (plain.share, plain.delta0_share, CURVE_DELTA0_SHARE) == (1.0, 0.5, 0.25)
    assert (plain.instead, plain.lead, plain.is_fixed_size) == (None, None, False)
    assert plain.shapes == (plain,)
    assert plain.shape_of((Gaussian(1.0),)) is plain
    assert plain.name_of(object()) == "vote"
    assert plain.needs_order is False
    assert plain.lead_of(1.0) == plain.lead_of(1.0, is_rough=True) == 0.0
    with pytest.raises(TypeError):
        plain.lead_of(1.0, True)  # type: ignore[misc]
    fixed = dataclasses.replace(plain, is_fixed_size=True, sampling_rate=0.5)
    assert fixed.to_dict()["is_fixed_size"] is True
    assert "is_fixed_size" not in plain.to_dict()


def test_a_template_of_ones_own_is_asked_as_little_as_possible() -> None:
    class Least(Template[float]):
        mechanism = "least"
        sampling_rate = 1.0
        is_fixed = True

        def filled(self, rule: NoiseRule) -> tuple[Event, ...]:
            raise NotImplementedError

        def read(self, events: tuple[Event, ...]) -> float:
            raise NotImplementedError

        def to_dict(self) -> dict[str, Any]:
            raise NotImplementedError

    least = Least()
    assert least.shapes == (least,)
    assert least.shape_of(()) is least
    assert least.name_of(1.0) == "least"
    assert least.needs_order is False
    assert least.at_order(2.0) is least
    assert least.lead_of(1.0) == least.lead_of(1.0, is_rough=True) == 0.0
    assert least.share == 1.0
    for name in ("is_fixed", "filled", "read", "to_dict"):
        assert name in Template.__abstractmethods__


@pytest.mark.parametrize("rate", [1.0, 0.25])
@pytest.mark.parametrize("uses", [1, 5])
def test_a_failure_is_charged_after_sampling_and_read_before_it(
    rate: float, uses: int
) -> None:
    template = EventTemplate(
        "x", (GaussianPart(),), values, rate, needs_delta0=True, uses=uses
    )
    events = template.events(4.0, 1e-6)
    assert events == (
        Gaussian(4.0, rate, uses),
        Failure(1e-6 * rate, uses),
    )
    read = 1e-6 if rate == 1 else 1e-6 * rate / rate * (1 - 1e-12)
    assert template.read(events) == (4.0, read)
    assert ROUNDING == 1 - 1e-12
    assert template.events(4.0, 0.0) == events[:1]
    assert template.n_events == 2
    wrong: list[tuple[Event, ...]] = [
        events[:1],
        (*events, events[1]),
        (Gaussian(4.0, rate, uses + 1), events[1]),
        (events[0], Failure(1e-6, uses + 1)),
        (events[0], events[0]),
        (events[1], events[1]),
    ]
    for other in wrong:
        with pytest.raises(InvalidParameterError, match="do not fit"):
            template.read(other)
    assert EventTemplate("x", (GaussianPart(),), values, rate).n_events == 1


def test_many_uses_are_compared_by_their_number() -> None:
    template = EventTemplate("x", (GaussianPart(),), values, uses=int("70000"))
    assert template.read((Gaussian(4.0, count=int("70000")),)) == (4.0,)
    several = EventTemplate(
        "x", (ExponentialPart(), GaussianPart()), values, needs_delta0=True
    )
    assert several.read(several.events(4.0, 1e-9)) == (0.5, 4.0, 1e-9)


def test_the_delta0_of_a_use() -> None:
    terms: dict[str, Any] = {"sampling_rate": 0.25, "uses": 5}
    none = EventTemplate("x", (GaussianPart(),), values, **terms)
    assert none.delta0_for(1e-6, 20) == 0.0
    own = dataclasses.replace(none, needs_delta0=True, delta0=0.125)
    assert own.delta0_for(1e-6, 20) == 0.125
    free = dataclasses.replace(none, needs_delta0=True)
    assert free.delta0_for(1e-6, 20) == 0.5 * 1e-6 / (100 * 0.25)
    other = dataclasses.replace(free, delta0_share=0.1)
    assert other.delta0_for(1e-6, 20) == 0.1 * 1e-6 / (100 * 0.25)
    rare = dataclasses.replace(free, sampling_rate=1e-9)
    assert rare.delta0_for(0.5, 1) == 0.5


def test_samples_of_fixed_size_are_charged_and_read_as_such() -> None:
    template = EventTemplate(
        "x", (GaussianPart(),), values, 0.5, uses=3, is_fixed_size=True
    )
    event = FixedSampleGaussianEvent(4.0, 0.5, 3)
    assert template.events(4.0, 0.0) == (event,)
    assert template.read((event,)) == (4.0,)
    pure = EventTemplate("x", (PurePart(2.0),), values, 0.5, is_fixed_size=True)
    assert pure.events(4.0, 0.0) == (Pure(sampled_epsilon(2.0, 0.5)),)
    (epsilon,) = pure.read(pure.events(4.0, 0.0))
    assert epsilon == pytest.approx(2.0)
    with pytest.raises(InvalidParameterError, match="do not fit"):
        template.read((Gaussian(4.0, 0.5, 3),))


def lead(noise: Any, *, is_rough: bool) -> float:
    return 7.0 if is_rough else noise * 2.0


def test_another_shape_is_taken_by_its_events() -> None:
    curve = EventTemplate("curve", (CurvePart(),), values)
    both = EventTemplate(
        "x",
        (GaussianPart(),),
        Own,
        0.5,
        is_fixed_size=True,
        instead=dataclasses.replace(curve, sampling_rate=0.5),
        lead=lead,
    )
    own, other = both.shapes
    assert own == dataclasses.replace(both, instead=None)
    assert other.is_fixed_size
    assert other.mechanism == "curve"
    gaussian, renyi = FixedSampleGaussianEvent(4.0, 0.5), RenyiEvent(8.0, 0.25)
    assert both.shape_of((gaussian,)) == own
    assert both.shape_of((renyi,)) == both.shape_of((gaussian, renyi)) == other
    assert both.shape_of(()) == own
    noise = both.read((gaussian,))
    assert isinstance(noise, Own)
    assert noise.values == (4.0,)
    assert both.read((renyi,)) == (Divergence(8.0, 0.25, 0.5),)
    assert both.name_of(noise) == "x"
    assert both.name_of((Divergence(8.0, 0.25, 0.5),)) == "curve"
    # Where the noise is made by a function, nothing is known of it.
    assert dataclasses.replace(both, noise=values).name_of(noise) == "x"
    assert (both.lead_of(3.0), both.lead_of(3.0, is_rough=True)) == (6.0, 7.0)
    assert not both.needs_order
    assert curve.needs_order
    assert curve.at_order(3.0).parts == (CurvePart(3.0),)
    assert not curve.at_order(3.0).needs_order
    two = EventTemplate("x", (GaussianPart(), CurvePart(2.0), CurvePart()), values)
    assert two.needs_order
    assert two.at_order(3.0).parts == (GaussianPart(), CurvePart(2.0), CurvePart(3.0))


class Rule:
    """Keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def order(self, shape: Template[Any]) -> float:
        raise NotImplementedError

    def delta0(self, template: EventTemplate[Any], sharing: int) -> float:
        self.asked.append((template, sharing))
        return 1e-7

    def events(self, template: Template[Any], events_at: Any) -> tuple[Event, ...]:
        self.asked.append(template)
        return events_at(4.0)


def test_an_account_fills_in_what_is_open() -> None:
    rule, plain = Rule(), EventTemplate("x", (GaussianPart(),), values)
    assert plain.filled(rule) == (Gaussian(4.0),)
    assert rule.asked == [plain]
    rule, failing = Rule(), dataclasses.replace(plain, needs_delta0=True)
    assert failing.filled(rule) == (Gaussian(4.0), Failure(1e-7))
    assert rule.asked == [(failing, 1), failing]


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"uses": 0}, "uses must be at least 1, not 0."),
        ({"uses": 10**12 + 1}, "uses must be at most 1000000000000."),
        ({"share": 0.0}, "share must be greater than 0, not 0."),
        ({"delta0": 0.0}, "delta0 must be strictly between 0 and 1"),
        ({"sampling_rate": 1.1}, "sampling_rate must be greater than 0 and at most 1"),
        ({"parts": [GaussianPart()]}, "parts must be a tuple of GaussianPart, Expon"),
        ({"parts": (GaussianPart(), 3)}, "parts must be a tuple of GaussianPart, Ex"),
        (
            {"parts": (GaussianPart(),) * 3, "sampling_rate": 0.5},
            "x takes 3 randomized steps on one sample, which sampling does not amplify",
        ),
    ],
)
def test_terms_of_a_template_are_checked(terms: dict[str, Any], message: str) -> None:
    given = {"mechanism": "x", "parts": (GaussianPart(),), "noise": values, **terms}
    with pytest.raises(InvalidParameterError) as refused:
        EventTemplate(**given)
    assert str(refused.value).startswith(message)
    assert EventTemplate("x", (GaussianPart(),), values, uses=10**12).uses == 10**12
    assert EventTemplate("x", (GaussianPart(),) * 3, values).n_events == 3
    assert EventTemplate("x", (GaussianPart(),), values, 0.5).n_events == 1
