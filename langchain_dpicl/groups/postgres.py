"""Groups that are searched inside PostgreSQL, in a table of the extension pgvector.

One statement scores every record, puts each shard's records in order, and returns each
shard's best. Nothing is kept beside the table: the database computes a record's person
and shard from the record itself, so that what is written or deleted counts from the
next question on.

Privacy:
    *Unit and relation.* A unit is a person: what one value of the unit's column names,
    in the one spelling of `canonical_unit_id`. `REPLACE`: a person changes one slot.

    *Shards.* A record's shard is a keyed digest of its person's id, modulo the number
    of shards. No other record has a part in it. The key may be known: any function of
    the id proves the relation. With a secret one, nobody can choose whose shard their
    own records share.

    *Scores.* A score is one call of pgvector's cosine distance, on the record's vector
    and the question's. All scores are computed into a table in memory before any is
    compared with another, where PostgreSQL can't read them from an index. So an
    approximate index of everybody's vectors may exist, and is never used.

    *Order.* Records of a shard stand by score, then by the digest of their person, then
    by their id, text and metadata. What is equal in all of these makes the same slot
    either way. Where the table holds a row, which everybody's writes and the server's
    clean-ups decide, has no part in it.

    *Filter, payers, sample.* Each is a condition on one record before anything is
    ranked: its columns match, its person paid, its person's coin fell. A record that
    fails one takes no place and leaves no trace, in its own shard either. All whose own
    best score passes have to pay, sampled or not. Nobody joins between that and the
    search. A coin is SHA-256 of 128 secret bits, which are forgotten with the draw, and
    the person's id: taken for independent (a pseudorandom function).

    *One record fails nobody's query.* A record without a person, or whose vector has no
    direction (NULL, or a norm that single precision can't square), is left out by
    itself. The database reads no record's JSON. Cells come as JSON texts; one that
    Python can't read is None.
"""

from __future__ import annotations

import json
import logging
import os
import re
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from typing_extensions import Self, Unpack

from langchain_dpicl.common.hidden import hiding_in
from langchain_dpicl.common.units import Collect, canonical_unit_id
from langchain_dpicl.errors import GroupCallError, InvalidParameterError, UnitError
from langchain_dpicl.groups.base import (
    RetrievalOptions,
    RetrievalTerms,
    TermedSource,
    check_enough_units,
)
from langchain_dpicl.groups.filtering import RecordFilter, narrowed
from langchain_dpicl.groups.records import check_embedding, question_vector
from langchain_dpicl.groups.units import SALT_BYTES, check_salt, refuse_unknown_unit
from langchain_dpicl.ledger.engine import (
    POSTGRES_DRIVER,
    POSTGRES_LIMITS,
    POSTGRES_VALUES,
)
from langchain_dpicl.mechanisms.random import SecureRandom, checked_source

_KEY = b"dpicl.postgres"
_NONCE_WORDS = 2  # 128 bits.
_LOGGER = "langchain_dpicl"
_UNITS = ("text", "varchar", "int2", "int4", "int8", "uuid")

_SPACES = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004"
    "\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""What `str.strip` takes away."""

# What cells look like must not depend on the server or the role. Where statistics are
# old, the planner would compare each place with each record; and it compiles for longer
# than the query takes.
_BEGIN = (
    "BEGIN ISOLATION LEVEL READ COMMITTED {mode}; "
    f"SELECT {POSTGRES_VALUES}, set_config('client_encoding', 'UTF8', true), "
    "set_config('lock_timeout', '30s', true), "
    "set_config('enable_nestloop', 'off', true), set_config('jit', 'off', true)"
)

