"""One run with canaries: the bounds, and what leaks is caught."""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from support.attacked_parts import CORPUS, Leaky, budget_of, private_chain, watched
from support.frames import locals_of

from langchain_dpicl.accounting.gaussian import gaussian_epsilon
from langchain_dpicl.audit import AuditReport, aone_run, one_run
from langchain_dpicl.audit.bounds import one_run_epsilon, one_run_gaussian
from langchain_dpicl.cli import main
from langchain_dpicl.errors import InvalidParameterError, NoBudgetError, UnitError

CANARIES = [
    Document(f"Canary {n} takes drug{n}.", metadata={"patient_id": f"canary-{n}"})
    for n in range(60)
]
QUESTIONS = [f"What does canary {n} take?" for n in range(4)]


# -- bounds ----------------------------------------------------------------------------

# Canaries, guesses, right ones, delta; then epsilon at 95 %, as the algorithms of
# google-deepmind/jax_privacy (auditing.py) give it: for any release, for a Gaussian.
KNOWN = [
    (100, 100, 100, 1e-5, 3.4902159553, 8.216186),
    (1000, 200, 180, 1e-5, 1.7962850707, 2.901243),
    (1000, 1000, 600, 1e-5, 0.2972269537, 0.583540),
    (500, 100, 95, 1e-3, 1.4831007460, 2.587677),
    (5000, 500, 490, 1e-6, 3.3543280645, 5.514542),
    (50, 20, 10, 1e-5, 0.0, 0.0),
]


@pytest.mark.parametrize(("m", "r", "v", "delta", "any_release", "gaussian"), KNOWN)
def test_the_bounds_are_those_of_the_reference(
    m: int, r: int, v: int, delta: float, any_release: float, gaussian: float
) -> None:
    assert one_run_epsilon(m, r, v, delta, 0.95) == pytest.approx(any_release, abs=1e-8)
    assert one_run_gaussian(m, r, v, delta, 0.95) == pytest.approx(gaussian, abs=1e-5)


def test_the_bound_without_delta_is_a_tail_of_a_binomial() -> None:
    found = one_run_epsilon(40, 20, 17, 0.0, 0.9)
    right = 1 / (1 + math.exp(-found))
    tail = math.fsum(
        math.comb(20, k) * right**k * (1 - right) ** (20 - k) for k in range(17, 21)
    )
    assert tail == pytest.approx(0.1)


def test_a_failure_probability_lowers_the_bound() -> None:
    bounds = [one_run_epsilon(200, 100, 95, delta, 0.95) for delta in (0, 1e-4, 1e-2)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] < bounds[0]


@pytest.mark.parametrize("mu", [0.5, 1.5])
def test_bounds_stay_below_what_a_gaussian_costs(mu: float) -> None:
    draw, delta, m = np.random.default_rng(3), 1e-3, 400
    over = {one_run_epsilon: 0, one_run_gaussian: 0}
    for _ in range(60):
        coins = draw.integers(0, 2, m)
        order = np.argsort(draw.normal(mu * coins, 1))
        right = int((1 - coins[order[:50]]).sum() + coins[order[-50:]].sum())
        for bound in over:
            found = bound(m, 100, right, delta, 0.9)
            over[bound] += found > gaussian_epsilon(mu, delta)
    # At 90 %: six of sixty are expected at most.
    assert max(over.values()) <= 14


# -- runs ------------------------------------------------------------------------------


def leaks(records: Sequence[Document]) -> list[str]:
    return [one.page_content for one in records]


def test_a_release_that_leaks_is_caught() -> None:
    report = one_run(leaks, CANARIES, claimed=(1.0, 1e-5), progress=False)
    assert not report.is_sound
    assert report.measured["epsilon"] > 2
    assert "sanity check" in report.title
    assert "more than is claimed" in report.summary
    assert report.parameters["right"] == report.parameters["guesses"] == 30
    found = [dict(zip(report.columns, row, strict=True)) for row in report.rows]
    assert all(row["guessed"] in (None, row["took part"]) for row in found)


def test_randomized_response_stays_within_its_claim() -> None:
    random = Random(5)

    def respond(records: Sequence[Document]) -> list[str]:
        held = set(leaks(records))
        said = {c.page_content for c in CANARIES}
        # Each canary's membership by a coin of 3 to 1: an epsilon of log(3) each.
        return [t for t in sorted(said) if (t in held) == (random.random() < 0.75)]

    report = one_run(respond, CANARIES, claimed=(math.log(3), 1e-6), progress=False)
    assert report.is_sound


