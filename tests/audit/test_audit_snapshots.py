"""What a snapshot measures, held against brute force; and what it must find."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from support.audit_chains import (
    EMBEDDING,
    QUESTIONS,
    chain_of,
    groups_of,
    majority,
    people,
)
from support.exact_laws import Law, delta, product
from support.fakes import ScriptedModel
from support.groups_fakes import SALT

from langchain_dpicl import (
    DPChain,
    ESAOutputParser,
    KSAJointOutputParser,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    PrivacyBudgetHandler,
    RetrievedGroups,
    SampledGroups,
    VoteOutputParser,
)
from langchain_dpicl.accounting import Failure, Gaussian, compose
from langchain_dpicl.audit import AuditReport, snapshot
from langchain_dpicl.audit.losses import gaussian_loss
from langchain_dpicl.audit.snapshots import Found
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    DPError,
    InvalidParameterError,
    UnitError,
)
from langchain_dpicl.groups import shard_of
from langchain_dpicl.mechanisms import keyword_ptr, voting

DELTA = 1e-6
NEW = Document("Lisinopril gave a rash, a rash, a rash.", metadata={"patient": "new"})
UNITS = [f"unit-{i}" for i in range(12)]
EVERYBODY: list[tuple[str, Any]] = [*((one, one) for one in UNITS), ("new", NEW)]


def gaussian(z: float, count: int = 1) -> float:
    """Return the epsilon of Gaussians, at the tests' delta."""
    return compose([Gaussian(noise_multiplier=z, count=count)], DELTA)


def vote(**more: Any) -> VoteOutputParser:
    return VoteOutputParser(labels=["cough", "rash"], **more)


def audit(chain: DPChain, canaries: Any = (*UNITS, NEW), **more: Any) -> AuditReport:
    return snapshot(chain, list(canaries), QUESTIONS, progress=False, **more)


def epsilons(report: AuditReport) -> dict[str, float]:
    return {str(row[0]): float(row[3] or 0) for row in report.rows}


def worlds(
    canary: str | Document, question: str, *, count: int = 12, **terms: Any
) -> tuple[list[str], list[str]]:
    """Return the groups' answers without a person, and with, by whole rebuilds."""
    name = canary.metadata["patient"] if isinstance(canary, Document) else canary
    whole = people(count) + ([canary] if isinstance(canary, Document) else [])
    rest = [one for one in whole if one.metadata["patient"] != name]
    found = []
    for documents in (rest, whole):
        slots = groups_of(documents, **terms).draw(question)
        texts = ["\n".join(one.page_content for one in slot) for slot in slots]
        found.append([majority(text) for text in texts if text])
    return found[0], found[1]


# -- exactness -------------------------------------------------------------------------


@pytest.mark.parametrize("terms", [{}, {"score_threshold": -1.0}])
def test_votes_lose_what_two_histograms_lose(terms: dict[str, Any]) -> None:
    chain = chain_of(vote(noise_multiplier=2.0), groups_of(people(), **terms))
    report = audit(chain)
    sigma = 2.0 * math.sqrt(2)
    measured = epsilons(report)
    for name, canary in EVERYBODY:
        square = 0.0
        for question in QUESTIONS:
            without, within = map(Counter, worlds(canary, question, **terms))
            square += sum((without[w] - within[w]) ** 2 for w in ("cough", "rash"))
        expected = 0.0
        if square:
            expected = gaussian(sigma / math.sqrt(square))
        assert measured[name] == pytest.approx(expected, rel=1e-3), name
    assert report.is_sound
    assert max(measured.values()) > 0.5
    assert report.claimed["epsilon"] == pytest.approx(gaussian(2.0, count=2), rel=1e-6)


def exact_epsilon(laws: list[tuple[Law, Law]]) -> float:
    """Return the epsilon of several finite releases by bisection, in 60 digits."""
    without = product(*(law for law, _ in laws))
    within = product(*(law for _, law in laws))
    low, high = 0.0, 60.0
    if delta(without, within, low) <= DELTA:
        return 0.0
    while high - low > 1e-7:
        middle = (low + high) / 2
        if delta(without, within, middle) > DELTA:
            low = middle
        else:
            high = middle
    return high


