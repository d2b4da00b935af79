"""PGVectorStore with an approximate index for each shard, for millions of records.

The vectors are copied into a table of ours, `langchain_dpicl_vectors_...`, which
PostgreSQL partitions by shard; each partition has an HNSW index of its own. A foreign
key keeps the copy within the records: whom anybody deletes is deleted there as well.

A question is answered by one statement, in which each partition is searched through its
index. Everything else (thresholds, samples, long slots) is searched exactly, as
`store.PGVectorShards` does.
"""

# ruff: noqa: S608  # Names are quoted, and values are parameters.

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy import inspect as inspect_database
from sqlalchemy.exc import DBAPIError

from langchain_dpicl.errors import InvalidParameterError, UnsoundStoreError
from langchain_dpicl.groups.ingest import Vectors
from langchain_dpicl.groups.stores.contract import StoredHit
from langchain_dpicl.groups.stores.pgvector.connection import private_errors
from langchain_dpicl.groups.stores.pgvector.store import PGVectorShards

_MOST = 200
"""Records of one shard that are looked for through an index; more are found exactly."""
_LEAST_LOOK, _LOOK = 100, 4
"""How many candidates the index looks at: at least so many, so many for each record."""
_LONGEST = 2000  # Numbers of a vector that HNSW can index.
_LOCK = 7_214_031_900_451_204
_PREFIX = "langchain_dpicl_vectors_"

# Of the copy: whether it is partitioned, and what each partition holds.
_PARTS = text(
    "SELECT c.relname AS name, pg_get_expr(c.relpartbound, c.oid) AS bound "
    "FROM pg_class p JOIN pg_namespace n ON n.oid = p.relnamespace "
    "JOIN pg_inherits i ON i.inhparent = p.oid JOIN pg_class c ON c.oid = i.inhrelid "
    "WHERE p.relname = :name AND n.nspname = :schema AND p.relkind = 'p' "
    "AND c.relkind = 'r'"
)
_ID_TYPE = text(
    "SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
    "WHERE attrelid = :oid AND attname = :name"
)
# Each branch is planned by itself; a plan for several processes would not be.
_SETTINGS = text(
    "SELECT set_config('hnsw.ef_search', :look, true), "
    "set_config('enable_seqscan', 'off', true), "
    "set_config('enable_nestloop', 'on', true), "
    "set_config('max_parallel_workers_per_gather', '0', true)"
)
_EXACTLY = text(
    "SELECT set_config('enable_seqscan', 'on', true), "
    "set_config('enable_nestloop', 'off', true)"
)


