"""What a server says of its standbys, and what is made of each answer."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine

from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import StandbyWarning
from langchain_dpicl.ledger.sql import standbys
from langchain_dpicl.ledger.sql.standbys import Standbys, require_confirmed


class Refused(psycopg.Error):
    """What a server raises."""

    def __init__(self, sqlstate: str) -> None:
        self._state = sqlstate
        super().__init__(sqlstate)

    @property
    def sqlstate(self) -> str:  # type: ignore[override] # an attribute of the driver's
        return self._state


class Server:
    """A connection to a server with names of standbys, and standbys."""

    def __init__(self, names: str, *, standby: bool | Refused) -> None:
        self.names, self.standby = names, standby
        self.closed, self.handlers = False, list[Any]()

    def add_notice_handler(self, handler: Any) -> None:
        self.handlers.append(handler)

    def execute(self, statement: str) -> Any:
        if "btrim" in statement:
            return SimpleNamespace(fetchone=lambda: (self.names,))
        if isinstance(self.standby, Refused):
            raise self.standby
        return SimpleNamespace(fetchone=lambda: (self.standby,))

    def close(self) -> None:
        self.closed = True


def standbys_of(*, required: bool) -> Standbys:
    return Standbys(create_engine("sqlite://"), "host/db", required=required)


def warned(found: Standbys) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found.warn()
    assert {one.category for one in caught} <= {StandbyWarning}
    # The warning points two calls further up, at the code that opens a ledger.
    line = opening.__code__.co_firstlineno + 2
    assert {(one.filename, one.lineno) for one in caught} <= {(__file__, line)}
    return [str(one.message) for one in caught]


def opening(found: Standbys) -> list[str]:
    """Warn from one call further down, as a ledger does."""
    return warned(found)


@pytest.mark.parametrize(
    ("names", "standby", "warns"),
    [
        ("", False, False),
        ("", True, True),
        ("", Refused("42501"), True),
        ("one", False, False),
        ("one", True, False),
        ("one", Refused("XX000"), False),
    ],
)
def test_a_standby_that_may_be_there_is_warned_of_unless_it_is_waited_for(
    names: str, standby: bool | Refused, warns: bool
) -> None:
    found, server = standbys_of(required=False), Server(names, standby=standby)
    assert opening(found) == []
    found._look(server, SimpleNamespace(info={}))
    said = opening(found)
    assert len(said) == warns
    assert all("The server of the ledger host/db has a standby" in one for one in said)
    assert not server.closed
    assert len(server.handlers) == 1


def test_another_server_may_be_waited_for_again() -> None:
    found = standbys_of(required=False)
    found._look(Server("", standby=True), SimpleNamespace(info={}))
    found._look(Server("", standby=False), SimpleNamespace(info={}))
    assert opening(found) == []


@pytest.mark.parametrize("standby", [True, False, Refused("42501")])
@pytest.mark.parametrize("names", ["", "one"])
def test_a_server_that_waits_for_none_is_refused_where_it_has_to(
    names: str, standby: bool | Refused
) -> None:
    found, server = standbys_of(required=True), Server(names, standby=standby)
    if names:
        found._look(server, SimpleNamespace(info={}))
        assert not server.closed
        return
    with pytest.raises(LedgerError, match="ledger host/db waits for no standby"):
        found._look(server, SimpleNamespace(info={}))
    assert server.closed


@pytest.mark.parametrize("required", [True, False])
def test_a_server_that_fails_is_no_server_without_standbys(required: bool) -> None:
    with pytest.raises(psycopg.Error):
        standbys_of(required=required)._look(
            Server("", standby=Refused("57014")), SimpleNamespace(info={})
        )


@pytest.mark.parametrize(
    ("severity", "sqlstate", "given_up"),
    [
        ("WARNING", "01000", True),
        ("NOTICE", "01000", False),
        ("WARNING", "01001", False),
        ("NOTICE", "00000", False),
    ],
)
def test_a_wait_that_was_given_up_is_told_once(
    severity: str, sqlstate: str, given_up: bool
) -> None:
    server, record = Server("one", standby=False), SimpleNamespace(info={})
    standbys_of(required=False)._look(server, record)
    server.handlers[0](
        SimpleNamespace(severity_nonlocalized=severity, sqlstate=sqlstate)
    )
    connection: Any = SimpleNamespace(info=record.info)
    if given_up:
        with pytest.raises(LedgerError, match="canceled the wait for a standby"):
            require_confirmed(connection)
    require_confirmed(connection)
    assert record.info == {}
    assert standbys._may_have_standbys(Server("", standby=True)) is True
