"""A ledger in a SQL database: SQLite, the embedded default, or PostgreSQL.

A charge is one transaction: lock the account's row, check it against the journal,
count, write the charge, commit. SQLite takes the write lock at the start of it (`BEGIN
IMMEDIATE`) and syncs the disk at its end (`synchronous=EXTRA`), so that neither two
processes nor a power cut can spend a query twice. PostgreSQL locks the row (`SELECT ...
FOR UPDATE`) and syncs whatever its own default says (`synchronous_commit=on`, or what
is stronger); `ledger/sql/standbys.py` looks after its standbys. Whatever the isolation
level, the unique (account, sequence) pair lets only one writer win.

The whole journal of an account is checked before the ledger uses it, and again when its
terms or plan are not those that were checked; each charge after that checks counter,
head and last entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, select

from langchain_dpicl.accounting import Cost
from langchain_dpicl.accounting.events import Event
from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import hash_chain
from langchain_dpicl.ledger.balances import unit_tag
from langchain_dpicl.ledger.base import (
    AccountState,
    AccountTerms,
    Charge,
    ChargeRecord,
    Ledger,
    Plan,
    UnitBalance,
)
from langchain_dpicl.ledger.charging import (
    LastCharges,
    no_standby,
    require_name,
    require_per_unit,
    require_unit_id,
    require_units,
)
from langchain_dpicl.ledger.corpus import (
    CorpusState,
    CorpusTerms,
    require_corpus_terms,
)
from langchain_dpicl.ledger.release_store import Starts, StoredRelease
from langchain_dpicl.ledger.sql import (
    corpus_rows,
    postgres_pipeline,
    release_rows,
    statements,
)
from langchain_dpicl.ledger.sql.creation import open_tables
from langchain_dpicl.ledger.sql.engine import Mode, holds_password, parse_url
from langchain_dpicl.ledger.sql.rows import (
    Account,
    Last,
    Opening,
    bind_salt,
    close_account,
    corpus_of,
    find_account,
    read_account,
    read_events,
    require_account,
    write_charge,
    write_plan,
)
from langchain_dpicl.ledger.sql.schema import account_table, text, whole
from langchain_dpicl.ledger.sql.shared_commits import SharedCommits
from langchain_dpicl.ledger.sql.standbys import watch_standbys
from langchain_dpicl.ledger.sql.transactions import Transactions
from langchain_dpicl.ledger.sql.unit_charging import charge_units
from langchain_dpicl.ledger.sql.verification import (
    add_account,
    lock_registry,
    require_balances,
    require_chain,
    require_registry,
)

_PAGE = 10_000


class SQLLedger(Ledger):
    """Accounts in a SQL database that many threads, processes and hosts share.

    Args:
        url: A SQLAlchemy URL. `sqlite:///clinic.db` is a file beside the program;
            `postgresql+psycopg://user@host/db` a server that several hosts use.
        create: Whether to make a ledger where there is none. A service that says False
            can't begin anew when its ledger is lost or its URL is wrong;
            `dpicl ledger create` makes the ledger once.
        require_synchronous: Whether to refuse a PostgreSQL server that waits for no
            standby, because its setting `synchronous_standby_names` is empty.

    Raises:
        LedgerError: If there is no ledger and `create` is False, the database can't be
            opened, is not a ledger, was written by another version, or waits for no
            standby and `require_synchronous` asks for it.

    Example:
        >>> import tempfile, pathlib
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = pathlib.Path(folder.name, "clinic.db")
        >>> ledger = SQLLedger(f"sqlite:///{path}")
        >>> ledger.open(AccountTerms("notes", 8.0, 1e-6, 20)).used
        0
        >>> ledger.dispose()
        >>> folder.cleanup()
    """

    def __init__(
        self,
        url: str | URL,
        *,
        create: bool = True,
        require_synchronous: bool = False,
    ) -> None:
        parsed = parse_url(url)
        self.require_synchronous = require_synchronous
        # Accounts whose journal was found whole, from these terms and this plan on.
        self._checked: dict[str, Opening] = {}
        self._last = LastCharges()
        self._database = Transactions(parsed)
        self._commits = SharedCommits(
            partial(self._database.run, mode=Mode.CHARGE), self._database.unusable
        )
        engine = self._database.engine
        if engine.dialect.name == "postgresql":
            watch_standbys(engine, self._database.name, required=require_synchronous)
        elif require_synchronous:
            raise no_standby("A SQLite file")
        try:
            open_tables(self._database, create=create)
        except LedgerError:
            self._database.engine.dispose()
            raise

    def __repr__(self) -> str:
        return f"SQLLedger({self._database.name!r})"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # The password travels in a pickle of a ledger no more than in its repr.
        if holds_password(self._database.engine.url):
            raise LedgerError(
                "A ledger with a password in its URL is not pickled: build it anew in "
                "the other process."
            )
        # It is there: the other process must not begin a new one.
        again = partial(
            SQLLedger, create=False, require_synchronous=self.require_synchronous
        )
        return (again, (self._database.name,))

    @property
    def path(self) -> Path | None:
        """The file of a SQLite ledger; None for a database server's."""
        return self._database.file.path if self._database.file else None

    def dispose(self) -> None:
        """Close all pooled connections; the ledger stays usable."""
        self._database.engine.dispose()

    def open(self, terms: AccountTerms) -> AccountState:
        """Open an account, or find it open under the same terms; check its journal."""
        name = require_name(terms.name)
        require_corpus_terms(terms)

        def find(connection: Connection) -> AccountState | None:
            account = find_account(connection, name)
            return None if account is None else self._whole(connection, account)

        def create(connection: Connection) -> AccountState:
            lock_registry(connection)
            if find_account(connection, name) is None:
                add_account(connection, terms)
            # Locked: another process may charge it between the row and its journal.
            account, _ = read_account(connection, name, lock=True)
            return self._whole(connection, account)

        state = self._database.run(find, mode=Mode.READ) or self._database.run(create)
        terms.require_same(state.terms)
        return state

    def create_corpus(self, terms: CorpusTerms) -> CorpusState:
        """Create a corpus with its cap, or find it with the same terms."""

        def create(connection: Connection) -> CorpusState:
            lock_registry(connection)
            if corpus_rows.find_corpus(connection, terms.name) is None:
                corpus_rows.write_corpus(connection, terms)
            return corpus_rows.corpus_state(connection, terms.name)

        found = self._database.run(create)
        terms.require_same(found.terms)
        return found

    def corpora(self) -> list[str]:
        """Return the names of all corpora, sorted."""
        return sorted(self._database.run(corpus_rows.read_corpora, mode=Mode.READ))

    def corpus(self, name: str) -> CorpusState:
        """Return a corpus, with its accounts and the ledger's time."""
        return self._database.run(
            lambda connection: corpus_rows.corpus_state(connection, name),
            mode=Mode.READ,
        )

    def bind_salt(self, name: str, fingerprint: str) -> None:
        """Bind a per-unit account to the salt with a fingerprint, once."""
        self._check_first(name)
        self._database.run(
            lambda connection: bind_salt(
                connection, *self._locked(connection, name), fingerprint
            )
        )

    def fix_plan(self, name: str, plan: Plan) -> Plan:
        """Store the plan unless one is stored; return the one that holds."""

        def fix(connection: Connection) -> Plan:
            account, _ = self._locked(connection, name)
            if account.state.plan is None:
                if (corpus := account.state.terms.corpus) is not None:
                    found = corpus_rows.require_corpus(connection, corpus)
                    found.terms.require_unit(name, plan)
                write_plan(connection, account, plan)
                account, _ = self._locked(connection, name)
            if account.state.plan is None:
                raise LedgerError("The ledger did not store the plan.")
            return account.state.plan

        self._check_first(name)
        return self._database.run(fix)

    def charge(
        self,
        name: str,
        events: Sequence[Event] | None = None,
        *,
        starts: Starts | None = None,
    ) -> Charge:
        """Charge one release; the charge is on disk when this returns."""
        self._check_first(name)
        before = self._last.before(name)

        def write(connection: Connection) -> Charge:
            held = self._with_room(connection, name)
            charge = write_charge(connection, *held, events)
            if starts is not None:
                account, last = self._locked(connection, name)
                kind, header = starts[0], starts[1](charge)
                release_rows.start_release(
                    connection, account, last, charge.sequence, kind, header
                )
            return charge

        def write_quickly(
            connection: Connection, begun: Callable[[], None]
        ) -> Charge | None:
            return postgres_pipeline.charge(
                connection, name, self._checked[name], events, begun
            )

        if self._database.engine.dialect.name == "sqlite":
            charge = self._commits.charge(write)
        else:
            # Each alone: the server's own commits wait for the disk together.
            quick = None if starts else self._database.attempt(write_quickly)
            charge = quick or self._database.run(write, mode=Mode.CHARGE)
        self._last.require_later(charge, before)
        return charge

    def charge_units(self, charge: Charge, unit_ids: Sequence[str]) -> list[bool]:
        """Charge every unit that can pay, on disk; say which ones did."""
        self._check_first(charge.account)

        def write(connection: Connection) -> list[bool]:
            account, last = self._locked(connection, charge.account)
            require_units(account.state, unit_ids)
            return charge_units(connection, account, last, charge, unit_ids)

        return self._database.run(write, mode=Mode.CHARGE)

    def state(self, name: str) -> AccountState:
        """Return an account's state."""

        def read(connection: Connection) -> AccountState:
            account, _ = read_account(connection, name)
            if self._checked.get(name, account.opening) != account.opening:
                # Edited since: its head alone does not show that.
                self._whole(connection, account)
            return corpus_rows.timed(connection, account.state, keep=False)

        return self._database.run(read, mode=Mode.READ)

    def close_account(self, name: str) -> None:
        """Close an account for good."""
        self._check_first(name)
        self._database.run(
            lambda connection: close_account(connection, *self._timed(connection, name))
        )

    def verify(self, name: str) -> AccountState:
        """Check an account from its terms to its last charge, and all balances."""

        def check(connection: Connection) -> AccountState:
            account = require_account(connection, name)
            self._whole(connection, account)
            require_balances(connection, account)
            return account.state

        return self._database.run(check, mode=Mode.READ)

    def verify_accounts(self) -> None:
        """Check that the accounts are those that were opened.

        Raises:
            LedgerError: If one of them was deleted, renamed, edited or added.
        """
        self._database.run(require_registry, mode=Mode.READ)

    def accounts(self) -> list[str]:
        """Return the names of all accounts, sorted."""
        return self._database.run(
            lambda connection: sorted(
                connection.execute(select(account_table.c.name)).scalars()
            ),
            mode=Mode.READ,
        )

    def charges(self, name: str) -> list[ChargeRecord]:
        """Return an account's charges, oldest first."""

        def read(connection: Connection) -> list[ChargeRecord]:
            account, _ = read_account(connection, name)
            rows = connection.execute(statements.JOURNAL, {"number": account.number})
            return [
                ChargeRecord(
                    Charge(
                        name,
                        whole(row.sequence),
                        read_events(row.events),
                        Cost(whole(row.cost_loss), whole(row.cost_failure)),
                    ),
                    hash_chain.utc(row.charged_at),
                    text(row.digest),
                )
                for row in rows
            ]

        return self._database.run(read, mode=Mode.READ)

    def unit_balances(self, name: str) -> Iterator[UnitBalance]:
        """Yield what each unit has spent, by tag: private, for an operator's export.

        The balances are read in pages; those charged meanwhile may show either value.
        """
        after = b""

        def read(connection: Connection) -> list[UnitBalance]:
            account, _ = read_account(connection, name)
            rows = connection.execute(
                statements.BALANCES_PAGE,
                {"number": account.number, "after": after, "size": _PAGE},
            )
            return [
                UnitBalance(tag.hex(), Cost(whole(loss), whole(failure)))
                for tag, loss, failure in rows
            ]

        while page := self._database.run(read, mode=Mode.READ):
            # One row stands for nobody, and has spent nothing.
            yield from (balance for balance in page if any(balance.spent))
            after = bytes.fromhex(page[-1].tag)

    def unit_tag(self, name: str, unit_id: str | int) -> str:
        """Return the tag under which a per-unit account keeps a unit: private."""
        known_as = require_unit_id(unit_id)

        def find(connection: Connection) -> str:
            account, _ = read_account(connection, name)
            require_per_unit(account.state)
            return unit_tag(account.unit_key or b"", known_as).hex()

        return self._database.run(find, mode=Mode.READ)

    def start_release(self, name: str, charge: int, kind: str, header: str) -> None:
        """Store the header of the release that a charge pays for; on disk, once."""
        self._check_first(name)

        def start(connection: Connection) -> None:
            release_rows.start_release(
                connection, *self._locked(connection, name), charge, kind, header
            )

        self._database.run(start)

    def store_step(self, name: str, charge: int, number: int, drawn: str) -> str:
        """Store what a step drew, on disk; return the first draw that was stored."""
        self._check_first(name)
        self._last.before(name)

        def store(connection: Connection) -> str:
            held = self._locked(connection, name)
            return release_rows.store_step(
                connection, *held, charge, number, drawn, known=self._last
            )

        # Not `Mode.CHARGE`: nobody may see, and give out, a draw that is not on disk.
        stored = self._database.run(store)
        self._last.note_drawn(name, charge, number + 1)
        return stored

    def releases(self, name: str, kind: str | None = None) -> list[StoredRelease]:
        """Return an account's releases of one kind, by the order of their charges."""

        def read(connection: Connection) -> list[StoredRelease]:
            account, _ = read_account(connection, name)
            found = release_rows.stored(connection, account)
            return [release for release in found if kind in (None, release.kind)]

        return self._database.run(read, mode=Mode.READ)

    def _check_first(self, name: str) -> None:
        """Check a journal before its account's row is locked: it may be long."""
        if name not in self._checked:
            self._database.run(
                lambda connection: self._whole(
                    connection, require_account(connection, name)
                ),
                mode=Mode.READ,
            )

    def _locked(self, connection: Connection, name: str) -> tuple[Account, Last]:
        """Lock an account's row; return the account if it can be trusted."""
        account, last = read_account(connection, name, lock=True)
        if self._checked.get(name) != account.opening:
            self._whole(connection, account)
        return account, last

    def _timed(self, connection: Connection, name: str) -> tuple[Account, Last]:
        """Lock an account, and its corpus, whose time it is given."""
        account, last = self._locked(connection, name)
        state = corpus_rows.timed(connection, account.state, keep=True)
        return replace(account, state=state), last

    def _with_room(self, connection: Connection, name: str) -> tuple[Account, Last]:
        """Lock an account for a charge; its first one needs room under the cap."""
        corpus = corpus_of(self._checked[name])
        if corpus is None:
            return self._locked(connection, name)
        if not require_account(connection, name).state.used:
            # Before the account's row, as where accounts are opened.
            lock_registry(connection)
            require_registry(connection)
        account, last = self._timed(connection, name)
        if not account.state.used:
            # Its row is locked: no other account of it is charged meanwhile.
            found = corpus_rows.corpus_state(connection, corpus)
            found.require_room_for_first(account.state)
        return account, last

    def _whole(self, connection: Connection, account: Account) -> AccountState:
        require_chain(connection, account)
        self._checked[account.state.terms.name] = account.opening
        return account.state
