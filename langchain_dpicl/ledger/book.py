"""Books: append-only, each entry with a digest of all before it.

Every durable fact is an entry of a book: an account that was opened, its plan, a
charge, who draws for it, what was drawn, that units paid, the end. There is one book
for each account, one for each corpus, and one for the ledger, which names all others.
The same statements serve a SQLite file, SQLite in memory and PostgreSQL.

Digests:
    An entry's digest covers the entry before it, the book's terms and limits, and all
    fields of its own. A row of `dpicl_book` has a head, which covers its last entry and
    all of its other columns. Balances have a sum of keyed digests. `verify` follows all
    of them. None has a secret key: a ledger that was rewritten as a whole, or an older
    copy that was put back, shows only beside heads that are kept elsewhere
    (`Ledger.heads`), and to processes that have seen the newer one.

Locks:
    A transaction locks the ledger's book, then an account's, then a corpus's, and
    leaves out what it does not need. So nothing deadlocks, and nothing is run again.

Cost:
    Appending and looking up read a fixed number of rows by index, however long a book
    is. In a corpus, one row more for each of its accounts.

Tables:
    `dpicl_meta`, one row: the version that made the ledger; `dpicl_book`, the books;
    `dpicl_entry`, what happened, of which nothing is changed; `dpicl_unit`, balances of
    units under keyed hashes. They hold whole numbers and text alone: a guarantee must
    not change by a rounding in a column. A change of them is a new `SCHEMA`; a ledger
    of another version is refused.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

from langchain_dpicl.accounting import Cost
from langchain_dpicl.errors import InvalidParameterError, LedgerError
from langchain_dpicl.ledger.corpus import CorpusState, CorpusTerms
from langchain_dpicl.ledger.terms import NOTHING, AccountTerms, Head, dump

if TYPE_CHECKING:
    from langchain_dpicl.ledger.ledger import Ledger

_S = TypeVar("_S")
_T = TypeVar("_T")
_P = ParamSpec("_P")

SCHEMA = 1
APPLICATION_ID = 0x6470_6963
"""`dpic` tells SQLite files of ours from foreign ones."""

EARLIER_TABLE = "dpicl_schema"
"""A table of the versions before these tables."""


class _Secret(str):
    """Text whose repr does not show it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<secret>"


class SecretText(sa.TypeDecorator[str]):
    """A key or a tag: SQLAlchemy's loggers write every row that they read, at DEBUG."""

    impl = sa.Text
    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy's signature
        """Return text as it was read, with a repr that says nothing."""
        return None if value is None else _Secret(value)


metadata = sa.MetaData()
Whole = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _columns(kind: Any, *names: str, **options: Any) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, **{"nullable": False, **options}) for name in names]


def _keys(kind: Any, *names: str) -> list[sa.Column[Any]]:
    return _columns(kind, *names, primary_key=True, autoincrement=False)


def _books(name: str, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, Whole, sa.ForeignKey("dpicl_book.id"), **options)


meta_table = sa.Table(
    "dpicl_meta",
    metadata,
    *_keys(Whole, "schema"),
    *_columns(sa.Text, "library"),
    *_columns(Whole, "created_at"),
    sqlite_strict=True,
)

book_table = sa.Table(
    "dpicl_book",
    metadata,
    *_keys(Whole, "id"),
    _books("parent", nullable=True, index=True),
    *_columns(sa.Text, "kind", "name", "terms", "balances", "head"),
    *_columns(Whole, "most_loss", "most_failure", "entries", "used", "loss", "failure"),
    *_columns(Whole, "closed_at", "since"),
    *_columns(SecretText, "unit_key"),
    sa.UniqueConstraint("kind", "name"),
    # An account that was over-spent can't be written, whatever writes it.
    sa.CheckConstraint("loss BETWEEN 0 AND most_loss", name="dpicl_loss"),
    sa.CheckConstraint("failure BETWEEN 0 AND most_failure", name="dpicl_failure"),
    sqlite_strict=True,
)

entry_table = sa.Table(
    "dpicl_entry",
    metadata,
    # Two writers of entry n can't both win, whatever the isolation level.
    _books("book", primary_key=True),
    *_keys(Whole, "number"),
    *_columns(sa.Text, "kind", "body", "before", "digest"),
    *_columns(Whole, "used", "loss", "failure", "at"),
    *_columns(Whole, "charge", "step", nullable=True),
    *_columns(sa.Text, "key", nullable=True),
    # A charge is written once, and each of its steps is drawn once.
    sa.UniqueConstraint("book", "charge", "step"),
    # With `number`: else SQLite walks all charges to find the last one of a key.
    sa.Index("dpicl_entry_key", "book", "key", "number"),
    sqlite_strict=True,
)

