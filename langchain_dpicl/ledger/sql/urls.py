"""A ledger's URL: read where its password surely ends, and shown without it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from langchain_dpicl.exceptions import LedgerError

_SECRETS = ("password", "sslpassword")
"""What libpq takes from a URL's query that nobody else may read."""


def read_url(url: Any) -> URL:
    """Return the parts of a URL.

    A password with an `@` that is not written as `%40` ends at the first `@`, and what
    is left of it would be taken, and shown, as the name of a host or a database.

    Raises:
        LedgerError: If it can't be parsed, or its password may not be what is taken for
            it. The message shows nothing of it.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError, TypeError, AttributeError):
        # A port that is no number is named in the error, and may be a password's end.
        parsed = None
    if parsed is None:
        raise LedgerError(
            "The ledger's URL can't be parsed. It looks like "
            "'sqlite:///clinic.db' or 'postgresql+psycopg://user@host/db'."
        )
    is_file = parsed.get_backend_name() == "sqlite"
    if is_file and (parsed.username or parsed.password or parsed.host or parsed.port):
        raise LedgerError(
            "A SQLite ledger is a file: three slashes and its path, as in "
            "'sqlite:///clinic.db', without user, password or host."
        )
    if not is_file and isinstance(url, str) and url.count("@") > 1:
        raise LedgerError(
            "The ledger's URL has an '@' too many, so that nobody can tell where its "
            "password ends. Write special characters of the password as "
            "urllib.parse.quote(password, safe='') does ('@' as '%40', '/' as '%2F')."
        )
    return parsed


def holds_password(url: URL) -> bool:
    """Return whether a URL gives a password, before the host or in its query."""
    return url.password is not None or any(name in url.query for name in _SECRETS)


def shown(url: URL) -> str:
    """Return a URL as messages may show it.

    Example:
        >>> shown(make_url("postgresql://ann:secret@host/db?sslpassword=secret"))
        'postgresql://ann:***@host/db'
    """
    public = url.difference_update_query(_SECRETS)
    return public.render_as_string(hide_password=True)
