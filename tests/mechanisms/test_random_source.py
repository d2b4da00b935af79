"""Random bits repeat in no thread, fork or copy; seeds are for tests."""

from __future__ import annotations

import contextvars
import copy
import os
import pickle
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from support.exact_laws import keeps_to

from langchain_dpicl import InvalidParameterError
from langchain_dpicl.mechanisms import random
from langchain_dpicl.mechanisms.random import SecureRandom, SeededRandom, current
from langchain_dpicl.sealed import sealed


def drawn_in_a_fork(source: SecureRandom) -> tuple[int, int]:
    """Return what a child and its parent draw next."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, source.getrandbits(64).to_bytes(8, "little"))
        os._exit(0)
    own = source.getrandbits(64)
    os.waitpid(child, 0)
    found = int.from_bytes(os.read(reading, 8), "little")
    os.close(reading)
    os.close(writing)
    return found, own


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_repeats_nothing() -> None:
    source = SecureRandom()
    source.getrandbits(64)
    child, parent = drawn_in_a_fork(source)
    assert child != parent
    # The twin: a stream that lies in memory.
    child, parent = drawn_in_a_fork(SeededRandom(3))
    assert child == parent


def test_threads_and_copies_repeat_nothing() -> None:
    source = current()
    copies = [source, copy.deepcopy(source), pickle.loads(pickle.dumps(source))]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: copies[n % 3].getrandbits(64), range(4_000)))
        seeded = SeededRandom(5)
        under_a_seed = list(pool.map(lambda _: seeded.getrandbits(64), range(4_000)))
    assert len(set(found)) == len(set(under_a_seed)) == 4_000
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            way(SeededRandom(5))  # type: ignore[operator]


@pytest.mark.parametrize("bound", [1, 3, 10, (1 << 63) - 1, 1 << 63])
def test_integers_are_uniform(bound: int) -> None:
    with random.seeded(4) as source:
        drawn = source.integers(9_000, bound)
    assert drawn.min() >= 0
    assert int(drawn.max()) < bound
    cells = min(bound, 9)
    places = [n * cells // bound for n in drawn.tolist()]
    counts = Counter(n * cells // bound for n in range(bound)) if bound < 99 else {}
    law = {c: counts[c] / bound if counts else 1 / cells for c in range(cells)}
    assert keeps_to(places, law)
    with pytest.raises(InvalidParameterError):
        current().integers(1, (1 << 63) + 1)


class Words(SecureRandom):
    """Words as given, one call after the other."""

    def __init__(self, *calls: list[int]) -> None:
        super().__init__()
        self._calls = list(calls)

    def words(self, count: int) -> Any:
        return np.array(self._calls.pop(0)[:count], np.uint64)


def test_a_word_above_the_last_whole_multiple_is_drawn_again() -> None:
    bound, most = 6, (1 << 64) - 1
    source = Words([most, 7, most - 3], [most - 2], [5])
    # 2^64 = 4 modulo 6: the last four words are too many.
    assert source.integers(3, bound).tolist() == [5, 1, 5]


def test_a_seed_is_bound_to_its_context() -> None:
    with random.seeded(1) as source:
        assert current() is source
        assert not contextvars.Context().run(lambda: current().is_seeded)
        with ThreadPoolExecutor(1) as pool:
            assert not pool.submit(lambda: current().is_seeded).result()
        # The wall carries it on purpose.
        assert sealed(lambda: current() is source)
        with random.use(None) as same, random.use(SecureRandom()) as other:
            assert same is source
            assert current() is other
        assert current() is source
    assert not current().is_seeded
    assert sealed(lambda: not current().is_seeded)


def test_no_seed_beside_a_ledger_that_outlives_the_process(tmp_path: Any) -> None:
    begin = """
import sys
from langchain_core.documents import Document
from langchain_dpicl import InvalidParameterError, Ledger, PrivacyBudgetHandler
from langchain_dpicl import SampledGroups
from langchain_dpicl.mechanisms import random

def account(ledger):
    PrivacyBudgetHandler(epsilon=1, delta=1e-6, queries=1, ledger=ledger, account="a")

def refused(step):
    try:
        step()
    except InvalidParameterError as error:
        return random.TESTING in str(error)
    return False

def seed():
    with random.seeded(1):
        pass

def groups():
    SampledGroups.from_documents(
        [Document("a", metadata={"u": n}) for n in range(9)],
        unit_key="u", n_groups=2, sampling_rate=0.5, random=random.SeededRandom(1),
    )
"""
    ledger_first = """
with random.seeded(1):
    account(":memory:")
    print(refused(lambda: account(sys.argv[1])))
account(sys.argv[1])
print(refused(seed), refused(lambda: random.use(random.SeededRandom(1)).__enter__()))
print(refused(groups))
with random.use(random.SecureRandom()):
    pass
"""
    seed_first = "groups(); print(refused(lambda: account(sys.argv[1])))"
    url = f"sqlite:///{tmp_path}/ledger.db"
    environment = {k: v for k, v in os.environ.items() if k != random.TESTING}
    for allowed, end, expected in (
        ({}, ledger_first, ["True"] * 4),
        ({random.TESTING: "1"}, ledger_first, ["False"] * 4),
        ({}, seed_first, ["True"]),
    ):
        done = subprocess.run(
            [sys.executable, "-c", begin + end, url],
            env={**environment, **allowed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == expected


def test_no_seed_is_shown_and_no_other_generator_taken() -> None:
    assert "12345" not in repr(SeededRandom(12345))
    assert random.checked_source(None) is None
    for wrong in (np.random.default_rng(1), 7, "seed"):
        with pytest.raises(InvalidParameterError):
            random.checked_source(wrong)  # type: ignore[arg-type]
