"""Each release is proven in one file, and draws by an event that was paid for it.

The table is `operate/proofs.csv`, which the guarantee shows. The named file has all
headings of a proof, is short enough to be read, and holds the function that draws and
the one that says what is charged. Every parser, generator and table hands its function
events that its account was charged, and no others.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faces import Words
from questions import ASKED, clinic, stored
from scripted import ScriptedModel
from support.few_shot_fakes import generator_of, records_of
from support.ldp_parts import MIXED, table_of
from support.parser_parts import ANSWERS, PARSERS
from support.table_parts import people, people_schema

from langchain_dpicl import DPChain, PrivacyBudgetHandler, mechanisms, parsers
from langchain_dpicl.budget import charges
from langchain_dpicl.insights import insights
from langchain_dpicl.likelihoods import NextTokenLLM
from langchain_dpicl.operate.charges import plain
from langchain_dpicl.operate.proofs import HEADINGS, PROOFS, Proof
from langchain_dpicl.tabular import GDPTable, discover

ROOT = Path(__file__).parents[2]
ROW = re.compile(
    r"^\| ([^|]+) \| `(\w+)` \| `(\w+)` \| `(\w+)` \| `(mechanisms/\w+\.py)` \|$",
    re.MULTILINE,
)
SCREEN = 50
"""Lines of 88 characters."""

each_proof = pytest.mark.parametrize(
    "proof", PROOFS, ids=lambda p: f"{p.maker}-{p.function}"
)


def test_the_guarantee_shows_the_table() -> None:
    fields = ("release", "maker", "function", "charge", "file")
    kept = [tuple(getattr(proof, name) for name in fields) for proof in PROOFS]
    page = ROOT / "docs" / "reviewers" / "guarantee.md"
    assert ROW.findall(page.read_text()) == kept


@each_proof
def test_the_file_argues_under_all_headings_on_two_screens(proof: Proof) -> None:
    assert tuple(name for name in proof.argument if name in HEADINGS) == HEADINGS
    assert all(len(text) > 20 for text in proof.argument.values())
    assert len((proof.module.__doc__ or "").splitlines()) <= 2 * SCREEN


@each_proof
def test_the_file_says_what_is_charged(proof: Proof) -> None:
    function, charge = (
        getattr(proof.module, name) for name in (proof.function, proof.charge)
    )
    assert function.__module__ == charge.__module__ == proof.module.__name__
    assert {part.kind for part in charge().parts} == proof.events


def test_the_table_names_every_charge_and_every_maker() -> None:
    charges = {
        (module.__name__, name)
        for module in map(mechanisms.__dict__.get, mechanisms.__all__)
        for name, value in vars(module).items()
        if inspect.isfunction(value) and name.endswith("charge")
    }
    assert {(proof.module.__name__, proof.charge) for proof in PROOFS} == charges
    makers = {name for name in parsers.__all__ if name.endswith("OutputParser")}
    makers |= {"DPFewShotGenerator", "GDPTable", "LDPTable", "discover", "insights"}
    assert {proof.maker for proof in PROOFS} == makers - {"DPOutputParser"}


# -- what releases pay, and what they draw ---------------------------------------------


def account(**terms: Any) -> PrivacyBudgetHandler:
    given = {"epsilon": 20, "delta": 1e-6, "ledger": ":memory:", "queries": 1, **terms}
    return PrivacyBudgetHandler(**given)


def parse(which: str) -> PrivacyBudgetHandler:
    budget = account(queries=3)
    PARSERS[which](budget=budget).invoke(ANSWERS)
    return budget


def write() -> PrivacyBudgetHandler:
    budget = account()
    model = NextTokenLLM(model=Words(["END", "a", "cough"], lambda *_: [0.2, 0.3, 0.5]))
    parser = parsers.ProseOutputParser(max_tokens=3, top_k_public=3)
    groups = stored(clinic())
    DPChain(groups=groups, model=model, parser=parser, budget=budget).invoke(ASKED)
    return budget


def generate(mechanism: str) -> PrivacyBudgetHandler:
    budget = account(delta=1e-5)
    generator = generator_of(budget=budget, mechanism=mechanism)
    generator.generate(records_of(400), progress=False)
    return budget


def measure(**terms: Any) -> PrivacyBudgetHandler:
    budget = account(delta=1e-9)
    given = {"budget": budget, **terms}
    GDPTable(people(400), people_schema(), **given).release()
    return budget


def name_jobs() -> PrivacyBudgetHandler:
    budget = account()
    rows = [{"job": "pilot"}] * 90
    discover(rows, "job", budget=budget, noise="laplace")
    return budget


def report_rows() -> PrivacyBudgetHandler:
    budget = account()
    table_of(MIXED * 100, budget=budget, epsilon=None).release()
    return budget


def tell_topics() -> PrivacyBudgetHandler:
    budget = account()
    said = [{"who": n, "text": "My bill?"} for n in range(90)]
    model = ScriptedModel(script=lambda _prompt: "bills\nother: parking")
    terms = {"unit_key": "who", "topics": ["bills", "login"]}
    insights(said, model, budget=budget, people_at_most=3_000, **terms)
    return budget


MADE: dict[tuple[str, str], Callable[[], PrivacyBudgetHandler]] = {
    ("VoteOutputParser", "noisy_counts"): lambda: parse("vote"),
    ("ESAOutputParser", "noisy_counts"): lambda: parse("esa"),
    ("KSAPTROutputParser", "ptr_top_k"): lambda: parse("ptr"),
    ("KSAPTROutputParser", "choose_k"): lambda: parse("ptr-range"),
    ("KSAThresholdOutputParser", "threshold_words"): lambda: parse("threshold"),
    ("KSAJointOutputParser", "joint_top_k"): lambda: parse("joint"),
    ("ProseOutputParser", "clipped_token"): write,
    ("DPFewShotGenerator", "noisy_next_token"): lambda: generate("gaussian"),
    ("DPFewShotGenerator", "noisy_max_next_token"): lambda: generate("noisy_max"),
    ("DPFewShotGenerator", "clipped_token"): lambda: generate("clipped"),
    ("GDPTable", "noisy_tallies"): lambda: measure(noise="laplace"),
    ("GDPTable", "noisy_histograms"): lambda: measure(
        measure=["age", ("job", "ill")], noise="gaussian"
    ),
    ("discover", "threshold_words"): name_jobs,
    ("LDPTable", "randomize"): report_rows,
    ("insights", "noisy_slots"): tell_topics,
}
"""How each release of the table is made, by the library's own public calls."""


