"""`dpicl ledger` on accounts of every kind, and on damaged ledgers."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.corpora import FOR_EVER, clock_for, of_month, opened_in, pay
from support.ledgers import FILTERED, PLANNED, UNIT_FILTERED, UNIT_PLANNED, spend

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.accounting import Charge, Gaussian, Parallel
from langchain_dpicl.cli import main
from langchain_dpicl.ledger import AccountTerms, Ledger

KINDS = {
    "plan": PLANNED,
    "filter": FILTERED,
    "units": UNIT_PLANNED,
    "filtered units": UNIT_FILTERED,
}
Run = Callable[..., tuple[int, str]]


def named(name: str) -> AccountTerms:
    return KINDS[name].model_copy(update={"name": name})


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with an account of every kind, each charged three times."""
    path = tmp_path_factory.mktemp("ledgers") / "ledger.db"
    ledger = Ledger(f"sqlite:///{path}")
    for name in KINDS:
        for turn in range(3):
            spend(ledger, named(name), ["p-1", f"p-{turn + 2}"], key=f"{turn}")
    ledger.dispose()
    return path


@pytest.fixture
def url(template: Path, tmp_path: Path) -> str:
    return f"sqlite:///{shutil.copy(template, tmp_path)}"


@pytest.fixture
def run(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    def call(*arguments: str, at: str = url) -> tuple[int, str]:
        monkeypatch.setenv("DPICL_LEDGER", at)
        status = main(["ledger", *arguments])
        found = capsys.readouterr()
        return status, found.out + found.err

    return call


def execute(url: str, statement: str) -> None:
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_every_kind_of_account_is_listed(run: Run) -> None:
    status, text = run("list", "--json")
    rows = {row["account"]: row for row in json.loads(text)}
    assert status == 0
    assert rows.keys() == KINDS.keys()
    for name, row in rows.items():
        terms = KINDS[name]
        assert (row["accounting"], row["scope"]) == (terms.accounting, terms.scope)
        assert (row["queries"], row["queries_spent"]) == (terms.queries, 3)
    # Three queries, of which any unit can have paid for two.
    spent = {name: row["epsilon_spent"] for name, row in rows.items()}
    assert 0 < spent["plan"] < spent["units"] <= 8
    status, text = run("list")
    assert (status, "\N{LESS-THAN OR EQUAL TO}" in text) == (0, True)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_shown_and_exported(run: Run, name: str) -> None:
    status, text = run("show", name)
    assert (status, "gaussian" in text) == (0, True)
    status, text = run("export", name)
    first, *entries = lines(text)
    charges = [entry for entry in entries if entry["kind"] == "charge"]
    assert status == 0
    assert (first["account"], first["epsilon"]) == (name, 8.0)
    assert first["plan"]["unit_key"] == "patient"
    assert [charge["charge"] for charge in charges] == [1, 2, 3]
    assert len({entry["digest"] for entry in entries}) == len(entries)


def test_balances_are_exported_by_tag_and_looked_up_by_id(
    run: Run, tmp_path: Path
) -> None:
    status, text = run("export", "units", "--units")
    shares = {line["tag"]: line["share"] for line in lines(text)}
    assert status == 0
    assert sorted(shares.values()) == [0.5, 0.5, 0.5, 1.0]
    assert "p-1" not in text
    ids = tmp_path / "ids.txt"
    ids.write_text("p-1\n\np-2\nnobody\n", encoding="utf-8")
    found = lines(run("export", "units", "--units", "--id-file", str(ids))[1])
    assert [line["unit"] for line in found] == ["p-1", "p-2", "nobody"]
    assert [line["share"] for line in found] == [1.0, 0.5, 0.0]
    assert shares[found[0]["tag"]] == 1.0
    assert found[2]["tag"] not in shares


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "plan", "--units"], "whole corpus"),
        (["export", "plan", "--id-file", "x"], "--units"),
        (["export", "units", "--units", "--id-file", "missing.txt"], "missing.txt"),
        (["verify", "nobody"], "nobody"),
        (["renew", "plan"], "has no period"),
        (["verify", "--head", "missing.txt"], "missing.txt"),
    ],
)
def test_wrong_arguments_say_what_to_do(
    run: Run, arguments: list[str], message: str
) -> None:
    status, text = run(*arguments, "--json")
    assert status == 1
    assert message in json.loads(text)["message"]


@pytest.mark.parametrize(
    ("edit", "damaged", "message"),
    [
        (
            "DELETE FROM dpicl_entry WHERE book = 3 AND charge = 2 AND step = -1",
            "filter",
            "does not follow",
        ),
        ("UPDATE dpicl_unit SET loss = 1 WHERE loss = 2", "units", "balance"),
        ("DELETE FROM dpicl_book WHERE name = 'plan'", None, "is missing, edited"),
    ],
)
def test_what_is_damaged_is_named_and_hides_nothing_else(
    run: Run, url: str, edit: str, damaged: str | None, message: str
) -> None:
    assert run("verify")[1].count("whole") == 4
    execute(url, edit)
    status, text = run("verify", "--json")
    damage = {row["account"]: row["damage"] for row in json.loads(text)}
    assert status == 1
    assert message in damage.pop(damaged)
    assert any(found is None for found in damage.values())
    assert run("verify", "filtered units")[0] == 0


