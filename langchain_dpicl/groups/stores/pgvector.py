"""PGVector: PostgreSQL searches every shard by itself, in one query.

A window over the shards, in the order of the exact distance, gives each shard's best
records. Which unit is in which shard stands in a table of ours,
`langchain_dpicl_shards`, beside the store's; records are joined to it by their unit
key as it is. So a record of a known unit counts from the moment that anybody writes it,
and one of an unknown unit does not count at all.

Cosines are computed whatever distance the store was made for. A vector without a
direction (NULL, of norm zero, below 1e-15 or above 1e15, or of another dimension) has
no cosine, and its record is left out of every search. That is decided by the record
alone; to refuse it would let one record fail every query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document
from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Engine,
    Float,
    Select,
    Text,
    any_,
    cast,
    delete,
    func,
    literal,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import UserDefinedType

from langchain_dpicl.exceptions import InvalidParameterError
from langchain_dpicl.groups.stores.contract import ShardStore, StoredHit
from langchain_dpicl.groups.stores.pgvector_assignment import ShardTable
from langchain_dpicl.groups.stores.pgvector_connection import (
    UNREADABLE,
    Database,
    private_errors,
)
from langchain_dpicl.groups.stores.pgvector_tables import Catalog, Layout
from langchain_dpicl.groups.stores.pgvector_units import unit_mark, unit_value

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from langchain_core.embeddings import Embeddings
    from sqlalchemy import CTE

    from langchain_dpicl.groups.ingest import Vectors


_SMALLEST, _LARGEST = 1e-30, 1e30
"""Of a norm's square: the extension adds up in single precision."""


