"""Where alembic finds the database: in the connection that `upgrade_ledger` gives it.

Alembic runs this file; nobody imports it.
"""

from __future__ import annotations

from alembic import context

from langchain_dpicl.ledger.sql.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table="dpicl_migration",
    # SQLite can't alter a column: its tables are copied.
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
