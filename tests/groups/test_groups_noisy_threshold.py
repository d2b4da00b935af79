"""The noisy threshold: its distribution, who pays for it, and what it refuses."""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from groups_fakes import (
    QUESTION,
    Returns,
    Scripted,
    Till,
    WordEmbedding,
    contents,
    corpora,
    note,
    retrieved,
    units_in,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from langchain_dpicl.budget import GaussianPart
from langchain_dpicl.exceptions import InvalidParameterError, LedgerError
from langchain_dpicl.groups import NoisyThreshold, RetrievedGroups, threshold
from langchain_dpicl.groups.threshold import DEFAULT_BINS, choose_threshold
from langchain_dpicl.mechanisms.source import SecureRandom, SeededRandom
from langchain_dpicl.relation import Relation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SIGNIFICANCE = 1e-6
DRAWS = 2_000
BINS = (0.8, 0.6, 0.4, 0.2)
COUNTS = (4, 3, 2, 5)
POOR = 3
"""Units in each bin that can't pay, beside those of `COUNTS`."""
TERMS = NoisyThreshold(8, BINS)
Z = 2.0


class Found:
    """Eligible units with given scores."""

    def __init__(self, units: dict[str, float]) -> None:
        self.ids = list(units)
        self.scores = np.array(list(units.values()), float)

    def unit_ids(self, places: Any) -> list[str]:
        return [self.ids[place] for place in places]


CROWD = {
    f"{kind}-{edge}-{i}": edge + 0.02 * i
    for edge, payers in zip(BINS, COUNTS, strict=True)
    for kind, count in (("payer", payers), ("poor", POOR))
    for i in range(count)
}
FOUND = Found(CROWD)
TWICE = Found(CROWD | {f"{unit}'": score - 0.2 for unit, score in CROWD.items()})


class PoorTill(Till):
    def __call__(self, unit_ids: Sequence[str]) -> list[bool]:
        super().__call__(unit_ids)
        return [not unit_id.startswith("poor") for unit_id in unit_ids]


def edge_probabilities(counts: Sequence[int], target: float, z: float) -> np.ndarray:
    """Return the exact distribution of the chosen edge: a walk's first passage.

    The density of the noisy sum, of walks that have not stopped yet, is carried from
    bin to bin on Gauss-Legendre nodes below the target.
    """
    low = min(-9 * z * np.sqrt(len(counts)), target - 1)
    nodes, weights = np.polynomial.legendre.leggauss(400)
    half = (target - low) / 2
    sums, weights = low + half * (nodes + 1), half * weights
    stops = [stats.norm.sf(target, counts[0], z)]
    density = stats.norm.pdf(sums, counts[0], z)
    for count in counts[1:-1]:
        stops.append(weights * density @ stats.norm.sf(target, sums + count, z))
        step = stats.norm.pdf(sums[:, None], sums + count, z)
        density = step @ (weights * density)
    return np.array([*stops, 1 - sum(stops)])


def p_values(choose: Callable[[], Any]) -> dict[str, float]:
    """Test draws against the exact edges, and against the noise of the last sum."""
    chosen = [choose() for _ in range(DRAWS)]
    edges = Counter(result.edge for result in chosen)
    expected = DRAWS * edge_probabilities(COUNTS, TERMS.units, Z)
    assert expected.min() > 20
    observed = [edges[edge] for edge in BINS]
    first = [result.noisy_units for result in chosen if result.edge == BINS[0]]
    # Given that it stopped at once, the first noisy count is a Gaussian's upper tail.
    tail = stats.norm.sf(TERMS.units + 1.5, COUNTS[0], Z)
    tail /= stats.norm.sf(TERMS.units, COUNTS[0], Z)
    beyond = sum(units > TERMS.units + 1 for units in first)
    return {
        "edge": stats.chisquare(observed, expected).pvalue,
        "sum": stats.binomtest(beyond, len(first), tail).pvalue if first else 0.0,
    }


def test_exact_probabilities_are_those_of_a_multivariate_gaussian() -> None:
    found = edge_probabilities(COUNTS, TERMS.units, Z)
    assert found.sum() == pytest.approx(1)
    steps = np.minimum.outer(np.arange(1, 5), np.arange(1, 5)) * Z**2
    below = [
        stats.multivariate_normal(np.cumsum(COUNTS)[:n], steps[:n, :n]).cdf(
            np.full(n, TERMS.units)
        )
        for n in (1, 2, 3)
    ]
    assert found == pytest.approx(-np.diff([1, *below, 0]), abs=1e-3)


def test_the_edge_is_a_first_passage_of_noisy_sums() -> None:
    random = SeededRandom(1)
    found = p_values(lambda: choose(random))
    assert min(found.values()) > SIGNIFICANCE, found


def choose(random: SecureRandom, z: float = Z, **changes: Any) -> Any:
    terms = {"found": FOUND, "collect": PoorTill(), **changes}
    return choose_threshold(
        terms["found"],
        TERMS,
        noise_multiplier=z,
        collect=terms["collect"],
        random=random,
    )


class OneWord(SecureRandom):
    """Defect: the same noise in every bin."""

    secure = False

    def __init__(self, word: int) -> None:
        super().__init__()
        self.word = word

    def words(self, count: int) -> np.ndarray:
        return np.full(count, self.word, np.uint64)


def shared_noise(random: SecureRandom) -> Any:
    return choose(OneWord(random.bits(64)))


def halved_noise(random: SecureRandom) -> Any:
    return choose(random, Z / 2)


def counted_in_two_bins(random: SecureRandom) -> Any:
    return choose(random, found=TWICE)


def poor_are_counted(random: SecureRandom) -> Any:
    return choose(random, collect=Till())


@pytest.mark.parametrize(
    "twin", [shared_noise, halved_noise, counted_in_two_bins, poor_are_counted]
)
def test_twins_are_caught(twin: Any) -> None:
    random = SeededRandom(2)
    found = p_values(lambda: twin(random))
    assert found["edge"] < SIGNIFICANCE, found


def test_production_noise_is_fresh() -> None:
    found = {choose(None, 1000.0).noisy_units for _ in range(10)}
    assert len(found) > 5


def without_noise(monkeypatch: Any) -> list[int]:
    """Switch the noise off and record the counts and how they were asked for."""
    counts: list[int] = []

    def exact(values: Any, **terms: Any) -> np.ndarray:
        assert terms["relation"] is Relation.ADD_REMOVE
        assert terms["noise_multiplier"] == Z
        counts.extend(values)
        return np.array(values, float)

    monkeypatch.setattr(threshold, "noisy_counts", exact)
    return counts


def test_touched_bins_pay_and_others_do_not(monkeypatch: Any) -> None:
    counts = without_noise(monkeypatch)
    till = PoorTill()
    chosen = choose(SeededRandom(1), collect=till)
    assert chosen.edge == 0.4
    assert chosen.noisy_units == 9
    assert counts == [4, 3, 2]
    asked = [sorted(u for u, s in CROWD.items() if in_bin(s, j)) for j in range(3)]
    assert till.asked == asked


def in_bin(score: float, number: int) -> bool:
    above = 2.0 if number == 0 else BINS[number - 1]
    return BINS[number] <= score < above


scores = st.one_of(
    st.sampled_from([*BINS, *np.nextafter(BINS[:3], -1), *np.nextafter(BINS, 1), 1.0]),
    st.floats(0.2, 1),
)


@settings(deadline=None, max_examples=200)
@given(
    st.dictionaries(st.text(min_size=1, max_size=3), scores, max_size=12),
    st.text(min_size=1, max_size=3),
    scores,
    st.integers(1, 12),
)
def test_one_unit_is_in_one_bin_and_changes_nothing_before_it(
    units: Any, name: Any, score: Any, target: Any
) -> None:
    terms = NoisyThreshold(target, BINS)
    units.pop(name, None)
    joined = dict(sorted({**units, name: score}.items()))

    def noisy(crowd: dict[str, float], poor: Any = ()) -> tuple[Any, Any, Any]:
        with pytest.MonkeyPatch.context() as patch:
            counts, till = without_noise(patch), Till(poor)
            chosen = choose_threshold(
                Found(crowd), terms, noise_multiplier=Z, collect=till
            )
        return chosen, counts, till.asked

    chosen, counts, asked = noisy(units)
    _, more, asked_after = noisy(joined)
    n = min(len(counts), len(more))
    extra = [b - a for a, b in zip(counts[:n], more[:n], strict=True)]
    own = next(j for j in range(4) if in_bin(score, j))
    # Up to its own bin nothing differs, and in the bins that both reach, one count.
    assert extra == [int(j == own) for j in range(n)]
    times = Counter(unit for ids in asked_after for unit in ids)
    assert times[name] == (own < len(more))
    assert set(times.values()) <= {0, 1}
    # Who is not in a position to pay is asked, and changes nothing.
    alike, same, asked_poor = noisy(joined, {name})
    assert (alike, same) == (chosen, counts)
    assert [[u for u in ids if u != name] for ids in asked_poor] == asked
    # Without a ledger everybody's charge has been made.
    with pytest.MonkeyPatch.context() as patch:
        everyone = without_noise(patch)
        choose_threshold(Found(joined), terms, noise_multiplier=Z)
    assert everyone == more


@pytest.mark.parametrize(
    "crowd", [{}, {"only": 0.7}, {f"u{i}": 1.0 for i in range(50)}]
)
def test_few_and_many(monkeypatch: Any, crowd: Any) -> None:
    without_noise(monkeypatch)
    till = Till()
    chosen = choose_threshold(
        Found(crowd), NoisyThreshold(50, BINS), noise_multiplier=Z, collect=till
    )
    assert chosen.edge == (0.8 if len(crowd) == 50 else 0.2)
    assert chosen.noisy_units == len(crowd)
    # The ledger is asked for each touched bin, an empty one as well.
    assert len(till.asked) == (1 if len(crowd) == 50 else 4)


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
    return retrieved(documents, embedding=embedding or Returns(vectors), **terms)


GRANT = SimpleNamespace(noise_multiplier=0.01)


@pytest.mark.parametrize("grouping", ["unit", "shard"])
async def test_a_question_is_refined_then_drawn(grouping: Any) -> None:
    groups = source(grouping=grouping, docs_per_group=9)
    count, release = Till(), Till({"p1"})
    refined = groups.refine(groups.prepare("q"), grant=GRANT, collect=count)
    edge = refined.prepared.threshold
    assert edge == 0.6
    assert refined.details == {"score_threshold": 0.6, "noisy_units": 4}
    assert json.loads(json.dumps(refined.details)) == refined.details
    slots = groups.draw_prepared(refined.prepared, collect=release)
    [eligible] = release.asked
    assert count.asked == [["p0", "p1"], ["p2", "p3"]]
    assert eligible == ["p0", "p1", "p2", "p3"]
    drawn = {unit for slot in contents(slots) for unit in units_in(slot)}
    assert drawn == set(eligible) - {"p1"}
    again = await groups.arefine(await groups.aprepare("q"), grant=GRANT)
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
        grant = SimpleNamespace(noise_multiplier=1.0)
        result = groups.refine(
            groups.prepare(QUESTION), grant=grant, collect=Till(poor)
        )
        return result.details, result.prepared.threshold

    assert refined(documents, {gone}) == refined(rest, ())


def test_the_noise_is_the_sources_own_and_the_grants() -> None:
    wide = SimpleNamespace(noise_multiplier=1000.0)
    results = [
        groups.refine(groups.prepare("q"), grant=wide).details
        for groups in (source(), source(), source(random=SeededRandom(2)))
    ]
    assert results[0] == results[1] != results[2]


@pytest.mark.parametrize("grouping", ["unit", "shard"])
def test_a_draw_needs_its_threshold(grouping: Any) -> None:
    groups = source(grouping=grouping)
    prepared = groups.prepare("q")
    till = Till()
    for collect in (None, till):
        with pytest.raises(InvalidParameterError, match="still to be chosen"):
            groups.draw_prepared(prepared, collect=collect)
    with pytest.raises(InvalidParameterError, match="needs a budget"):
        groups.draw("q")
    with pytest.raises(InvalidParameterError, match="has its threshold already"):
        refined = groups.refine(prepared, grant=GRANT).prepared
        groups.refine(refined, grant=GRANT, collect=till)
    for stranger in ("q", None, source(score_threshold=0.5).prepare("q")):
        with pytest.raises(InvalidParameterError, match="what prepare"):
            groups.refine(stranger, grant=GRANT, collect=till)
    with pytest.raises(InvalidParameterError, match="no noise multiplier"):
        groups.refine(
            prepared, grant=SimpleNamespace(noise_multiplier=None), collect=till
        )
    for bad in (0.0, -1.0, float("nan"), float("inf"), "1"):
        with pytest.raises(InvalidParameterError, match="noise_multiplier"):
            groups.refine(
                prepared, grant=SimpleNamespace(noise_multiplier=bad), collect=till
            )
    assert till.asked == []


async def test_the_async_draw_needs_a_budget() -> None:
    with pytest.raises(InvalidParameterError, match="needs a budget"):
        await source().adraw("q")


def test_a_threshold_of_its_own_is_not_refined() -> None:
    groups = source(score_threshold=0.5)
    assert groups.preliminary is None
    with pytest.raises(InvalidParameterError, match="nothing to refine"):
        groups.refine(groups.prepare("q"), grant=GRANT)


def test_half_an_answer_of_the_ledger_releases_nothing() -> None:
    # A source without words: noise that is drawn before the charge fails the test.
    groups = source(random=Scripted())
    with pytest.raises(LedgerError, match="did not answer for each unit"):
        groups.refine(groups.prepare("q"), grant=GRANT, collect=lambda ids: [True] * 9)


def test_what_is_asked_of_the_account() -> None:
    demand = source().preliminary
    assert demand is not None
    assert demand.mechanism == "threshold/prefix-counts"
    assert demand.parts == (GaussianPart(None),)
    assert demand.share == 0.1
    fixed = source(score_threshold=NoisyThreshold(3, BINS, 4.0)).preliminary
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
        each.refine(each.prepare("q"), grant=GRANT).details for each in (groups, loaded)
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
