"""A fresh secret sample of units, drawn before each search: what it is and refuses."""

from __future__ import annotations

import collections
import math
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from support.groups_fakes import QUESTION, Till, note, retrieved

from langchain_dpicl import InvalidParameterError, RetrievedGroups
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.groups.sampling import UnitSample
from langchain_dpicl.mechanisms.random import SecureRandom, SeededRandom

UNITS = 60


def documents() -> list[Document]:
    return [note(f"u{i}", f"cough {i} {k}") for i in range(UNITS) for k in range(2)]


def drawn_units(groups: RetrievedGroups) -> set[str]:
    slots = groups.draw(QUESTION)
    return {one.metadata["unit"] for slot in slots for one in slot}


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"score_threshold": -1.0},
    ],
)
def test_each_unit_is_in_at_the_rate_with_all_its_documents(
    terms: dict[str, Any],
) -> None:
    found = {"n_groups": 3, "docs_per_group": 500, "sampling_rate": 0.25, **terms}
    groups = retrieved(documents(), random=SeededRandom(5), **found)
    seen: collections.Counter[str] = collections.Counter()
    draws = 400
    for _ in range(draws):
        slots = groups.draw(QUESTION)
        rows = [one.metadata["unit"] for slot in slots for one in slot]
        assert all(count == 2 for count in collections.Counter(rows).values())
        seen.update(set(rows))
    deviation = math.sqrt(0.25 * 0.75 / draws)
    shares = np.array([seen[f"u{i}"] / draws for i in range(UNITS)])
    assert np.abs(shares - 0.25).max() < 4.5 * deviation
    assert abs(shares.mean() - 0.25) < 4.5 * deviation / math.sqrt(UNITS)


def test_draws_are_independent_and_groups_keep_their_places() -> None:
    groups = retrieved(documents(), n_groups=5, sampling_rate=0.5, docs_per_group=99)
    homes: dict[str, set[int]] = collections.defaultdict(set)
    for _ in range(30):
        for place, slot in enumerate(groups.draw(QUESTION)):
            for one in slot:
                homes[one.metadata["unit"]].add(place)
    assert all(len(places) == 1 for places in homes.values())
    both = sum(len(drawn_units(groups) & drawn_units(groups)) for _ in range(40)) / 40
    assert abs(both - UNITS / 4) < 3


def test_a_sampled_search_finds_what_a_search_of_the_sample_would() -> None:
    # Ties are broken by content: equal texts, whoever is in the sample.
    corpus = [note(f"u{i}", "cough" if i % 3 else f"cough {i}") for i in range(90)]
    for seed in range(20):
        terms: dict[str, Any] = {"n_groups": 2, "docs_per_group": 4}
        everybody = retrieved(
            corpus, random=SeededRandom(seed), sampling_rate=0.5, **terms
        )
        all_sampled = retrieved(
            corpus,
            random=SeededRandom(seed),
            sampling_rate=0.5,
            **{**terms, "docs_per_group": 1000},
        )
        sample = {u for slot in all_sampled.draw(QUESTION) for u in map(unit, slot)}
        rest = [one for one in corpus if one.metadata["unit"] in sample]
        assert everybody.draw(QUESTION) == retrieved(rest, **terms).draw(QUESTION)


def unit(document: Document) -> str:
    found: str = document.metadata["unit"]
    return found


def test_everybody_eligible_pays_and_who_does_not_is_in_no_sample() -> None:
    terms: dict[str, Any] = {"n_groups": 3, "docs_per_group": 9}
    groups = retrieved(documents(), score_threshold=-1.0, sampling_rate=0.5, **terms)
    assert groups.charges_units
    till = Till(poor=[f"u{i}" for i in range(30)])
    found = groups.draw_prepared(groups.prepare(QUESTION), collect=till)
    (asked,) = till.asked
    assert asked == sorted(f"u{i}" for i in range(UNITS))
    drawn = {unit(document) for slot in found for document in slot}
    assert drawn <= {f"u{i}" for i in range(30, UNITS)}


def test_the_rate_is_saved_and_told(tmp_path: Any) -> None:
    groups = retrieved(documents(), sampling_rate=0.25)
    assert groups.description["sampling_rate"] == 0.25
    assert groups.sampling_rate == 0.25
    assert "sampling_rate=0.25" in repr(groups)
    assert groups.relation is Relation.REPLACE
    groups.save(tmp_path / "saved")
    loaded = RetrievedGroups.load(tmp_path / "saved", groups._embedding)
    assert loaded.sampling_rate == 0.25
    assert "sampling_rate" not in retrieved(documents()).description


def test_rates_for_people_per_question() -> None:
    assert RetrievedGroups.rate_for(1600, n_groups=100) == 0.125
    assert RetrievedGroups.rate_for(100, n_groups=100) == 1.0
    assert RetrievedGroups.rate_for(3000, 100, people_per_group=3) == 0.1
    for wrong in ((0, 100, 2), (100, 0, 2), (100, 10, 0), ("a", 10, 2)):
        with pytest.raises(InvalidParameterError):
            RetrievedGroups.rate_for(*wrong)  # type: ignore[arg-type] # what is tested


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"sampling_rate": 0}, "sampling_rate"),
        ({"sampling_rate": 1.1}, "sampling_rate"),
        ({"sampling_rate": math.nan}, "sampling_rate"),
        ({"sampling_rate": "half"}, "sampling_rate"),
    ],
)
def test_wrong_terms_are_refused(terms: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidParameterError, match=said):
        retrieved(documents(), **terms)


def test_a_nonce_and_its_bound() -> None:
    one, other = (UnitSample(0.25, SecureRandom()) for _ in range(2))
    assert len(one.nonce) == 16
    assert one.nonce == one.nonce
    assert one.nonce != other.nonce
    assert one.bound == bytes([64, *[0] * 7])
    assert UnitSample(2.0**-70, SecureRandom()).bound == bytes(8)
    assert one.nonce.hex() not in repr(one)
