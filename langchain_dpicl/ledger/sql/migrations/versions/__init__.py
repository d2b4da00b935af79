"""One file a schema version; alembic finds them by their revisions."""