def test_a_private_chain_is_asked_out_of_one_account() -> None:
    chain = private_chain(budget=budget_of(queries=3))
    report = one_run(chain, CANARIES, QUESTIONS, records=CORPUS, progress=False)
    assert report.is_sound
    assert report.claimed["epsilon"] == pytest.approx(3, rel=0.01)
    assert chain.budget is not None
    assert chain.budget.spent().queries == 0


def test_no_observer_sees_an_answer_that_was_not_charged() -> None:
    with watched() as seen:
        one_run(
            private_chain(),
            CANARIES[:10],
            QUESTIONS[:1],
            records=CORPUS,
            progress=False,
        )
    assert seen == []


def test_the_frames_of_an_error_show_no_record() -> None:
    with pytest.raises(InvalidParameterError) as caught:
        one_run(private_chain(), CANARIES, (), records=CORPUS, progress=False)
    shown = "".join(locals_of(caught.value, __name__))
    assert CANARIES[0].page_content not in shown
    assert CORPUS[0].page_content not in shown


class Tells(Leaky):
    """The twin: it charges, and tells the records that it was given."""

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:  # noqa: A002 - LangChain's name
        message = super().invoke(input, config, **kwargs)
        slots = self.groups.draw(input)
        message.content = " ".join(d.page_content for slot in slots for d in slot)
        return message


def test_a_chain_that_leaks_is_caught() -> None:
    chain = private_chain(Tells, budget=budget_of(epsilon=0.5))
    report = one_run(chain, CANARIES, QUESTIONS, records=CORPUS, progress=False)
    assert not report.is_sound


def test_awaiting_does_the_same() -> None:
    report = asyncio.run(
        aone_run(
            private_chain(),
            CANARIES[:10],
            QUESTIONS[:1],
            records=CORPUS,
            progress=False,
        )
    )
    assert report.is_sound
    assert report.parameters["guesses"] == 5


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"chain": leaks}, InvalidParameterError, "needs claimed"),
        ({"chain": leaks, "claimed": (0, 1e-6)}, InvalidParameterError, "epsilon"),
        ({"questions": []}, InvalidParameterError, "A chain needs questions"),
        ({"canaries": CANARIES[:1]}, InvalidParameterError, "two or more"),
        ({"canaries": [*CANARIES[:3], *CANARIES[:1]]}, InvalidParameterError, "own"),
        ({"records": [*CORPUS, CANARIES[0]]}, InvalidParameterError, "unit of its own"),
        ({"canaries": [Document("x")] * 2}, UnitError, "patient_id"),
        ({"guesses": 61}, InvalidParameterError, "at most the number of canaries"),
        ({"confidence": 0.0}, InvalidParameterError, "confidence"),
        ({"chain": private_chain(budget=None)}, NoBudgetError, "No privacy budget"),
    ],
)
def test_what_cannot_be_run_is_refused(
    given: dict[str, Any], error: type[Exception], match: str
) -> None:
    chain = given.pop("chain", None) or private_chain()
    terms: dict[str, Any] = {"canaries": CANARIES, "records": CORPUS, **given}
    questions = [] if chain is leaks and "claimed" in given else QUESTIONS
    terms.setdefault("questions", questions)
    with pytest.raises(error, match=match) as caught:
        one_run(chain, terms.pop("canaries"), progress=False, **terms)
    assert "canary-0" not in str(caught.value)


def test_the_command_reads_files_and_a_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "one_run_app", raising=False)
    (tmp_path / "one_run_app.py").write_text(
        "from support.attacked_parts import private_chain\nchain = private_chain()\n"
    )
    for name, side in (("canaries", CANARIES[:8]), ("records", CORPUS)):
        lines = [{"text": d.page_content, **d.metadata} for d in side]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    words = ["audit", "one-run", "one_run_app:chain", "--canaries", "canaries.jsonl"]
    words += ["--records", "records.jsonl", "--question", "Who takes drug3?"]
    assert main([*words, "--json", "--out", "report.html"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parameters"]["canaries"] == 8
    assert AuditReport.from_dict(found).kind == "one-run"
    assert "sanity check" in (tmp_path / "report.html").read_text()