unit_table = sa.Table(
    "dpicl_unit",
    metadata,
    _books("book", primary_key=True),
    *_keys(SecretText, "tag"),
    *_columns(Whole, "loss", "failure"),
    sa.CheckConstraint("loss >= 0 AND failure >= 0", name="dpicl_unit_sums"),
    sqlite_strict=True,
    # The rows live in the primary key's tree, not beside it: half the bytes.
    sqlite_with_rowid=False,
)


# ---- Books ---------------------------------------------------------------------------

CHARGED, COLLECTED, NOTED = -1, -2, -3
"""Steps of a charge itself, of its collection from units, and of a note on its complete
draws; draws count from 0."""

_b, _e = book_table.c, entry_table.c


def database_time(connection: sa.Connection) -> int:
    """Return the time of a PostgreSQL server, else that of this machine.

    In microseconds since 1970, in UTC. The server's time is that of the statement and
    not of the transaction, which may have waited for a lock.
    """
    if connection.dialect.name != "postgresql":
        return time.time_ns() // 1000
    epoch = sa.func.extract("epoch", sa.func.clock_timestamp()) * 1_000_000
    return int(
        connection.execute(sa.select(sa.cast(epoch, sa.BigInteger))).scalar_one()
    )


def digest(*parts: str | int | None) -> str:
    """Return the digest of some values, in order.

    Example:
        >>> digest("key", "a") == digest("keya")
        False
    """
    data = dump(parts).encode()
    return hashlib.blake2b(data, digest_size=32, person=b"dpicl").hexdigest()


def entry_digest(promise: str, row: Any) -> str:
    """Return the digest that an entry must have in a book with this promise."""
    names = ("before", "number", "kind", "body", "used", "loss", "failure", "at")
    return digest(promise, *(row[name] for name in (*names, "charge", "step", "key")))


@dataclass(frozen=True)
class Book:
    """A row of `dpicl_book`, and what its last entry adds to it."""

    id: int
    kind: str
    name: str
    terms: str
    parent: int | None = None
    most_loss: int = 0
    most_failure: int = 0
    unit_key: str = field(default="", repr=False)
    """The key of the units' tags; empty where units don't pay."""

    entries: int = 0
    used: int = 0
    """How many charges there are."""

    loss: int = 0
    failure: int = 0
    closed_at: int = 0
    """When it was closed; 0 while it is open."""

    since: int = 0
    """Answers that were charged up to this entry are not given again."""

    balances: str = ""
    """The sum of the keyed digests of all balances."""

    last: str = ""
    """Digest of the last entry."""

    at: int = 0
    """Time of the last entry."""

    @functools.cached_property
    def promise(self) -> str:
        """The digest of what never changes: terms, limits, parent, key of the tags."""
        return _promise(*(getattr(self, name) for name in FIXED))

    @functools.cached_property
    def head(self) -> str:
        """The digest of the whole row and of its last entry."""
        changed = [getattr(self, name) for name in CHANGED]
        return digest(self.promise, self.last, *changed)

    @functools.cached_property
    def account(self) -> AccountTerms:
        """The terms of an account's book."""
        return self._read(_account_terms)

    @functools.cached_property
    def corpus(self) -> CorpusTerms:
        """The terms of a corpus's book."""
        return self._read(_corpus_terms)

    @property
    def spent(self) -> Cost:
        """The costs of all charges. In a per-unit account no unit has spent more."""
        return Cost(self.loss, self.failure)

    @property
    def is_open(self) -> bool:
        """Whether the account can be charged."""
        return not self.closed_at

    def after(self, row: dict[str, Any], cost: Cost, **changes: Any) -> Book:
        """Return the book after one more entry: the rule for writer and verifier."""
        sums = {
            "used": self.used + (row["kind"] == "charge"),
            "loss": self.loss + cost.loss,
            "failure": self.failure + cost.failure,
        }
        row = {**row, **sums, "number": self.entries + 1, "before": self.last}
        last, entries = entry_digest(self.promise, row), row["number"]
        return replace(
            self, **sums, entries=entries, at=row["at"], last=last, **changes
        )

    def damaged(self, where: str) -> LedgerError:
        """Return the error for a book that does not fit together."""
        return LedgerError(
            f"The {self.kind} {self.name!r} is damaged: {where}. Nothing was released. "
            "Restore the ledger from a backup: docs/operate/run.md."
        )

    def forgotten(self) -> LedgerError:
        """Return the error for a book that has lost what this process has written."""
        return LedgerError(
            f"The {self.kind} {self.name!r} has forgotten what this process has seen "
            "in it: an older copy of the ledger took its place, or the server lost "
            "what it had confirmed. Nothing is released from it here. See 'Restore' in "
            "docs/operate/run.md, then start this process anew."
        )

    def _read(self, reader: Callable[[str], _T]) -> _T:
        try:
            return reader(self.terms)
        except InvalidParameterError:
            raise self.damaged("its terms can't be read by this version") from None