# A view is no table: one of its rows may depend on others.
_COLUMNS = (
    "SELECT n.nspname, a.attname, t.typname, s.nspname, a.atttypmod "
    "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 "
    "JOIN pg_type t ON t.oid = a.atttypid "
    "JOIN pg_namespace s ON s.oid = t.typnamespace "
    "WHERE c.relname = %(table)s AND c.relkind IN ('r', 'p') "
    "AND CASE WHEN CAST(%(schema)s AS text) IS NULL "
    "THEN pg_table_is_visible(c.oid) ELSE n.nspname = %(schema)s END "
    "AND NOT a.attisdropped ORDER BY a.attnum"
)
# Each record that takes part, by itself. OFFSET 0 keeps the planner from computing a
# column twice; MATERIALIZED, from looking for an index.
_SCORED = """
WITH read AS (
    SELECT record.ctid AS place, record.tableoid AS part, {person} AS person,
        CAST({id} AS text) COLLATE "C" AS id,
        {vector} OPERATOR({types}.<=>) CAST(%(vector)s AS {types}.vector) AS distance,
        {vector} OPERATOR({types}.<#>) {vector} AS square
    FROM {table} AS record WHERE {filter} OFFSET 0
), scored AS MATERIALIZED (
    SELECT place, part, id, person,
        sha256(%(salt)s || convert_to(person, 'UTF8')) AS digest,
        greatest(-1, least(1, 1 - distance)) AS score
    FROM read WHERE person <> '' AND square BETWEEN -1e30 AND -1e-30
        AND ({paid}) AND ({sampled})
)
"""
_ELIGIBLE = "SELECT DISTINCT person FROM scored WHERE score >= %(least)s"
_SAMPLED = (
    "substring(sha256(%(nonce)s || convert_to(person, 'UTF8')), 1, 8) < %(bound)s"
)
# Equal ranks are told apart in Python: their texts would make every row longer.
_BEST = """
, ranked AS (
    SELECT *, rank() OVER (PARTITION BY shard ORDER BY score DESC, digest, id) AS rank
    FROM (
        SELECT place, part, id, digest, score,
            CAST(CAST('x' || encode(substring(digest, 1, 7), 'hex') AS bit(56))
                AS bigint) %% %(n_shards)s AS shard
        FROM scored WHERE score >= %(least)s
    ) AS passing
), best AS (SELECT place, part, shard, rank, id AS own FROM ranked WHERE rank <= %(n)s)
SELECT best.shard, best.rank, best.own, CAST({content} AS text), {cells}
FROM best JOIN {table} AS record
    ON record.ctid = best.place AND record.tableoid = best.part
WHERE record.ctid = ANY(ARRAY(SELECT place FROM best))
"""


@dataclass(frozen=True, repr=False)
class _Table:
    """A table of records: its parts by name, quoted, for use in a statement."""

    parts: Mapping[str, str]
    columns: tuple[str, ...]  # Of metadata, the unit's among them, but for the JSON.
    dimension: int  # Length of a vector.

    def sql(self, form: str, **conditions: str) -> str:
        """Return a statement in which the parts have their names."""
        every = dict.fromkeys(("filter", "paid", "sampled"), "true")
        return form.format(**self.parts, **{**every, **conditions})


@dataclass(frozen=True, repr=False)
class _Asked:
    """A prepared question, public: its vector as pgvector reads it."""

    vector: str
    table: _Table


