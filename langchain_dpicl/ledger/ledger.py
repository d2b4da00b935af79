"""The ledger: accounts in a database that threads, processes and hosts share.

Promises:
    * *Durable before noise.* A charge returns when it would survive this process.
    * *Never overspent.* Constraints of the database hold the limits.
    * *One charge, one draw.* Each charge, and each step of it, is written once.
    * *Fixed before the first use.* Terms and plans are written once and never change.
    * *Flat cost.* A charge, a draw and a look-up read a fixed number of rows by index.
    * *Fail closed.* What does not fit together raises, and nothing is charged. When a
      connection breaks while it commits, nobody knows whether it did: that raises, too.
      Losing budget is allowed, losing a charge is not.
    * *No refunds, no private text.* A charge is never taken back. Books hold public
      values only. Balances of units are private: see `ledger/units.py`.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from langchain_dpicl._version import __version__
from langchain_dpicl.accounting import Cost
from langchain_dpicl.errors import DPError, LedgerError
from langchain_dpicl.ledger import engine as engines
from langchain_dpicl.ledger.book import (
    APPLICATION_ID,
    EARLIER_TABLE,
    SCHEMA,
    Book,
    Transaction,
    book_table,
    entry_table,
    head_of,
    meta_table,
    metadata,
    reads,
    unit_table,
    writes,
)
from langchain_dpicl.ledger.corpus import CorpusState, CorpusTerms, renewed
from langchain_dpicl.ledger.engine import LedgerFile
from langchain_dpicl.ledger.terms import (
    NO_LIMIT,
    AccountTerms,
    Head,
    canonical,
    dump,
    require_same,
)
from langchain_dpicl.ledger.units import UnitBalance, tag_of
from langchain_dpicl.ledger.verify import require_head, verify_book, verify_ledger
from langchain_dpicl.mechanisms.random import durable_ledger_opened

_T = TypeVar("_T")
_PAGE = 1_000
_b, _e, _u = book_table.c, entry_table.c, unit_table.c
# What comes of a value that no ledger wrote: only an edit puts it there.
_UNREADABLE = (
    *(TypeError, ValueError, LookupError, AttributeError),
    *(ArithmeticError, RecursionError, MemoryError),
)
_abandoned: list[Any] = []
"""Pools of a parent process, which owns their connections: kept, and never closed."""


class Ledger:
    """Accounts in a SQL database that many threads, processes and hosts share.

    Args:
        url: A SQLAlchemy URL: `sqlite:///clinic.db` is a file beside the program,
            `postgresql+psycopg://user@host/db` a server that several hosts use. Or
            `":memory:"`, a database of its own for this object, which ends with it, and
            which a forked process is refused.
        create: Whether to make a ledger where there is none. A service that says False
            can't begin anew when its ledger is lost or its URL is wrong;
            `dpicl ledger create` makes the ledger once.
        require_synchronous: Whether to refuse a PostgreSQL server that waits for no
            standby, because its setting `synchronous_standby_names` is empty.

    Raises:
        LedgerError: If there is no ledger and `create` is False, the database can't be
            opened, is not a ledger, was written by another version, or waits for no
            standby and `require_synchronous` asks for it. Every method raises it if
            the ledger can't be used or trusted, or has no such account.

    Example:
        >>> ledger = Ledger(":memory:")
        >>> terms = AccountTerms(name="notes", epsilon=8, delta=1e-6, queries=20)
        >>> ledger.open(terms).used
        0
    """

    def __init__(
        self,
        url: str | URL,
        *,
        create: bool = True,
        require_synchronous: bool = False,
    ) -> None:
        self.require_synchronous = require_synchronous
        self._pid = os.getpid()
        self._seen: dict[int, Head] = {}
        self._file: LedgerFile | None = None
        # In memory there is one connection: what one thread rolls back must be its
        # alone. Writers of a file would only find each other by asking again.
        self._lock = threading.Lock()
        self._url = None if url == engines.IN_MEMORY else engines.read_url(url)
        self._name = engines.shown(self._url) if self._url else engines.IN_MEMORY
        if self._url is None:
            self._engine = engines.sqlite_engine(None)
        elif self._url.get_backend_name() == "sqlite":
            self._file = LedgerFile(self._url)
            self._engine = engines.sqlite_engine(self._file)
        else:
            self._engine = engines.postgres_engine(
                self._url, require_synchronous=require_synchronous
            )
        if require_synchronous and self._engine.dialect.name == "sqlite":
            raise LedgerError(
                "A SQLite ledger has no standby, and require_synchronous=True asks for "
                "one. Use a PostgreSQL ledger, or leave it out."
            )
        if self._url is not None:
            durable_ledger_opened()
        driver: Any = self._engine.dialect.loaded_dbapi
        self._failures = (SQLAlchemyError, driver.Error, OSError, *_UNREADABLE)
        # A ledger that goes out of use must not leave open connections behind.
        weakref.finalize(self, _dispose, self._engine, self._pid)
        try:
            self._open_tables(create=create)
        except LedgerError:
            self._engine.dispose()
            raise
        if self._url is not None:
            durable_ledger_opened()

    def __repr__(self) -> str:
        return f"Ledger({self._name!r})"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if self._url is None:
            raise LedgerError("A ledger in memory ends with its process: name a file.")
        # The password travels in a pickle of a ledger no more than in its repr.
        if engines.holds_password(self._url):
            raise LedgerError(
                "A ledger with a password in its URL is not pickled: build it anew in "
                "the other process."
            )
        # It is there: the other process must not begin a new one.
        again = partial(
            Ledger, create=False, require_synchronous=self.require_synchronous
        )
        return again, (self._name,)

    @property
    def ledger(self) -> Ledger:
        """Itself: what `reads` and `writes` run their transactions in."""
        return self

    @property
    def path(self) -> Path | None:
        """The file of a SQLite ledger; None in memory, and for a database server's."""
        return self._file.path if self._file else None

    def dispose(self) -> None:
        """Close all pooled connections; the ledger stays usable."""
        if self._url is not None:
            self._engine.dispose()

    # ---- Transactions ----------------------------------------------------------------

    def run(self, work: Callable[[Transaction], _T], *, writes: bool = True) -> _T:
        """Run `work` in one transaction; what it has written is durable after it.

        Args:
            work: Takes the transaction. It runs once.
            writes: Whether it may write. A transaction that only reads sees one state
                of the database, and holds up nobody.

        Raises:
            LedgerError: If the database fails in any way. Nothing was written then, or
                nobody knows whether it was.
            DPError: What `work` raises; nothing was written.
        """
        failure = ""
        try:
            with self._connected(writes=writes) as connection:
                with connection.begin():
                    transaction = Transaction(connection, self._seen, writes=writes)
                    result = work(transaction)
                engines.require_confirmed(connection)
            if writes and self._file is not None:
                # What was written is worth nothing in a file that others don't find.
                self._file.require()
        except DPError:
            raise
        except self._failures as error:
            failure = type(getattr(error, "orig", None) or error).__name__
        if failure:
            # Outside the handler: a driver's message can hold values and passwords.
            raise LedgerError(
                f"The ledger {self._name} can't be used ({failure}); nothing was "
                "released. Check that the database is up, that its folder exists and "
                "can be written, and that the file is a ledger that nobody has edited."
            )
        for book in transaction.appended:
            known = self._seen.get(book.id)
            if known is None or known.entries < book.entries:
                self._seen[book.id] = head_of(book)
        return result

    @contextmanager
    def _connected(self, *, writes: bool) -> Iterator[Connection]:
        in_memory = self._url is None
        if os.getpid() != self._pid:
            if in_memory:
                raise LedgerError(
                    "A ledger in memory does not live on after a fork: name a file, or "
                    "make it in the process that uses it."
                )
            _abandoned.append(self._engine.pool)
            self._engine.dispose(close=False)
            self._lock, self._pid = threading.Lock(), os.getpid()
        lock = self._lock if in_memory or (writes and self._file) else None
        # With a limit: a transaction inside another one is an error, and not the end.
        if lock and not lock.acquire(timeout=engines.WAIT_SECONDS):
            raise LedgerError(f"The ledger {self._name} is busy: nothing was released.")
        try:
            with self._engine.connect() as connection:
                yield engines.set_writes(connection, writes=writes)
        finally:
            if lock:
                lock.release()

    # ---- Accounts --------------------------------------------------------------------

    def open(self, terms: AccountTerms, corpus: CorpusTerms | None = None) -> Book:
        """Open an account, or find it open under the same terms.

        Args:
            terms: What the account promises.
            corpus: The terms of its corpus, which is made if it is not there.

        Raises:
            PlanMismatchError: If the account, or its corpus, is there with other terms.
            BudgetExhaustedError: If the cap of its corpus has no room for it, or its
                period is over.
            LedgerError: If the ledger can't be used, has no such corpus, or is damaged.
        """
        book = self.run(partial(_find, terms=terms, corpus=corpus), writes=False)
        return book or self._opened(terms, corpus)

    @reads
    def state(self, transaction: Transaction, name: str) -> Book:
        """Return an account's book: what was charged, and whether it is closed."""
        return transaction.load("account", name)

    def accounts(self) -> list[str]:
        """Return the names of all accounts, sorted."""
        return self._names("account")

    def corpora(self) -> list[str]:
        """Return the names of all corpora, sorted."""
        return self._names("corpus")

    @reads
    def corpus(self, transaction: Transaction, name: str) -> CorpusState:
        """Return a corpus, with its accounts and the ledger's time."""
        return transaction.state_of(transaction.load("corpus", name))

    @writes
    def close_account(self, transaction: Transaction, name: str) -> None:
        """Close an account for good: it pays for nothing any more."""
        book = transaction.load("account", name, "alone")
        if book.is_open:
            at = transaction.now(book)
            if (corpus := book.account.corpus) is not None:
                held = transaction.load("corpus", corpus, "shared")
                at = transaction.state_of(held).at
            transaction.append(book, "closed", {}, at=at, closed_at=at)

    def renew(self, name: str) -> Book:
        """Open the account of the next period that is not over, on the same terms.

        Returns:
            That account, which may be open already.

        Raises:
            InvalidParameterError: If the account has no period.
            BudgetExhaustedError: If the cap of its corpus has no room.
            LedgerError: If the ledger can't be used or has no such account.
        """
        terms = self.state(name).account
        at = 0 if terms.corpus is None else self.corpus(terms.corpus).at
        return self.open(renewed(terms, at))

    # ---- For the operator ------------------------------------------------------------

    def entries(self, name: str, kind: str = "account") -> Iterator[dict[str, Any]]:
        """Yield the entries of a book, oldest first: what happened, with digests.

        Args:
            name: The account's name, or a corpus's.
            kind: `account`, `corpus`, or `ledger` (named "ledger").
        """

        def read(transaction: Transaction) -> list[dict[str, Any]]:
            book = transaction.load(kind, name)
            return transaction.read(book, _e.number > after, _e.number <= after + _PAGE)

        after = 0
        while page := self.run(read, writes=False):
            for row in page:
                after = row["number"]
                yield {**row, "body": json.loads(row["body"])}

    @reads
    def heads(self, transaction: Transaction) -> list[Head]:
        """Return the heads of all books, to be kept elsewhere; see `verify`."""
        rows = transaction.execute(sa.select(_b.kind, _b.name).order_by(_b.id)).all()
        return [head_of(transaction.load(kind, name)) for kind, name in rows]

    def verify(self, name: str | None = None, *, heads: Iterable[Head] = ()) -> int:
        """Check all books, or one account's, from the first entry on.

        Args:
            name: An account; None is the whole ledger.
            heads: What `heads` returned before. A ledger that does not go on from there
                was rewritten, or is an older copy that was put back.

        Returns:
            The number of entries that were checked.

        Raises:
            LedgerError: If something was edited, deleted or added, or the ledger does
                not go on from one of the heads.
        """
        kept = list(heads)

        def check(transaction: Transaction) -> int:
            if name is None:
                return verify_ledger(transaction, kept)
            book = transaction.load("account", name)
            verify_book(transaction, book)
            for head in kept:
                require_head(transaction, head)
            return book.entries

        return self.run(check, writes=False)

    def unit_balances(self, name: str) -> Iterator[UnitBalance]:
        """Yield what each unit has spent, by tag: private, for an operator's export.

        The balances are read in pages; those charged meanwhile may show either value.
        """

        def read(transaction: Transaction) -> list[Any]:
            book = transaction.load("account", name)
            rows = sa.select(_u.tag, _u.loss, _u.failure).where(
                _u.book == book.id, _u.tag > after
            )
            return [*transaction.execute(rows.order_by(_u.tag).limit(_PAGE))]

        after = ""
        while page := self.run(read, writes=False):
            for tag, loss, failure in page:
                yield UnitBalance(str(tag), Cost(loss, failure))
            after = str(page[-1][0])

    @reads
    def unit_tag(self, transaction: Transaction, name: str, unit_id: str | int) -> str:
        """Return the tag under which a per-unit account keeps a unit: private."""
        return tag_of(transaction.load("account", name), unit_id)

    # ---- Opening ---------------------------------------------------------------------

    @reads
    def _names(self, transaction: Transaction, kind: str) -> list[str]:
        rows = transaction.execute(sa.select(_b.name).where(_b.kind == kind))
        return sorted(rows.scalars())

    @writes
    def _opened(
        self, transaction: Transaction, terms: AccountTerms, corpus: CorpusTerms | None
    ) -> Book:
        root = transaction.load("ledger", "ledger", "alone")
        book = _find(transaction, terms, corpus)
        if book is not None:
            return book  # Somebody was faster.
        parents, at = [root], transaction.now()
        if terms.corpus is not None:
            parents.append(self._corpus_for(transaction, root, terms, corpus))
            parents[0] = transaction.load("ledger", "ledger")
            state = transaction.state_of(parents[1])
            at = state.at
            state.require_opening(terms)
        most, unit_key = terms.limit, ""
        if terms.scope == "unit":
            # Each unit has the limit, where it is charged.
            most, unit_key = Cost(NO_LIMIT, NO_LIMIT), secrets.token_hex(32)
        return transaction.open(
            parents,
            at,
            kind="account",
            name=terms.name,
            terms=canonical(terms),
            parent=parents[1].id if parents[1:] else None,
            most_loss=most.loss,
            most_failure=most.failure,
            unit_key=unit_key,
        )

    @staticmethod
    def _corpus_for(
        transaction: Transaction,
        root: Book,
        terms: AccountTerms,
        corpus: CorpusTerms | None,
    ) -> Book:
        """Lock an account's corpus, or make it."""
        held = transaction.find("corpus", str(terms.corpus), "alone")
        if held is None:
            if corpus is None or corpus.name != terms.corpus:
                raise LedgerError(
                    f"The ledger holds no corpus {terms.corpus!r}. Is the name right "
                    "('dpicl ledger list --corpora' shows them)? "
                    "corpus=CorpusTerms(...) creates one with its cap."
                )
            values = {"name": corpus.name, "terms": canonical(corpus)}
            at = transaction.now()
            return transaction.open([root], at, kind="corpus", **values)
        if corpus is not None:
            require_same(corpus, held.terms)
        return held

    def _open_tables(self, *, create: bool) -> None:
        """Find the tables of this version, or make them where none are if `create`."""
        file, failure = self._file, ""
        try:
            if file is not None and not file.exists():
                if not create:
                    raise self._no_ledger()
                _create_file(file)
        except (OSError, SQLAlchemyError, sqlite3.Error) as error:
            failure = type(error).__name__
        if failure:
            raise LedgerError(
                f"No ledger can be made at {self._name} ({failure}): is there a "
                "folder, and room in it?"
            )
        if self._url is None:
            self.run(_make)
        elif not self.run(self._has_tables, writes=False):
            if file is not None:
                raise LedgerError(
                    f"The ledger's file {file.path} has no tables: it was emptied, or "
                    "never was a ledger. Restore it from a backup; delete it only if "
                    "there never was a ledger at this place."
                )
            if not create:
                raise self._no_ledger()
            self.run(_make)

    def _has_tables(self, transaction: Transaction) -> bool:
        """Return whether the tables of this version are there; refuse others."""
        connection = transaction.connection
        tables = set(sa.inspect(connection).get_table_names())
        if EARLIER_TABLE in tables:
            raise LedgerError(
                f"The ledger {self._name} was written by an earlier version of "
                "langchain-dpicl, which kept it in other tables; it was left as it is. "
                "What it has charged stays charged: keep the file, ask it with the "
                "version that wrote it ('dpicl ledger export'), and name another URL "
                "for new accounts. For the people in both, the promises add up."
            )
        if connection.dialect.name == "sqlite" and tables:
            number = connection.exec_driver_sql("PRAGMA application_id").scalar()
            if number != APPLICATION_ID:
                raise LedgerError(
                    "The SQLite file is not a privacy ledger but some other database. "
                    "Name a file of its own."
                )
        if meta_table.name not in tables:
            return False
        versions = list(transaction.execute(sa.select(meta_table.c.schema)).scalars())
        if versions != [SCHEMA]:
            raise LedgerError(
                f"The ledger {self._name} has the schema {versions}, and this version "
                f"of langchain-dpicl knows {SCHEMA}. Use the version that wrote it."
            )
        if set(metadata.tables) - tables:
            raise LedgerError("The ledger is damaged: tables are missing. Restore it.")
        return True

    def _no_ledger(self) -> LedgerError:
        return LedgerError(
            f"There is no ledger at {self._name}. Is the URL right? If one was there, "
            "it was deleted or moved: restore it, for a new one would forget its "
            f"charges. If none ever was, 'dpicl ledger create --ledger {self._name}' "
            "makes one."
        )


