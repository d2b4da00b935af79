"""Reading and writing a corpus's row, inside somebody's transaction.

Opening, charging and closing an account of a corpus lock its row, after the account's
own row if that is locked too: these events are in one order, and so are their times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from langchain_dpicl._version import __version__
from langchain_dpicl.errors import DPError, LedgerError
from langchain_dpicl.ledger import clock, hash_chain
from langchain_dpicl.ledger.base import AccountState
from langchain_dpicl.ledger.corpus import CorpusState, CorpusTerms, unknown_corpus
from langchain_dpicl.ledger.sql.rows import account_of, require_end
from langchain_dpicl.ledger.sql.schema import (
    UNREADABLE,
    account_table,
    corpus_table,
    text,
    whole,
)

_CORPORA = select(corpus_table).order_by(corpus_table.c.id)
# A corpus by `corpus`; its row stays locked until the transaction ends.
LOCK_CORPUS = (
    select(corpus_table)
    .where(corpus_table.c.name == bindparam("corpus"))
    .with_for_update()
)
# Keep the time `seen` of corpus `corpus_number`.
KEEP_TIME = (
    update(corpus_table)
    .where(corpus_table.c.id == bindparam("corpus_number"))
    .values(last_at=bindparam("seen"), head=bindparam("corpus_head"))
)


@dataclass(frozen=True)
class Corpus:
    """A corpus's row: its terms, their digest, and the last time that was seen."""

    number: int
    terms: CorpusTerms
    first: str
    at: datetime


def find_corpus(
    connection: Connection, name: str, *, lock: bool = False
) -> Corpus | None:
    """Return a corpus whose row can be trusted, or None; lock the row if asked."""
    wanted = _CORPORA.where(corpus_table.c.name == name)
    row = connection.execute(wanted.with_for_update() if lock else wanted).one_or_none()
    return None if row is None else corpus_of(row)


def require_corpus(connection: Connection, name: str, *, lock: bool = False) -> Corpus:
    """Return a corpus that is there, and whose row can be trusted."""
    found = find_corpus(connection, name, lock=lock)
    if found is None:
        raise unknown_corpus(name)
    return found


def read_corpora(connection: Connection) -> dict[str, Corpus]:
    """Return all corpora by name; refuse them if one was edited."""
    found = map(corpus_of, connection.execute(_CORPORA))
    return {corpus.terms.name: corpus for corpus in found}


def write_corpus(connection: Connection, terms: CorpusTerms) -> None:
    """Write a new corpus's row."""
    at, window = clock.database_time(connection), terms.window_days
    first = hash_chain.corpus_digest(terms)
    connection.execute(
        insert(corpus_table).values(
            name=terms.name,
            unit_key=terms.unit_key,
            epsilon=float(terms.epsilon).hex(),
            delta=float(terms.delta).hex(),
            window_days=None if window is None else int(window),
            last_at=at,
            head=hash_chain.corpus_head(first, at),
            library=__version__,
            created_at=at,
        )
    )


def corpus_state(
    connection: Connection, name: str, *, lock: bool = False
) -> CorpusState:
    """Return a corpus with its accounts; with `lock` its time is kept, and stands."""
    corpus = require_corpus(connection, name, lock=lock)
    at = _keep_time(connection, corpus) if lock else _now(connection, corpus)
    rows = connection.execute(
        select(account_table)
        .where(account_table.c.corpus == name)
        .order_by(account_table.c.id)
    ).all()
    return CorpusState(
        corpus.terms, at, tuple(_whole_state(connection, row) for row in rows)
    )


def timed(connection: Connection, state: AccountState, *, keep: bool) -> AccountState:
    """Return an account's state with the ledger's time, if it belongs to a corpus.

    With `keep` the corpus's row is locked, and no later event has an earlier time.
    """
    if state.terms.corpus is None:
        return state
    corpus = require_corpus(connection, state.terms.corpus, lock=keep)
    now = (_keep_time if keep else _now)(connection, corpus)
    return replace(state, at=now)


def _now(connection: Connection, corpus: Corpus) -> datetime:
    return max(corpus.at, clock.database_time(connection))


def _keep_time(connection: Connection, corpus: Corpus) -> datetime:
    now = _now(connection, corpus)
    connection.execute(KEEP_TIME, kept_time(corpus, now))
    return now


def kept_time(corpus: Corpus, now: datetime) -> dict[str, Any]:
    """Return the values that `KEEP_TIME` binds."""
    head = hash_chain.corpus_head(corpus.first, now)
    return {"corpus_number": corpus.number, "seen": now, "corpus_head": head}


def _whole_state(connection: Connection, row: Any) -> AccountState:
    account = account_of(row)
    # What was charged, and when it was closed, decide whether the account counts.
    require_end(connection, account)
    return account.state


def corpus_of(row: Any) -> Corpus:
    """Return the corpus that a row tells of, if the row can be trusted."""
    try:
        terms = CorpusTerms(
            name=text(row.name),
            unit_key=None if row.unit_key is None else text(row.unit_key),
            epsilon=float.fromhex(row.epsilon),
            delta=float.fromhex(row.delta),
            window_days=None if row.window_days is None else whole(row.window_days),
        )
        first, at = hash_chain.corpus_digest(terms), hash_chain.utc(row.last_at)
        found = Corpus(whole(row.id), terms, first, at)
        is_whole = row.head == hash_chain.corpus_head(first, at)
    except (DPError, *UNREADABLE):
        is_whole = False
    if not is_whole:
        raise LedgerError(
            f"Corpus {str(row.name)[:200]!r} is damaged: its cap, its window, its unit "
            "or its last time was edited. Nothing is opened in it and nothing is "
            "charged. Restore the ledger."
        )
    return found
