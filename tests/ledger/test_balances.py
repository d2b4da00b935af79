"""Tags and balances: what stands in a ledger for a unit, and for how long it pays."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from support.ledgers import UNIT_PLANNED, opened

from langchain_dpicl.accounting import Cost
from langchain_dpicl.common.units import NumberedUnits
from langchain_dpicl.ledger import MemoryLedger
from langchain_dpicl.ledger.balances import (
    UnitBalances,
    UnitRows,
    has_repeats,
    keys_in,
    new_key,
    retagged,
    unit_tag,
)

FIRST, SECOND, THIRD = (bytes(range(at, at + 32)) for at in (0, 32, 64))


def hashed(key: bytes, what: bytes, person: bytes) -> bytes:
    return hashlib.blake2b(what, key=key, digest_size=16, person=person).digest()


def test_a_tag_is_a_keyed_hash_of_the_id_and_of_each_later_key() -> None:
    """Stored: another hash would find no balance of a ledger that is there."""
    one = hashed(
        FIRST, "p-\xe4\ud800".encode("utf-8", "surrogatepass"), b"dpicl.balance"
    )
    two = hashed(SECOND, one, b"dpicl.again")
    three = hashed(THIRD, two, b"dpicl.again")
    keys = FIRST + SECOND + THIRD
    found = [unit_tag(keys[: 32 * n], "p-\xe4\ud800") for n in (1, 2, 3)]
    assert found == [one, two, three]
    assert retagged(SECOND, one) == two
    assert keys_in(keys) == [FIRST, SECOND, THIRD]
    assert keys_in(FIRST) == [FIRST]
    assert unit_tag(bytes(32), "p-1").hex() == ("8fb7a32200cdb79d7fb8802a26f53fc4")


def test_keys_are_long_and_fresh() -> None:
    keys = {new_key() for _ in range(8)}
    assert [len(key) for key in keys] == [32] * 8


def test_rows_are_numbered_as_they_come() -> None:
    rows = UnitRows()
    asked = [["a"], [], ["b", "a"], ["a", "b"], ["c"], ["d", "c", "a", "e"], ["e"]]
    found = [rows.of(units).tolist() for units in asked]
    assert found == [[0], [], [1, 0], [0, 1], [2], [3, 2, 0, 4], [4]]
    assert rows.ids() == ["a", "b", "c", "d", "e"]
    assert all(rows.of(units).dtype == np.intp for units in asked)


class Source:
    """What numbers its units."""


def numbered(source: Source, numbers: list[int], asked: list[str]) -> NumberedUnits:
    names = ["a", "b", "c", "d"]

    def ids() -> list[str]:
        asked.append("".join(names[n] for n in numbers))
        return [names[n] for n in numbers]

    return NumberedUnits(source, len(names), np.array(numbers, np.int64), ids)


def test_units_that_are_numbered_are_looked_up_once() -> None:
    rows, source, asked = UnitRows(), Source(), list[str]()
    assert rows.of(["x", "c"]).tolist() == [0, 1]
    for numbers, expected, looked_up in (
        ([], [], []),
        ([2], [1], ["c"]),
        ([2], [1], []),
        ([0, 2], [2, 1], ["ac"]),
        ([0], [2], []),
        ([3, 0, 2], [3, 2, 1], ["dac"]),
        ([2, 3, 0], [1, 3, 2], []),
    ):
        asked.clear()
        assert rows.of(numbered(source, numbers, asked)).tolist() == expected
        assert asked == looked_up
    # Another index numbers the same units by itself.
    assert rows.of(numbered(Source(), [1, 0], asked)).tolist() == [4, 2]
    assert rows.ids() == ["x", "c", "a", "d", "b"]


@pytest.mark.parametrize(
    ("rows", "repeats"),
    [
        ([], False),
        ([5], False),
        ([5, 4], False),
        ([0, 0], True),
        ([0, 1, 0], True),
        ([2, 1, 2, 0], True),
        ([1, 0, 0, 2], True),
        (list(range(50)), False),
        ([*range(50), 49], True),
    ],
)
def test_a_row_that_occurs_twice_is_seen(rows: list[int], repeats: bool) -> None:
    assert has_repeats(np.array(rows, np.intp)) is repeats


@pytest.mark.parametrize("first", [0, 1])
def test_any_row_may_be_the_first_that_pays(first: int) -> None:
    """Also where it is the first one beyond those that there is room for."""
    for row in [*range(2040, 2060), *range(1020, 1030), 5_000, first]:
        balances = UnitBalances(Cost(2, 1))
        assert balances.spent(row) == Cost(0, 0)
        assert balances.charge(np.array([row]), Cost(2, 1)).tolist() == [True]
        assert balances.spent(row) == Cost(2, 1)
        near = [balances.spent(at) for at in (row + 1, max(row - 1, 0)) if at != row]
        assert set(near) <= {Cost(0, 0)}
        assert balances.charge(np.array([row]), Cost(1, 0)).tolist() == [False]
        assert balances.spent(row) == Cost(2, 1)


def test_growing_keeps_what_was_spent() -> None:
    balances = UnitBalances(Cost(9, 9))
    sizes = [1, 1_000, 1_024, 1_025, 2_048, 2_049, 4_096, 9_000]
    for size in sizes:
        assert balances.charge(np.arange(size), Cost(1, 1)).all()
    for number, (low, high) in enumerate(pairwise([0, *sizes])):
        times = len(sizes) - number
        for row in (low, high - 1):
            assert balances.spent(row) == Cost(times, times)
    assert balances.spent(9_000) == Cost(0, 0)


def test_nobody_pays_nothing() -> None:
    balances = UnitBalances(Cost(1, 1))
    assert balances.charge(np.array([], np.intp), Cost(1, 1)).tolist() == []
    assert balances.spent(0) == Cost(0, 0)


@pytest.mark.parametrize("limit", [Cost(5, 3), Cost(5, 0), Cost(1, 7)])
def test_every_price_is_paid_while_both_parts_are_left(limit: Cost) -> None:
    """Against the rule for a single unit, for all prices within the limit."""
    prices = [
        Cost(a, b) for a in range(limit.loss + 1) for b in range(limit.failure + 1)
    ]
    for first in prices:
        for second in prices:
            balances = UnitBalances(limit)
            spent = [0, 0]
            for price in (first, second, second):
                pays = (
                    spent[0] + price.loss <= limit.loss
                    and spent[1] + price.failure <= limit.failure
                )
                if pays:
                    spent = [spent[0] + price.loss, spent[1] + price.failure]
                assert balances.charge(np.array([0]), price).tolist() == [pays]
                assert balances.spent(0) == tuple(spent)


def test_a_balance_of_one_account_is_not_that_of_another_by_its_row() -> None:
    ledger = MemoryLedger()
    for name in ("many", "few"):
        opened(ledger, replace(UNIT_PLANNED, name=name))
    ids = [f"p-{i}" for i in range(1_025)]
    assert all(ledger.charge_units(ledger.charge("many"), ids))
    assert ledger.charge_units(ledger.charge("few"), ids[-1:]) == [True]
    assert [one.spent for one in ledger.unit_balances("few")] == [Cost(1, 0)]
    assert [one.tag for one in ledger.unit_balances("few")] == [
        ledger.unit_tag("few", ids[-1])
    ]
