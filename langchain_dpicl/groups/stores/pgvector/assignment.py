"""The table that says which unit is in which shard, beside a PGVectorStore's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    FromClause,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    bindparam,
    delete,
    func,
    select,
    text,
)
from sqlalchemy import inspect as inspect_database
from sqlalchemy.dialects.postgresql import ARRAY, insert

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "langchain_dpicl_shards"

_LOCK = 7_214_031_900_451_203
"""Of PostgreSQL's advisory locks, the one under which the table is made and written."""


class ShardTable:
    """The shards of the units of one store.

    Args:
        schema: Where the table is.
        corpus: What tells the store's records from others in the schema.
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
            schema=schema,
        )

    def mine(self, table: FromClause, n_shards: int) -> ColumnElement[bool]:
        """Return the condition that a row is of this store and number of shards.

        Args:
            table: `table`, or an alias of it.
            n_shards: The number.
        """
        columns = table.c
        return (columns.corpus == self.corpus) & (columns.n_shards == n_shards)

    def read(self, connection: Connection, n_shards: int) -> dict[str, int] | None:
        """Return each unit's shard, by its id; None if there is no table yet."""
        if not self._exists(connection):
            return None
        columns = self.table.c
        rows = connection.execute(
            select(columns.unit, columns.shard).where(self.mine(self.table, n_shards))
        )
        return {row.unit: row.shard for row in rows}

    def write(
        self, connection: Connection, wanted: Mapping[str, int], n_shards: int
    ) -> None:
        """Keep units' shards.

        If one of them is in another shard already, all were assigned with another key,
        and are replaced.
        """
        # Two processes that open the store at once would both make the table.
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        known = self.read(connection, n_shards)
        if known is None:
            self.table.create(connection)
            known = {}
        if any(known.get(unit, shard) != shard for unit, shard in wanted.items()):
            connection.execute(
                delete(self.table).where(self.mine(self.table, n_shards))
            )
            known = {}
        new = {unit: shard for unit, shard in wanted.items() if unit not in known}
        if not new:
            return
        # Two arrays: one statement, however many there are.
        units = bindparam("units", list(new), ARRAY(Text))
        shards = bindparam("shards", list(new.values()), ARRAY(Integer))
        given = select(
            func.unnest(units).label("unit"), func.unnest(shards).label("shard")
        ).subquery("given")
        rows = select(
            bindparam("corpus", self.corpus, Text),
            bindparam("n_shards", n_shards, Integer),
            func.sha256(func.convert_to(given.c.unit, "UTF8")),
            given.c.unit,
            given.c.shard,
        )
        names = ["corpus", "n_shards", "digest", "unit", "shard"]
        connection.execute(insert(self.table).from_select(names, rows))

    def forget(self, connection: Connection, unit: str) -> None:
        """Forget a unit, for any number of shards."""
        if self._exists(connection):
            columns = self.table.c
            own = (columns.corpus == self.corpus) & (columns.unit == unit)
            connection.execute(delete(self.table).where(own))

    def _exists(self, connection: Connection) -> bool:
        return inspect_database(connection).has_table(NAME, schema=self.table.schema)