def open_ledger(
    ledger: object, *, create: bool = True, require_synchronous: bool = False
) -> Ledger:
    """Return the ledger that a `ledger=` argument names, ready for use.

    Args:
        ledger: A `Ledger`; a SQLAlchemy URL such as `"sqlite:///clinic.db"` or
            `"postgresql+psycopg://user@host/db"`; or `":memory:"`.
        create: Whether to make a ledger where the URL names none.
        require_synchronous: Whether to refuse a ledger that waits for no standby.

    Raises:
        LedgerError: If it is none of these, can't be opened, is not there and must not
            be made, or waits for no standby and `require_synchronous` asks for it.

    Example:
        >>> open_ledger(":memory:")
        Ledger(':memory:')
    """
    if isinstance(ledger, Ledger):
        if require_synchronous and not ledger.require_synchronous:
            raise LedgerError(
                "require_synchronous=True is for a URL. A ledger that is open already "
                "takes it itself: Ledger(url, require_synchronous=True)."
            )
        return ledger
    if ledger == engines.IN_MEMORY and not create:
        raise LedgerError(
            "create=False asks for a ledger that is there, and ':memory:' always "
            "begins from nothing. Name the ledger's URL."
        )
    if isinstance(ledger, URL) or (
        isinstance(ledger, str) and (ledger == engines.IN_MEMORY or "://" in ledger)
    ):
        return Ledger(ledger, create=create, require_synchronous=require_synchronous)
    raise LedgerError(
        "ledger must be a SQLAlchemy URL such as 'sqlite:///clinic.db', a Ledger, or "
        "':memory:' for an account that ends with this process. There is no default: "
        "where charges are kept decides what the guarantee is worth."
    )


