"""What a snapshot measures, held against brute force; and what it must find."""

from __future__ import annotations

import logging
import math
import stat
from collections import Counter
from pathlib import Path
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
from langchain_dpicl.accounting import Gaussian, compose
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    DPError,
    InvalidParameterError,
    UnitError,
)
from langchain_dpicl.groups import shard_of
from langchain_dpicl.mechanisms import voting
from langchain_dpicl.operate.audit import AuditReport, snapshot

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
    return {one.person: one.epsilon or 0.0 for one in report.people}


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
    assert report.claimed == pytest.approx(gaussian(2.0, count=2), rel=1e-6)


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
    assert 0 <= report.measured <= report.claimed * 1.001
    assert report.claimed <= 8
    assert report.is_exact == (name in ("vote", "esa"))
    assert ("not computed" in str(report)) != report.is_exact


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
    assert report.claimed == 2
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
    worst = report.people[0]
    assert worst.epsilon is None
    assert worst.person in {*UNITS, "new"}
    assert "slots differ" in str(worst.finding)
    assert any(question in str(worst.finding) for question in QUESTIONS)


def test_a_slot_that_counts_twice_exceeds_the_claim() -> None:
    class Double(VoteOutputParser):
        def counts(self, slots: Any, labels: Any) -> list[int]:
            return [2 * count for count in super().counts(slots, labels)]

    assert audit(chain_of(vote())).is_sound
    report = audit(chain_of(Double(labels=["cough", "rash"])))
    assert not report.is_sound
    assert report.people[0].finding == "more than is charged"


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
    assert report.measured == pytest.approx(expected, rel=2e-3)


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
    calls, extra = report.group_calls, report.extra_calls
    private = [text for text in model.asked if "visit" in text or "a rash, a" in text]
    assert len(private) == calls + extra
    assert calls <= 4 * len(QUESTIONS)
    # One for each person whom the question reaches; none for the others.
    reached = sum(one.reached for one in report.people)
    assert extra <= reached <= 13 * len(QUESTIONS)
    assert extra > 0


def test_nothing_of_a_person_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    report = audit(chain_of(vote()), [NEW, "unit-3"])
    assert "unit-3" in str(report)
    assert repr(report) == "AuditReport(is_sound=True)"
    for marked in ("unit-3", "a rash, a rash", "visit"):
        assert marked not in caplog.text


def test_a_number_of_people_is_chosen_from_the_corpus() -> None:
    report = audit_number(5)
    names = {one.person for one in report.people}
    assert len(names) == 5
    assert names <= set(UNITS)
    assert len(audit_number(1000).people) == 12


def audit_number(count: int) -> AuditReport:
    return snapshot(chain_of(vote()), count, QUESTIONS, progress=False)


def test_another_delta_has_another_claim() -> None:
    chain = chain_of(vote(noise_multiplier=2.0))
    report = audit(chain, delta=1e-3)
    expected = compose([Gaussian(noise_multiplier=2.0, count=2)], 1e-3)
    assert (report.claimed, report.delta) == (pytest.approx(expected), 1e-3)
    assert report.measured < audit(chain).measured


# -- refusals --------------------------------------------------------------------------


def test_a_source_without_its_records_is_refused() -> None:
    sampled = SampledGroups.from_documents(
        people(), unit_key="patient", n_groups=4, sampling_rate=0.5
    )
    with pytest.raises(InvalidParameterError, match="Audit a copy of the chain"):
        audit(chain_of(vote(), sampled), UNITS)  # type: ignore[arg-type]


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


# -- the report ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report() -> AuditReport:
    made_up = NEW.model_copy(update={"metadata": {"patient": "<script>"}})
    return audit(chain_of(vote()), [made_up, "unit-3"])


def test_a_report_is_saved_and_loaded(report: AuditReport, tmp_path: Path) -> None:
    path = tmp_path / "deeper" / "audit.json"
    (first, *others) = report.people
    endless = first.model_copy(update={"epsilon": math.inf})
    found = report.model_copy(update={"people": (endless, *others)})
    found.save(path)
    assert AuditReport.load(path) == found
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text(path.read_text().replace('"delta": 1e-06', '"delta": 1e-09'))
    with pytest.raises(InvalidParameterError, match="changed after it was saved"):
        AuditReport.load(path)
    with pytest.raises(InvalidParameterError, match=r"not '\.txt'"):
        report.save(tmp_path / "audit.txt")
    with pytest.raises(InvalidParameterError, match="can't be written"):
        report.save(path / "below.json")


def test_its_page_is_whole_and_escaped(report: AuditReport, tmp_path: Path) -> None:
    report.save(tmp_path / "audit.html")
    page = (tmp_path / "audit.html").read_text()
    assert "Within the claim." in page
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "http" not in page
    assert stat.S_IMODE((tmp_path / "audit.html").stat().st_mode) == 0o600
