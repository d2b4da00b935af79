"""A report says what the ledger says, of every kind of account, and nothing private."""

from __future__ import annotations

import json
import math
import re
import sqlite3
import sys
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.corpora import CLINIC, clock_for, of_month, opened_in, pay
from support.few_shot_fakes import generator_of, records_of
from support.groups_fakes import note
from support.ldp_parts import MIXED, table_of
from support.ledgers import bought
from support.table_parts import people, people_schema

from langchain_dpicl import (
    DPChain,
    KSAPTROutputParser,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
    operate,
)
from langchain_dpicl.errors import InvalidParameterError, LedgerError
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel
from langchain_dpicl.operate import ErasureCertificate
from langchain_dpicl.operate.audit import AuditReport, PersonLoss
from langchain_dpicl.operate.report import account_report
from langchain_dpicl.tabular import GDPTable

CANARY = "canary-4711"
QUESTION = "Which side effect do patients on lisinopril report most?"


def account(ledger: Ledger, name: str = "notes", **terms: Any) -> PrivacyBudgetHandler:
    given = {"epsilon": 8, "delta": 1e-6, "queries": 20, **terms}
    return PrivacyBudgetHandler(ledger=ledger, account=name, **given)


@cache
def groups(score_threshold: float | None) -> RetrievedGroups:
    sentence = f"The side effect of lisinopril is cough {CANARY}."
    return RetrievedGroups.from_documents(
        [note(f"{CANARY}-{i}", sentence) for i in range(60)],
        HashingEmbeddings(),
        unit_key="unit",
        n_groups=30,
        docs_per_group=2,
        score_threshold=score_threshold,
    )


def ask(
    budget: PrivacyBudgetHandler,
    parser: Any = None,
    score_threshold: float | None = None,
) -> Any:
    chain = DPChain(
        groups=groups(score_threshold),
        model=OfflineChatModel(),
        parser=parser or VoteOutputParser(labels=["cough", "rash"]),
        budget=budget,
        cache=True,
    )
    return chain.invoke(QUESTION)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(":memory:")


@pytest.fixture
def file(tmp_path: Path) -> Ledger:
    return Ledger(f"sqlite:///{tmp_path}/reported.db")


def test_an_account_with_a_plan(ledger: Ledger) -> None:
    budget = account(ledger)
    ask(budget)
    found = account_report(ledger, "notes", facts={"purpose": "research", "people": 60})
    assert (found.releases, found.unit_key, found.damage) == (1, "unit", "")
    assert found.spent == pytest.approx(budget.spent().epsilon)
    assert found.left == pytest.approx(8 - found.spent)
    (line,) = found.lines
    assert (line.kind, line.mechanism, line.charges) == ("answer", "vote/gaussian", 1)
    assert [proof.function for proof in found.proofs] == ["noisy_counts"]
    page = found.to_html()
    for said in (
        "all records with the same 'unit'",
        "research",
        "to be filled",
    ):
        assert said in page
    assert found.head == ledger.state("notes").last
    assert found.head in page
    content = json.loads(found.model_dump_json())
    assert (content["releases"], content["facts"]["signed_by"]) == (1, None)
    assert repr(found) == "AccountReport(account='notes', is_whole=True)"


def test_an_account_that_has_released_nothing(ledger: Ledger) -> None:
    account(ledger)
    found = account_report(ledger, "notes")
    assert (found.curve, found.lines, found.spent) == ((), (), 0.0)
    assert "The first release will fix" in found.to_html()


def test_a_filter_with_releases_of_two_kinds(ledger: Ledger) -> None:
    budget = account(ledger, accounting="renyi")
    ask(budget)
    ask(budget, KSAPTROutputParser(k=1))
    found = account_report(ledger, "notes")
    assert [line.mechanism for line in found.lines] == ["vote/gaussian", "ksa/ptr"]
    assert {proof.function for proof in found.proofs} == {"noisy_counts", "ptr_top_k"}
    assert found.spent == pytest.approx(budget.spent().epsilon)
    assert "Some releases may fail" in found.to_html()


def test_a_per_unit_account_speaks_of_any_unit(ledger: Ledger) -> None:
    ask(account(ledger, scope="unit"), score_threshold=0.1)
    page = account_report(ledger, "notes").to_html()
    assert "≤ " in page
    assert "by any unit" in page
    assert "starts with its whole balance" in page


