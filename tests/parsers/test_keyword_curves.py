"""The keyword parsers by release curves: what they pay, release and record."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.chain_parts import QUESTION, record, reply
from support.fakes import ScriptedModel, notes
from support.parser_parts import release

from langchain_dpicl import (
    DPChain,
    PrivacyBudgetHandler,
    RetrievedGroups,
    SampledGroups,
)
from langchain_dpicl.budget import PaidCharge
from langchain_dpicl.common.outcome import Status
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import Slot
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import (
    PTRCurve,
    SeededRandom,
    ThresholdCurve,
    curve_count_pass_rate,
    curve_gap,
    curve_gap_pass_rate,
    curve_top_k,
    curve_words,
)
from langchain_dpicl.mechanisms.ptr_curve import _curve
from langchain_dpicl.offline import HashingEmbeddings
from langchain_dpicl.parsers import KSAPTROutputParser, KSAThresholdOutputParser

PAID = PTRCurve(8.0, 0.25, 1e-6)
WORDS = ThresholdCurve(8.0, 0.5, 1e-6)
PARSERS = [KSAPTROutputParser, KSAThresholdOutputParser]


def paid(noise: Any) -> PaidCharge[Any]:
    return PaidCharge(noise, (), "notes", 1)


def slots(**counts: int) -> list[Slot]:
    return [Slot(word) for word, n in counts.items() for _ in range(n)]


@pytest.mark.parametrize("make", PARSERS)
def test_what_does_not_go_with_a_curve_is_refused(make: Any) -> None:
    with pytest.raises(InvalidParameterError, match="noise_multiplier="):
        make(mechanism="curve", noise_multiplier=2.0)
    with pytest.raises(InvalidParameterError, match="mechanism"):
        make(mechanism="laplace")


def test_a_range_of_k_needs_the_gaussian() -> None:
    with pytest.raises(InvalidParameterError, match="range of k"):
        KSAPTROutputParser(k=(1, 3), mechanism="curve")
    assert KSAPTROutputParser(k=(1, 3)).event_template().instead is None
    assert KSAPTROutputParser(k=(2, 2)).event_template().instead is not None


def test_threshold_curves_are_refused_on_samples() -> None:
    asked = KSAThresholdOutputParser(mechanism="curve")
    with pytest.raises(InvalidParameterError, match="KSAPTROutputParser"):
        asked.event_template(0.5)
    assert KSAThresholdOutputParser().event_template(0.5).instead is None
    sampled = KSAPTROutputParser(mechanism="curve").event_template(0.5)
    assert sampled.sampling_rate == 0.5
    groups = SampledGroups.from_documents(
        notes(100), unit_key="patient", n_groups=10, sampling_rate=0.5
    )
    with pytest.raises(InvalidParameterError, match="no proof"):
        DPChain(groups=groups, model=ScriptedModel(), parser=asked)


@pytest.mark.parametrize("make", PARSERS)
def test_a_noise_of_ones_own_is_the_gaussians(make: Any) -> None:
    assert make(noise_multiplier=2.0).event_template().instead is None


@pytest.mark.parametrize(
    ("gap", "status"), [(0, Status.FALLBACK), (60, Status.RELEASED)]
)
def test_a_set_comes_out_by_its_gap(gap: int, status: Status) -> None:
    asked = slots(cough=40 + gap, nausea=40)
    found = release(KSAPTROutputParser(), asked, paid=paid(PAID))
    assert found.status is status
    assert found.details.keys() <= {"k", "reason"}
    assert found.keywords == (("cough",) if gap else ())


def test_words_come_out_by_their_counts() -> None:
    asked = slots(cough=80, nausea=70, rash=1)
    parser = KSAThresholdOutputParser()
    found = release(parser, asked, paid=paid(WORDS))
    assert found.keywords == ("cough", "nausea")
    assert found.details == {}
    nothing = release(parser, slots(a1=1, b2=1, c3=1), paid=paid(WORDS))
    assert nothing.status is Status.FALLBACK


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_set_comes_out_as_often_as_its_table_says(is_broken: bool) -> None:
    """The twin draws by the table of a larger divergence."""
    gap = 24
    table = _curve(8.0, 0.25, 1e-6, 1.0)
    rate = float(table.probability(12))
    assert 0.01 < rate < 0.99
    noise = PTRCurve(8.0, 0.5, 1e-6) if is_broken else PAID
    parser = KSAPTROutputParser(random=SeededRandom(7))
    asked = slots(cough=30 + gap, nausea=30)
    drawn = sum(
        release(parser, asked, paid=paid(noise)).status is Status.RELEASED
        for _ in range(800)
    )
    # 4.9 standard deviations: two-sided 1e-6.
    slack = 4.9 * (rate * (1 - rate) * 800) ** 0.5
    assert (abs(drawn - 800 * rate) > slack) is is_broken


@pytest.mark.parametrize("relation", list(Relation))
def test_what_a_plan_takes_for_the_pass_rate_is_the_release(relation: Relation) -> None:
    random = SeededRandom(3)
    for gap in (3, 15, 18, 40):
        rate = curve_gap_pass_rate(gap, **vars(PAID), relation=relation)
        drawn = sum(
            curve_top_k(
                {"cough": 50 + gap, "rash": 50},
                1,
                **vars(PAID),
                relation=relation,
                random=random,
            )
            is not None
            for _ in range(400)
        )
        assert abs(drawn - 400 * rate) <= 4.9 * (rate * (1 - rate) * 400) ** 0.5
    terms: dict[str, Any] = {"relation": relation, "items_per_answer": 1}
    for count in (2, 14, 18, 40):
        rate = curve_count_pass_rate(count, **vars(WORDS), **terms)
        asked = {f"word{n}": count for n in range(400)}
        made = len(
            curve_words(
                asked,
                **vars(WORDS),
                **terms,
                random=random,
            )
        )
        assert abs(made - 400 * rate) <= 4.9 * (rate * (1 - rate) * 400) ** 0.5
    assert curve_gap_pass_rate(0, **vars(PAID), relation=relation) == 0
    assert curve_count_pass_rate(0, **vars(WORDS), **terms) == 0
    least = curve_gap(**vars(PAID), relation=relation)
    for gap, is_enough in ((int(least), True), (int(least) - 1, False)):
        rate = curve_gap_pass_rate(gap, **vars(PAID), relation=relation)
        assert (rate >= 0.95) is is_enough
    with pytest.raises(InvalidParameterError, match="gap"):
        curve_gap_pass_rate(-1, **vars(PAID), relation=relation)
    with pytest.raises(InvalidParameterError, match="count"):
        curve_count_pass_rate(-1, **vars(WORDS), **terms)


def test_the_relation_of_the_groups_counts() -> None:
    replace, add = (
        curve_gap(order=8.0, divergence=0.25, delta0=1e-6, relation=relation)
        for relation in (Relation.REPLACE, Relation.ADD_REMOVE)
    )
    assert (add, replace) == (21, 41)


@pytest.fixture(scope="module")
def groups() -> RetrievedGroups:
    return RetrievedGroups.from_documents(
        notes(200), HashingEmbeddings(), unit_key="patient", n_groups=60
    )


@pytest.mark.parametrize("make", PARSERS)
def test_the_record_of_a_chain_says_which_and_shows_no_count(
    groups: RetrievedGroups, make: Any
) -> None:
    budget = PrivacyBudgetHandler(epsilon=12, delta=1e-6, queries=20, ledger=":memory:")
    model = ScriptedModel(reply=reply)
    chain = DPChain(groups=groups, model=model, parser=make(), budget=budget)
    public = record(chain.invoke(QUESTION))
    assert public["status"] == "released"
    assert public["mechanism"].endswith(" curve")
    assert [event["kind"] for event in public["events"]] == ["renyi", "delta"]
    parameters = public["parameters"]
    event = public["events"][0]
    assert parameters["order"] == event["order"]
    assert parameters["divergence"] == event["divergence"]
    assert "noise_multiplier" not in parameters
    assert public["details"].keys() <= {"k"}
    shown = json.dumps(public)
    assert not any(word in shown for word in ("confidence", "gap", "counts"))
    named = make(mechanism="gaussian")
    other = PrivacyBudgetHandler(epsilon=12, delta=1e-6, queries=20, ledger=":memory:")
    plain = record(
        DPChain(groups=groups, model=model, parser=named, budget=other).invoke(QUESTION)
    )
    assert plain["parameters"]["mechanism"] == "gaussian"
    assert plain["events"][0]["kind"] == "gaussian"
