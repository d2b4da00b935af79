"""Where a PGVectorStore keeps its records, and the table of shards beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    Column,
    ColumnClause,
    ColumnElement,
    Connection,
    FromClause,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    bindparam,
    cast,
    column,
    delete,
    func,
    null,
    quoted_name,
    select,
    table,
    text,
)
from sqlalchemy import inspect as inspect_database
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.sql.expression import TableClause

from langchain_dpicl.common.slots import hidden_repr
from langchain_dpicl.errors import InvalidParameterError, UnsoundStoreError
from langchain_dpicl.groups.filtering import UnitFilter

NAME = "langchain_dpicl_shards"
# Of PostgreSQL's advisory locks, the one under which the table is made and written.
_LOCK = 7_214_031_900_451_203
_TEXTS = ("text", "varchar")
_INTEGERS = ("int2", "int4", "int8")
_LARGEST_INTEGER = 2**63
_BUILT_IN = ("btree", "hash", "gist", "gin", "spgist", "brin")
"""Access methods that hold no approximate index of vectors."""
_FIND = text(
    "SELECT c.oid, n.nspname AS schema, c.relkind AS kind, "
    "current_setting('server_encoding') AS encoding "
    "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE c.relname = :table AND CASE WHEN CAST(:schema AS text) IS NULL "
    "THEN pg_table_is_visible(c.oid) ELSE n.nspname = :schema END"
)
_COLUMNS = text(
    "SELECT a.attname AS name, t.typname AS type, n.nspname AS type_schema, "
    "a.atttypmod AS modifier "
    "FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
    "JOIN pg_namespace n ON n.oid = t.typnamespace "
    "WHERE a.attrelid = :oid AND a.attnum > 0 AND NOT a.attisdropped"
)
# Of the table and its partitions; pg_depend knows the columns of expressions and of
# conditions too, such as those of an index over embedding::halfvec(384).
_INDEXES = text(
    "WITH RECURSIVE part (oid) AS ("
    "SELECT CAST(:oid AS oid) UNION ALL "
    "SELECT i.inhrelid FROM pg_inherits i JOIN part ON i.inhparent = part.oid) "
    "SELECT DISTINCT c.relname AS name, m.amname AS method "
    "FROM part JOIN pg_attribute a ON a.attrelid = part.oid AND a.attname = :column "
    "JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass "
    "AND d.refobjid = part.oid AND d.refobjsubid = a.attnum "
    "AND d.classid = 'pg_class'::regclass "
    "JOIN pg_index x ON x.indexrelid = d.objid "
    "JOIN pg_class c ON c.oid = d.objid JOIN pg_am m ON m.oid = c.relam "
    "WHERE m.amname <> ALL (:built_in) ORDER BY name"
)
# A table's own indexes say nothing of the tables that inherit from it; those of a
# partitioned one hold for all of its partitions.
_UNIQUE = text(
    "SELECT EXISTS (SELECT FROM pg_index x JOIN pg_attribute a "
    "ON a.attrelid = x.indrelid AND a.attnum = x.indkey[0] "
    "WHERE x.indrelid = :oid AND a.attname = :column AND a.attnotnull "
    "AND x.indisunique AND x.indisvalid AND x.indpred IS NULL AND x.indnkeyatts = 1) "
    "AND NOT EXISTS (SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhparent "
    "WHERE c.oid = :oid AND c.relkind <> 'p')"
)
_RECIPE = 'docs/guides/stores.md has the recipe, under "The unit id in its own column".'


SPACES = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004"
    "\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""What `str.strip` takes away."""