@hiding_in("__init__", "delete_unit")
class PostgresGroups(TermedSource):
    """Slots retrieved for a question by PostgreSQL; one unit changes one slot at most.

    They are those of `RetrievedGroups` over the same records, but for records of equal
    score and the digits in which two programs round. Use them for a table that does not
    fit into memory, or that changes all the time.

    Args:
        url: The database's: 'postgresql+psycopg://user@host/db'.
        table: The table's name. The names of columns below are a `PGVectorStore`'s.
        embedding: What the vectors were made with; here only for the questions.
        schema: The table's schema; None: where the database finds the table.
        id_column: The column of documents' ids.
        content_column: The column of texts.
        vector_column: The column of vectors, of pgvector's type `vector(n)`.
        json_column: The column of further metadata as JSON, if there is one. All other
            columns are metadata, too, and can be filtered by.
        salt: 32 secret bytes, the same in every process, where outsiders can choose
            unit ids and must not choose who shares a shard. None: bytes that are
            derived from the names of the table and the column.
        random: For tests; see `RetrievedGroups.from_documents`.
        **options: See `RetrievalOptions`. `unit_key` names the column that holds the
            unit id: a text, an integer or a UUID.

    Raises:
        InvalidParameterError: If the table or a column is missing or of another type,
            or another argument can't be used.
        UnitError: If a record has no usable unit id, or there are fewer units than
            groups. A record that comes later, and has none, is left out.
        GroupCallError: If the database can't be asked.
    """

    _terms: RetrievalTerms

    def __init__(  # noqa: PLR0913  # as `from_documents`, and where the records are
        self,
        url: str | URL,
        table: str,
        embedding: Embeddings,
        *,
        schema: str | None = None,
        id_column: str = "langchain_id",
        content_column: str = "content",
        vector_column: str = "embedding",
        json_column: str = "langchain_metadata",
        salt: bytes | None = None,
        random: SecureRandom | None = None,
        **options: Unpack[RetrievalOptions],
    ) -> None:
        self._terms = RetrievalTerms.of(options)
        unit_key = self.unit_key
        check_embedding(embedding)
        self._embedding, self._random = embedding, checked_source(random)
        self._engine = _engine(url)
        weakref.finalize(self, self._engine.dispose)
        self._table = _described(
            self._rows(_COLUMNS, {"table": table, "schema": schema}),
            table,
            {"id": id_column, "content": content_column, "vector": vector_column},
            unit_key,
            json_column,
        )
        if salt is None:
            named = f"{self._table.parts['table']}.{_quoted(unit_key)}".encode()
            salt = blake2b(named, digest_size=SALT_BYTES, person=_KEY).digest()
        check_salt(salt)
        self._salt = salt
        n_units, n_nobodys = self._counts()
        if n_nobodys:
            raise UnitError(
                f"A record of the table {table!r} has no usable unit id in the column "
                f"{unit_key!r}. Name the column that holds it as unit_key=, or delete "
                "the records without one, and set the column NOT NULL."
            )
        check_enough_units(n_units, self.n_groups)

    @property
    def n_units(self) -> int:
        """Number of units now, private: for the operator alone."""
        return self._counts()[0]

    def where(
        self,
        filter: Mapping[str, Any] | RecordFilter | None = None,  # noqa: A002  # what LangChain's stores call it
        **values: Any,
    ) -> Self:
        """Return these groups for only the records that match a filter, by columns.

        Raises:
            InvalidParameterError: If the filter can't be used, or a key is no column.
        """
        only = narrowed(self._only, filter, values)
        if unknown := only.keys().difference(self._table.columns):
            raise InvalidParameterError(
                f"{min(unknown)!r} is no column of metadata, and the JSON is not "
                "looked into. Add a column, as docs/guides/stores.md does for unit ids."
            )
        # Both share the connections, which are closed with the first one.
        return self._changed(_only=only, _first=self)

    def prepare(self, question: str) -> _Asked:
        """Embed the question; the public half of a draw."""
        vector = question_vector(self._embedding, question, self._table.dimension)
        return _Asked(str(vector[0].tolist()), self._table)

    def draw_prepared(
        self, prepared: Any, *, collect: Collect | None = None
    ) -> list[list[Document]]:
        """Search; the private half of a draw: one statement, or two where units pay.

        Raises:
            InvalidParameterError: If `prepared` comes from elsewhere, or groups without
                a threshold get a `collect`.
            GroupCallError: If the database can't be asked.
        """
        self._check_charging(collect)
        if not isinstance(prepared, _Asked) or prepared.table is not self._table:
            raise InvalidParameterError(
                "Pass draw_prepared() the result of prepare(question) of these groups."
            )
        terms, conditions = self._terms, {}
        given = {
            "vector": prepared.vector,
            "salt": self._salt,
            "spaces": _SPACES,
            "n_shards": terms.n_groups,
            "n": terms.docs_per_group,
            # -1 lets everybody pass.
            "least": -1.0 if terms.score_threshold is None else terms.score_threshold,
        }
        if self._only is not None:
            conditions["filter"] = self._matching(given)
        if collect is not None:
            rows = self._rows(self._table.sql(_SCORED + _ELIGIBLE, **conditions), given)
            # Sorted: the order says nothing about scores, or places in the table.
            eligible = sorted(row[0] for row in rows)
            paid = collect(eligible)
            given["paid"] = [unit for unit in eligible if unit in paid]
            conditions["paid"] = "person = ANY(%(paid)s)"
        if terms.sampling_rate < 1:
            given["nonce"] = self._source.words(_NONCE_WORDS).tobytes()
            given["bound"] = int(terms.sampling_rate * 2.0**64).to_bytes(8, "big")
            conditions["sampled"] = _SAMPLED
        rows = self._rows(self._table.sql(_SCORED + _BEST, **conditions), given)
        slots: list[list[Document]] = [[] for _ in range(terms.n_groups)]
        # Several rows of one rank differ in texts alone.
        ordered = sorted(rows, key=lambda row: (row[0], row[1], *map(str, row[3:])))
        for shard, _, own, content, *cells in ordered:
            if len(slots[shard]) < terms.docs_per_group:
                *read, further = map(_parsed, cells)
                metadata = dict(further) if isinstance(further, dict) else {}
                metadata.update(zip(self._table.columns, read, strict=True))
                slots[shard].append(Document(content or "", metadata=metadata, id=own))
        return slots

    def delete_unit(self, unit_id: str | int) -> int:
        """Delete a unit's records from the table, under all spellings of its id.

        Returns:
            How many, at least 1: also those that no search finds.

        Raises:
            UnitError: If no record has that id; nothing was deleted.
            GroupCallError: If the database can't be asked, or refuses.
        """
        person = canonical_unit_id(unit_id)
        deleted = 0
        if person is not None and _is_text(person):
            form = "DELETE FROM {table} AS record WHERE {person} = %(unit)s RETURNING 1"
            given = {"unit": person, "spaces": _SPACES}
            deleted = len(self._rows(self._table.sql(form), given, mode="READ WRITE"))
        if not deleted:
            refuse_unknown_unit(self.unit_key)
        return deleted

    def close(self) -> None:
        """Close the connections; another draw opens new ones."""
        self._engine.dispose()

    def _counts(self) -> tuple[int, int]:
        """Return how many units there are, and how many records of nobody."""
        form = (
            "SELECT count(DISTINCT nullif(person, '')), "
            "count(*) FILTER (WHERE coalesce(person, '') = '') "
            "FROM (SELECT {person} AS person FROM {table} AS record) AS read"
        )
        ((units, nobodys),) = self._rows(self._table.sql(form), {"spaces": _SPACES})
        return units, nobodys

    def _matching(self, given: dict[str, Any]) -> str:
        """Return the condition that a record matches the filter; add its values.

        Any type can be made a text, so that no record fails a query by it.
        """
        conditions = []
        allowed = self._only.allowed if self._only else ()
        for number, (key, values) in enumerate(allowed):
            given[f"allowed_{number}"] = [one for one in values if _is_text(one)]
            conditions.append(f"{_spelled(key)} = ANY(%(allowed_{number})s)")
        return " AND ".join(conditions)

    def _rows(
        self, statement: str, given: dict[str, Any], *, mode: str = "READ ONLY"
    ) -> list[Any]:
        """Run one statement in a transaction of its own; return its rows.

        An error of the database can hold a cell of a record: only its kind is told.
        """
        try:
            with self._engine.connect() as connection:
                connection.exec_driver_sql(_BEGIN.format(mode=mode))
                rows = list(connection.exec_driver_sql(statement, given))
                connection.commit()
                return rows
        except Exception as error:  # noqa: BLE001  # the database's, or its driver's
            cause = getattr(error, "orig", None) or error
            state = getattr(cause, "sqlstate", None)
            failure = type(cause).__name__ + (f", SQLSTATE {state}" if state else "")
        raise GroupCallError(
            f"The table's database could not be asked ({failure}); nothing was "
            "released. Is it running, and may the URL's user read the table, or change "
            "it?"
        )