class PGVectorShards(ShardStore):
    """The shards of a `PGVectorStore` or a `PGVector` of langchain-postgres.

    The table and its documents stay as they are. One more table is made in the same
    schema, `langchain_dpicl_shards`, with the unit ids in it: whoever may read the
    records may read it too.

    Where the table does not say how long its vectors are, the store's embedding is
    asked once, here, for a text of ours; records of another length do not count.

    Args:
        store: The store. An asynchronous `PGVector` must have made its tables.
        unit_key: The metadata key that holds the unit id: a key of the JSON, or a
            metadata column of type text, varchar or integer.
        connection: Where the database is, if the store's engine does not say it by its
            URL: a URL, or a SQLAlchemy engine for 'postgresql+psycopg' that was made
            with `hide_parameters=True`.

    Raises:
        InvalidParameterError: If the table can't be found or searched, or psycopg 3
            is not installed.
        GroupCallError: If the database can't be reached.

    Privacy:
        Every vector of the corpus is compared with the question. A record's score is a
        function of its own vector and the question's, a shard's result one of its own
        records. No index is used: the scores are computed into a table in memory
        before they are put in order, where PostgreSQL can't read them from an index.
    """

    @private_errors
    def __init__(
        self,
        store: Any,
        unit_key: str,
        *,
        connection: str | URL | Engine | None = None,
    ) -> None:
        layout, engine = Layout.of(store)
        self._store = store
        self._unit_key = unit_key
        self._database = Database(engine, connection)
        with self._database.reading() as reading:
            self._catalog = Catalog.read(reading, layout, unit_key)
        # Now, not at the first question: an embedding may be anybody's service.
        self._dimension = self._catalog.dimension(self.embeddings)
        self._records = self._catalog.records
        self._key = self._catalog.unit(self._records, unit_key)
        self._shards = ShardTable(self._catalog.schema, self.identity)
        self._n_shards: int | None = None

    @property
    def identity(self) -> str:
        """Schema, table, collection and unit key."""
        layout = self._catalog.layout
        names = (self._catalog.schema, layout.table, layout.collection, self._unit_key)
        return repr(names)

    @property
    def embeddings(self) -> Embeddings | None:
        """The store's embeddings."""
        found: Embeddings | None = self._store.embeddings
        return found

    @private_errors
    def refuse_unsound(self, *, exact: bool) -> None:
        """Refuse an approximate index, unless `exact`, and ids that are not unique.

        With `exact=True` no index is refused: the queries never use such a one.

        Raises:
            UnsoundStoreError: If the vectors have such an index, or if two records
                can have one id.
            GroupCallError: If the database can't be reached.
        """
        with self._database.reading() as connection:
            self._catalog.refuse_ambiguous(connection)
            if not exact:
                self._catalog.refuse_approximate(connection)

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self._dimension

    @private_errors
    def unit_values(self) -> Iterable[Hashable]:
        """Yield the values of the unit key, each once; None if a record has none.

        Also None if a record's value can't be a unit id, such as a list.
        """
        # OFFSET 0, as in `_scored`.
        reading = select(self._key.value.label("value")).where(self._mine())
        read = reading.offset(0).subquery("read")
        marks = select(self._key.mark(read.c.value)).distinct()
        with self._database.reading() as connection:
            found = connection.execute(marks).scalars().all()
        return list(dict.fromkeys(map(unit_value, found)))

    @private_errors
    def assign(self, shard_of: Mapping[Any, int], n_shards: int) -> None:
        """Keep each unit's shard; see `ShardStore.assign`.

        Assignments for several numbers of shards live side by side.
        """
        marks = {unit_mark(value): shard for value, shard in shard_of.items()}
        marks.pop(None, None)
        wanted = {str(mark): shard for mark, shard in marks.items()}
        with self._database.reading() as connection:
            known = self._shards.read(connection, n_shards)
        if known is None or any(known.get(mark) != at for mark, at in wanted.items()):
            with self._database.writing() as connection:
                self._shards.write(connection, wanted, n_shards)
        self._n_shards = n_shards

    @private_errors
    def sizes(self, n_shards: int) -> list[int]:
        """Return the number of records of each shard, private."""
        with self._database.reading() as connection:
            return self._sizes(connection, n_shards)

    @private_errors
    def best(self, vector: Vectors, n: int, n_shards: int) -> list[StoredHit]:
        """Return the n best records of each shard, in any order: one query."""
        with self._database.reading() as connection:
            return self._hits(connection, self.best_query(vector, n, n_shards))

    @private_errors
    def best_and_sizes(
        self, vector: Vectors, n: int, n_shards: int
    ) -> tuple[list[StoredHit], list[int]]:
        """Return `best` and `sizes`, both of one snapshot of the database."""
        with self._database.reading() as connection:
            hits = self._hits(connection, self.best_query(vector, n, n_shards))
            return hits, self._sizes(connection, n_shards)

    def best_query(
        self, vector: Vectors, n: int, n_shards: int
    ) -> Select[tuple[Any, ...]]:
        """Return the query of `best`, for those who want to see its plan."""
        scored = self._scored(vector, n_shards)
        place = func.row_number().over(
            partition_by=scored.c.shard, order_by=scored.c.score.desc()
        )
        ranked = select(scored, place.label("place")).subquery("ranked")
        # Narrowed here: the window stops at the n-th of each shard.
        best = select(ranked).where(ranked.c.place <= n).cte("best")
        return self._documents(best)

    @private_errors
    def of_shard(self, vector: Vectors, shard: int, score: float) -> list[StoredHit]:
        """Return all records of one shard with at least a score, in any order."""
        scored = self._scored(vector, self._assigned())
        passing = (scored.c.shard == shard) & (scored.c.score >= score)
        with self._database.reading() as connection:
            return self._hits(connection, self._documents(scored, passing))

    @private_errors
    def above(self, vector: Vectors, threshold: float) -> list[StoredHit]:
        """Return every record, of any shard, whose score reaches the threshold."""
        scored = self._scored(vector, self._assigned())
        with self._database.reading() as connection:
            query = self._documents(scored, scored.c.score >= threshold)
            return self._hits(connection, query)

    @private_errors
    def of_units(self, vector: Vectors, values: Sequence[Any]) -> list[StoredHit]:
        """Return every record of some units; values as in the records' metadata."""
        marks = [mark for mark in map(unit_mark, values) if mark is not None]
        scored = self._scored(vector, self._assigned(), marks)
        with self._database.reading() as connection:
            return self._hits(connection, self._documents(scored))

    @private_errors
    def delete(self, value: Any) -> int:
        """Delete a unit's records, and its assignment; return how many records.

        All of them, also those that no query finds as their vectors have no direction.
        """
        mark = unit_mark(value)
        if mark is None:
            return 0
        own = self._mine() & (self._mark() == mark)
        with self._database.writing() as connection:
            deleted = connection.execute(delete(self._records).where(own)).rowcount
            self._shards.forget(connection, mark)
        return deleted

    def close(self) -> None:
        """Close the connections; another search opens new ones."""
        self._database.close()

    def _assigned(self) -> int:
        if self._n_shards is None:
            raise InvalidParameterError("assign() units to shards before searching.")
        return self._n_shards

    def _sizes(self, connection: Connection, n_shards: int) -> list[int]:
        scored = self._scored(None, n_shards)
        counted = select(scored.c.shard, func.count().label("records"))
        counted = counted.group_by(scored.c.shard)
        found = {row.shard: row.records for row in connection.execute(counted)}
        return [found.get(number, 0) for number in range(n_shards)]

    def _mark(self) -> ColumnElement[Any]:
        return self._key.mark(self._key.value)

    def _mine(self) -> ColumnElement[bool]:
        return self._catalog.mine(self._records)

    def _scored(
        self,
        vector: Vectors | None,
        n_shards: int,
        marks: Sequence[str] | None = None,
    ) -> CTE:
        """Return every record of the corpus that has a direction, and its score."""
        records = self._records
        own = records.c[self._catalog.layout.embedding_column]
        key = self._key
        # OFFSET 0: computed once for each record, where it stands.
        reading = select(
            records.c.tableoid,
            records.c.ctid,
            own.label("vector"),
            key.value.label("value"),
            self._operator("<#>", own, own).label("squares"),
        ).where(self._mine())
        read = reading.offset(0).subquery("read")
        mark = key.mark(read.c.value)
        shards = self._shards.table.alias("shards")
        columns = [
            read.c.tableoid,
            read.c.ctid,
            shards.c.shard,
            shards.c.unit.label("mark"),
        ]
        if vector is not None:
            distance = self._operator("<=>", read.c.vector, self._vector(vector))
            columns.append((1 - distance).label("score"))
        conditions = [self._has_direction(read.c.vector, read.c.squares)]
        if marks is not None:
            conditions.append(shards.c.unit == any_(literal(marks, ARRAY(Text))))
        scored = (
            select(*columns)
            .join_from(read, shards, shards.c.unit == mark)
            .where(self._shards.mine(shards, n_shards), *conditions)
        )
        return scored.cte("scored").prefix_with("MATERIALIZED")

    def _documents(
        self, found: CTE, *conditions: ColumnElement[bool]
    ) -> Select[tuple[Any, ...]]:
        """Return a query for the documents of what was found."""
        records = self._records
        layout = self._catalog.layout
        columns = [
            found.c.shard,
            found.c.score,
            found.c.mark,
            records.c[layout.id_column].label("id"),
            records.c[layout.content_column].label("content"),
            *(
                records.c[name].label(f"column_{number}")
                for number, name in enumerate(layout.metadata_columns)
            ),
        ]
        if layout.json_column is not None:
            columns.append(records.c[layout.json_column].label("metadata"))
        same = (records.c.ctid == found.c.ctid) & (
            records.c.tableoid == found.c.tableoid
        )
        chosen = select(found.c.ctid).where(*conditions).scalar_subquery()
        return (
            select(*columns)
            .join_from(found, records, same)
            .where(*conditions, records.c.ctid == any_(func.array(chosen)))
        )

    def _hits(
        self, connection: Connection, query: Select[tuple[Any, ...]]
    ) -> list[StoredHit]:
        return [
            StoredHit(self._document(row), float(row["score"]), row["shard"])
            for row in connection.execute(query).mappings().all()
        ]

    def _document(self, row: Any) -> Document:
        """Return a row's document, as the store itself would."""
        layout = self._catalog.layout
        read = row["metadata"] if layout.json_column is not None else None
        metadata = dict(read) if isinstance(read, dict) else {}
        if read is UNREADABLE and self._catalog.key_type is None:
            metadata[self._unit_key] = unit_value(row["mark"])
        for number, name in enumerate(layout.metadata_columns):
            metadata[name] = row[f"column_{number}"]
        return Document(row["content"] or "", metadata=metadata, id=str(row["id"]))

    def _vector(self, vector: Vectors) -> ColumnElement[Any]:
        numbers = ",".join(str(float(number)) for number in vector[0])
        return cast(literal(f"[{numbers}]", Text), _Vector(self._catalog.vector_schema))

    def _operator(
        self, name: str, one: ColumnElement[Any], other: ColumnElement[Any]
    ) -> ColumnElement[float]:
        # With its schema: the extension need not be where names are looked for.
        schema = self._catalog.vector_schema.replace('"', '""')
        operator = f'OPERATOR("{schema}".{name})'
        return one.op(operator, return_type=Float())(other)

    def _has_direction(
        self, own: ColumnElement[Any], squares: ColumnElement[float]
    ) -> ColumnElement[bool]:
        """Return the condition that a vector has a cosine with every question."""
        sized = squares.between(-_LARGEST, -_SMALLEST)
        if self._catalog.fixed_dimension is not None:
            return sized
        length = getattr(func, self._catalog.vector_schema).vector_dims(own)
        alike: ColumnElement[bool] = length == self._dimension
        return alike & sized


class _Vector(UserDefinedType[str]):
    """pgvector's type."""

    cache_ok = True

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def get_col_spec(self, **_options: Any) -> str:
        schema = self.schema.replace('"', '""')
        return f'"{schema}".vector'
