"""A threshold chosen by noisy counts, in a group source."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.groups_fakes import (
    QUESTION,
    Given,
    Scripted,
    Till,
    WordEmbedding,
    contents,
    corpora,
    note,
    retrieved,
    units_in,
)
from support.threshold_parts import BINS

from langchain_dpicl.accounting import GaussianPart
from langchain_dpicl.budget import PaidCharge
from langchain_dpicl.errors import InvalidParameterError, LedgerError
from langchain_dpicl.groups import NoisyThreshold, RetrievedGroups
from langchain_dpicl.groups.threshold import DEFAULT_BINS
from langchain_dpicl.mechanisms import GaussianNoise
from langchain_dpicl.mechanisms.source import SeededRandom


def source(embedding: Any = None, **changes: Any) -> RetrievedGroups:
    terms = {
        "score_threshold": NoisyThreshold(3, BINS),
        "grouping": "unit",
        "n_groups": 6,
        "random": SeededRandom(1),
        **changes,
    }
    # Scores 0.95, 0.85, ..., 0.05 against the question.
    values = [round(0.95 - 0.1 * i, 2) for i in range(10)]
    vectors = [[value, float(np.sqrt(1 - value**2))] for value in values]
    documents = [note(f"p{i}", f"text {i}") for i in range(10)]
    return retrieved(documents, embedding=embedding or Given(vectors), **terms)


def paid_for(z: Any) -> PaidCharge[GaussianNoise]:
    return PaidCharge(GaussianNoise(z), (), "notes", 1)


PAID = paid_for(0.01)


@pytest.mark.parametrize("grouping", ["unit", "shard"])
async def test_a_question_is_refined_then_drawn(grouping: Any) -> None:
    groups = source(grouping=grouping, docs_per_group=9)
    count, release = Till(), Till({"p1"})
    refined = groups.release_threshold(
        groups.prepare("q"), paid=PAID, charge_units=count
    )
    edge = refined.prepared.threshold
    assert edge == 0.6
    assert refined.details == {"score_threshold": 0.6, "noisy_units": 4}
    assert json.loads(json.dumps(refined.details)) == refined.details
    slots = groups.draw_prepared(refined.prepared, charge_units=release)
    [eligible] = release.asked
    assert count.asked == [["p0", "p1"], ["p2", "p3"]]
    assert eligible == ["p0", "p1", "p2", "p3"]
    drawn = {unit for slot in contents(slots) for unit in units_in(slot)}
    assert drawn == set(eligible) - {"p1"}
    again = await groups.arelease_threshold(await groups.aprepare("q"), paid=PAID)
    assert again.prepared.threshold == edge
    everyone = contents(await groups.adraw_prepared(again.prepared))
    assert {unit for slot in everyone for unit in units_in(slot)} == set(eligible)


@settings(deadline=None, max_examples=40)
@given(corpora(), st.integers(1, 6), st.integers(0, 99))
def test_a_unit_that_cannot_pay_leaves_the_threshold_alone(
    case: Any, target: Any, seed: Any
) -> None:
    documents, rest, gone = case
    terms = {"score_threshold": NoisyThreshold(target, (0.9, 0.7, 0.5, 0.3))}

    def refined(corpus: Any, poor: Any) -> Any:
        groups = retrieved(corpus, random=SeededRandom(seed), **terms)
        paid = paid_for(1.0)
        result = groups.release_threshold(
            groups.prepare(QUESTION), paid=paid, charge_units=Till(poor)
        )
        return result.details, result.prepared.threshold

    assert refined(documents, {gone}) == refined(rest, ())


def test_the_noise_is_the_sources_own_and_the_grants() -> None:
    wide = paid_for(1000.0)
    results = [
        groups.release_threshold(groups.prepare("q"), paid=wide).details
        for groups in (source(), source(), source(random=SeededRandom(2)))
    ]
    assert results[0] == results[1] != results[2]


@pytest.mark.parametrize("grouping", ["unit", "shard"])
def test_a_draw_needs_its_threshold(grouping: Any) -> None:
    groups = source(grouping=grouping)
    prepared = groups.prepare("q")
    till = Till()
    for charge_units in (None, till):
        with pytest.raises(InvalidParameterError, match="still to be chosen"):
            groups.draw_prepared(prepared, charge_units=charge_units)
    with pytest.raises(InvalidParameterError, match="needs a budget"):
        groups.draw("q")
    with pytest.raises(InvalidParameterError, match="has its threshold already"):
        refined = groups.release_threshold(prepared, paid=PAID).prepared
        groups.release_threshold(refined, paid=PAID, charge_units=till)
    for stranger in ("q", None, source(score_threshold=0.5).prepare("q")):
        with pytest.raises(InvalidParameterError, match="result of prepare"):
            groups.release_threshold(stranger, paid=PAID, charge_units=till)
    for bad in (0.0, -1.0, float("nan"), float("inf"), "1", None):
        with pytest.raises(InvalidParameterError, match="noise_multiplier"):
            groups.release_threshold(prepared, paid=paid_for(bad), charge_units=till)
    assert till.asked == []


async def test_the_async_draw_needs_a_budget() -> None:
    with pytest.raises(InvalidParameterError, match="needs a budget"):
        await source().adraw("q")


def test_a_threshold_of_its_own_is_not_refined() -> None:
    groups = source(score_threshold=0.5)
    assert groups.threshold_template is None
    with pytest.raises(InvalidParameterError, match="no threshold_template"):
        groups.release_threshold(groups.prepare("q"), paid=PAID)


def test_half_an_answer_of_the_ledger_releases_nothing() -> None:
    # A source without words: noise that is drawn before the charge fails the test.
    groups = source(random=Scripted())
    with pytest.raises(LedgerError, match="did not answer for each unit"):
        groups.release_threshold(
            groups.prepare("q"), paid=PAID, charge_units=lambda ids: [True] * 9
        )


def test_what_is_asked_of_the_account() -> None:
    shape = source().threshold_template
    assert shape is not None
    assert shape.mechanism == "threshold/prefix-counts"
    assert shape.parts == (GaussianPart(None),)
    assert shape.share == 0.1
    fixed = source(score_threshold=NoisyThreshold(3, BINS, 4.0)).threshold_template
    assert fixed is not None
    assert fixed.parts == (GaussianPart(4.0),)
    assert fixed.is_fixed


@pytest.mark.parametrize("grouping", ["unit", "shard"])
def test_terms_travel(tmp_path: Any, grouping: Any) -> None:
    terms = NoisyThreshold(3, BINS, 0.01)
    groups = source(score_threshold=terms, grouping=grouping)
    said = groups.description
    assert json.loads(json.dumps(said)) == said
    assert said["retrieval"] == "threshold"
    assert said["score_threshold"] == {
        "units": 3,
        "bins": [0.8, 0.6, 0.4, 0.2],
        "noise_multiplier": 0.01,
    }
    assert "'units': 3" in repr(groups)
    fixed = source(score_threshold=0.5, grouping=grouping)
    assert groups.relation is fixed.relation
    groups.save(tmp_path / "saved")
    embedding = groups._embedding
    loaded = RetrievedGroups.load(tmp_path / "saved", embedding, random=SeededRandom(1))
    assert loaded.description == said
    assert loaded._terms == groups._terms
    results = [
        each.release_threshold(each.prepare("q"), paid=PAID).details
        for each in (groups, loaded)
    ]
    assert results[0] == results[1]


@pytest.mark.parametrize(
    "stored",
    [
        {"units": 0, "bins": [0.5], "noise_multiplier": None},
        {"units": 3, "bins": [0.5, 0.6], "noise_multiplier": None},
        {"units": 3, "bins": 0.5},
        {"units": 3, "edges": [0.5]},
        {},
        [0.5],
    ],
)
def test_damaged_terms_are_refused(tmp_path: Any, stored: Any) -> None:
    path = tmp_path / "saved"
    source().save(path)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["terms"]["score_threshold"] = stored
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InvalidParameterError, match=r"manifest\.json: the parameters"):
        RetrievedGroups.load(path, WordEmbedding())


def test_defaults() -> None:
    terms = NoisyThreshold(200)
    assert terms.bins == DEFAULT_BINS
    assert DEFAULT_BINS[0] == 0.95
    assert DEFAULT_BINS[-1] == 0.05
    assert len(DEFAULT_BINS) == 19
    assert terms.noise_multiplier is None
    assert NoisyThreshold(5, np.array([0.5, -1])).bins == (0.5, -1.0)
    assert NoisyThreshold(5, [1, 0, -1]).bins == (1.0, 0.0, -1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"units": 0}, "units must be at least 1"),
        ({"units": -5}, "units must be at least 1"),
        ({"units": 2.5}, "units must be an integer"),
        ({"units": None}, "units must be an integer"),
        ({"units": True}, "units must be an integer"),
        ({"bins": ()}, "at least one"),
        ({"bins": []}, "at least one"),
        ({"bins": np.array([])}, "at least one"),
        ({"bins": None}, "list of score edges"),
        ({"bins": 0.5}, "list of score edges"),
        ({"bins": "0.5"}, "list of score edges"),
        ({"bins": {0.5, 0.4}}, "list of score edges"),
        ({"bins": (0.5, 0.6)}, "strictly descending"),
        ({"bins": (0.5, 0.5)}, "strictly descending"),
        ({"bins": (0.5, 0.3, 0.4)}, "strictly descending"),
        ({"bins": (1.01, 0.5)}, "between -1 and 1"),
        ({"bins": (0.5, -1.01)}, "between -1 and 1"),
        ({"bins": (0.5, float("nan"))}, "finite"),
        ({"bins": (float("inf"), 0.5)}, "finite"),
        ({"bins": ("high", "low")}, "number"),
        ({"bins": (True, 0.5)}, "number"),
        ({"bins": [[0.5]]}, "number"),
        ({"bins": np.ones((2, 2))}, "number"),
        ({"noise_multiplier": 0}, "noise_multiplier"),
        ({"noise_multiplier": -1.0}, "noise_multiplier"),
        ({"noise_multiplier": float("nan")}, "noise_multiplier"),
        ({"noise_multiplier": "2"}, "noise_multiplier"),
    ],
)
def test_bad_terms(changes: Any, message: Any) -> None:
    with pytest.raises(InvalidParameterError, match=message) as caught:
        NoisyThreshold(**{"units": 5, **changes})
    assert caught.value.__context__ is None