_NAMES = [column.name for column in fields(Book)]
FIXED, CHANGED = _NAMES[:8], _NAMES[8:-2]

_account_terms = functools.lru_cache(maxsize=1024)(AccountTerms.model_validate_json)
_corpus_terms = functools.lru_cache(maxsize=1024)(CorpusTerms.model_validate_json)


@functools.lru_cache(maxsize=1024)
def _promise(*fixed: str | int | None) -> str:
    *public, unit_key = fixed
    return digest(*public, hashlib.sha256(str(unit_key).encode()).hexdigest())


# Made once: to make a statement takes longer than to run it.
_FIND = sa.select(book_table).where(
    _b.kind == sa.bindparam("of_kind"), _b.name == sa.bindparam("of_name")
)
_LOCKS = {
    "": _FIND,
    "alone": _FIND.with_for_update(),
    "shared": _FIND.with_for_update(read=True),
}
_ENTRIES = sa.select(entry_table)
_LAST = _ENTRIES.where(
    _e.book == sa.bindparam("of_book"),
    _e.number.in_([sa.bindparam("last"), sa.bindparam("seen")]),
)
_WRITE_ENTRY = sa.insert(entry_table)
_WRITE_BOOK = (
    sa.update(book_table)
    .where(_b.id == sa.bindparam("of_book"), _b.entries == sa.bindparam("before"))
    .values({name: sa.bindparam(f"new_{name}") for name in ("head", *CHANGED)})
)


def head_of(book: Book) -> Head:
    """Return a book's head, to be kept elsewhere."""
    return Head(kind=book.kind, name=book.name, entries=book.entries, digest=book.last)


