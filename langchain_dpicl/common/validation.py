"""Pydantic's refusals in this library's words: typed, and without the value given.

A `ValidationError` holds the input it refused. Where someone passes a list of documents
for a group source, that input is private.
"""

from __future__ import annotations

from collections.abc import Callable

from pydantic import ValidationError

from langchain_dpicl.errors import InvalidParameterError


def construct(owner: str, init: Callable[[], None]) -> None:
    """Run a model's `__init__`; raise what it refuses as an error of ours.

    It names the owner and the fields, and has neither cause nor context.
    """
    wrong = ""
    try:
        init()
    except ValidationError as error:
        wrong = "; ".join(
            ": ".join(filter(None, (_place(item["loc"]), _reason(item["msg"]))))
            for item in error.errors(include_url=False, include_input=False)
        )
    if wrong:
        raise InvalidParameterError(f"{owner} can't be made. {wrong}.")


def _place(names: tuple[int | str, ...]) -> str:
    """Return which field is meant, if one is, without the names of types."""
    known = [str(name) for name in names]
    return ".".join(name for name in known if name.isidentifier() or name.isdigit())


def _reason(message: str) -> str:
    """Return a message without what pydantic puts before those of our validators."""
    return message.removeprefix("Value error, ")
