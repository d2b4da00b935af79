"""The durable record of what every account promised and what it has spent.

`Ledger` keeps it in SQLite or PostgreSQL, or in memory for tests and notebooks.
`open_ledger` turns what a user passes as `ledger=` into one; `backup_ledger` copies a
SQLite ledger while it is in use.
"""

from langchain_dpicl.ledger.backup import backup_ledger
from langchain_dpicl.ledger.book import Book
from langchain_dpicl.ledger.corpus import CorpusState, CorpusTerms
from langchain_dpicl.ledger.ledger import Ledger, new_ledger, open_ledger
from langchain_dpicl.ledger.terms import AccountTerms, Head, Plan, next_period

__all__ = [
    "AccountTerms",
    "Book",
    "CorpusState",
    "CorpusTerms",
    "Head",
    "Ledger",
    "Plan",
    "backup_ledger",
    "new_ledger",
    "next_period",
    "open_ledger",
]