def top(counts: Mapping[str, int], rate: Any) -> Law:
    ranked = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    gap = ranked[0][1] - (ranked[1][1] if len(ranked) > 1 else 0)
    passes = rate(gap)
    return {ranked[0][0]: passes, None: 1 - passes}


def test_a_set_loses_what_its_test_loses() -> None:
    test = Gaussian(noise_multiplier=0.4), Failure(delta0=1e-8)
    parser = KSAPTROutputParser(k=1, noise_multiplier=0.4, delta0=1e-8)
    groups = groups_of(people(40), n_groups=20)
    measured = epsilons(audit(chain_of(parser, groups, epsilon=60)))
    for name, canary in EVERYBODY:
        laws: Any = [
            tuple(
                top(
                    Counter(answers),
                    lambda gap: keyword_ptr.pass_rate(gap, test, "replace"),
                )
                for answers in worlds(canary, question, count=40, n_groups=20)
            )
            for question in QUESTIONS
        ]
        expected = exact_epsilon(laws)
        assert measured[name] == pytest.approx(expected, abs=2e-3), name
    assert max(measured.values()) > 0.1


def test_words_with_noisy_counts_lose_what_the_counts_lose() -> None:
    noise: Any = {"noise_multiplier": 0.6, "delta0": 1e-7}
    parser = KSAThresholdOutputParser(**noise)
    measured = epsilons(audit(chain_of(parser, epsilon=60)))
    for name, canary in EVERYBODY:
        square = 0
        for question in QUESTIONS:
            without, own = (Counter(answers) for answers in worlds(canary, question))
            assert without.keys() == own.keys()
            square += sum((without[word] - own[word]) ** 2 for word in own)
        # Under REPLACE one word of a slot has a sensitivity of sqrt(2).
        expected = gaussian(0.6 * math.sqrt(2 / square)) if square else 0.0
        assert measured[name] == pytest.approx(expected, abs=2e-3), name
    assert max(measured.values()) > 0.1


# -- every part of a sound chain is sound ----------------------------------------------

PARSERS: dict[str, Any] = {
    "vote": vote(),
    "esa": ESAOutputParser(embedding=EMBEDDING, candidates=["A cough.", "A rash."]),
    "ptr": KSAPTROutputParser(k=1),
    "ptr range": KSAPTROutputParser(k=(1, 2)),
    "threshold": KSAThresholdOutputParser(),
    "joint": KSAJointOutputParser(k=1, domain=["cough", "rash"]),
}


@pytest.mark.parametrize("name", PARSERS)
def test_a_sound_chain_is_found_sound(name: str) -> None:
    report = audit(chain_of(PARSERS[name]))
    assert report.is_sound, report
    assert 0 <= report.measured["epsilon"] <= report.claimed["epsilon"] * 1.001
    assert report.claimed["epsilon"] <= 8
    assert any("not computed" in note for note in report.notes) == (name == "joint")


@pytest.mark.parametrize("name", ["vote", "ptr", "threshold"])
def test_a_sound_sampled_chain_is_found_sound(name: str) -> None:
    groups = groups_of(people(), sampling_rate=0.5)
    report = audit(chain_of(PARSERS[name], groups, epsilon=2), UNITS[:3])
    assert report.is_sound, report


def halves(groups: int = 20) -> RetrievedGroups:
    """Return groups of which as many say one thing as the other.

    But for one: with `p0` a group more says "rash", without it "cough".
    """
    own = shard_of("p0", SALT, groups)
    other = {f"p{i}": (shard_of(f"p{i}", SALT, groups) - own) % 2 for i in range(400)}
    notes = [
        Document(
            f"A {'rash' if name == 'p0' or is_other else 'cough'}.",
            metadata={"patient": name},
        )
        for name, is_other in other.items()
    ]
    terms: Any = {"n_groups": groups, "docs_per_group": 99, "score_threshold": -1.0}
    return groups_of(notes, **terms)