def is_text(value: str) -> bool:
    """Return whether a text of PostgreSQL can be this one."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


class Kept(NamedTuple):
    """What is kept of a spelling of a unit id."""

    shard: int
    person: str | None  # The canonical id.

    def __repr__(self) -> str:
        return hidden_repr(self)


class ShardTable:
    """The shards of the units of one store.

    `corpus` tells the store's records from others in the schema.
    """

    def __init__(self, schema: str, corpus: str) -> None:
        self.corpus = corpus
        self.table = Table(
            NAME,
            MetaData(),
            Column("corpus", Text(collation="C"), primary_key=True),
            Column("n_shards", Integer, primary_key=True, autoincrement=False),
            # Unit ids can be longer than a key may be.
            Column("digest", LargeBinary, primary_key=True),
            Column("unit", Text(collation="C"), nullable=False),
            Column("shard", Integer, nullable=False),
            # The canonical id, the same for all spellings of a person: what is sampled.
            Column("person", Text(collation="C")),
            schema=schema,
        )

    def mine(self, table: FromClause, n_shards: int) -> ColumnElement[bool]:
        """Return the condition that a row of the table, or an alias, is our own."""
        columns = table.c
        return (columns.corpus == self.corpus) & (columns.n_shards == n_shards)

    def read(self, connection: Connection, n_shards: int) -> dict[str, Kept] | None:
        """Return what is kept of each spelling; None if there is no table.

        A table of an earlier version has no persons.
        """
        if not self._exists(connection):
            return None
        columns = self.table.c
        person = null() if self._is_old(connection) else columns.person
        kept = select(columns.unit, columns.shard, person.label("person"))
        rows = connection.execute(kept.where(self.mine(self.table, n_shards)))
        return {row.unit: Kept(row.shard, row.person) for row in rows}

    def write(
        self, connection: Connection, wanted: Mapping[str, Kept], n_shards: int
    ) -> None:
        """Keep units' shards and persons, by the spelling in the records.

        If one of them is in another shard already, all were assigned with another key,
        and are replaced.
        """
        # Two processes that open the store at once would both make the table.
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        self._make(connection)
        known = self.read(connection, n_shards) or {}
        if any(known.get(unit, kept) != kept for unit, kept in wanted.items()):
            connection.execute(
                delete(self.table).where(self.mine(self.table, n_shards))
            )
            known = {}
        new = {unit: kept for unit, kept in wanted.items() if unit not in known}
        if not new:
            return
        # Three arrays: one statement, however many there are.
        units = bindparam("units", list(new), ARRAY(Text))
        shards = bindparam(
            "shards", [kept.shard for kept in new.values()], ARRAY(Integer)
        )
        people = bindparam(
            "people", [kept.person for kept in new.values()], ARRAY(Text)
        )
        given = select(
            func.unnest(units).label("unit"),
            func.unnest(shards).label("shard"),
            func.unnest(people).label("person"),
        ).subquery("given")
        rows = select(
            bindparam("corpus", self.corpus, Text),
            bindparam("n_shards", n_shards, Integer),
            func.sha256(func.convert_to(given.c.unit, "UTF8")),
            given.c.unit,
            given.c.shard,
            given.c.person,
        )
        names = ["corpus", "n_shards", "digest", "unit", "shard", "person"]
        connection.execute(insert(self.table).from_select(names, rows))

    def forget(self, connection: Connection, unit: str) -> None:
        """Forget a unit, for any number of shards."""
        if self._exists(connection):
            columns = self.table.c
            own = (columns.corpus == self.corpus) & (columns.unit == unit)
            connection.execute(delete(self.table).where(own))

    def _make(self, connection: Connection) -> None:
        """Make the table, or what an earlier version's table lacks."""
        if not self._exists(connection):
            self.table.create(connection)
        elif self._is_old(connection):
            preparer = connection.dialect.identifier_preparer
            name = preparer.format_table(self.table)
            connection.execute(text(f"ALTER TABLE {name} ADD COLUMN person text"))

    def _exists(self, connection: Connection) -> bool:
        return inspect_database(connection).has_table(NAME, schema=self.table.schema)

    def _is_old(self, connection: Connection) -> bool:
        """Return whether a version that could not sample has made the table."""
        columns = inspect_database(connection).get_columns(NAME, self.table.schema)
        return "person" not in [column["name"] for column in columns]


