"""`dpicl ledger` on accounts of every kind, and on damaged ledgers."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.ledgers import (
    FILTERED,
    PLANNED,
    UNIT_FILTERED,
    UNIT_PLANNED,
    opened,
    spend,
)

from langchain_dpicl.budget import charges
from langchain_dpicl.cli import main
from langchain_dpicl.ledger import AccountTerms, Ledger

KINDS = {
    "plan": PLANNED,
    "filter": FILTERED,
    "units": UNIT_PLANNED,
    "filtered units": UNIT_FILTERED,
}


def named(name: str) -> AccountTerms:
    return KINDS[name].model_copy(update={"name": name})


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A ledger with an account of every kind, each charged three times."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    ledger = Ledger(url)
    for name in KINDS:
        for turn in range(3):
            spend(ledger, named(name), ["p-1", f"p-{turn + 2}"], key=f"{turn}")
    ledger.dispose()
    return url


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(url: str, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str]:
        status = main(["ledger", *arguments, "--ledger", url])
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
        assert (row["accounting"], row["scope"]) == (
            KINDS[name].accounting,
            KINDS[name].scope,
        )
        assert row["epsilon_spent"] > 0
        if KINDS[name].accounting != "plan":
            assert row["epsilon_spent"] <= row["epsilon"]
        assert row["queries_spent"] == 3
    assert rows["filter"]["queries"] is None
    # Three queries, of which any unit can have paid for two.
    assert rows["plan"]["epsilon_spent"] < rows["units"]["epsilon_spent"] <= 8
    status, text = run("list")
    assert status == 0
    assert "per unit" in text
    assert "\N{LESS-THAN OR EQUAL TO}" in text


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_shown_and_exported(run: Run, name: str) -> None:
    status, text = run("show", name)
    assert (status, "gaussian" in text) == (0, True)
    status, text = run("export", name)
    first, *entries = lines(text)
    charges = [entry for entry in entries if entry["kind"] == "charge"]
    assert status == 0
    assert first["account"] == name
    assert first["epsilon"] == 8.0
    assert first["accounting"] == KINDS[name].accounting
    assert first["delta0_share"] == KINDS[name].delta0_share
    assert first["plan"]["unit_key"] == "patient"
    assert [charge["charge"] for charge in charges] == [1, 2, 3]
    assert len({entry["digest"] for entry in entries}) == len(entries)
    assert all(charge["body"]["cost"][0] > 0 for charge in charges)


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
    status, text = run("export", "units", "--units", "--id-file", str(ids))
    found = lines(text)
    assert status == 0
    assert [line["unit"] for line in found] == ["p-1", "p-2", "nobody"]
    assert [line["share"] for line in found] == [1.0, 0.5, 0.0]
    assert shares[found[0]["tag"]] == 1.0
    assert found[2]["tag"] not in shares


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["export", "plan", "--units"], "whole corpus"),
        (["export", "plan", "--id-file", "x"], "--units"),
        (["export", "units", "--units", "--id-file", "missing.txt"], "missing.txt"),
        (["verify", "nobody"], "nobody"),
        (["export"], "Name an account"),
    ],
)
def test_wrong_arguments_say_what_to_do(
    run: Run, arguments: list[str], named: str
) -> None:
    status, text = run(*arguments, "--json")
    assert status == 1
    assert named in json.loads(text)["message"]


def test_verify_checks_all_accounts_or_one(run: Run, url: str) -> None:
    status, text = run("verify")
    assert (status, text.count("whole")) == (0, 4)
    execute(
        url,
        "DELETE FROM dpicl_entry WHERE charge = 2 AND step = -1 AND book = "
        "(SELECT id FROM dpicl_book WHERE name = 'filter')",
    )
    status, text = run("verify", "--json")
    damage = {row["account"]: row["damage"] for row in json.loads(text)}
    assert status == 1
    assert "does not follow" in damage.pop("filter")
    assert list(damage.values()) == [None] * 3
    assert run("verify", "plan")[0] == 0
    assert run("verify", "filter")[0] == 1
    assert run("export", "plan")[0] == 0


def test_verify_reads_balances_too(run: Run, url: str) -> None:
    execute(url, "UPDATE dpicl_unit SET loss = 1 WHERE loss = 2")
    status, text = run("verify", "units", "--json")
    assert status == 1
    assert "balance" in json.loads(text)[0]["damage"]


def test_verify_sees_an_account_that_is_gone(run: Run, url: str) -> None:
    execute(url, "DELETE FROM dpicl_book WHERE name = 'plan'")
    status, text = run("verify", "--json")
    *rows, ledger = json.loads(text)
    assert status == 1
    assert [row["damage"] for row in rows] == [None] * 3
    assert ledger["account"] is None
    assert "is missing, edited or new" in ledger["damage"]
    status, text = run("verify")
    assert (status, "(ledger)" in text) == (1, True)


def test_heads_that_were_kept_show_an_older_copy(
    run: Run, url: str, tmp_path: Path
) -> None:
    older, kept = tmp_path / "older.db", tmp_path / "heads.jsonl"
    assert run("backup", str(older))[0] == 0
    ledger = Ledger(url)
    spend(ledger, named("plan"))
    ledger.dispose()
    status, text = run("heads")
    assert (status, len(text.splitlines())) == (0, 5)
    kept.write_text(text, encoding="utf-8")
    assert run("verify", "--head", str(kept))[0] == 0
    assert run("verify", "plan", "--head", str(kept))[0] == 0
    older.replace(url.removeprefix("sqlite:///"))
    assert run("verify")[0] == 0
    status, text = run("verify", "--head", str(kept), "--json")
    assert (status, "an older copy of the ledger was put back" in text) == (1, True)
    kept.write_text("no head", encoding="utf-8")
    status, text = run("verify", "--head", str(kept), "--json")
    assert (status, json.loads(text)["error"]) == (1, "InvalidParameterError")
    assert run("list", "--head", str(kept))[0] == 1


def test_a_ledger_is_created_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"

    def run(*arguments: str, at: str = url) -> tuple[int, str]:
        status = main(["ledger", *arguments, "--ledger", at])
        found = capsys.readouterr()
        return status, found.out + found.err

    status, text = run("list", "--json")
    assert status == 1
    assert f"dpicl ledger create --ledger {url}" in json.loads(text)["message"]
    assert run("create") == (0, "Created.\n")
    assert run("list", "--json") == (0, "[]\n")
    status, text = run("create", "--json")
    assert status == 1
    assert "already" in json.loads(text)["message"]
    status, text = run("create", url, "--json")
    assert (status, "--ledger" in text) == (1, True)
    missing = f"sqlite:///{tmp_path}/missing/new.db"
    status, text = run("create", "--json", at=missing)
    assert status == 1
    assert json.loads(text)["error"] == "LedgerError"
    another = f"sqlite:///{tmp_path / 'another.db'}"
    assert run("create", "--json", at=another) == (0, '{"created": true}\n')


def test_a_ledger_is_copied(run: Run, url: str, tmp_path: Path) -> None:
    to = tmp_path / "copy.db"
    status, text = run("backup", str(to))
    assert (status, "4 accounts verified" in text) == (0, True)
    copy = Ledger(f"sqlite:///{to}", create=False)
    assert copy.accounts() == sorted(KINDS)
    copy.dispose()
    status, text = run("backup", str(to), "--json")
    assert status == 1
    assert "nothing is overwritten" in json.loads(text)["message"]
    status, text = run("backup", str(tmp_path / "another.db"), "--json")
    assert status == 0
    assert json.loads(text)["accounts_verified"] == sorted(KINDS)
    status, text = run("backup", "--json")
    assert (status, "backup TO" in text) == (1, True)


def test_closing_says_so(run: Run) -> None:
    assert run("close", "filter") == (0, "Closed.\n")
    status, text = run("show", "filter", "--json")
    assert (status, json.loads(text)["closed"]) == (0, True)
    assert run("verify", "filter")[0] == 0


@pytest.mark.parametrize("version", [0, 99])
def test_a_ledger_of_another_version_is_refused(
    run: Run, url: str, version: int
) -> None:
    execute(url, f"UPDATE dpicl_meta SET schema = {version}")
    status, text = run("verify", "--json")
    assert (status, f"[{version}]" in json.loads(text)["message"]) == (1, True)


def test_clearing_the_cache_forgets_answers_and_no_draws(url: str, run: Run) -> None:
    ledger = Ledger(url)
    before = [stored.values for stored in charges(ledger, "filter")]
    status, text = run("clear-cache", "filter", "--json")
    assert (status, json.loads(text)) == (0, {"filter": 3})
    status, text = run("clear-cache")
    cleared = "Cleared 9 cached answers; they cost a query again."
    assert (status, text.strip()) == (0, cleared)
    assert [stored.values for stored in charges(ledger, "filter")] == before
    assert spend(ledger, named("filter"), key="0") == 4
    ledger.dispose()
    assert run("verify")[0] == 0


@pytest.mark.parametrize(
    "command", [["ledger", "show"], ["ledger", "verify"], ["report"]]
)
@pytest.mark.parametrize("is_named", [True, False])
def test_the_demos_ledger_is_named_where_none_is_given(
    is_named: bool,
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".demo").mkdir()
    ledger = Ledger("sqlite:///.demo/ledger.db")
    opened(ledger, PLANNED)
    ledger.dispose()
    given = ["--ledger", "sqlite:///.demo/ledger.db"] if is_named else []
    assert main([*command, PLANNED.name, *given, "--json"]) == 0
    printed = capsys.readouterr()
    json.loads(printed.out)
    said = "sqlite:///.demo/ledger.db, the demo's. Name yours: --ledger URL."
    assert (said in printed.err) == (not is_named)
    # A ledger that is not there is named, too.
    monkeypatch.chdir(tmp_path.parent)
    assert main([*command, PLANNED.name]) == 1
    assert said in capsys.readouterr().err
