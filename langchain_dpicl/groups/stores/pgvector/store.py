"""PGVectorStore: PostgreSQL searches every shard by itself, in one query.

A window over the shards, in the order of the exact distance, gives each shard's best
records. Which unit is in which shard stands in a table of ours,
`langchain_dpicl_shards`, beside the store's; records are joined to it by the column
that holds their unit id. So a record of a known unit counts from the moment that
anybody writes it, and one of an unknown unit does not count at all. The database never
reads a record's JSON, so no record can fail a query by it.

Cosines are computed whatever distance the store was made for. A vector without a
direction (NULL, of norm zero, below 1e-15 or above 1e15) has no cosine, and its record
is left out of every search. That is decided by the record alone; to refuse it would let
one record fail every query.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from sqlalchemy import (
    CTE,
    URL,
    ColumnElement,
    Connection,
    Engine,
    Float,
    LargeBinary,
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
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import UserDefinedType

from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import InvalidParameterError, UnsoundStoreError
from langchain_dpicl.groups.filtering import UnitFilter
from langchain_dpicl.groups.ingest import Vectors
from langchain_dpicl.groups.sampling import UnitSample
from langchain_dpicl.groups.stores.contract import ShardStore, StoredHit
from langchain_dpicl.groups.stores.pgvector.connection import Database, private_errors
from langchain_dpicl.groups.stores.pgvector.tables import (
    Catalog,
    Kept,
    Layout,
    ShardTable,
    is_text,
)

_SMALLEST, _LARGEST = 1e-30, 1e30
"""Of a norm's square: the extension adds up in single precision."""


