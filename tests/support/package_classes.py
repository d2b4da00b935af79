"""The classes and functions of the package, for tests of what all of them share."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import langchain_dpicl


@functools.cache
def modules() -> list[Any]:
    """Import and return all modules of the package."""
    names = (
        found.name
        for found in pkgutil.walk_packages(langchain_dpicl.__path__, "langchain_dpicl.")
    )
    # Alembic runs the migrations; the other starts the command.
    left_out = ("migrations", "__main__")
    return [
        importlib.import_module(name)
        for name in names
        if not set(left_out) & set(name.split("."))
    ]


def defined() -> Iterator[Any]:
    """Yield each class and function of the package once, by the module it is of."""
    for module in modules():
        for value in vars(module).values():
            is_own = getattr(value, "__module__", "") == module.__name__
            is_generic = "[" in getattr(value, "__qualname__", "")
            if is_own and not is_generic and callable(value):
                yield inspect.unwrap(value)


def classes() -> Iterator[type]:
    yield from (value for value in defined() if inspect.isclass(value))
