"""URLs with passwords, well written and not: what was a password is never shown."""

from __future__ import annotations

import logging
import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, make_url

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.cli import main
from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import SQLLedger
from langchain_dpicl.ledger.sql.transactions import Transactions

WRONG = [
    "postgresql://ann:first@second/third@host/db",
    "postgresql+psycopg://ann:first@second@host/db",
    "postgresql://ann:first@second?third@host/db",
    "postgresql://ann:first@second#third@host:5432/db",
    "postgresql://ann:first@second:third@host/db",
    "postgresql://ann:first@host:second/db",
    "mysql://ann:first@second/third@host/db",
    "sqlite://ann:first@second/third@host/db",
    "sqlite://ann:first@/clinic.db",
    "postgresql+nosuch://ann:first@second/third@host/db",
]
RIGHT = [
    "postgresql://ann:first@127.0.0.1:1/db",
    "postgresql://ann:first%40second%2Fthird@127.0.0.1:1/db",
    "postgresql://ann:first/second#third?x@127.0.0.1:1/db",
    "postgresql://127.0.0.1:1/db?user=ann&password=first",
    "postgresql://ann@127.0.0.1:1/db?sslpassword=first&password=second",
]


def everything(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error)


def use_handler(url: str) -> Any:
    return PrivacyBudgetHandler(epsilon=8, delta=1e-6, queries=2, ledger=url)


@pytest.mark.parametrize("use", [SQLLedger, use_handler])
@pytest.mark.parametrize("url", WRONG + RIGHT)
def test_no_part_of_a_password_is_in_an_error(
    url: str, use: Any, caplog: pytest.LogCaptureFixture, capsys: Any
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(LedgerError) as caught:
        use(url)
    told = everything(caught.value) + caplog.text + "".join(capsys.readouterr())
    # The traceback's own line of this file names the argument, not its value.
    assert not [word for word in ("first", "second", "third") if word in told]


@pytest.mark.parametrize("url", WRONG + RIGHT)
@pytest.mark.parametrize("command", ["verify", "create"])
def test_the_command_line_does_not_print_it_either(
    url: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ledger", command, "--ledger", url]) == 1
    told = "".join(capsys.readouterr())
    assert told
    assert not [word for word in ("first", "second", "third") if word in told]


@pytest.mark.parametrize("url", RIGHT)
def test_a_password_does_not_travel(url: str) -> None:
    ledger = SQLLedger.__new__(SQLLedger)
    ledger._database = Transactions(make_url(url))
    with pytest.raises(LedgerError, match="password"):
        pickle.dumps(ledger)
    assert "first" not in repr(ledger)


def test_what_is_no_url_is_refused() -> None:
    for url in (None, 5, b"sqlite:///x.db", "", "x", "://", "sqlite:/x.db", ["x"]):
        with pytest.raises(LedgerError):
            SQLLedger(url)  # type: ignore[arg-type] # what is tested


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    for name in ("a@b@c.db", "a b.db", "ü.db"):
        ledger = SQLLedger(f"sqlite:///{tmp_path / name}")
        assert ledger.accounts() == []
        ledger.dispose()
    ledger = SQLLedger(URL.create("sqlite", database=str(tmp_path / "a@b@c.db")))
    assert str(tmp_path / "a") in repr(ledger)
    ledger.dispose()
