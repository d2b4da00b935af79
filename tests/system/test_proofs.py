"""Each release is proven in one file, and pays what that file says.

A table names, for each release, the function that makes it, the template that prices
it, and the one file that holds both: `report/proofs.csv`, which ARCHITECTURE.md shows.
Here it is held against the code: the named file argues sensitivity, noise and event,
and every parser and generator calls its function with exactly the noise that its
account was charged for.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
from support.few_shot_fakes import generator_of, records_of
from support.ldp_parts import MIXED, table_of
from support.parser_parts import ANSWERS, PARSERS
from support.table_parts import people, people_schema

import langchain_dpicl
from langchain_dpicl import (
    PrivacyBudgetHandler,
    mechanisms,
    parsers,
)
from langchain_dpicl.accounting import Event, EventTemplate, Parallel
from langchain_dpicl.report import proven
from langchain_dpicl.tabular import CategoricalColumn, GDPTable, TableSchema

PACKAGE = Path(langchain_dpicl.__file__).parent
ARCHITECTURE = PACKAGE.parent / "ARCHITECTURE.md"
ROW = re.compile(
    r"^\| ([^|]+) \| `(\w+)` \| `(\w+)` \| `(\w+_template)` \| "
    r"`(mechanisms/\w+\.py)` \|$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Proof:
    """A row of the table."""

    maker: str
    function: str
    template: str
    file: str

    @property
    def module(self) -> Any:
        name = self.file.removesuffix(".py").replace("/", ".")
        return importlib.import_module(f"langchain_dpicl.{name}")

    def __str__(self) -> str:
        return f"{self.maker}-{self.function}"


PROOFS = [Proof(p.maker, p.function, p.template, p.file) for p in proven.PROOFS]


# -- what the files hold ---------------------------------------------------------------


def privacy_section(docstring: str) -> str:
    """Return the "Privacy" section of a docstring."""
    section = re.search(
        r"^Privacy:\n((?:    .*\n|\n)+)", docstring + "\n", re.MULTILINE
    )
    return section.group(1) if section else ""


def lacks(proof: Proof) -> list[str]:
    """Return what a file lacks of a proof."""
    module = proof.module
    found = [
        name
        for name in (proof.function, proof.template)
        if getattr(getattr(module, name, None), "__module__", "") != module.__name__
    ]
    if found:
        return found
    section = privacy_section(inspect.getdoc(getattr(module, proof.function)) or "")
    words = ("unit", "relation", "sensitivity", "noise", "event")
    found += [word for word in words if word not in section.casefold()]
    text = " ".join((module.__doc__ or "").split())
    if f"`{proof.template}`" not in text:
        found.append("the template beside the proof's event")
    tree = ast.parse(inspect.getsource(getattr(module, proof.template)))
    calls = {ast.unparse(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    if "EventTemplate" not in calls:
        found.append("an event of its own")
    return found


def test_the_architecture_shows_the_table() -> None:
    rows = ROW.findall(ARCHITECTURE.read_text())
    fields = ("release", "maker", "function", "template", "file")
    kept = [tuple(getattr(p, name) for name in fields) for p in proven.PROOFS]
    assert rows == kept


KINDS = {
    "GaussianPart": "gaussian",
    "PurePart": "pure",
    "ExponentialPart": "exponential",
}


@pytest.mark.parametrize("proof", proven.PROOFS, ids=lambda p: p.function)
def test_the_table_names_the_events_that_a_template_charges(
    proof: proven.Proof,
) -> None:
    make = getattr(mechanisms, proof.template)
    needed = {"relation": "replace", "tables": 1, "k": 2, "items_per_answer": 1}
    taken = inspect.signature(make).parameters
    given = {name: value for name, value in needed.items() if name in taken}
    template = make("name", **given)
    kinds = {KINDS[type(part).__name__] for part in template.parts}
    assert proof.events == kinds | ({"delta"} if template.needs_delta0 else set())


@pytest.mark.parametrize("proof", PROOFS, ids=str)
def test_the_named_file_holds_sensitivity_noise_and_event(proof: Proof) -> None:
    assert lacks(proof) == []


def test_a_file_that_proves_something_else_is_noticed() -> None:
    proof = PROOFS[0]
    assert lacks(replace(proof, template="sum_template")) == ["sum_template"]
    elsewhere = replace(proof, file="mechanisms/embedding.py")
    assert lacks(elsewhere) == [proof.function, proof.template]
    assert "sensitivity" in lacks(replace(proof, function="vote_template"))


def test_the_table_names_every_template_and_every_parser() -> None:
    templates = {name for name in mechanisms.__all__ if name.endswith("_template")}
    assert {proof.template for proof in PROOFS} == templates
    makers = {name for name in parsers.__all__ if name.endswith("OutputParser")}
    others = {"DPFewShotGenerator"}
    tables = {"GDPTable", "LDPTable"}
    assert {p.maker for p in PROOFS} == makers - {"DPOutputParser"} | others | tables
    drawn = {name for name in mechanisms.__all__ if takes_randomness(name)}
    drawn -= {"DiscreteLaplace"}
    assert {proof.function for proof in PROOFS} == drawn


def takes_randomness(name: str) -> bool:
    found = getattr(mechanisms, name)
    return callable(found) and "random" in inspect.signature(found).parameters


# -- what releases pay, and what they draw ---------------------------------------------


def account(**terms: Any) -> PrivacyBudgetHandler:
    given = {"epsilon": 20, "delta": 1e-6, "ledger": ":memory:", **terms}
    return PrivacyBudgetHandler(**given)


def parse(which: str) -> PrivacyBudgetHandler:
    budget = account(queries=3)
    PARSERS[which](budget=budget).invoke(ANSWERS)
    return budget


def generate(mechanism: str) -> PrivacyBudgetHandler:
    budget = account(queries=1, delta=1e-5)
    generator = generator_of(budget=budget, mechanism=mechanism)
    generator.generate(records_of(400), progress=False)
    return budget


OPEN = TableSchema(
    label="ill",
    columns=[
        CategoricalColumn(name="job", values=["clerk", "?"], missing="?", open=True),
        CategoricalColumn(name="ill", values=["no", "yes"]),
    ],
)


def measure(
    data: Any = None, schema: TableSchema | None = None, **terms: Any
) -> PrivacyBudgetHandler:
    budget = account(queries=1, delta=1e-9)
    given = {"budget": budget, "sampling_rate": 0.5, **terms}
    table = GDPTable(data or people(400), schema or people_schema(), **given)
    table.release()
    return budget


def charge_units() -> PrivacyBudgetHandler:
    budget = account(queries=1)
    table_of(MIXED * 100, budget=budget, epsilon=None).release()
    return budget


MADE: dict[tuple[str, str], Callable[[], PrivacyBudgetHandler]] = {
    ("VoteOutputParser", "noisy_counts"): lambda: parse("vote"),
    ("ESAOutputParser", "noisy_sum"): lambda: parse("esa"),
    ("ESAOutputParser", "noisy_counts"): lambda: parse("esa-vote"),
    ("KSAPTROutputParser", "ptr_top_k"): lambda: parse("ptr"),
    ("KSAPTROutputParser", "choose_k"): lambda: parse("ptr-range"),
    ("KSAThresholdOutputParser", "threshold_words"): lambda: parse("threshold"),
    ("KSAJointOutputParser", "joint_top_k"): lambda: parse("joint"),
    ("DPFewShotGenerator", "noisy_next_token"): lambda: generate("gaussian"),
    ("DPFewShotGenerator", "noisy_max_next_token"): lambda: generate("noisy_max"),
    ("GDPTable", "noisy_tallies"): measure,
    ("GDPTable", "noisy_histograms"): lambda: measure(
        measure=["age", ("job", "ill")], noise="gaussian", sampling_rate=1.0
    ),
    ("GDPTable", "threshold_words"): lambda: measure(
        data=[{"job": "pilot", "ill": "no"}] * 90,
        schema=OPEN,
        measure=["job"],
        sampling_rate=1.0,
    ),
    ("LDPTable", "randomize"): charge_units,
}
"""How each release of the table is made, by the library's own public calls."""

