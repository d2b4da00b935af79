"""Whether a charge is also where the ledger would be after a failover.

PostgreSQL confirms a commit when it is on the server's own disk. It waits for a standby
too only if `synchronous_standby_names` names some. A standby that nobody waits for lags
behind: when it takes the server's place, it has forgotten the last charges, and what
was spent can be spent again.
"""

from __future__ import annotations

import warnings
from typing import Any

from sqlalchemy import Connection, Engine, event

from langchain_dpicl.errors import LedgerError

_NAMES = "SELECT btrim(current_setting('synchronous_standby_names'))"

# Without rights on statistics a role sees that somebody follows, and nothing of who it
# is. A slot is kept for a standby that is away for a while.
_STANDBYS = """
SELECT EXISTS (SELECT FROM pg_stat_replication)
    OR EXISTS (SELECT FROM pg_replication_slots WHERE slot_type = 'physical')
"""
_FORBIDDEN = "42501"
_GIVEN_UP = "dpicl_given_up"


class StandbyWarning(UserWarning):
    """A standby of the ledger's server may lack the last charges."""


class Standbys:
    """Looks at each server that an engine connects to; messages name the `ledger`.

    A failover ends all connections, so that the next server is looked at too. With
    `required`, a server that waits for no standby is refused.
    """

    def __init__(self, engine: Engine, ledger: str, *, required: bool) -> None:
        self._ledger, self._required = ledger, required
        self._forgotten = False
        event.listen(engine, "connect", self._look)

    def warn(self) -> None:
        """Warn if there is a standby that the server does not wait for."""
        if self._forgotten:
            warnings.warn(
                f"The server of the ledger {self._ledger} has a standby and does not "
                "wait for it: its setting 'synchronous_standby_names' is empty. A "
                "standby that takes its place has forgotten the last charges, and they "
                "can be spent again. Name it in that setting; require_synchronous=True "
                "then refuses a server without.",
                StandbyWarning,
                stacklevel=3,
            )

    def _look(self, connection: Any, record: Any) -> None:
        connection.add_notice_handler(lambda notice: _listen(notice, record))
        if connection.execute(_NAMES).fetchone() != ("",):
            return
        self._forgotten = _may_have_standbys(connection)
        if self._required:
            connection.close()
            raise LedgerError(
                f"The server of the ledger {self._ledger} waits for no standby, and "
                "require_synchronous=True asks for one that does: nothing was charged. "
                "Its setting 'synchronous_standby_names' is empty. Name the standbys "
                "there that may take its place."
            )


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


def _may_have_standbys(connection: Any) -> bool:
    import psycopg

    try:
        return bool(connection.execute(_STANDBYS).fetchone()[0])
    except psycopg.Error as error:
        if error.sqlstate != _FORBIDDEN:
            raise
        # A role that may not see the standbys can't rule them out.
        return True


def _listen(notice: Any, record: Any) -> None:
    # The text is in the server's language.
    if notice.severity_nonlocalized == "WARNING" and notice.sqlstate == "01000":
        record.info[_GIVEN_UP] = True
