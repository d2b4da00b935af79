"""Random bits: the operating system's in production, a seeded stream in tests.

Every draw of every mechanism starts here, and all methods are exact: they turn fair
bits into uniform integers, permutations and Bernoulli trials by rejection over
integers, never through a float.

Small draws are cut from a buffer, so the buffer must never be handed out twice:

* each thread has its own buffer, and the cut is one C call (`BytesIO.read`), which a
  signal handler cannot interrupt half-way;
* a buffer remembers the process and the number of forks behind it, and a forked
  child drops the one it inherited;
* a copied or unpickled source starts without a buffer.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import threading
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_dpicl.errors import InvalidParameterError

_BUFFER_BYTES = 1 << 16
_WORD_BYTES = 8
_WORDS = 1 << 64
_MAX_INTEGERS = 1 << 63

_fork_state = {"generation": 0}


def _count_fork() -> None:
    _fork_state["generation"] += 1


os.register_at_fork(after_in_child=_count_fork)


def _process() -> tuple[int, int]:
    """Return what tells this process from those it was forked from.

    The process id alone would miss a grandchild that got a dead ancestor's id; the
    fork count alone would miss a fork made by foreign C code.
    """
    return os.getpid(), _fork_state["generation"]


class SecureRandom:
    """Cryptographically secure random draws over `os.urandom`.

    Safe to share between threads and across `fork`; copies and pickles carry no
    state. Instances of this class are the only sources a release should use.

    Attributes:
        secure: True where the bits come from the operating system.

    Example:
        >>> source = SecureRandom()
        >>> source.below(1)
        0
        >>> sorted(source.permutation(3))
        [0, 1, 2]
    """

    secure: bool = True

    def __init__(self) -> None:
        self._local = threading.local()

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()

    def _entropy(self, size: int) -> bytes:
        """Return `size` bytes that nobody has seen. Subclasses may override it."""
        return os.urandom(size)

    def _take(self, size: int) -> bytes:
        if size > _BUFFER_BYTES // 4:
            return self._entropy(size)
        local = self._local
        process = _process()
        if getattr(local, "process", None) == process:
            chunk: bytes = local.stream.read(size)
            if len(chunk) == size:
                return chunk
        fresh = io.BytesIO(self._entropy(_BUFFER_BYTES))
        chunk = fresh.read(size)
        local.stream, local.process = fresh, process
        return chunk

    def bits(self, count: int) -> int:
        """Return a uniform integer of `count` bits.

        Example:
            >>> 0 <= SecureRandom().bits(5) < 32
            True
        """
        size = (count + 7) // 8
        return int.from_bytes(self._take(size), "little") >> (8 * size - count)

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """Return `count` independent uniform 64-bit words, shape `(count,)`.

        Example:
            >>> SecureRandom().words(3).shape
            (3,)
        """
        if count == 0:
            return np.empty(0, dtype=np.uint64)
        taken = np.frombuffer(self._take(_WORD_BYTES * count), dtype="<u8")
        return taken.astype(np.uint64, copy=False)

    def below(self, bound: int) -> int:
        """Return a uniform integer in `[0, bound)`, for a bound of any size above 0.

        Example:
            >>> 0 <= SecureRandom().below(10**40) < 10**40
            True
        """
        if bound < 1:
            raise InvalidParameterError("bound must be at least 1.")
        width = (bound - 1).bit_length()
        while True:
            value = self.bits(width)
            if value < bound:
                return value

    def integers(self, count: int, bound: int) -> npt.NDArray[np.int64]:
        """Return `count` independent uniform integers in `[0, bound)`.

        The bound is from 1 to 2^63, or it is a `InvalidParameterError`. A word at or
        above its largest multiple is drawn again, so that every remainder is equally
        likely, exactly.

        Example:
            >>> SecureRandom().integers(3, 1).tolist()
            [0, 0, 0]
        """
        if not 1 <= bound <= _MAX_INTEGERS:
            raise InvalidParameterError("bound must be between 1 and 2**63.")
        words = self.words(count)
        last = np.uint64(_WORDS - _WORDS % bound - 1)
        again = np.flatnonzero(words > last)
        if again.size:
            words = words.copy()  # What `words` returned may be read-only.
        while again.size:
            words[again] = self.words(again.size)
            again = again[words[again] > last]
        remainders: npt.NDArray[np.uint64] = words % np.uint64(bound)
        return remainders.astype(np.int64)

    def permutation(self, count: int) -> list[int]:
        """Return `range(count)` in a uniformly random order.

        Positions are sorted by random 64-bit keys; two equal keys start all over,
        so that every order is equally likely, exactly.
        """
        while True:
            keys = self.words(count)
            order = np.argsort(keys)
            ordered = keys[order]
            if not bool(np.any(ordered[1:] == ordered[:-1])):
                return [int(position) for position in order]

    def shuffle(self, items: list[Any]) -> None:
        """Put `items` in a uniformly random order, in place."""
        items[:] = [items[position] for position in self.permutation(len(items))]

    def sample(self, population: int, count: int) -> list[int]:
        """Return `count` distinct members of `range(population)`, in random order.

        Every ordered choice is equally likely. Time is O(count) unless most of the
        population is taken.

        Raises:
            InvalidParameterError: If `count` is negative or exceeds the population.

        Example:
            >>> sorted(SecureRandom().sample(4, 4))
            [0, 1, 2, 3]
        """
        if not 0 <= count <= population:
            raise InvalidParameterError(
                "count must be between 0 and the population's size."
            )
        if 2 * count > population:
            return self.permutation(population)[:count]
        chosen: dict[int, None] = {}
        while len(chosen) < count:
            chosen.setdefault(self.below(population))
        return list(chosen)

    def bernoulli_exp(self, gamma: Fraction) -> bool:
        """Return True with probability exp(-gamma), exactly, for `gamma` >= 0.

        Canonne, Kamath and Steinke, *The Discrete Gaussian for Differential
        Privacy*, Algorithm 1: for gamma in [0, 1], draw A_K ~ Bernoulli(gamma / K)
        for K = 1, 2, ... until the first 0; then P(K odd) = exp(-gamma). A larger
        gamma is a product of exp(-1) and a rest.

        Raises:
            InvalidParameterError: If `gamma` is negative.

        Example:
            >>> from fractions import Fraction
            >>> SecureRandom().bernoulli_exp(Fraction(0))
            True
        """
        if gamma < 0:
            raise InvalidParameterError("gamma must be at least 0.")
        whole, rest = divmod(gamma.numerator, gamma.denominator)
        # A `while` loop, because `range` iterates over huge integers slowly; the
        # first failure ends it, after 1.6 rounds on average.
        while whole:
            if not self._bernoulli_exp_unit(1, 1):
                return False
            whole -= 1
        return self._bernoulli_exp_unit(rest, gamma.denominator)

    def _bernoulli_exp_unit(self, numerator: int, denominator: int) -> bool:
        trial = 1
        while self.below(denominator * trial) < numerator:
            trial += 1
        return trial % 2 == 1


class SeededRandom(SecureRandom):
    """A reproducible stream, for tests only: whoever knows the seed knows the noise.

    Bytes are SHAKE-256 of the seed, the copy's lineage and a block number. A copy (or
    an unpickled object) gets a lineage of its own and a forked child mixes in its
    process id, so neither repeats the original's stream.

    Example:
        >>> SeededRandom(7).below(1000) == SeededRandom(7).below(1000)
        True
        >>> SeededRandom(7)
        SeededRandom(NOT SECURE, for tests only)
    """

    secure = False

    def __init__(self, seed: int, lineage: tuple[int, ...] = ()) -> None:
        super().__init__()
        self._seed = seed
        self._lineage = lineage
        self._home = _process()
        self._blocks = itertools.count()
        self._copies = itertools.count()

    def __repr__(self) -> str:
        # The seed is left out: printed, it would give the noise away.
        return "SeededRandom(NOT SECURE, for tests only)"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._seed, (*self._lineage, next(self._copies)))

    def _entropy(self, size: int) -> bytes:
        process = _process()
        branch = () if process == self._home else process
        label = repr((self._seed, self._lineage, branch, next(self._blocks)))
        return hashlib.shake_256(label.encode()).digest(size)


_SYSTEM = SecureRandom()


def system_random() -> SecureRandom:
    """Return the process-wide source over the operating system's randomness.

    Example:
        >>> system_random().secure
        True
    """
    return _SYSTEM


def checked_source(random: SecureRandom | None) -> SecureRandom:
    """Return the source to draw from; None means the operating system's."""
    if random is None:
        return _SYSTEM
    # Callers without a type checker pass NumPy generators.
    if not isinstance(random, SecureRandom):
        raise InvalidParameterError(
            f"random must be a SecureRandom, not {type(random).__name__}. Leave it "
            "out to draw from the operating system."
        )
    return random