def test_heads_that_were_kept_show_an_older_copy(
    run: Run, url: str, tmp_path: Path
) -> None:
    older, kept = tmp_path / "older.db", tmp_path / "heads.jsonl"
    assert run("backup", str(older))[0] == 0
    ledger = Ledger(url)
    spend(ledger, named("plan"))
    ledger.dispose()
    status, text = run("list", "--heads")
    assert (status, len(text.splitlines())) == (0, 5)
    kept.write_text(text, encoding="utf-8")
    assert run("verify", "plan", "--head", str(kept))[0] == 0
    older.replace(url.removeprefix("sqlite:///"))
    assert run("verify")[0] == 0
    status, text = run("verify", "--head", str(kept), "--json")
    assert (status, "an older copy of the ledger was put back" in text) == (1, True)
    kept.write_text("no head", encoding="utf-8")
    status, text = run("verify", "--head", str(kept), "--json")
    assert (status, json.loads(text)["error"]) == (1, "InvalidParameterError")


def test_a_ledger_is_created_once(run: Run, tmp_path: Path) -> None:
    new = f"sqlite:///{tmp_path / 'new.db'}"
    status, text = run("list", "--json", at=new)
    assert status == 1
    assert f"dpicl ledger create --ledger {new}" in json.loads(text)["message"]
    assert run("create", at=new) == (0, "Created.\n")
    assert run("list", "--json", at=new) == (0, "[]\n")
    status, text = run("create", "--json", at=new)
    assert (status, "already" in json.loads(text)["message"]) == (1, True)


def test_a_ledger_is_copied_and_nothing_overwritten(run: Run, tmp_path: Path) -> None:
    to = tmp_path / "copy.db"
    assert json.loads(run("backup", str(to), "--json")[1]) == {
        "backup": str(to),
        "accounts_verified": sorted(KINDS),
    }
    status, text = run("backup", str(to), "--json")
    assert (status, "nothing is overwritten" in json.loads(text)["message"]) == (1, 1)


def test_closing_says_so(run: Run) -> None:
    assert run("close", "filter") == (0, "Closed.\n")
    status, text = run("show", "filter", "--json")
    assert (status, json.loads(text)["closed"]) == (0, True)


def test_a_ledger_of_another_version_is_refused(run: Run, url: str) -> None:
    execute(url, "UPDATE dpicl_meta SET schema = 99")
    status, text = run("verify", "--json")
    assert (status, "[99]" in json.loads(text)["message"]) == (1, True)


def test_a_corpus_is_shown_and_its_accounts_are_renewed_until_the_cap(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = clock_for(monkeypatch, "2026-12-10")
    url = f"sqlite:///{tmp_path / 'corpora.db'}"
    ledger = Ledger(url)
    opened_in(ledger)
    opened_in(ledger, of_month("2027", corpus="archive"), FOR_EVER)
    pay(ledger)
    archive, clinic = json.loads(run("list", "--corpora", "--json", at=url)[1])
    assert (archive["accounts"], archive["window_days"]) == ([], None)
    assert (clinic["epsilon"], clinic["epsilon_committed"]) == (24, 8)
    assert clinic["accounts"][0]["account"] == "clinic/2026-12"
    assert clinic["accounts"][0]["counts_until"] == "2028-01-01T00:00:00+00:00"
    assert "within any 365 days" in run("list", "--corpora", at=url)[1]
    found = json.loads(run("renew", "clinic/2026-12", "--json", at=url)[1])
    assert (found["account"], found["opened"]) == ("clinic/2027-01", True)
    assert found["from"] == "2027-01-01T00:00:00+00:00"
    status, text = run("renew", "clinic/2026-12", at=url)
    assert (status, "There is already account 'clinic/2027-01'" in text) == (0, True)
    for month, after in (("2027-01", "2027-02"), ("2027-02", "2027-03")):
        clock.set(f"{month}-10")
        pay(ledger, opened_in(ledger, of_month(month)))
        clock.set(f"{after}-01")
        status, text = run("renew", f"clinic/{month}", "--json", at=url)
    found = json.loads(text)
    assert (status, found["error"]) == (1, "BudgetExhaustedError")
    assert "'dpicl ledger list --corpora' shows" in found["message"]


def test_charges_of_disjoint_classes_can_be_read(run: Run, tmp_path: Path) -> None:
    rare = (Gaussian(noise_multiplier=11.5, sampling_rate=0.93, count=15),)
    others = [(Gaussian(noise_multiplier=1.25 + k),) for k in range(40)]
    event = Parallel(branches=(rare, *others[:1] * 5, *others[1:]), partition="topic")
    url = f"sqlite:///{tmp_path / 'shots.db'}"
    terms = {"accounting": "renyi", "order": 2.0, "delta0_share": 0.25}
    budget = PrivacyBudgetHandler(
        epsilon=40.0, delta=1e-4, ledger=Ledger(url), account="shots", **terms
    )
    with budget.buy(Charge(name="shots", parts=(event,))) as paid:
        paid.once(lambda: "a text")
    budget.ledger.dispose()
    status, text = run("show", "shots", at=url)
    assert status == 0
    assert "45 disjoint classes by 'topic'; the largest counts:" in text
    assert "- gaussian noise_multiplier=11.5 sampling_rate=0.93 count=15" in text
    assert "- gaussian noise_multiplier=1.25 (5 classes)" in text
    assert "- 21 more" in text
    (shown,) = json.loads(run("show", "shots", "--json", at=url)[1])["charges"]
    assert len(shown["events"][0]["branches"]) == 45