def drawn(proof: Proof, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that fills with what each draw was handed as paid."""
    found: list[Any] = []
    real = getattr(proof.module, proof.function)
    signature = inspect.signature(real)

    def noting(*args: Any, **given: Any) -> Any:
        bound = signature.bind(*args, **given).arguments
        paid = bound.get("paid", bound.get("epsilon"))
        found.append(paid if isinstance(paid, tuple) else (paid,))
        return real(*args, **given)

    for name, module in list(sys.modules.items()):
        # A mechanism that calls another one is one release.
        is_caller = name.startswith("langchain_dpicl") and "mechanisms." not in name
        if (is_caller or module is proof.module) and (
            vars(module).get(proof.function) is real
        ):
            monkeypatch.setattr(module, proof.function, noting)
    return found


def unpaid(drawn: list[Any], budget: PrivacyBudgetHandler) -> list[Any]:
    """Return what was drawn by and not charged."""
    stored = charges(budget.ledger, budget.account)
    charged = [event for charge in stored for event in plain(charge.events)]
    return [event for paid in drawn for event in paid if event not in charged]


@each_proof
def test_a_release_draws_by_what_was_charged(
    proof: Proof, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid = drawn(proof, monkeypatch)
    budget = MADE[proof.maker, proof.function]()
    assert paid
    if proof.function == "randomize":
        # Each column has a part of a person's epsilon.
        (event,) = charges(budget.ledger, budget.account)[0].events
        assert sum(epsilon for (epsilon,) in paid) <= event.epsilon * (1 + 1e-9)
    else:
        assert unpaid(paid, budget) == []


def test_twin_another_event_than_was_charged_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proof = PROOFS[0]
    paid = drawn(proof, monkeypatch)
    budget = MADE[proof.maker, proof.function]()
    halved = paid[0][0].noise_multiplier / 2
    cheap = paid[0][0].model_copy(update={"noise_multiplier": halved})
    assert unpaid([(cheap,)], budget) == [cheap]
