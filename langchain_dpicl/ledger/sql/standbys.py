"""Whether a charge is also where the ledger would be after a failover.

PostgreSQL confirms a commit when it is on the server's own disk. It waits for a standby
too only if `synchronous_standby_names` names some. A standby that nobody waits for lags
behind: when it takes the server's place, it has forgotten the last charges, and what
was spent can be spent again.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, event

from langchain_dpicl.errors import LedgerError

_NAMES = "SELECT btrim(current_setting('synchronous_standby_names'))"
_GIVEN_UP = "dpicl_given_up"


def watch_standbys(engine: Engine, ledger: str, *, required: bool) -> None:
    """Look at each server that an engine connects to; messages name the `ledger`.

    A failover ends all connections, so that the next server is looked at too. With
    `required`, a server that waits for no standby is refused.
    """

    def look(connection: Any, record: Any) -> None:
        connection.add_notice_handler(lambda notice: _listen(notice, record))
        if not required or connection.execute(_NAMES).fetchone() != ("",):
            return
        connection.close()
        raise LedgerError(
            f"The server of the ledger {ledger} waits for no standby, and "
            "require_synchronous=True asks for one that does: nothing was charged. "
            "Its setting 'synchronous_standby_names' is empty. Name the standbys "
            "there that may take its place."
        )

    event.listen(engine, "connect", look)


def require_confirmed(connection: Connection) -> None:
    """Refuse what was committed while the server gave up waiting for a standby.

    Canceling a commit that waits for a standby makes it succeed, with a warning: it is
    on the server's disk, and on no other.
    """
    if connection.info.pop(_GIVEN_UP, False):
        raise LedgerError(
            "Somebody canceled the wait for a standby: what was written is on the "
            "ledger's own server alone, and nothing was released. The charge, if it "
            "was one, stands. Is a standby of 'synchronous_standby_names' running?"
        )


def _listen(notice: Any, record: Any) -> None:
    # The text is in the server's language.
    if notice.severity_nonlocalized == "WARNING" and notice.sqlstate == "01000":
        record.info[_GIVEN_UP] = True
