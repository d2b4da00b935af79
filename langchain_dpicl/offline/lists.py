"""The built-in public lists of options, written for this library."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import NamedTuple


class Options(NamedTuple):
    """A public list of what may answer questions of one kind."""

    kinds: tuple[str, ...]  # Names of the kind: "drug", "medicine".
    # Words of which a question must hold one; any question will do without them.
    subjects: tuple[str, ...]
    texts: tuple[str, ...]


@lru_cache(maxsize=1)
def builtin_options() -> tuple[Options, ...]:
    """Return the built-in lists of options.

    Example:
        >>> [found.texts[0] for found in builtin_options() if "hobby" in found.kinds]
        ['reading']
    """
    files = resources.files("langchain_dpicl.offline")
    read = files.joinpath("options.txt").read_text(encoding="utf-8")
    found = []
    for line in read.splitlines():
        about, _, texts = line.partition(": ")
        kinds, _, subjects = about.partition("; ")
        named = tuple(kinds.split(" / "))
        found.append(Options(named, tuple(subjects.split()), tuple(texts.split(", "))))
    return tuple(found)