def test_an_account_of_a_corpus_shows_its_cap(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = clock_for(monkeypatch, "2026-12-05")
    for month in ("2026-12", "2027-01"):
        clock.set(f"{month}-05")
        pay(ledger, opened_in(ledger, of_month(month, purpose=f"research in {month}")))
    found = account_report(ledger, "clinic/2027-01")
    assert found.corpus
    assert (found.corpus.epsilon, found.corpus.delta) == (16.0, 2e-6)
    page = found.to_html()
    for said in (
        "promised ε = 24 and δ = 3e-06",
        "within any 365 days",
        "Committed now: ε = 16, δ = 2e-06, by clinic/2026-12, clinic/2027-01.",
        "research in 2027-01",
        "from 2027-01-01 on",
        "for nothing from 2027-02-01 on",
    ):
        assert said in page
    account(ledger, "alone")
    assert "no corpus with a cap" in account_report(ledger, "alone").to_html()


def test_all_accounts_with_the_same_unit_key_are_listed(ledger: Ledger) -> None:
    unit = CLINIC.unit_key
    opened_in(ledger, of_month("2099-01"))
    template = VoteOutputParser(labels=["a", "b"]).charge()
    for name, key in (("alone", unit), ("again", unit), ("cars", "car")):
        bought(account(ledger, name), template, unit_key=key)
    account(ledger, "unbound")
    for name in ("alone", "clinic/2099-01"):
        found = account_report(ledger, name)
        names = [terms.name for terms in found.same_unit]
        assert names == ["again", "alone", "clinic/2099-01"]
        assert found.promised == (24, 3e-6)
        page = found.to_html()
        assert "has 3 accounts with this unit key" in page
        assert "cars" not in page
    assert "no other account" in account_report(ledger, "unbound").to_html()


def test_a_table_with_gaussian_noise_is_no_local_model(ledger: Ledger) -> None:
    budget = account(ledger, "counted", queries=1)
    columns = {"measure": ["job", "ill"], "noise": "gaussian"}
    GDPTable(people(200), people_schema(), budget=budget, **columns).release()
    found = account_report(ledger, "counted")
    assert [line.kind for line in found.lines] == ["table"]
    assert [p.function for p in found.proofs] == ["noisy_histograms"]
    assert "Central model" in found.to_html()


def test_examples_and_tables(ledger: Ledger) -> None:
    generator_of(budget=account(ledger, "shots", queries=1)).generate(records_of())
    table = GDPTable(
        people(200), people_schema(), budget=account(ledger, "table", queries=1)
    )
    table.release()
    shots, rows = account_report(ledger, "shots"), account_report(ledger, "table")
    assert [line.kind for line in shots.lines] == ["examples"]
    assert "disjoint classes" in shots.to_html()
    assert [p.function for p in shots.proofs] == ["noisy_next_token"]
    assert [line.kind for line in rows.lines] == ["table"]
    assert [p.function for p in rows.proofs] == ["noisy_tallies"]
    assert rows.households[1].epsilon == 16
    reported = account(ledger, "reported", queries=1)
    table_of(MIXED * 20, budget=reported).release()
    reports = account_report(ledger, "reported")
    assert [line.kind for line in reports.lines] == ["reports"]
    assert [p.function for p in reports.proofs] == ["randomize"]
    # Who sees rows is another one than where groups are asked; both pages say so.
    for made in (reports, rows):
        page = made.to_html()
        assert ("prompts with records of the groups" in page) == (made is rows)
        assert ("randomized reports, and their counts" in page) == (made is reports)
    assert "Local model" in reports.to_html()
    assert "Central model" in rows.to_html()


@pytest.mark.parametrize("scope", ["corpus", "unit"])
def test_nothing_private_is_in_a_report(file: Ledger, scope: str) -> None:
    budget = account(file, scope=scope)
    threshold = 0.1 if scope == "unit" else None
    ask(budget, None, threshold)
    ask(budget, VoteOutputParser(labels=["rash", "cough"]), threshold)
    found = account_report(file, "notes")
    tags = [balance.tag for balance in file.unit_balances("notes")] if threshold else []
    assert len(tags) == (60 if threshold else 0)
    with closing(sqlite3.connect(file.path or "")) as connection:
        dump = "\n".join(connection.iterdump())
    keys = re.findall(r"X'([0-9A-F]{64})'", dump)
    for text in (found.to_html(), found.model_dump_json(), str(found)):
        assert leaks(text, [CANARY, QUESTION, *tags, *keys]) == []
        # A released answer is public, and still not repeated.
        assert "lisinopril" not in text


def leaks(text: str, canaries: list[str]) -> list[str]:
    return [canary for canary in canaries if canary.casefold() in text.casefold()]


def test_twin_a_canary_in_a_page_is_found(ledger: Ledger) -> None:
    account(ledger)
    found = account_report(ledger, "notes", facts={"people": CANARY.upper()})
    assert leaks(found.to_html(), [CANARY]) == [CANARY]


def test_the_page_is_whole_and_escaped(ledger: Ledger) -> None:
    name = "<b>notes</b>"
    account(ledger, name)
    page = account_report(
        ledger, name, facts={"purpose": "<script>x()</script>"}
    ).to_html()
    assert name not in page
    assert "<script" not in page
    assert not re.search(r"(src|href)\s*=|@import|url\(|https?://", page)


def test_a_damaged_ledger_is_told(file: Ledger) -> None:
    ask(account(file))
    file.dispose()
    with closing(sqlite3.connect(file.path or "", isolation_level=None)) as edited:
        edited.execute("UPDATE dpicl_entry SET at = 0 WHERE kind = 'charge'")
    found = account_report(f"sqlite:///{file.path}", "notes")
    assert not found.is_whole
    assert "The ledger is damaged." in found.to_html()


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LedgerError):
        account_report(Ledger(":memory:"), "notes")
    with pytest.raises(LedgerError):
        account_report(f"sqlite:///{tmp_path}/none.db", "notes")
    assert not (tmp_path / "none.db").exists()