def finds_a_rash(text: str) -> str:
    return "rash" if "A rash" in text else "cough"


def test_in_a_per_unit_account_a_person_pays_no_more_than_a_balance() -> None:
    budget = PrivacyBudgetHandler(
        epsilon=2, delta=DELTA, queries=1, scope="unit", ledger=":memory:"
    )
    groups, model = halves(), ScriptedModel(reply=finds_a_rash)
    report = audit(chain_of(vote(), groups, model, budget=budget), ["p0"], repeats=3)
    assert report.is_sound
    assert report.claimed["epsilon"] == 2
    assert max(epsilons(report).values()) == pytest.approx(2, rel=1e-2)
    # The account itself is as it was.
    assert budget.spent().epsilon == 0
    assert budget.spent().queries == 0


# -- what is broken is found -----------------------------------------------------------


class Sliced(RetrievedGroups):
    """The best records of all, cut into groups one after another."""

    def draw_prepared(self, prepared: Any, **_: Any) -> list[list[Document]]:
        index: Any = self._index
        found = [d for shard in index.shards for d in shard.lines.documents()]
        vectors = np.concatenate([shard.vectors for shard in index.shards])
        order = np.argsort(-(vectors @ prepared.vector[0]), kind="stable")
        best = [found[place] for place in order]
        return [best[first : first + 3] for first in range(0, 12, 3)]


class Twice(RetrievedGroups):
    """Each person's records in two groups."""

    def draw_prepared(self, prepared: Any, **given: Any) -> list[list[Document]]:
        slots = super().draw_prepared(prepared, **given)
        return [[*own, *slots[place - 1]] for place, own in enumerate(slots)]


@pytest.mark.parametrize("kind", [Sliced, Twice])
def test_a_person_in_several_slots_is_the_finding(kind: type[RetrievedGroups]) -> None:
    report = audit(chain_of(vote(), groups_of(people(), kind)))
    assert not report.is_sound
    assert "people are in several slots" in report.summary
    name, _, _, epsilon, finding = report.rows[0]
    assert epsilon is None
    assert name in {*UNITS, "new"}
    assert "slots differ" in str(finding)
    assert any(question in str(finding) for question in QUESTIONS)


def test_a_slot_that_counts_twice_exceeds_the_claim() -> None:
    class Double(VoteOutputParser):
        def counts(self, slots: Any, labels: Any) -> list[int]:
            return [2 * count for count in super().counts(slots, labels)]

    assert audit(chain_of(vote())).is_sound
    report = audit(chain_of(Double(labels=["cough", "rash"])))
    assert not report.is_sound
    assert report.rows[0][4] == "more than is charged"


def test_a_release_that_is_not_computed_hides_none_that_is() -> None:
    event = Gaussian(noise_multiplier=10.0)
    most = compose([event], DELTA)
    found = Found(losses=gaussian_loss(2.0, 1.0), charged=[event])
    own = gaussian(0.5)
    assert own > most
    for upper in (True, False):
        assert found.epsilon(DELTA, most, upper=upper) >= own