@dataclass(frozen=True)
class Layout:
    """What a store's own attributes say of where its records are."""

    # The schema; None to find the table as a statement without a schema does.
    schema: str | None
    table: str
    id_column: str
    content_column: str
    embedding_column: str
    json_column: str | None
    metadata_columns: tuple[str, ...]

    @classmethod
    def of(cls, store: Any) -> tuple[Layout, Any]:
        """Return a store's layout, and its engine."""
        # The public store keeps table and columns in an inner one.
        inner = getattr(store, "_PGVectorStore__vs", store)
        if hasattr(inner, "embedding_column") and hasattr(inner, "table_name"):
            layout = cls(
                schema=inner.schema_name,
                table=inner.table_name,
                id_column=inner.id_column,
                content_column=inner.content_column,
                embedding_column=inner.embedding_column,
                json_column=inner.metadata_json_column,
                metadata_columns=tuple(inner.metadata_columns),
            )
            return layout, inner.engine
        raise InvalidParameterError(
            "store must be a PGVectorStore of langchain-postgres, not a "
            f"{type(store).__name__}. Move the collection of a PGVector into a table "
            "of its own, with the unit id in a column: langchain-postgres' "
            f"migrate_pgvector_collection() does it. {_RECIPE}"
        )


@dataclass(frozen=True)
class Catalog:
    """What the database says of the store's table."""

    layout: Layout
    schema: str
    oid: int

    vector_schema: str  # Where the extension has its type and its operators.
    unit_key: str  # The column that holds the unit id.
    has_integers: bool  # Whether that column holds integers, and not texts.
    dimension: int  # Length of the vectors, which the table's column says.

    @classmethod
    def read(cls, connection: Connection, layout: Layout, unit_key: str) -> Catalog:
        """Look the table up; refuse one that is missing or can't be searched."""
        found = connection.execute(
            _FIND, {"table": layout.table, "schema": layout.schema}
        ).one_or_none()
        if found is None:
            raise InvalidParameterError(
                f"The store's table {layout.table!r} is not in the database that the "
                "store's URL names. Add documents to the store first. If its engine "
                "was made with connect_args, pass the same as connection=."
            )
        if found.kind not in ("r", "p"):
            raise InvalidParameterError(
                f"{layout.table!r} is not a table but a view or the like, which can "
                "hide any index. Make the store over the table itself."
            )
        if found.encoding != "UTF8":
            raise InvalidParameterError(
                f"The store's database has the encoding {found.encoding}. Unit ids "
                "are Unicode texts: move the records into a database with UTF8."
            )
        columns = {
            row.name: row for row in connection.execute(_COLUMNS, {"oid": found.oid})
        }
        vector = columns.get(layout.embedding_column)
        if vector is None or vector.type != "vector":
            kind = "missing" if vector is None else f"of the type {vector.type}"
            raise InvalidParameterError(
                f"The column {layout.embedding_column!r} is {kind}: exact cosines "
                "need pgvector's type 'vector'. Copy the records into a table with "
                "a column of that type."
            )
        if vector.modifier <= 0:
            raise InvalidParameterError(
                f"Table {layout.table!r} does not say how long its vectors are. Give "
                f"the column a length: ALTER TABLE ... ALTER COLUMN "
                f"{layout.embedding_column} TYPE vector(1536), for instance."
            )
        key = columns.get(unit_key) if unit_key in layout.metadata_columns else None
        if key is None:
            raise InvalidParameterError(
                f"{unit_key!r} is not a metadata column of the store. A unit id inside "
                f"the JSON is not used: add a column {unit_key!r} to the table "
                f"{layout.table!r}, copy the ids into it, and name it in "
                f"metadata_columns= of the PGVectorStore. {_RECIPE}"
            )
        if key.type not in (*_TEXTS, *_INTEGERS):
            raise InvalidParameterError(
                f"The column {unit_key!r} is of the type {key.type}. A unit id is a "
                "text or an integer: change the column's type to text, varchar or "
                "bigint."
            )
        return cls(
            layout=layout,
            schema=found.schema,
            oid=found.oid,
            vector_schema=vector.type_schema,
            unit_key=unit_key,
            has_integers=key.type in _INTEGERS,
            dimension=vector.modifier,
        )

    def refuse_ambiguous(self, connection: Connection) -> None:
        """Refuse a table in which two records can have one id."""
        column = self.layout.id_column
        unique: bool = connection.execute(
            _UNIQUE, {"oid": self.oid, "column": column}
        ).scalar_one()
        if not unique:
            raise UnsoundStoreError(
                f"Two records of table {self.layout.table!r} can have one id: nothing "
                f"in the database keeps the column {column!r} unique, over all "
                "partitions. One person's records could then make every query fail. "
                "Make that column alone the primary key, or make it NOT NULL with a "
                "unique index; where the table is partitioned by another column, make "
                "the store over a table that is not."
            )

    def refuse_approximate(self, connection: Connection) -> None:
        """Refuse a table whose vectors have an approximate index."""
        found = connection.execute(
            _INDEXES,
            {
                "oid": self.oid,
                "column": self.layout.embedding_column,
                "built_in": list(_BUILT_IN),
            },
        ).all()
        if found:
            names = ", ".join(f"{row.name!r} ({row.method})" for row in found)
            raise UnsoundStoreError(
                f"The vectors of table {self.layout.table!r} have an approximate "
                f"index: {names}. It is built from all records at once, so that one "
                "person more or less can change which records of others it finds. Drop "
                "it, or pass exact=True to search past it: every vector is then "
                "compared with the question."
            )

    @property
    def records(self) -> TableClause:
        """The table, with the columns that this library reads."""
        layout = self.layout
        names = [
            layout.id_column,
            layout.content_column,
            layout.embedding_column,
            *layout.metadata_columns,
            *([layout.json_column] if layout.json_column else []),
        ]
        columns: list[ColumnClause[Any]] = [
            column(quoted_name(name, quote=True)) for name in names
        ]
        return table(
            quoted_name(layout.table, quote=True),
            column("ctid"),
            column("tableoid"),
            *columns,
            schema=quoted_name(self.schema, quote=True),
        )

    def unit(self, records: TableClause) -> ColumnElement[Any]:
        """Return a record's unit id as a text, compared byte for byte.

        Which spellings mean one person is decided in Python, where each is assigned to
        its shard.
        """
        # A collation may hold different texts to be equal.
        return cast(records.c[self.unit_key], Text).collate("C")

    def attribute(self, records: TableClause, key: str) -> ColumnElement[Any]:
        """Return a record's value in a column, in the spelling of `filtering.spelled`.

        Any type can be made a text, so no record can fail a query by it.
        """
        own = func.btrim(cast(records.c[key], Text), SPACES)
        return func.normalize(own).collate("C")

    def require_attributes(self, only: UnitFilter) -> None:
        """Refuse a filter by what has no column."""
        for key in only.description():
            if key not in self.layout.metadata_columns:
                raise InvalidParameterError(
                    f"{key!r} is not a metadata column of the store, and a filter does "
                    "not look into the JSON: add a column, as for a unit id, and name "
                    f"it in metadata_columns=. {_RECIPE}"
                )

    def unit_text(self, value: Any) -> str | None:
        """Return a unit id as `unit` has it, or None where no record can hold it."""
        if self.has_integers:
            is_one = isinstance(value, int) and not isinstance(value, bool)
            return str(value) if is_one and abs(value) <= _LARGEST_INTEGER else None
        return value if isinstance(value, str) and is_text(value) else None

    def unit_value(self, unit: str | None) -> str | int | None:
        """Return the unit id of a record's metadata, from what `unit` says."""
        return int(unit) if self.has_integers and unit is not None else unit