# -- what is given beside the ledger ---------------------------------------------------


def test_facts_come_from_a_file(ledger: Ledger, tmp_path: Path) -> None:
    account(ledger)
    path = tmp_path / "facts.json"
    path.write_text(
        '{"people": 60, "valid_until": "2020-12-31", "callers": ["a", "b"]}'
    )
    found = account_report(ledger, "notes", facts=path)
    assert (found.facts.people, found.facts.callers) == ("60", "a; b")
    assert found.facts.controller is None
    assert found.is_expired
    assert "has ended on 2020-12-31" in found.to_html()
    later = {"valid_until": "2999-01-01"}
    assert not account_report(ledger, "notes", facts=later).is_expired


@pytest.mark.parametrize(
    "text",
    [
        *("[1]", "{", '{"purpose": {"a": 1}}', '{"porpose": "x"}', '{"people": true}'),
        *('{"valid_until": "31.12.2026"}', '{"valid_until": "2026-13-01"}'),
        *('{"signed_on": 20261130}', '{"signed_on": "2026-W48-1"}'),
    ],
)
def test_facts_that_make_no_sense_are_refused(
    ledger: Ledger, tmp_path: Path, text: str
) -> None:
    account(ledger)
    path = tmp_path / "facts.json"
    path.write_text(text)
    with pytest.raises(InvalidParameterError, match=r"[Ff]act"):
        account_report(ledger, "notes", facts=path)


def test_of_audits_only_the_verdict_is_shown(ledger: Ledger, tmp_path: Path) -> None:
    account(ledger)
    for name, sound in (("a", True), ("b", False)):
        loss = {"person": CANARY, "reached": 1, "moved": 1, "epsilon": 1.0}
        person = PersonLoss(**loss, finding=None if sound else CANARY)
        numbers = dict.fromkeys(
            ("questions", "repeats", "group_calls", "extra_calls"), 1
        )
        AuditReport(
            **numbers, claimed=1.0, delta=1e-6, people=(person,), is_exact=True
        ).save(tmp_path / f"{name}.json")
    (tmp_path / "c.json").write_text(CANARY)
    found = account_report(ledger, "notes", audits=tmp_path)
    page = found.to_html()
    assert CANARY not in page + found.model_dump_json()
    assert page.count("within the claim") == page.count("exceeds the claim") == 1
    assert "can&#39;t be read, or was edited" in page
    with pytest.raises(InvalidParameterError, match="no folder"):
        account_report(ledger, "notes", audits=tmp_path / "a.json")