class Transaction:
    """Reads and appends in one transaction; see `Ledger.run`."""

    def __init__(
        self, connection: sa.Connection, seen: dict[int, Head], *, writes: bool
    ) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.writes = writes
        self.appended: list[Book] = []
        self._seen = seen

    def now(self, *books: Book) -> int:
        """Return the database's time, or the last time of a book if that is later."""
        return max([database_time(self.connection), *(book.at for book in books)])

    def find(self, kind: str, name: str, lock: str = "") -> Book | None:
        """Return a book that fits together; None if there is none.

        Args:
            kind: `account`, `corpus` or `ledger`.
            name: Its name.
            lock: `alone` or `shared` locks the row until the transaction ends, where
                the transaction writes; see the module for the order of locks.
        """
        statement = _LOCKS[lock if self.writes else ""]
        wanted = {"of_kind": kind, "of_name": name}
        row = self.execute(statement, wanted).mappings().one_or_none()
        return None if row is None else self._checked(row, is_locked=lock == "alone")

    def load(self, kind: str, name: str, lock: str = "") -> Book:
        """Return a book that is there; see `find`."""
        book = self.find(kind, name, lock)
        if book is None:
            command = "corpora" if kind == "corpus" else "list"
            raise LedgerError(
                f"The ledger holds no {kind} {name!r}. Is the name right ('dpicl "
                f"ledger {command}' shows them), and is it the ledger that was used "
                "before?"
            )
        return book

    def state_of(self, corpus: Book) -> CorpusState:
        """Return a corpus with its accounts, each of which fits together."""
        last = (_e.book == _b.id) & (_e.number == _b.entries)
        # One statement, and so one state of the database, where nothing is locked.
        rows = self.execute(
            sa.select(book_table, _e.digest, _e.at)
            .join(entry_table, last)
            .where(_b.parent == corpus.id)
        )
        books = [
            _fitting(row, row["digest"], row["at"]) for row in rows.mappings().all()
        ]
        # Its own entries are its opening, and one for each account.
        if len(books) != corpus.entries - 1:
            raise corpus.damaged("an account of it is missing or new")
        books.sort(key=lambda book: book.id)
        return CorpusState(corpus.corpus, self.now(corpus, *books), tuple(books))

    def read(self, book: Book, *where: Any) -> list[dict[str, Any]]:
        """Return some entries in order, each with the digest that it must have."""
        entries = _ENTRIES.where(_e.book == book.id, *where)
        return self._whole(book, self.execute(entries).mappings())

    def _whole(self, book: Book, entries: Iterable[Any]) -> list[dict[str, Any]]:
        # Sorted here: SQLite would walk the whole book to return them in order.
        rows = sorted(map(dict, entries), key=lambda row: row["number"])
        for row in rows:
            if row["digest"] != entry_digest(book.promise, row):
                raise book.damaged(f"entry {row['number']} was edited")
        return rows

    def append(
        self, book: Book, kind: str, body: Any, *, cost: Cost = NOTHING, **more: Any
    ) -> Book:
        """Write the next entry of a book that is locked, and the book's row.

        Args:
            book: The book, locked alone in this transaction.
            kind: What happened.
            body: Public JSON.
            cost: What is spent by it.
            more: `charge`, `step` and `key` of the entry, its time `at`, and what
                changes in the book's row.

        Returns:
            The book with the entry.
        """
        row: dict[str, Any] = {"kind": kind, "body": dump(body)}
        row["at"] = more.pop("at", 0) or self.now(book)
        for name in ("charge", "step", "key"):
            row[name] = more.pop(name, None)
        after = book.after(row, cost, **more)
        row |= {"book": book.id, "number": after.entries, "before": book.last}
        row |= {"digest": after.last, "used": after.used}
        row |= {"loss": after.loss, "failure": after.failure}
        self.execute(_WRITE_ENTRY, row)
        changed = {f"new_{name}": getattr(after, name) for name in ("head", *CHANGED)}
        changed |= {"of_book": book.id, "before": book.entries}
        if self.execute(_WRITE_BOOK, changed).rowcount != 1:
            raise book.damaged("its row has changed meanwhile")
        self.appended.append(after)
        return after

    def open(self, parents: Iterable[Book], at: int, **values: Any) -> Book:
        """Write a new book, and its name into its parents' books, which are locked."""
        most = self.execute(sa.select(sa.func.max(_b.id))).scalar() or 0
        book = Book(id=most + 1, **values)
        row = {name: getattr(book, name) for name in (*FIXED, *CHANGED)}
        self.execute(sa.insert(book_table), {**row, "head": ""})
        for parent in parents:
            child = {"id": book.id, "promise": book.promise}
            self.append(parent, "child", child, at=max(at, parent.at))
        return self.append(book, "opened", {}, at=at)

    def _checked(self, row: Any, *, is_locked: bool) -> Book:
        """Check a row against its head and its last entry."""
        bare = Book(**{name: row[name] for name in (*FIXED, *CHANGED)})
        # A row that is locked is the newest. It must hold what this process has seen.
        seen = self._seen.get(bare.id) if is_locked else None
        numbers = {"last": bare.entries, "seen": seen.entries if seen else bare.entries}
        rows = self.execute(_LAST, {"of_book": bare.id, **numbers}).mappings()
        entries = {entry["number"]: entry for entry in self._whole(bare, rows)}
        if seen and entries.get(seen.entries, {}).get("digest") != seen.digest:
            raise bare.forgotten()
        last = entries.get(bare.entries, {"digest": "", "at": 0})
        return _fitting(row, last["digest"], last["at"])


def _fitting(row: Any, last: str, at: int) -> Book:
    values = {name: row[name] for name in (*FIXED, *CHANGED)}
    book = Book(**values, last=last, at=at)
    if book.head != row["head"]:
        raise book.damaged("its row or its last entry was edited")
    return book


def _transacted(
    *,
    writes: bool,
) -> Callable[
    [Callable[Concatenate[_S, Transaction, _P], _T]],
    Callable[Concatenate[_S, _P], _T],
]:
    def decorate(
        method: Callable[Concatenate[_S, Transaction, _P], _T],
    ) -> Callable[Concatenate[_S, _P], _T]:
        @functools.wraps(method)
        def run(self: Any, *args: _P.args, **named: _P.kwargs) -> _T:
            ledger: Ledger = self.ledger
            return ledger.run(lambda t: method(self, t, *args, **named), writes=writes)

        signature = inspect.signature(method)
        seen = [p for name, p in signature.parameters.items() if name != "transaction"]
        run.__signature__ = signature.replace(parameters=seen)  # type: ignore[attr-defined]
        return run  # type: ignore[return-value]  # its object has a `ledger`

    return decorate


reads, writes = _transacted(writes=False), _transacted(writes=True)
"""Run a method in one transaction of its object's `ledger`, which it takes first."""
