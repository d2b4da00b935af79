from __future__ import annotations

import ast
import copy
import hashlib
import itertools
import math
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from langchain_dpicl import mechanisms
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import SecureRandom, SeededRandom, system_random
from langchain_dpicl.mechanisms.source import _BUFFER_BYTES, checked_source


def test_below_is_uniform_for_bounds_that_are_no_power_of_two(
    fits: Callable[..., bool],
) -> None:
    source = SeededRandom(1)
    assert fits(
        (source.below(7) for _ in range(14_000)), dict.fromkeys(range(7), 1 / 7)
    )


def test_a_biased_below_is_caught(fits: Callable[..., bool]) -> None:
    source = SeededRandom(1)
    draws = (source.bits(3) % 7 for _ in range(14_000))
    assert not fits(draws, dict.fromkeys(range(7), 1 / 7))


def test_below_reaches_beyond_machine_words() -> None:
    source = SeededRandom(2)
    bound = 3**200
    draws = [source.below(bound) for _ in range(100)]
    assert all(0 <= draw < bound for draw in draws)
    assert max(draws) > bound // 2


@pytest.mark.parametrize("bound", [1, 2, 7, 10, 64])
def test_integers_are_uniform(fits: Callable[..., bool], bound: int) -> None:
    draws = SeededRandom(13).integers(40_000, bound)
    assert draws.dtype == np.int64
    assert fits(draws.tolist(), dict.fromkeys(range(bound), 1 / bound))
    if bound > 1:
        wrong = dict.fromkeys(range(bound + 1), 1 / (bound + 1))
        assert not fits(draws.tolist(), wrong)