class PGVectorShards(ShardStore):
    """The shards of a `PGVectorStore` of langchain-postgres.

    The table and its documents are not changed. One more table is made in the same
    schema, `langchain_dpicl_shards`, with the unit ids in it: give the readers of the
    records the right to read it too.

    Args:
        store: The store.
        unit_key: The metadata column that holds the unit id, of type text, varchar or
            integer.
        connection: Where the database is, if the store's engine does not say it by its
            URL: a URL, or a SQLAlchemy engine for 'postgresql+psycopg' that was made
            with `hide_parameters=True`.

    Privacy:
        Every vector of the corpus is compared with the question. A record's score is a
        function of its own vector and the question's, a shard's result one of its own
        records. No index is used: the scores are computed into a table in memory before
        they are put in order, where PostgreSQL can't read them from an index.
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
        self._database = Database(engine, connection)
        with self._database.reading() as reading:
            self._catalog = Catalog.read(reading, layout, unit_key)
        self._records = self._catalog.records
        self._unit = self._catalog.unit(self._records)
        self._shards = ShardTable(self._catalog.schema, self.identity)
        self._n_shards: int | None = None
        self._sample: UnitSample | None = None
        self._only: UnitFilter | None = None
        self._has_persons = True

    @property
    def identity(self) -> str:
        """Schema, table and unit key."""
        catalog = self._catalog
        return repr((catalog.schema, catalog.layout.table, catalog.unit_key))

    @property
    def embeddings(self) -> Embeddings | None:
        """The store's embeddings."""
        found: Embeddings | None = self._store.embeddings
        return found

    @private_errors
    def refuse_unsound(self, *, exact: bool) -> None:
        """Refuse ids that are not unique and, unless `exact`, an approximate index.

        With `exact=True` no index is refused: the queries never use such a one.
        """
        with self._database.looking() as connection:
            self._catalog.refuse_ambiguous(connection)
            if not exact:
                self._catalog.refuse_approximate(connection)

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self._catalog.dimension

    @private_errors
    def unit_values(self) -> Iterable[Hashable]:
        """Yield the values of the unit key, each once; None if a record has none."""
        with self._database.reading() as connection:
            found = connection.execute(select(self._unit).distinct()).scalars().all()
        return list(map(self._catalog.unit_value, found))

    @private_errors
    def assign(self, shard_of: Mapping[Any, int], n_shards: int) -> None:
        """Keep each unit's shard; see `ShardStore.assign`.

        Assignments for several numbers of shards live side by side.
        """
        wanted = {
            unit: Kept(shard, canonical_unit_id(value))
            for value, shard in shard_of.items()
            if (unit := self._catalog.unit_text(value)) is not None
        }
        with self._database.reading() as connection:
            known = self._shards.read(connection, n_shards)
        if known is None or any(known.get(unit) != own for unit, own in wanted.items()):
            known = known or {}
            shards = [(known.get(unit), own) for unit, own in wanted.items()]
            is_needed = any(
                one is None or one.shard != own.shard for one, own in shards
            )
            try:
                with self._database.writing() as connection:
                    self._shards.write(connection, wanted, n_shards)
            except DBAPIError:
                # A role that may only read can search as before. It can't sample: the
                # persons that are kept may not be those of the records.
                if is_needed:
                    raise
                self._has_persons = False
                self._n_shards = n_shards
                return
        self._has_persons = True
        self._n_shards = n_shards

    @property
    def can_sample(self) -> bool:
        """Whether every unit's person is kept beside its shard."""
        return self._has_persons

    def sampled(self, sample: UnitSample) -> PGVectorShards:
        """Return a view of the store that has only the sampled units."""
        self._require_persons("leave sampling_rate=1")
        same = copy.copy(self)
        same._sample = sample  # noqa: SLF001  # our own
        return same

    def where(self, only: UnitFilter) -> PGVectorShards:
        """Return a view of the store that has only the units that match a filter.

        Attributes are columns. All of a person's records in the corpus have to agree,
        also those whose vectors have no direction.
        """
        self._require_persons("ask without a filter")
        self._catalog.require_attributes(only)
        same = copy.copy(self)
        same._only = only  # noqa: SLF001  # our own
        return same

    def _require_persons(self, otherwise: str) -> None:
        if not self._has_persons:
            raise UnsoundStoreError(
                "The persons in langchain_dpicl_shards are not those of the records, "
                "and this role may not write them: one person could count as several. "
                "Open the store once by a role that may write, and call refresh(); or "
                f"{otherwise}."
            )

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
        """Return the query of `best`, to look at its plan."""
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
    def delete(self, value: Any) -> int:
        """Delete a unit's records, and its assignment; return how many records.

        All of them, also those that no query finds as their vectors have no direction.
        """
        unit = self._catalog.unit_text(value)
        if unit is None:
            return 0
        own = self._unit == unit
        with self._database.writing() as connection:
            deleted = connection.execute(delete(self._records).where(own)).rowcount
            self._shards.forget(connection, unit)
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

    def _scored(
        self,
        vector: Vectors | None,
        n_shards: int,
    ) -> CTE:
        """Return every record of the corpus that has a direction, and its score."""
        records = self._records
        own = records.c[self._catalog.layout.embedding_column]
        # OFFSET 0: computed once for each record, where it stands.
        reading = select(
            records.c.tableoid,
            records.c.ctid,
            own.label("vector"),
            self._unit.label("unit"),
            self._operator("<#>", own, own).label("squares"),
        )
        read = reading.offset(0).subquery("read")
        shards = self._shards.table.alias("shards")
        columns = [read.c.tableoid, read.c.ctid, shards.c.shard]
        if vector is not None:
            distance = self._operator("<=>", read.c.vector, self._vector(vector))
            columns.append((1 - distance).label("score"))
        # A vector without this has no cosine with any question.
        conditions: list[ColumnElement[bool]] = [
            read.c.squares.between(-_LARGEST, -_SMALLEST)
        ]
        if self._sample is not None:
            person = func.convert_to(shards.c.person, "UTF8")
            nonce = literal(self._sample.nonce, LargeBinary)
            coin = func.substring(func.sha256(nonce.op("||")(person)), 1, 8)
            conditions.append(coin < literal(self._sample.bound, LargeBinary))
        if self._only is not None:
            conditions.append(shards.c.person.in_(self._matching(n_shards)))
        scored = (
            select(*columns)
            .join_from(read, shards, shards.c.unit == read.c.unit)
            .where(self._shards.mine(shards, n_shards), *conditions)
        )
        return scored.cte("scored").prefix_with("MATERIALIZED")

    def _matching(self, n_shards: int) -> Select[tuple[Any]]:
        """Return the persons all of whose records agree on what the filter allows."""
        shards = self._shards.table.alias("persons")
        people = (
            select(shards.c.person)
            .join_from(self._records, shards, shards.c.unit == self._unit)
            .where(self._shards.mine(shards, n_shards))
            .group_by(shards.c.person)
        )
        for key, values in self._only.allowed if self._only else ():
            own = self._catalog.attribute(self._records, key)
            allowed = literal(list(filter(is_text, values)), ARRAY(Text))
            people = people.having(
                func.count(own) == func.count(),
                func.min(own) == func.max(own),
                func.min(own) == any_(allowed),
            )
        return people

    def _documents(
        self, found: CTE, *conditions: ColumnElement[bool]
    ) -> Select[tuple[Any, ...]]:
        """Return a query for the documents of what was found."""
        records = self._records
        layout = self._catalog.layout
        columns = [
            found.c.shard,
            found.c.score,
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
            for row in connection.execute(query).mappings()
        ]

    def _document(self, row: Any) -> Document:
        """Return a row's document, as the store itself would."""
        layout = self._catalog.layout
        read = row["metadata"] if layout.json_column is not None else None
        metadata = dict(read) if isinstance(read, dict) else {}
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


class _Vector(UserDefinedType[str]):
    """pgvector's type."""

    cache_ok = True

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def get_col_spec(self, **_options: Any) -> str:
        schema = self.schema.replace('"', '""')
        return f'"{schema}".vector'
