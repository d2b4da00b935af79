"""Pydantic's refusals in this library's words: typed, and without the value given.

A `ValidationError` shows the input it refused. Where someone passes a list of documents
for a group source, that input is private.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from langchain_dpicl.exceptions import InvalidParameterError


@contextmanager
def refusing(owner: str) -> Iterator[None]:
    """Turn a `ValidationError` into an `InvalidParameterError` that names the fields.

    Args:
        owner: Whose fields they are.
    """
    wrong = ""
    try:
        yield
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}"
            for item in error.errors(include_url=False, include_input=False)
        )
    if wrong:
        raise InvalidParameterError(f"{owner} can't be made. {wrong}.")