def test_integers_below_a_large_bound_are_not_biased(
    fits: Callable[..., bool],
) -> None:
    """2^64 is 2 * bound and two thirds of it: remainders alone would favor those."""
    bound = 3 * 2**61

    def thirds(draws: np.ndarray) -> list[int]:
        assert draws.min() >= 0
        assert draws.max() < bound
        return (draws // 2**61).tolist()

    even = dict.fromkeys(range(3), 1 / 3)
    assert fits(thirds(SeededRandom(14).integers(30_000, bound)), even)
    words = SeededRandom(14).words(30_000)
    assert not fits(thirds((words % np.uint64(bound)).astype(np.int64)), even)


def test_words_beyond_the_last_multiple_are_drawn_again_until_they_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = SeededRandom(15)
    top = 2**64 - 1  # 2^64 is 1 more than a multiple of 3 and 15.
    given = [[top, 4, top, 5], [top, 7], [8]]
    rounds = iter([np.array(words, np.uint64) for words in given])
    monkeypatch.setattr(source, "words", lambda count: next(rounds))
    assert source.integers(4, 3).tolist() == [2, 1, 1, 2]
    monkeypatch.setattr(source, "words", lambda count: np.array([top], np.uint64))
    assert source.integers(1, 2).tolist() == [1]


def test_integers_of_any_number_below_any_bound() -> None:
    assert SecureRandom().integers(0, 5).shape == (0,)
    draws = SecureRandom().integers(1000, 2**63)
    assert 0 <= draws.min() <= 2**62 <= draws.max()


def test_permutations_are_uniform(fits: Callable[..., bool]) -> None:
    source = SeededRandom(3)
    draws = (tuple(source.permutation(4)) for _ in range(12_000))
    assert fits(draws, dict.fromkeys(itertools.permutations(range(4)), 1 / 24))


@pytest.mark.parametrize("equal", [[5, 5, 1], [1, 5, 1], [7, 7, 9], [3, 3, 3]])
def test_equal_keys_do_not_bias_a_permutation(
    monkeypatch: pytest.MonkeyPatch, equal: list[int]
) -> None:
    source = SeededRandom(4)
    keys = iter([np.array(equal, np.uint64), np.array([9, 2, 1], np.uint64)])
    monkeypatch.setattr(source, "words", lambda count: next(keys))
    # The first keys would give [2, 0, 1].
    assert source.permutation(3) == [2, 1, 0]


def test_shuffle_keeps_the_items() -> None:
    items = list("abcdef")
    SeededRandom(5).shuffle(items)
    assert sorted(items) == list("abcdef")


@pytest.mark.parametrize(("population", "count"), [(5, 2), (5, 3)])
def test_samples_are_uniform_in_order_too(
    fits: Callable[..., bool], population: int, count: int
) -> None:
    source = SeededRandom(6)
    draws = (tuple(source.sample(population, count)) for _ in range(12_000))
    orders = list(itertools.permutations(range(population), count))
    assert fits(draws, dict.fromkeys(orders, 1 / len(orders)))


def test_a_sample_of_a_huge_population_is_quick_and_distinct() -> None:
    drawn = SecureRandom().sample(10**15, 50)
    assert len(set(drawn)) == 50


@pytest.mark.parametrize("gamma", ["0", "1/3", "1", "5/2", "7"])
def test_bernoulli_exp_has_its_probability(
    fits: Callable[..., bool], gamma: str
) -> None:
    source = SeededRandom(7)
    exponent = Fraction(gamma)
    accepted = math.exp(-exponent)
    draws = (source.bernoulli_exp(exponent) for _ in range(15_000))
    assert fits(draws, {True: accepted, False: 1 - accepted})


def test_bernoulli_exp_of_half_the_exponent_is_caught(
    fits: Callable[..., bool],
) -> None:
    source = SeededRandom(7)
    accepted = math.exp(-1)
    draws = (source.bernoulli_exp(Fraction(1, 2)) for _ in range(5_000))
    assert not fits(draws, {True: accepted, False: 1 - accepted})


def test_bernoulli_exp_ends_at_once_for_a_huge_exponent() -> None:
    assert not SeededRandom(8).bernoulli_exp(Fraction(10) ** 400)


@pytest.mark.parametrize(
    "call",
    [
        lambda source: source.below(0),
        lambda source: source.integers(1, 0),
        lambda source: source.integers(1, 2**63 + 1),
        lambda source: source.sample(2, 3),
        lambda source: source.sample(2, -1),
        lambda source: source.bernoulli_exp(Fraction(-1)),
    ],
)
def test_impossible_draws_are_refused(call: Callable[[SecureRandom], object]) -> None:
    with pytest.raises(InvalidParameterError):
        call(SecureRandom())


@pytest.mark.parametrize(
    ("call", "drawn"),
    [
        (lambda source: source.words(0).tolist(), []),
        (lambda source: source.bits(0), 0),
        (lambda source: source.below(1), 0),
        (lambda source: source.integers(0, 5).tolist(), []),
        (lambda source: source.integers(9, 2**63).size, 9),
        (lambda source: source.permutation(0), []),
        (lambda source: source.sample(5, 0), []),
        (lambda source: source.sample(0, 0), []),
        (lambda source: sorted(source.sample(3, 3)), [0, 1, 2]),
    ],
)
def test_the_smallest_and_largest_draws_are_possible(
    call: Callable[[SecureRandom], object], drawn: object
) -> None:
    assert call(SecureRandom()) == drawn


def test_the_buffer_is_cut_without_repeats_or_gaps() -> None:
    whole = SeededRandom(10)._entropy(_BUFFER_BYTES)
    source = SeededRandom(10)
    cuts = [source._take(7) for _ in range(_BUFFER_BYTES // 7)]
    assert b"".join(cuts) == whole[: 7 * (_BUFFER_BYTES // 7)]
    assert source._take(7) not in cuts


@pytest.mark.parametrize("source", [SecureRandom(), SeededRandom(11)], ids=repr)
def test_copies_and_pickles_never_repeat_the_stream(source: SecureRandom) -> None:
    source.words(3)
    # S301 would warn of foreign pickles; this one is our own.
    others = [copy.copy(source), copy.deepcopy(source), copy.copy(source)]
    others.append(pickle.loads(pickle.dumps(source)))  # Our own.
    others.append(copy.copy(others[0]))
    drawn = [int(each.words(1)[0]) for each in [source, *others] for _ in range(5)]
    assert len(set(drawn)) == len(drawn)
    assert all(type(other) is type(source) for other in others)


def test_threads_never_share_bits() -> None:
    source = SecureRandom()
    drawn: list[bytes] = []
    start = threading.Barrier(8)

    def draw() -> None:
        start.wait()
        drawn.extend(source._take(8) for _ in range(20_000))

    threads = [threading.Thread(target=draw) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(drawn)) == len(drawn) == 160_000


FORK = """
import os
from langchain_dpicl.mechanisms import {source}
source = {source}({seed})
source.bits(64)  # A buffer that a child would inherit.
read, write = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.write(write, b"%d %d " % (source.bits(64), source.words(9000)[0]))
        os._exit(0)
    os.wait()
    os.write(write, b"%d %d " % (source.bits(64), source.words(9000)[0]))
    os._exit(0)
os.wait()
drawn = os.read(read, 4096).split()
drawn += [b"%d" % source.bits(64), b"%d" % source.words(9000)[0]]
assert len(drawn) == len(set(drawn)) == 6, drawn
"""


@pytest.mark.parametrize(
    ("source", "seed"), [("SecureRandom", ""), ("SeededRandom", 1)]
)
def test_a_forked_child_does_not_repeat_its_parent(source: str, seed: object) -> None:
    code = FORK.format(source=source, seed=seed)
    # In a process of its own: forking the test runner and its threads is unsafe.
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_buffer_of_another_process_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = SeededRandom(12)
    source.bits(64)
    kept = copy.copy(source._local.stream).read(8)
    monkeypatch.setattr("os.getpid", lambda: -1)
    assert source._take(8) != kept


def test_a_seeded_source_says_so_and_hides_its_seed() -> None:
    assert not SeededRandom(4711).secure
    assert "NOT SECURE" in repr(SeededRandom(4711))
    assert "4711" not in repr(SeededRandom(4711))
    assert system_random().secure
    assert system_random() is system_random()
    assert repr(system_random()) == "SecureRandom()"


def test_the_default_source_is_the_operating_systems(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = checked_source(None)
    monkeypatch.setattr("os.urandom", lambda size: b"\x01" * size)
    assert source._take(_BUFFER_BYTES) == b"\x01" * _BUFFER_BYTES


@pytest.mark.parametrize("random", [np.random.default_rng(1), 7, "system"])
def test_other_generators_are_refused(random: object) -> None:
    with pytest.raises(InvalidParameterError, match="SecureRandom"):
        checked_source(random)


def test_no_release_path_imports_a_weak_generator() -> None:
    folder = Path(mechanisms.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert "random" not in {alias.name for alias in node.names}, path
            if isinstance(node, ast.ImportFrom):
                assert node.module != "random", path
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) != ("np", "random"), path


def test_importing_the_mechanisms_is_light() -> None:
    code = (
        "import sys, langchain_dpicl.mechanisms as m;"
        "heavy = {'langchain_core', 'scipy', 'pandas', 'dp_accounting', 'mpmath'};"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules);"
        "assert m.__all__ == sorted(m.__all__)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def stream(seed: int, sizes: Sequence[int]) -> Iterator[bytes]:
    """Yield pieces of a seed's stream: cut from blocks of 2^16 bytes.

    A piece of more than a quarter of a block is a block of its own, and one that is
    longer than what is left begins the next.
    """
    numbers, block = itertools.count(), b""

    def drawn(size: int) -> bytes:
        label = repr((seed, (), (), next(numbers)))
        return hashlib.shake_256(label.encode()).digest(size)

    for size in sizes:
        if size > 2**14:
            yield drawn(size)
            continue
        if len(block) < size:
            block = drawn(2**16)
        yield block[:size]
        block = block[size:]