def _engine(url: str | URL) -> Engine:
    """Return a silent engine of our own, whose connections leave transactions to us."""
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() != "postgresql":
            raise ArgumentError
        limits = {k: v for k, v in POSTGRES_LIMITS.items() if k not in parsed.query}
        engine = create_engine(
            parsed.set(drivername=POSTGRES_DRIVER),
            # Behind a pooler, a statement prepared here may run elsewhere.
            connect_args={"prepare_threshold": None, **limits},
            isolation_level="AUTOCOMMIT",
            hide_parameters=True,
            pool_pre_ping=True,
            logging_name=_LOGGER,
        )
    except (SQLAlchemyError, ImportError, ValueError, TypeError, AttributeError):
        engine = None
    if engine is None:
        # The URL is not shown: it can hold a password.
        raise InvalidParameterError(
            "url must be that of a PostgreSQL database, such as 'postgresql+psycopg://"
            "user@host/db', and needs its driver: pip install 'psycopg[binary]'."
        )
    # At DEBUG, SQLAlchemy would log the rows, whatever is hidden otherwise.
    name = f"sqlalchemy.engine.Engine.{_LOGGER}"
    logging.getLogger(name).setLevel(logging.WARNING)
    kept = weakref.ref(engine)

    def forget() -> None:
        """Leave the connections of a forked child to its parent, who goes on."""
        if (opened := kept()) is not None:
            opened.dispose(close=False)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)
    return engine