Call = tuple[str, dict[str, float]]


def spied(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Note each call of a mechanism with the noise that it was given."""
    calls: list[Call] = []

    def spy(name: str, real: Any) -> Any:
        def noting(*args: Any, **given: Any) -> Any:
            terms = ("noise_multiplier", "delta0")
            noise = {k: given[k] for k in terms if k in given}
            if "epsilon" in given or "epsilons" in given:
                each = given.get("epsilons", [given.get("epsilon")])
                noise["epsilon"] = math.fsum(each)
            calls.append((name, noise))
            return real(*args, **given)

        return noting

    for function in {proof.function for proof in PROOFS}:
        real = getattr(mechanisms, function)
        for name, module in list(sys.modules.items()):
            # Not inside of mechanisms: one that calls another is one release.
            is_ours = name.startswith("langchain_dpicl") and "mechanisms." not in name
            if is_ours and vars(module).get(function) is real:
                monkeypatch.setattr(module, function, spy(function, real))
    return calls


def drawn(proof: Proof, calls: list[Call]) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield how many releases were made with which noise, by what prices them."""
    own = [noise for function, noise in calls if function == proof.function]
    if proof.template == "reports_template":
        # One column after the other: a row is reported in all of them.
        yield 1, {"epsilon": math.fsum(noise["epsilon"] for noise in own)}
        return
    if proof.template == "ptr_range_template":
        [test] = [noise for function, noise in calls if function == "ptr_top_k"]
        own = [{**test, "selection_epsilon": noise["epsilon"]} for noise in own]
    for noise in {tuple(sorted(noise.items())) for noise in own}:
        yield own.count(dict(noise)), dict(noise)


def branches(events: tuple[Event, ...]) -> list[tuple[Any, ...]]:
    """Return what was charged to each class of units, or for each of two releases."""
    [*alone] = events
    if len(alone) == 1 and isinstance(alone[0], Parallel):
        return list(alone[0].branches)
    if len(alone) == len(("counts", "names", "delta0")):
        # Of a table with open columns, or one release of three events.
        return [tuple(alone), tuple(alone[:1]), tuple(alone[1:])]
    return [tuple(alone)]


def check(proof: Proof, calls: list[Call], budget: PrivacyBudgetHandler) -> None:
    """Hold what was drawn against what was charged for it.

    Raises:
        AssertionError: If a release was made with less noise than the charge says, or
            by another mechanism, or more often.
    """
    found = list(drawn(proof, calls))
    assert found
    records = budget.ledger.charges(budget.account)
    charged = [one for record in records for one in branches(record.charge.events)]
    for count, noise in found:
        paying = [branch[0].count for branch in charged if costs(proof, noise, branch)]
        assert paying, noise
        # Bins of a histogram are one release, however many are looked at.
        assert proof.function == "noisy_counts" or count <= sum(paying)


def costs(proof: Proof, noise: dict[str, float], branch: tuple[Any, ...]) -> bool:
    """Return whether a branch is what releases with a noise are charged."""
    rate = getattr(branch[0], "sampling_rate", RATES.get(proof.maker, 1.0))
    make = getattr(proof.module, proof.template)
    terms: dict[str, Any] = {**noise, "sampling_rate": rate, "uses": branch[0].count}
    known = inspect.signature(make).parameters
    template: EventTemplate = make(
        "audit", **{name: value for name, value in terms.items() if name in known}
    )
    expected = template.events(1.0, noise.get("delta0", 0.0))
    return len(expected) == len(branch) and all(
        type(one) is type(other)
        and asdict(one) == pytest.approx(asdict(other), rel=1e-9)
        for one, other in zip(expected, branch, strict=True)
    )


RATES = {"GDPTable": 0.5, "DPFewShotGenerator": 40 / 400}
"""At which units were sampled, where a pure event does not say it."""


@pytest.mark.parametrize("proof", PROOFS, ids=str)
def test_a_release_draws_the_noise_that_it_was_charged_for(
    proof: Proof, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = spied(monkeypatch)
    check(proof, calls, MADE[proof.maker, proof.function]())


@pytest.mark.parametrize("proof", PROOFS, ids=str)
def test_less_noise_than_charged_is_noticed(
    proof: Proof, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin: each charge hands out half of the noise that it has paid for."""
    calls, read = spied(monkeypatch), EventTemplate.read

    def halved(self: EventTemplate, events: tuple[Event, ...]) -> Any:
        noise = read(self, events)
        given = {one.name: getattr(noise, one.name) for one in fields(noise)}
        factors = {"noise_multiplier": 0.5, "epsilon": 2.0, "selection_epsilon": 2.0}
        changed = {k: v * factors.get(k, 1.0) for k, v in given.items() if v}
        return replace(noise, **changed)

    monkeypatch.setattr(EventTemplate, "read", halved)
    budget = MADE[proof.maker, proof.function]()
    with pytest.raises(AssertionError):
        check(proof, calls, budget)


@pytest.mark.parametrize("proof", PROOFS[:10], ids=str)
def test_the_event_of_another_mechanism_is_noticed(
    proof: Proof, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin: an account that was charged by another file's template."""
    calls = spied(monkeypatch)
    budget = MADE[proof.maker, proof.function]()
    is_pure = proof.template == "joint_template"
    wrong = "VoteOutputParser" if is_pure else "KSAJointOutputParser"
    function = "noisy_counts" if is_pure else "joint_top_k"
    check(proof, calls, budget)
    with pytest.raises(AssertionError):
        check(proof, calls, MADE[wrong, function]())
