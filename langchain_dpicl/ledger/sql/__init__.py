"""The ledger in a SQL database: SQLite or PostgreSQL."""
