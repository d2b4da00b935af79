"""The built-in public background: passages, words and lists, written for this library.

Names in it are made up. It is covered by the library's license, like any other file.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import NamedTuple


class Passages(NamedTuple):
    """Public passages, and words that say what each one is about."""

    texts: tuple[str, ...]
    subjects: tuple[tuple[str, ...], ...]


@lru_cache(maxsize=1)
def builtin_passages() -> Passages:
    """Return the built-in passages, each with its section's subject words.

    Example:
        >>> passages = builtin_passages()
        >>> len(passages.texts) == len(passages.subjects) > 400
        True
    """
    texts: list[str] = []
    subjects: list[tuple[str, ...]] = []
    section: tuple[str, ...] = ()
    for line in _read("background.txt").splitlines():
        if line.startswith("# "):
            section = tuple(line[2:].split())
        elif line.strip():
            texts.append(line.strip())
            subjects.append(section)
    return Passages(tuple(texts), tuple(subjects))


@lru_cache(maxsize=1)
def builtin_words() -> tuple[str, ...]:
    """Return the built-in list of common English words, numbers and marks.

    Example:
        >>> {"the", "question", "Monday", "?", "1999"} <= set(builtin_words())
        True
    """
    numbers = [*range(101), 150, 200, 250, 300, 400, 500, 1000, 10000]
    years = [*range(1800, 2031), *(f"{decade}s" for decade in range(1800, 2030, 10))]
    marks = [*".,;:!?()$%&/-", "\u2013", "'s"]
    words = _read("words.txt").split()
    return tuple(dict.fromkeys([*marks, *words, *map(str, [*numbers, *years])]))


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
    found = []
    for line in _read("options.txt").splitlines():
        about, _, texts = line.partition(": ")
        kinds, _, subjects = about.partition("; ")
        named = tuple(kinds.split(" / "))
        found.append(Options(named, tuple(subjects.split()), tuple(texts.split(", "))))
    return tuple(found)


def _read(name: str) -> str:
    files = resources.files("langchain_dpicl.offline")
    return files.joinpath(name).read_text(encoding="utf-8")
