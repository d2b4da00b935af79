"""Tallies of parts: they add up to the whole table, and a sample is released once."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.table_parts import CANARY, account, people, people_schema

from langchain_dpicl.common.hidden import Hidden
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    DPError,
    InvalidParameterError,
    LedgerError,
    NoBudgetError,
    UnitError,
)
from langchain_dpicl.mechanisms import SecureRandom
from langchain_dpicl.mechanisms.source import SeededRandom
from langchain_dpicl.tabular import (
    CategoricalColumn,
    GDPTable,
    Tally,
    TallyKey,
    merge,
    tally,
)
from langchain_dpicl.tabular.gdp import mergeable
from langchain_dpicl.tabular.gdp.mergeable import terms_of
from langchain_dpicl.tabular.gdp.tallies import Counted, count_rows
from langchain_dpicl.tabular.gdp.terms import GDPTerms

SCHEMA = people_schema()
Rows = list[dict[str, Any]]


class Keyed(SecureRandom):
    """Hands out a key's secret where a reading draws its own."""

    def __init__(self, key: TallyKey) -> None:
        super().__init__()
        self._key = np.frombuffer(key._secret, np.uint64)

    def words(self, count: int) -> NDArray[np.uint64]:
        assert count == len(self._key)
        return self._key


def patients(visits: Sequence[int]) -> Rows:
    """Return rows of patients, each with so many of them."""
    rows = iter(people(sum(visits)))
    return [
        {**next(rows), "patient": number}
        for number, count in enumerate(visits)
        for _ in range(count)
    ]


def parts_of(rows: Rows, places: Sequence[int]) -> list[Rows]:
    """Partition rows by patient: patient i goes to part places[i]."""
    parts: list[Rows] = [[] for _ in range(max(places, default=0) + 1)]
    for row in rows:
        parts[places[row["patient"]]].append(row)
    return parts


def exact(found: Tally, terms: GDPTerms) -> Counted:
    return found.counted(terms)