@pytest.mark.parametrize("is_broken", [False, True])
def test_esa_with_too_small_a_sensitivity_exceeds_the_claim(
    is_broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_broken:
        monkeypatch.setattr(voting, "sensitivity", lambda _: 0.5)
    texts = ["A cough.", "A rash."]
    parser = ESAOutputParser(
        embedding=EMBEDDING, candidates=texts, noise_multiplier=1.5
    )
    report = audit(chain_of(parser))
    assert report.is_sound is not is_broken
    # One question's other answer reaches the bound, and doesn't pass it.
    expected = gaussian(0.75 / math.sqrt(2) if is_broken else 1.5)
    assert report.measured["epsilon"] == pytest.approx(expected, rel=2e-3)


def test_a_word_that_counts_twice_exceeds_the_claim() -> None:
    class Double(KSAPTROutputParser):
        def counts(self, slots: Any, *terms: Any) -> Counter[str]:
            twice = [*slots, *slots]
            return super().counts(twice, *terms)

    test: dict[str, Any] = {"k": 1, "noise_multiplier": 0.4, "delta0": 1e-8}

    def run(parser: Any) -> AuditReport:
        model = ScriptedModel(reply=finds_a_rash)
        chain = chain_of(parser, halves(), model, epsilon=60)
        return audit(chain, ["p0", "p1"])

    assert run(KSAPTROutputParser(**test)).is_sound
    assert not run(Double(**test)).is_sound


# -- what it costs, and who sees it ----------------------------------------------------


@pytest.mark.parametrize("terms", [{}, {"sampling_rate": 0.5}])
def test_the_calls_are_counted(terms: dict[str, Any]) -> None:
    model = ScriptedModel(reply=majority)
    chain = chain_of(vote(), groups_of(people(), **terms), model)
    report = audit(chain)
    calls, extra = report.parameters["group_calls"], report.parameters["extra_calls"]
    assert isinstance(calls, int)
    assert isinstance(extra, int)
    private = [text for text in model.asked if "visit" in text or "a rash, a" in text]
    assert len(private) == calls + extra
    assert calls <= 4 * len(QUESTIONS)
    # One for each person whom the question reaches; none for the others.
    reached = sum(int(row[1] or 0) for row in report.rows)
    assert extra <= reached <= 13 * len(QUESTIONS)
    assert extra > 0


def test_nothing_of_a_person_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    report = audit(chain_of(vote()), [NEW, "unit-3"])
    assert "unit-3" in str(report)
    assert "unit-3" not in repr(report)
    for marked in ("unit-3", "a rash, a rash", "visit"):
        assert marked not in caplog.text


def test_a_number_of_people_is_chosen_from_the_corpus() -> None:
    report = audit_number(5)
    names = {row[0] for row in report.rows}
    assert len(names) == 5
    assert names <= set(UNITS)
    assert len(audit_number(1000).rows) == 12


def audit_number(count: int) -> AuditReport:
    return snapshot(chain_of(vote()), count, QUESTIONS, progress=False)


def test_another_delta_has_another_claim() -> None:
    chain = chain_of(vote(noise_multiplier=2.0))
    report = audit(chain, delta=1e-3)
    expected = compose([Gaussian(noise_multiplier=2.0, count=2)], 1e-3)
    assert report.claimed == {"epsilon": pytest.approx(expected), "delta": 1e-3}
    assert report.measured["epsilon"] < audit(chain).measured["epsilon"]


# -- refusals --------------------------------------------------------------------------


def refused() -> dict[str, tuple[Any, str]]:
    records = people()
    plan: dict[str, Any] = {"unit_key": "patient", "n_groups": 4}
    sampled = SampledGroups.from_documents(records, **plan, sampling_rate=0.5)
    return {
        "sampled": (chain_of(vote(), sampled), "SampledGroups"),  # type: ignore[arg-type]
    }


@pytest.mark.parametrize("name", refused())
def test_what_cannot_be_audited_is_refused(name: str) -> None:
    chain, said = refused()[name]
    with pytest.raises(InvalidParameterError, match=said) as caught:
        audit(chain, UNITS)
    assert "udit" in str(caught.value)  # The way out.


@pytest.mark.parametrize(
    ("canaries", "kind"),
    [
        ([], InvalidParameterError),
        (0, InvalidParameterError),
        ("unit-1", InvalidParameterError),
        (["unit-99"], UnitError),
        ([Document("x", metadata={"patient": "unit-1"})], UnitError),
        ([Document("x")], UnitError),
    ],
)
def test_canaries_that_cannot_be_used_are_refused(
    canaries: Any, kind: type[DPError]
) -> None:
    with pytest.raises(kind) as caught:
        snapshot(chain_of(vote()), canaries, QUESTIONS, progress=False)
    assert "unit-" not in str(caught.value)


def test_more_questions_than_are_paid_for_are_refused() -> None:
    with pytest.raises(BudgetExhaustedError):
        audit(chain_of(vote()), repeats=2)
