"""A record is confirmed by the ledger that charged it, and by no other."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.few_shot_fakes import generator_of, records_of
from support.groups_fakes import note
from support.table_parts import people, people_schema

from langchain_dpicl import (
    DPChain,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.budget import charges
from langchain_dpicl.cli import main
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.mechanisms.random import SeededRandom, use
from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel
from langchain_dpicl.operate import verify
from langchain_dpicl.tabular import GDPTable

Change = Callable[[dict[str, Any]], Any]
QUESTION = "Which side effect do patients on lisinopril report most?"


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    return Ledger(f"sqlite:///{tmp_path_factory.mktemp('verified')}/l.db")


@cache
def groups(score_threshold: float | None) -> RetrievedGroups:
    return RetrievedGroups.from_documents(
        [note(f"{i}", "The side effect of lisinopril is cough.") for i in range(60)],
        HashingEmbeddings(),
        unit_key="unit",
        n_groups=20,
        docs_per_group=2,
        score_threshold=score_threshold,
    )


def asked(
    ledger: Ledger,
    name: str,
    *,
    times: int = 1,
    cache: bool = False,
    score_threshold: float | None = None,
    **terms: Any,
) -> Any:
    given = {"epsilon": 30, "delta": 1e-6, "queries": 20, **terms}
    chain = DPChain(
        groups=groups(score_threshold),
        model=OfflineChatModel(),
        parser=VoteOutputParser(labels=["cough", "rash"]),
        budget=PrivacyBudgetHandler(ledger=ledger, account=name, **given),
        cache=cache,
    )
    return [chain.invoke(QUESTION) for _ in range(times)][-1]


@pytest.fixture(scope="module")
def record(ledger: Ledger) -> dict[str, Any]:
    found: dict[str, Any] = asked(ledger, "notes", times=2).response_metadata["privacy"]
    return found


def test_an_answer_is_confirmed(ledger: Ledger, record: dict[str, Any]) -> None:
    found = verify(record, ledger)
    assert found.is_confirmed, found
    assert (found.account, found.charge) == ("notes", 2)
    assert found.digest == charges(ledger, "notes")[1].digest
    assert len(found.checked) == 6
    # Of a stored release nearly everything is compared.
    assert found.not_compared == ("calls",)
    # Later charges change nothing.
    asked(ledger, "notes")
    assert verify(record, ledger) == found


def changed(**values: Any) -> Change:
    return lambda record: record.update(values)


def with_account(**values: Any) -> Change:
    return lambda record: record["account"].update(values)


def noisier(record: dict[str, Any]) -> None:
    record["events"][0]["noise_multiplier"] *= 2


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (changed(charge=99), "has no charge 99"),
        (changed(charge=1), "not what the ledger stored"),
        (changed(charge=None), "names no charge"),
        (changed(account=None), "no account"),
        (changed(random="seeded"), "source for tests"),
        (changed(events=[]), "other events"),
        (noisier, "other events"),
        (lambda r: r["events"].append(r["events"][0]), None),
        (lambda r: r["events"].extend(2 * r["events"]), "other events"),
        (with_account(name="other"), "no such account"),
        (with_account(epsilon=1.0), "another epsilon"),
        (with_account(accounting="renyi"), "another accounting"),
        (with_account(epsilon_spent=0.1), "had spent more"),
        (with_account(epsilon_spent=math.nan), "no number"),
        (with_account(epsilon_spent="0.1"), "no number"),
        (with_account(queries_spent=1), "had more charges"),
        (changed(unit_key="visit"), "another unit"),
        (changed(epsilon=0.01, delta=1e-6), "cost more epsilon"),
        (changed(epsilon=0.01), "cost more epsilon"),
        (changed(status="cached", details={"first": {"charge": 99}}), "no charge 99"),
    ],
)
def test_a_record_that_says_something_else_is_not(
    ledger: Ledger, record: dict[str, Any], change: Change, wrong: str | None
) -> None:
    edited = json.loads(json.dumps(record))
    change(edited)
    found = verify(edited, ledger)
    if wrong is None:
        # Two charges may pay for one question.
        assert found.is_confirmed
    else:
        assert not found.is_confirmed
        assert wrong in found.summary


FORGED: dict[str, Change] = {
    "unit": changed(unit="a visit"),
    "neighbors": changed(neighbors="one word added or removed"),
    "relation": changed(relation="add_remove"),
    "mechanism": changed(mechanism="none"),
    "status": changed(status="abstained"),
    "parameters.noise_multiplier": lambda r: r["parameters"].update(noise_multiplier=9),
    "parameters.invented": lambda r: r["parameters"].update(invented=True),
    "details.noisy_votes": lambda r: r["details"].update(noisy_votes={"rash": 99}),
    "details.invented": lambda r: r["details"].update(invented=True),
    "ranking": changed(ranking=["rash"]),
    "keywords": changed(keywords=["rash"]),
    "groups": changed(groups={"n_groups": 1000}),
    "library": changed(library="9.9.9"),
    "model": changed(model="another"),
    "created": changed(created="2020-01-01T00:00:00+00:00"),
    "calls": changed(calls=1),
}


@pytest.mark.parametrize("field", FORGED)
def test_a_forged_field_is_found_or_named(
    ledger: Ledger, record: dict[str, Any], field: str
) -> None:
    forged = json.loads(json.dumps(record))
    FORGED[field](forged)
    assert forged != record
    verdict = verify(forged, ledger)
    whole, _, _ = field.partition(".")
    is_named = field in verdict.not_compared or whole in verdict.not_compared
    is_found = f"{field} is not what the ledger stored" in verdict.wrong
    assert is_named != is_found
    assert verdict.is_confirmed != is_found
    # What was not compared stands in the sentence, in the JSON, and under no "checked".
    if is_named:
        assert verdict.not_compared
        named = verdict.summary.partition("Not compared")[2]
        assert all(name in named for name in verdict.not_compared)
    unstored = {"calls", "parameters.invented", "details.invented"}
    assert is_found == (field not in unstored)


@pytest.mark.parametrize(
    "field", ["measure", "rows_per_unit", "noise", "noise_deviations", "schema"]
)
def test_a_forged_parameter_of_a_table_is_found(ledger: Ledger, field: str) -> None:
    budget = PrivacyBudgetHandler(
        epsilon=3, delta=1e-5, queries=1, ledger=ledger, account="tabulated"
    )
    table = GDPTable(people(200), people_schema(), budget=budget)
    record = table.release(resume=True).record()
    assert verify(record, ledger).not_compared == ()
    record["parameters"][field] = {"age": 0.1}
    found = verify(record, ledger)
    assert found.wrong == (f"parameters.{field} is not what the ledger stored",)


def test_another_ledger_confirms_nothing(
    tmp_path: Path, record: dict[str, Any]
) -> None:
    other = Ledger(f"sqlite:///{tmp_path}/other.db")
    assert not verify(record, other).is_confirmed


def test_a_cached_answer_is_confirmed_by_its_first_charge(ledger: Ledger) -> None:
    told = asked(ledger, "cached", times=2, cache=True)
    found = told.response_metadata["privacy"]
    assert (found["status"], found["charge"]) == ("cached", None)
    assert verify(found, ledger).charge == 1
    found["details"]["first"]["charge"] = 5
    assert not verify(found, ledger).is_confirmed
    found["details"]["first"]["charge"] = 1
    forged = {**found, "events": [{"kind": "gaussian", "noise_multiplier": 99.0}]}
    assert "names no charge" in verify(forged, ledger).summary
    del found["details"]["first"]
    assert "names no charge" in verify(found, ledger).summary


def test_a_ledger_confirms_no_answer_without_a_charge(
    ledger: Ledger, record: dict[str, Any]
) -> None:
    # A record whose charge was taken out looks like this.
    free = {**record, "status": "public", "events": [], "charge": None}
    for one in (free, {**free, "account": None}, {**free, "status": "fallback"}):
        found = verify(one, ledger)
        assert (found.is_confirmed, found.charge) == (False, None)
        assert "states that nothing was charged" in found.summary
    assert not verify({**free, "status": "released"}, ledger).is_confirmed


def test_a_per_unit_account_and_a_table(ledger: Ledger) -> None:
    told = asked(ledger, "each", times=2, scope="unit", score_threshold=0.1)
    found = verify(told.response_metadata["privacy"], ledger)
    assert (found.is_confirmed, found.charge) == (True, 2)
    budget = PrivacyBudgetHandler(
        epsilon=3, delta=1e-5, queries=1, ledger=ledger, account="table"
    )
    table = GDPTable(people(200), people_schema(), budget=budget)
    record = table.release().record()
    assert verify(record, ledger).is_confirmed
    record["events"][0]["epsilon"] /= 2
    assert not verify(record, ledger).is_confirmed


def test_noise_for_tests_is_no_release(ledger: Ledger) -> None:
    with use(SeededRandom(7)):
        told = asked(ledger, "seeded")
    found = verify(told.response_metadata["privacy"], ledger)
    assert "source for tests" in found.summary


def test_a_file_of_examples_and_an_answer_as_json(
    ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    budget = PrivacyBudgetHandler(
        epsilon=4, delta=1e-5, queries=1, ledger=ledger, account="shots"
    )
    generator_of(budget=budget).generate(records_of()).save(tmp_path / "shots.json")
    told = asked(ledger, "told")
    (tmp_path / "answer.json").write_text(json.dumps(told.to_json()))
    (tmp_path / "service.json").write_text(
        json.dumps({"answer": "x", "privacy": told.response_metadata["privacy"]})
    )
    for name in ("shots", "answer", "service"):
        path = str(tmp_path / f"{name}.json")
        url = f"sqlite:///{ledger.path}"
        assert main(["verify", path, "--ledger", url]) == 0
        shown = capsys.readouterr().out
        assert "Confirmed" in shown
        assert "not compared: what stands beside the record" in shown
    content = json.loads((tmp_path / "service.json").read_text())
    content["privacy"]["charge"] = 7
    (tmp_path / "service.json").write_text(json.dumps(content))
    status = main(["verify", str(tmp_path / "service.json"), "--ledger", url, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (status, found["is_confirmed"]) == (1, False)


@pytest.mark.parametrize(
    ("content", "message"),
    [({}, "no record"), ([1], "no record"), ("form", "another form than")],
)
def test_what_is_no_record_is_refused(
    ledger: Ledger, record: dict[str, Any], content: Any, message: str
) -> None:
    if content == "form":
        content = {**record, "epsilon": "private text"}
    with pytest.raises(InvalidParameterError, match=message) as caught:
        verify(content, ledger)
    assert "private text" not in str(caught.value)