def assert_same(one: Counted, other: Counted) -> None:
    for left, right in zip(one.exact, other.exact, strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    assert (one.n_rows, dict(one.names)) == (other.n_rows, dict(other.names))


def sample_key(**terms: Any) -> TallyKey:
    """Return the paid key of a sample of half the patients."""
    own = {"unit_key": "patient", "sampling_rate": 0.5, **terms}
    own.setdefault("budget", account())
    return GDPTable.tally_key(SCHEMA, **own)


@settings(deadline=None, max_examples=25)
@given(
    visits=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    places=st.lists(st.integers(0, 4), min_size=12, max_size=12),
    order=st.randoms(use_true_random=False),
    cap=st.integers(1, 3),
    rate=st.sampled_from([1.0, 0.5]),
    measure=st.sampled_from([None, ["age", ("job", "ill")]]),
)
def test_however_rows_are_split_the_sum_is_that_of_one_table(
    visits: list[int],
    places: list[int],
    order: Any,
    cap: int,
    rate: float,
    measure: Any,
) -> None:
    rate = rate if measure is None else 1.0  # Tables by name have no sample.
    key = sample_key(rows_per_unit=cap, sampling_rate=rate, measure=measure)
    terms = terms_of(SCHEMA, key.terms)
    rows = patients(visits)
    whole = count_rows(
        Hidden(list(rows)),
        terms,
        random=Keyed(key),
        extra_columns="refuse",
        progress=False,
    )
    order.shuffle(rows)
    tallies = [tally(part, SCHEMA, key) for part in parts_of(rows, places)]
    order.shuffle(tallies)
    cut = len(tallies) // 2
    nested = [merge(tallies[cut:]), *tallies[:cut]]
    carried = [
        Tally.from_bytes(pickle.loads(pickle.dumps(one)).to_bytes()) for one in nested
    ]
    for sums in (merge(tallies), merge(carried)):
        assert_same(exact(sums, terms), whole)


def test_a_release_is_bit_for_bit_that_of_the_rows(monkeypatch: Any) -> None:
    rows = patients([1, 2, 3] * 60)
    terms: dict[str, Any] = {"unit_key": "patient", "rows_per_unit": 2}
    key = GDPTable.tally_key(SCHEMA, **terms)
    tallies = [
        tally(p, SCHEMA, key) for p in parts_of(rows, [i % 4 for i in range(180)])
    ]
    merged = GDPTable.from_tallies(
        tallies, SCHEMA, budget=account(), random=SeededRandom(5)
    )
    own = GDPTable(rows, SCHEMA, budget=account(), random=SeededRandom(5), **terms)
    words = SecureRandom.words

    def first(self: Any, count: int) -> Any:
        # The key that a reading draws, without taking from the noise.
        if sys._getframe(1).f_code.co_name == "_by_unit":
            return np.frombuffer(key._secret, np.uint64)
        return words(self, count)

    monkeypatch.setattr(SecureRandom, "words", first)
    assert merged.release().summary() == own.release().summary()
    one, other = merged.record(), own.record()
    assert {**one, "created": ""} == {**other, "created": ""}


def test_rows_that_are_units_add_up_with_what_they_name() -> None:
    job = CategoricalColumn(
        name="job", values=["clerk", "diver", "nurse"], other="nurse", open=True
    )
    schema = people_schema(job=job)
    rows = [{**row, "job": f"cook {i % 3}"} for i, row in enumerate(people(50))]
    key = GDPTable.tally_key(schema, measure=["job"])
    terms = terms_of(schema, key.terms)
    whole = exact(tally(rows, schema, key), terms)
    merged = merge([tally(rows[start::7], schema, key) for start in range(7)])
    assert_same(exact(merged, terms), whole)
    assert sorted(whole.names.values()) == [16, 17, 17]
    assert_same(exact(Tally.from_bytes(merged.to_bytes()), terms), whole)


def split_unit(key: TallyKey) -> list[Tally]:
    """Return two tallies that share a patient, who is spelled in two ways."""
    rows = [{**row, "patient": "7"} for row in people(6)]
    for row in rows[3:]:
        row["patient"] = " 7 "
    others = [{**row, "patient": f"p{i}"} for i, row in enumerate(people(20))]
    return [tally(rows[:3] + others, SCHEMA, key), tally(rows[3:], SCHEMA, key)]


@pytest.mark.parametrize("rate", [1.0, 1e-9])
def test_a_unit_in_two_tallies_is_refused(rate: float) -> None:
    # Also one that is not in the sample: who is counted, and how often, is at stake.
    tallies = split_unit(sample_key(sampling_rate=rate))
    with pytest.raises(UnitError, match="two of the tallies"):
        merge(tallies)


def test_without_that_check_a_unit_would_count_twice(monkeypatch: Any) -> None:
    key = GDPTable.tally_key(SCHEMA, unit_key="patient")
    terms = terms_of(SCHEMA, key.terms)
    monkeypatch.setattr(mergeable, "_disjoint", np.concatenate)
    both = exact(merge(split_unit(key)), terms).exact
    others = exact(split_unit(key)[0], terms).exact
    moved = [np.abs(a - b).sum() for a, b in zip(both, others, strict=True)]
    # One row is in the first tally: with the second, two take part where one may.
    rows = [i for i, one in enumerate(terms.quantities) if one.kind == "rows"]
    assert [moved[i] for i in rows] == [1]
    assert both[rows[0]].sum() == 20 + 2 > 20 + terms.rows_per_unit


def test_the_same_tally_counts_once() -> None:
    key = GDPTable.tally_key(SCHEMA)
    one, other = tally(people(5), SCHEMA, key), tally(people(5), SCHEMA, key)
    assert exact(merge([one, other]), terms_of(SCHEMA, key.terms)).n_rows == 10
    for twice in ([one, one], [merge([one, other]), Tally.from_bytes(one.to_bytes())]):
        with pytest.raises(InvalidParameterError, match="there twice"):
            merge(twice)


def refused() -> dict[str, Any]:
    key = GDPTable.tally_key(SCHEMA)
    own = tally(people(5), SCHEMA, key)
    other = people_schema(job=CategoricalColumn(name="job", values=["a", "clerk"]))
    return {
        "none": lambda: merge([]),
        "no list": lambda: merge(5),
        "rows": lambda: merge([people(2)]),
        "keys": lambda: merge([own, tally([], SCHEMA, GDPTable.tally_key(SCHEMA))]),
        "schema": lambda: tally(people(5), other, key),
        "no key": lambda: tally(people(5), SCHEMA, b"k" * 32),
        "of another": lambda: GDPTable.from_tallies([own], other),
        "terms": lambda: GDPTable.from_tallies([own], SCHEMA, group_by="job"),
        "cap": lambda: GDPTable.from_tallies([own], SCHEMA, unit_key="p"),
        "cut off": lambda: Tally.from_bytes(own.to_bytes()[:-8]),
        "changed": lambda: Tally.from_bytes(own.to_bytes()[:-1] + b"x"),
        "a key": lambda: Tally.from_bytes(key.to_bytes()),
        "no bytes": lambda: TallyKey.from_bytes("x"),
        "extra": lambda: tally(people(2), SCHEMA, key, extra_columns="keep"),
    }


@pytest.mark.parametrize("name", refused())
def test_what_does_not_fit_is_refused(name: str) -> None:
    with pytest.raises(InvalidParameterError):
        refused()[name]()


def test_a_constructor_checks_the_terms_of_a_tally_before_it_pays() -> None:
    found = tally(people(50), SCHEMA, GDPTable.tally_key(SCHEMA))
    budget = account()
    table = GDPTable(found, SCHEMA, budget=budget, group_by="job")
    with pytest.raises(InvalidParameterError, match="group_by"):
        table.release()
    assert budget.spent().queries == 0


def test_nothing_shows_what_is_private() -> None:
    key = GDPTable.tally_key(SCHEMA, unit_key="patient")
    found = tally(patients([3]), SCHEMA, key)
    counted = exact(found, terms_of(SCHEMA, key.terms))
    assert [repr(one) for one in (key, found, counted)] == [
        "TallyKey(<hidden>)",
        "Tally(<hidden>)",
        "Counted(<hidden>)",
    ]
    bad = [{**row, "patient": CANARY, "job": CANARY} for row in people(3)]
    with pytest.raises(InvalidParameterError) as caught:
        tally(bad, SCHEMA, key)
    shown = traceback.TracebackException.from_exception(
        caught.value, capture_locals=True
    )
    frames = [frame for frame in shown.stack if "langchain_dpicl" in frame.filename]
    assert CANARY not in f"{shown}{[frame.locals for frame in frames]}"


def test_parts_may_be_empty_and_a_table_may_not() -> None:
    key = GDPTable.tally_key(SCHEMA, unit_key="patient")
    nothing = [tally([], SCHEMA, key) for _ in range(2)]
    with pytest.raises(UnitError, match="no rows"):
        GDPTable.from_tallies(nothing, SCHEMA, budget=account()).release()
    some = [*nothing, tally(patients([1] * 50), SCHEMA, key)]
    GDPTable.from_tallies(some, SCHEMA, budget=account()).release()


def test_without_a_sample_tallies_are_released_for_new_charges() -> None:
    budget = account(queries=2)
    found = tally(people(300), SCHEMA, GDPTable.tally_key(SCHEMA))
    for charge in (1, 2):
        table = GDPTable.from_tallies([found], SCHEMA, budget=budget)
        assert table.release().record()["charge"] == charge
    table = GDPTable.from_tallies([found], SCHEMA, budget=budget)
    with pytest.raises(BudgetExhaustedError):
        table.release()
    assert table.release(resume=True).record()["charge"] == 2


# A sample belongs to one charge.


def sampled(budget: Any, **terms: Any) -> tuple[TallyKey, list[Tally]]:
    key = sample_key(budget=budget, **terms)
    rows = patients([2] * 400)
    parts = parts_of(rows, [i % 3 for i in range(400)])
    return key, [tally(part, SCHEMA, key) for part in parts]


def test_two_releases_of_one_sample_lose_more_than_they_would_be_charged() -> None:
    """Why: pure epsilon 2 twice, at q = 1/4, by the privacy loss of the worst case."""

    def amplified(epsilon: float) -> float:
        return math.log1p(0.25 * math.expm1(epsilon))

    assert round(2 * amplified(2.0), 2) == 1.91
    assert round(amplified(2.0 + 2.0), 2) == 2.67


def test_a_sample_is_paid_for_before_it_is_drawn() -> None:
    with pytest.raises(NoBudgetError):
        sample_key(budget=None)
    budget = account()
    _, tallies = sampled(budget)
    assert budget.spent().queries == 1
    table = GDPTable.from_tallies(tallies, SCHEMA, budget=budget)
    assert table.release().record()["charge"] == 1
    assert table.record()["parameters"]["sampling_rate"] == 0.5
    assert budget.spent().queries == 1


def test_a_second_release_of_a_sample_is_refused() -> None:
    budget = account(queries=5)
    _, tallies = sampled(budget)
    first = GDPTable.from_tallies(tallies, SCHEMA, budget=budget).release()
    for again in (tallies, tallies[:2], [merge(tallies)]):
        table = GDPTable.from_tallies(again, SCHEMA, budget=budget)
        with pytest.raises(BudgetExhaustedError, match="charge 1"):
            table.release()
        # The first draw, and no other one.
        assert table.release(resume=True).summary() == first.summary()
    assert budget.spent().queries == 1


PROGRAM = """
import sys
from pathlib import Path
from support.table_parts import account, people_schema
from langchain_dpicl.errors import BudgetExhaustedError
from langchain_dpicl.tabular import GDPTable, Tally
tally = Tally.from_bytes(Path(sys.argv[1]).read_bytes())
budget = account(queries=3, ledger=sys.argv[2])
table = GDPTable.from_tallies([tally], people_schema(), budget=budget)
try:
    table.release()
except BudgetExhaustedError:
    print("refused", budget.spent().queries)
else:
    print("released", budget.spent().queries)
"""


def test_another_process_refuses_it_too(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    _, tallies = sampled(account(queries=3, ledger=url))
    (tmp_path / "tally").write_bytes(merge(tallies).to_bytes())
    own = account(queries=3, ledger=url)
    GDPTable.from_tallies(tallies, SCHEMA, budget=own).release()
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path / "tally", url],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert said.stdout.strip() == "refused 1"


@pytest.mark.parametrize(
    "terms",
    [
        {"ledger": ":memory:"},
        {"account": "other"},
        {"epsilon": 2.0},
        {"split": {"age": 1.0, "pay": 1.0, "job": 1.0, "(rows)": 1.0}, "epsilon": 4.0},
    ],
)
def test_it_is_released_from_its_account_under_its_terms(terms: dict[str, Any]) -> None:
    budget = account(queries=3)
    _, tallies = sampled(budget)
    if terms.keys() & {"ledger", "account"}:
        budget, terms = account(queries=3, **{"ledger": budget.ledger, **terms}), {}
    table = GDPTable.from_tallies(tallies, SCHEMA, budget=budget, **terms)
    before = budget.spent().queries
    with pytest.raises(InvalidParameterError, match="has not paid"):
        table.release()
    assert budget.spent().queries == before


def test_rows_can_not_take_the_place_of_a_sample_that_is_paid_for() -> None:
    budget = account()
    sampled(budget)
    table = GDPTable(
        patients([2] * 400),
        SCHEMA,
        budget=budget,
        unit_key="patient",
        sampling_rate=0.5,
    )
    with pytest.raises(BudgetExhaustedError):
        table.release(resume=True)


def test_what_could_not_be_stored_is_drawn_again_for_the_same_charge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget = account()
    _, tallies = sampled(budget)

    def failing(*_: Any, **__: Any) -> Any:
        raise LedgerError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(budget.ledger, "store_step", failing)
        with pytest.raises(LedgerError, match="disk is full"):
            GDPTable.from_tallies(tallies, SCHEMA, budget=budget).release()
    table = GDPTable.from_tallies(tallies, SCHEMA, budget=budget).release()
    assert table.record()["charge"] == 1


def test_of_many_at_once_all_get_the_one_draw(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    _, tallies = sampled(account(ledger=url))

    def release(_: int) -> str:
        try:
            table = GDPTable.from_tallies(tallies, SCHEMA, budget=account(ledger=url))
            return table.release().summary()
        except BudgetExhaustedError:
            return ""

    with ThreadPoolExecutor(4) as pool:
        drawn = set(pool.map(release, range(4))) - {""}
    assert len(drawn) == 1


def test_without_the_sample_in_its_name_a_release_would_be_drawn_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twin: a release that is not bound to the key pays, and draws for it again."""
    budget = account(queries=5)
    _, tallies = sampled(budget)
    GDPTable.from_tallies(tallies, SCHEMA, budget=budget).release()
    monkeypatch.setattr(Tally, "sample", None)
    table = GDPTable.from_tallies(tallies, SCHEMA, budget=budget).release()
    assert table.record()["charge"] == 2


def test_half_the_patients_are_in_a_sample_and_all_are_counted() -> None:
    key, tallies = sampled(account(), rows_per_unit=2)
    terms = terms_of(SCHEMA, key.terms)
    found = exact(merge(tallies), terms)
    (rows,) = (i for i, one in enumerate(terms.quantities) if one.kind == "rows")
    assert found.units is not None
    assert (len(found.units), found.n_rows) == (400, 800)
    # 400 coins: outside with a chance of 2e-9.
    assert 140 * 2 < found.exact[rows].sum() < 260 * 2


def test_a_key_is_carried_to_workers() -> None:
    key = sample_key()
    for other in (pickle.loads(pickle.dumps(key)), TallyKey.from_bytes(key.to_bytes())):
        assert (other.fingerprint, other.terms) == (key.fingerprint, key.terms)
        found = [tally(patients([2] * 40), SCHEMA, one) for one in (key, other)]
        counted = [exact(one, terms_of(SCHEMA, key.terms)) for one in found]
        assert_same(*counted)


def test_keys_differ() -> None:
    assert len({GDPTable.tally_key(SCHEMA).fingerprint for _ in range(50)}) == 50
    assert issubclass(UnitError, DPError)