def test_of_erasures_nobody_is_named(ledger: Ledger, tmp_path: Path) -> None:
    account(ledger)
    made = ErasureCertificate(
        fingerprint=CANARY,
        erased_at="2026-11-01T00:00:00+00:00",
        index={"documents_erased": 4711},
        stores=(),
        accounts=({"account": "notes"},),
        corpus={},
        cached_answers_cleared=0,
    )
    made.save(tmp_path / "one.json")
    later = {"accounts": (), "erased_at": "2026-11-02"}
    made.model_copy(update=later).save(tmp_path / "two.json")
    text = (tmp_path / "one.json").read_text()
    (tmp_path / f"{CANARY}.json").write_text(text.replace('"notes"', '"other"'))
    found = account_report(ledger, "notes", erasures=tmp_path)
    assert [tuple(row.values())[1:] for row in found.erasures] == [
        ("", "can't be read, or was edited"),
        ("yes", "intact"),
        ("no", "intact"),
    ]
    page = found.to_html()
    assert "2026-11-01" in page
    assert leaks(page, [CANARY, "4711"]) == []


@pytest.mark.parametrize("ending", ["html", "json"])
def test_a_report_is_saved_by_its_ending(
    ledger: Ledger, tmp_path: Path, ending: str
) -> None:
    account(ledger)
    path = tmp_path / f"report.{ending}"
    account_report(ledger, "notes").save(path)
    assert "notes" in path.read_text()
    with pytest.raises(InvalidParameterError, match=r"\.html or \.json"):
        account_report(ledger, "notes").save(tmp_path / "report.pdf")
    with pytest.raises(InvalidParameterError, match="can't be written"):
        account_report(ledger, "notes").save(path / "below.html")


def test_a_page_without_jinja_names_the_extra(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    account(ledger)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    found = account_report(ledger, "notes")
    with pytest.raises(InvalidParameterError, match=r"\[report\]"):
        found.to_html()
    assert found.model_dump_json()  # Data need no template.


def several_people(n: int, epsilon: float, delta: float) -> float:
    """Return delta of n people together, unit by unit from one corpus to the other."""
    total = 0.0
    for _ in range(n):
        total = math.exp(epsilon) * total + delta
    return total


def test_a_household_loses_what_its_people_lose_one_by_one(ledger: Ledger) -> None:
    account(ledger, epsilon=0.7)
    for one in account_report(ledger, "notes").households:
        assert one.epsilon == pytest.approx(one.people * 0.7)
        assert one.delta == pytest.approx(several_people(one.people, 0.7, 1e-6))


@pytest.mark.parametrize("accounting", ["plan", "renyi"])
def test_the_curve_is_the_account_at_other_deltas(
    ledger: Ledger, accounting: str
) -> None:
    is_plan = accounting == "plan"
    terms = {} if is_plan else {"queries": None, "accounting": "renyi"}
    budget = account(ledger, **terms)
    noise = {} if is_plan else {"noise_multiplier": 5.0}
    ask(budget, VoteOutputParser(labels=["a", "b"], **noise))
    points = {one.delta: one for one in account_report(ledger, "notes").curve}
    assert points[1e-6].promised == pytest.approx(8, rel=1e-3)
    assert points[1e-6].spent == pytest.approx(budget.spent().epsilon)
    for name in ("promised", "spent"):
        values = [getattr(one, name) for one in points.values()]
        along = [value for value in values if value is not None]
        assert along == sorted(along)
        assert 0 < along[0] < along[-1]


def test_what_is_not_covered_has_the_docs_titles() -> None:
    page = Path(__file__).parents[2] / "docs" / "reviewers" / "not-protected.md"
    titles = re.findall(r"^\*\*(.+?)\.?\*\*", page.read_text(), re.MULTILINE)
    template = Path(operate.__file__ or "").with_name("report.html").read_text()
    shown = re.findall(r"^<li><strong>(.+?)\.</strong>", template, re.MULTILINE)
    assert len(shown) > 5
    assert set(shown) <= set(titles)