def _quoted(name: str) -> str:
    """Return a name as a statement with parameters takes it.

    Example:
        >>> print(_quoted("100% sure"))
        "100%% sure"
    """
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


def _column(name: str) -> str:
    return f"record.{_quoted(name)}"


def _spelled(name: str) -> str:
    """Return what a cell is in the spelling of `canonical_unit_id`.

    It is compared byte for byte: a collation may hold different texts to be equal.
    """
    own = f"CAST({_column(name)} AS text)"
    return f'normalize(btrim({own}, %(spaces)s)) COLLATE "C"'


def _described(
    rows: list[Any], table: str, named: Mapping[str, str], unit_key: str, extra: str
) -> _Table:
    """Return a table by its columns, or refuse one that can't be searched."""
    types = {name: (kind, schema, size) for _, name, kind, schema, size in rows}
    for name in (*named.values(), unit_key):
        if name not in types:
            raise InvalidParameterError(
                f"There is no table {table!r} with a column {name!r} in this database, "
                "or in this schema=. A view is no table; and a unit id inside the JSON "
                "is not used: docs/guides/stores.md says how to add a column."
            )
    if types[unit_key][0] not in _UNITS:
        raise InvalidParameterError(
            f"The column {unit_key!r} is of the type {types[unit_key][0]}. A unit id "
            "is a text, an integer or a UUID."
        )
    kind, schema, size = types[named["vector"]]
    if kind != "vector" or size <= 0:
        raise InvalidParameterError(
            f"The column {named['vector']!r} must be of pgvector's type 'vector', with "
            "a length: ALTER TABLE ... ALTER COLUMN ... TYPE vector(1536)."
        )
    others = tuple(name for name in types if name not in (*named.values(), extra))
    cells = [f"CAST(to_json({_column(name)}) AS text)" for name in others]
    # Of whatever type, and never looked into.
    cells.append(f"CAST({_column(extra)} AS text)" if extra in types else "NULL")
    parts = {
        **{name: _column(column) for name, column in named.items()},
        "table": f"{_quoted(rows[0][0])}.{_quoted(table)}",
        "types": _quoted(schema),
        "person": _spelled(unit_key),
        "cells": ", ".join(cells),
    }
    return _Table(parts, others, size)


def _is_text(value: str) -> bool:
    """Return whether a text of PostgreSQL can be this one."""
    return not re.search("[\0\ud800-\udfff]", value)


def _parsed(cell: str | None) -> Any:
    """Return what a JSON text says; None where Python can't read it."""
    try:
        return None if cell is None else json.loads(cell)
    except (ValueError, RecursionError):
        return None
