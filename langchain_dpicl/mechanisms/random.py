"""Random bits: the operating system's, or a seeded stream in tests.

Every draw of every mechanism comes from `current()`. All draws are exact: fair bits
become uniform integers by rejection, never through a float. `randrange`, `sample` and
`shuffle` are those of Python's own class, which reject over integers where a class has
`getrandbits`. What goes through a float (`random`, and with it `choices`, `gauss`,
`uniform`) is refused.

There is no buffer: no future noise lies in memory, and a fork repeats nothing.

A seed is bound to the current context. A thread or a fresh context does not see it
unless the context is copied: the wall around private steps carries it on purpose. The
record of every release that was drawn under a seed says so.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from langchain_dpicl.errors import InvalidParameterError

TESTING = "LANGCHAIN_DPICL_ALLOW_SEEDS"
"""The environment variable under which seeds and durable ledgers go together."""

_MOST = 1 << 63
_process = {"has_durable_ledger": False, "has_seed": False}


class SecureRandom(random.SystemRandom):
    """Exact draws over `os.urandom`; safe between threads and after a fork.

    Subclasses override `randbytes`, which all other draws are made of.

    Example:
        >>> source = SecureRandom()
        >>> 0 <= source.randrange(10**40) < 10**40
        True
        >>> sorted(source.sample(range(3), 3))
        [0, 1, 2]
    """

    is_seeded = False
    """Whether the draws can be repeated, so that they hide nothing."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()

    def randbytes(self, n: int) -> bytes:
        """Return `n` bytes that nobody has seen."""
        return os.urandom(n)

    def getrandbits(self, k: int) -> int:
        """Return a uniform integer of `k` bits."""
        size = (k + 7) // 8
        return int.from_bytes(self.randbytes(size), "little") >> (8 * size - k)

    def random(self) -> NoReturn:
        """Refuse: a float is no exact draw."""
        raise TypeError("No float is drawn here: use randrange, words or exact.py.")

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """Return independent uniform 64-bit words, shape `(count,)`."""
        taken = np.frombuffer(self.randbytes(8 * count), dtype="<u8")
        return taken.astype(np.uint64, copy=False)

    def integers(self, count: int, bound: int) -> npt.NDArray[np.int64]:
        """Return independent uniform integers below `bound`, shape `(count,)`.

        The bound is from 1 to 2^63, or it is a `InvalidParameterError`. A word above
        the last whole multiple of the bound is drawn again, so all remainders are
        equally likely.

        Example:
            >>> SecureRandom().integers(3, 1).tolist()
            [0, 0, 0]
        """
        if not 1 <= bound <= _MOST:
            raise InvalidParameterError("bound must be from 1 to 2**63.")
        last = np.uint64((1 << 64) // bound * bound - 1)
        words = self.words(count).copy()
        again = np.flatnonzero(words > last)
        while again.size:
            words[again] = self.words(again.size)
            again = again[words[again] > last]
        remainders: npt.NDArray[np.int64] = (words % np.uint64(bound)).astype(np.int64)
        return remainders


class SeededRandom(SecureRandom):
    """A stream that repeats, for tests: the seed gives the noise away.

    Bytes are SHAKE-256 of the seed and the number of the call. A forked child repeats
    what its parent draws next.

    Example:
        >>> SeededRandom(7).randrange(1000) == SeededRandom(7).randrange(1000)
        True
        >>> SeededRandom(7)
        SeededRandom(NOT SECURE, for tests only)
    """

    is_seeded = True

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._label = str(int(seed)).encode()
        self._calls = itertools.count()

    def __repr__(self) -> str:
        # The seed is left out: printed, it would give the noise away.
        return "SeededRandom(NOT SECURE, for tests only)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A seeded source is not copied: the copy would repeat it.")

    def randbytes(self, n: int) -> bytes:
        """Return the next `n` bytes of the stream."""
        call = next(self._calls).to_bytes(8, "little")
        return hashlib.shake_256(self._label + b"/" + call).digest(n)


_SYSTEM = SecureRandom()
_source: ContextVar[SecureRandom] = ContextVar("random_source", default=_SYSTEM)


def current() -> SecureRandom:
    """Return the source of the current context: without a seed the system's.

    Example:
        >>> current().is_seeded
        False
    """
    return _source.get()


@contextmanager
def seeded(seed: int) -> Iterator[SecureRandom]:
    """Draw from a seeded stream inside the `with` block; for tests.

    Raises:
        InvalidParameterError: If this process has opened a durable ledger and the
            environment variable `LANGCHAIN_DPICL_ALLOW_SEEDS` is not set.

    Example:
        >>> with seeded(7):
        ...     current().is_seeded
        True
    """
    with use(SeededRandom(seed)) as source:
        yield source


@contextmanager
def use(source: SecureRandom | None) -> Iterator[SecureRandom]:
    """Draw from a source inside the `with` block; None leaves the context's."""
    if source is None:
        yield current()
        return
    _require_allowed(source)
    token = _source.set(source)
    try:
        yield source
    finally:
        _source.reset(token)


def durable_ledger_opened() -> None:
    """Note that this process opens a ledger that outlives it; refuse a seed in force.

    Raises:
        InvalidParameterError: If draws of this context are seeded, or groups of this
            process were made with a seed, unless the environment variable
            `LANGCHAIN_DPICL_ALLOW_SEEDS` is set.
    """
    if current().is_seeded or _process["has_seed"]:
        _refuse("A ledger that outlives the process is not opened under a seed.")
    _process["has_durable_ledger"] = True


def _require_allowed(source: SecureRandom) -> None:
    if source.is_seeded and _process["has_durable_ledger"]:
        _refuse("This process has opened a durable ledger: its noise has no seed.")


def _refuse(reason: str) -> None:
    if not os.environ.get(TESTING):
        raise InvalidParameterError(f"{reason} Tests set {TESTING}.")


def checked_source(source: SecureRandom | None) -> SecureRandom | None:
    """Return what is given as `random=`: a source, or None for the context's."""
    if source is not None and not isinstance(source, SecureRandom):
        raise InvalidParameterError(
            f"random must be a SecureRandom, not {type(source).__name__}. Leave it "
            "out to draw from the operating system."
        )
    if source is not None and source.is_seeded:
        _require_allowed(source)
        _process["has_seed"] = True
    return source