def new_ledger(url: str) -> None:
    """Make a ledger where there is none.

    Raises:
        LedgerError: If something is there already, which is left as it was, or no
            ledger can be made.
    """
    parsed = engines.read_url(url)
    if parsed.get_backend_name() == "sqlite":
        is_there = os.path.lexists(LedgerFile(parsed).target)
    else:
        is_there = False
        with suppress(LedgerError):
            Ledger(parsed, create=False).dispose()
            is_there = True
    if is_there:
        raise LedgerError(
            f"There is something at {engines.shown(parsed)} already; it was left as "
            "it was."
        )
    Ledger(parsed).dispose()


def _find(
    transaction: Transaction, terms: AccountTerms, corpus: CorpusTerms | None
) -> Book | None:
    """Return an account that is open; refuse other terms."""
    book = transaction.find("account", terms.name)
    if book is not None:
        require_same(terms, book.terms)
        if corpus is not None:
            held = transaction.load("corpus", corpus.name)
            require_same(corpus, held.terms)
    return book


def _dispose(engine: Engine, pid: int) -> None:
    """Close what this process opened; a forked child leaves its parent's alone."""
    if os.getpid() == pid:
        engine.dispose()


def _create_file(file: LedgerFile) -> None:
    """Make a SQLite ledger that appears complete, unless somebody is faster."""
    engine = engines.sqlite_engine(None)
    with engine.connect() as connection, suppress(FileExistsError):
        with connection.begin():
            _make(Transaction(connection, {}, writes=True))
        engines.place_copy(connection.connection.driver_connection, file.target)
    engine.dispose()


def _make(transaction: Transaction) -> None:
    """Make the tables and the ledger's book, unless somebody was faster."""
    connection = transaction.connection
    if connection.dialect.name == "postgresql":
        # Two that create at once would both see no table; SQLite has one writer.
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(APPLICATION_ID)))
    else:
        connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")
    if sa.inspect(connection).has_table(meta_table.name):
        return
    metadata.create_all(connection)
    at = transaction.now()
    meta = {"schema": SCHEMA, "library": __version__, "created_at": at}
    connection.execute(sa.insert(meta_table), meta)
    transaction.open([], at, kind="ledger", name="ledger", terms=dump(meta))
