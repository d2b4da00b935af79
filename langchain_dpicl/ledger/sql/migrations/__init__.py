"""The ledger's schema, version by version, for alembic.

Each file in `versions` is one `SCHEMA_VERSION`. A file that was released never changes;
what it needs to know of the schema, and of how digests are made, stands in it.
"""