class PGVectorPartitions(PGVectorShards):
    """The shards of a `PGVectorStore`, each searched through an index of its own.

    The arguments are those of `PGVectorShards`. The first opening copies the vectors
    and builds the indexes, which takes minutes for a million. Later ones, and
    `refresh`, copy what is new. Its role must own the records' table, or have the right
    to refer to it; TRUNCATE and DROP of that table then need CASCADE.

    Example:
        >>> from langchain_dpicl import RetrievedGroups
        >>> def groups_of(store) -> RetrievedGroups:
        ...     shards = PGVectorPartitions(store, "patient_id")
        ...     return RetrievedGroups.from_vectorstore(
        ...         shards, unit_key="patient_id", n_groups=100
        ...     )

    Privacy:
        *Unit and relation*: as in every grouping by shard; one unit changes one slot,
        from any documents to any (`REPLACE`). What is needed is that a shard's result
        is a function of that shard's records. An HNSW graph ties together all that it
        was built from, so that one graph of all records breaks this. Here each graph
        was built from the records of one shard: a partition holds one shard, which is
        checked before every search, and an index of a partition reads no other.

        *What decides between index and exact search* is public (how many records are
        looked for), or the shard's own: one from which fewer came than were asked for
        is searched again exactly, alone. Each branch of the statement is planned by the
        statistics of its own partition. A graph is built from its records in the order
        of their ids, not in a join's. HNSW draws the levels of its graph at random,
        without a look at records. When the server tends to a partition (vacuum) is
        assumed not to depend on other units' records, as with any store.

        *Exact, always*: who reaches a threshold (`above`), whose sample is drawn, ties
        at the cut. So who pays in a per-unit account never depends on a graph.

        A slot may miss a near record of its own shard, which costs usefulness alone.
    """

    @private_errors
    def refuse_unsound(self, *, exact: bool) -> None:
        """Refuse what `PGVectorShards` refuses, and partitions of several shards."""
        super().refuse_unsound(exact=exact)
        if self._n_shards is None:
            return
        with self._database.looking() as connection:
            found = self._parts(connection)
            if not found and not self._is_there(connection):
                return  # Nothing was copied yet, and nothing can be found.
        wanted = {
            f"{self._name}_{shard}": f"FOR VALUES IN ({shard})"
            for shard in range(self._n_shards)
        }
        if found != wanted:
            raise UnsoundStoreError(
                f"The table {self._name!r} is not partitioned by shard, one partition "
                "each, so that an index could tie the records of several shards "
                "together. Drop the table and open the store again: it is a copy of "
                "the vectors."
            )

    @private_errors
    def assign(self, shard_of: Mapping[Any, int], n_shards: int) -> None:
        """Keep each unit's shard, and bring the copy of the vectors up to date."""
        if self.dimension > _LONGEST:
            raise InvalidParameterError(
                f"The vectors have {self.dimension} numbers, and an HNSW index takes "
                f"{_LONGEST}. Use PGVectorShards, which searches exactly."
            )
        super().assign(shard_of, n_shards)
        try:
            with self._database.writing() as connection:
                self._copy(connection, n_shards)
        except DBAPIError:
            # A role that may only read searches the copy that others have made.
            with self._database.reading() as connection:
                if not self._parts(connection):
                    raise

    @private_errors
    def best(self, vector: Vectors, n: int, n_shards: int) -> list[StoredHit]:
        """Return about the n best records of each shard, in any order."""
        with self._database.reading() as connection:
            return self._best(connection, vector, n, n_shards)

    @private_errors
    def best_and_sizes(
        self, vector: Vectors, n: int, n_shards: int
    ) -> tuple[list[StoredHit], list[int]]:
        """Return `best` and `sizes`, both of one snapshot of the database."""
        with self._database.reading() as connection:
            hits = self._best(connection, vector, n, n_shards)
            return hits, self._sizes(connection, n_shards)

    def partitions_query(self, n_shards: int) -> str:
        """Return the statement that searches the partitions, to look at its plan."""
        branches = " UNION ALL ".join(
            f"(SELECT {shard} AS shard, id, {self._distance} AS distance "
            f"FROM {self._quoted(f'{self._name}_{shard}')} "
            f"ORDER BY {self._distance} LIMIT :n)"
            for shard in range(n_shards)
        )
        return self._with_documents(branches)

    def _best(
        self, connection: Connection, vector: Vectors, n: int, n_shards: int
    ) -> list[StoredHit]:
        # A part of the units (a sample, a filter) is searched exactly.
        is_part = self._sample is not None or self._only is not None
        if n > _MOST or is_part:
            return self._hits(connection, self.best_query(vector, n, n_shards))
        look = max(_LEAST_LOOK, _LOOK * n)
        connection.execute(_SETTINGS, {"look": str(look)})
        numbers = ",".join(str(float(number)) for number in vector[0])
        given = {
            "vector": f"[{numbers}]",
            "n": n,
            "corpus": self._shards.corpus,
            "n_shards": n_shards,
        }
        found = text(self.partitions_query(n_shards))
        hits = self._stored(connection.execute(found, given).mappings().all())
        count = Counter(hit.shard for hit in hits)
        short = [shard for shard in range(n_shards) if count[shard] < n]
        if short:
            connection.execute(_EXACTLY)
            query = self.best_query(vector, n, n_shards, short)
            hits = [hit for hit in hits if count[hit.shard] == n]
            hits += self._hits(connection, query)
        return hits

    # -- the copy ----------------------------------------------------------------

    @property
    def _name(self) -> str:
        named = repr((self.identity, self._n_shards)).encode()
        return _PREFIX + hashlib.blake2b(named, digest_size=8).hexdigest()

    @property
    def _distance(self) -> str:
        schema = _quote(self._catalog.vector_schema)
        return (
            f"embedding OPERATOR({schema}.<=>) CAST(CAST(:vector AS text) AS "
            f"{schema}.vector)"
        )

    def _parts(self, connection: Connection) -> dict[str, str]:
        where = {"name": self._name, "schema": self._catalog.schema}
        return {row.name: row.bound for row in connection.execute(_PARTS, where)}

    def _is_there(self, connection: Connection) -> bool:
        schema = self._catalog.schema
        return inspect_database(connection).has_table(self._name, schema=schema)

    def _copy(self, connection: Connection, n_shards: int) -> None:
        """Make the copy, if need be, and bring it up to date."""
        catalog, copied = self._catalog, self._quoted(self._name)
        schema = _quote(catalog.vector_schema)
        layout = catalog.layout
        own_id, own = _quote(layout.id_column), _quote(layout.embedding_column)
        records = self._quoted(layout.table)
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        kind = connection.execute(
            _ID_TYPE, {"oid": catalog.oid, "name": layout.id_column}
        ).scalar_one()
        known = self._parts(connection)
        if not known:
            connection.execute(
                text(
                    f"CREATE TABLE {copied} (shard integer NOT NULL, id {kind} NOT "
                    f"NULL REFERENCES {records} ({own_id}) ON DELETE CASCADE, "
                    f"embedding {schema}.vector({self.dimension}) NOT NULL) "
                    "PARTITION BY LIST (shard)"
                )
            )
            for shard in range(n_shards):
                part = self._quoted(f"{self._name}_{shard}")
                connection.execute(
                    text(
                        f"CREATE TABLE {part} PARTITION OF {copied} "
                        f"FOR VALUES IN ({shard})"
                    )
                )
        current = (
            f"FROM {records} r JOIN {self._quoted(self._shards.table.name)} h "
            f"ON h.unit = {self._unit_of('r')} "
            "AND h.corpus = :corpus AND h.n_shards = :n_shards "
        )
        given = {"corpus": self._shards.corpus, "n_shards": n_shards}
        connection.execute(_EXACTLY)
        connection.execute(
            text(
                f"DELETE FROM {copied} c WHERE NOT EXISTS (SELECT {current}"
                f"WHERE r.{own_id} = c.id AND h.shard = c.shard "
                f"AND r.{own} OPERATOR({schema}.=) c.embedding)"
            ),
            given,
        )
        connection.execute(
            text(
                f"INSERT INTO {copied} SELECT h.shard, r.{own_id}, r.{own} {current}"
                f"WHERE r.{own} OPERATOR({schema}.<#>) r.{own} "
                "BETWEEN -1e30 AND -1e-30 AND NOT EXISTS "
                f"(SELECT FROM {copied} c WHERE c.id = r.{own_id}) "
                # A graph depends on the order of its records, and a join's order on
                # how many there are of other units.
                f"ORDER BY h.shard, r.{own_id}"
            ),
            given,
        )
        if not known:
            # After the vectors: a graph is built faster than it grows.
            connection.execute(
                text(
                    f"CREATE INDEX ON {copied} USING hnsw "
                    f"(embedding {schema}.vector_cosine_ops)"
                )
            )
            connection.execute(text(f"CREATE INDEX ON {copied} (id)"))

    def _with_documents(self, found: str) -> str:
        """Return a query for the records of what was found, as they are now."""
        layout = self._catalog.layout
        columns = [
            f"r.{_quote(layout.id_column)} AS id",
            f"r.{_quote(layout.content_column)} AS content",
            *(
                f"r.{_quote(name)} AS column_{number}"
                for number, name in enumerate(layout.metadata_columns)
            ),
        ]
        if layout.json_column is not None:
            columns.append(f"r.{_quote(layout.json_column)} AS metadata")
        return (
            f"WITH found AS MATERIALIZED ({found}) "
            f"SELECT found.shard, 1 - found.distance AS score, {', '.join(columns)} "
            f"FROM found JOIN {self._quoted(layout.table)} r "
            f"ON r.{_quote(layout.id_column)} = found.id "
            # A record that another writer gave to another unit is not found here.
            f"JOIN {self._quoted(self._shards.table.name)} h "
            f"ON h.unit = {self._unit_of('r')} AND h.shard = found.shard "
            "WHERE h.corpus = :corpus AND h.n_shards = :n_shards"
        )

    def _unit_of(self, alias: str) -> str:
        return f'{alias}.{_quote(self._catalog.unit_key)}::text COLLATE "C"'

    def _quoted(self, name: str) -> str:
        return f"{_quote(self._catalog.schema)}.{_quote(name)}"


def _quote(name: str) -> str:
    # A colon would name a parameter.
    return '"' + name.replace('"', '""').replace(":", r"\:") + '"'
