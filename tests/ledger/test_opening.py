"""What `ledger=` names, and the values that releases are stored with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.ledgers import FILTERED, NOISY, PLANNED, opened

from langchain_dpicl import ledger as package
from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import MemoryLedger, SQLLedger, open_ledger
from langchain_dpicl.ledger.release_store import StoredRelease, is_next


def test_a_ledger_that_is_open_is_used_as_it_is() -> None:
    ledger = MemoryLedger()
    for create in (True, False):
        assert open_ledger(ledger, create=create) is ledger
    with pytest.raises(LedgerError, match="require_synchronous=True is for a URL"):
        open_ledger(ledger, require_synchronous=True)
    strict: Any = MemoryLedger()
    strict.require_synchronous = True
    assert open_ledger(strict, require_synchronous=True) is strict
    strict.require_synchronous = False
    with pytest.raises(LedgerError, match="is for a URL"):
        open_ledger(strict, require_synchronous=True)


def test_a_ledger_in_memory_has_no_past_and_no_standby() -> None:
    assert isinstance(open_ledger(":memory:"), MemoryLedger)
    with pytest.raises(LedgerError, match="always begins from nothing"):
        open_ledger(":memory:", create=False)
    with pytest.raises(LedgerError, match="A ledger in memory has no standby"):
        open_ledger(":memory:", require_synchronous=True)


def test_a_url_is_opened_as_it_is_asked(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    with pytest.raises(LedgerError, match="There is no ledger at"):
        open_ledger(url, create=False)
    with pytest.raises(LedgerError, match="A SQLite file has no standby"):
        open_ledger(url, require_synchronous=True)
    assert list(tmp_path.iterdir()) == []
    for create in (True, False):
        ledger = open_ledger(url, create=create)
        assert isinstance(ledger, SQLLedger)
        ledger.dispose()


@pytest.mark.parametrize("value", [None, 3, "", "clinic.db", b"sqlite://", Path("a")])
def test_what_keeps_nothing_is_refused_with_what_would(value: object) -> None:
    with pytest.raises(LedgerError, match="ledger must be a SQLAlchemy URL such as"):
        open_ledger(value)


def test_the_package_names_what_it_has() -> None:
    assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        package.nothing  # noqa: B018 - what is tested


@pytest.mark.parametrize("stored", [0, 1, 3])
def test_steps_follow_one_another_without_gaps(stored: int) -> None:
    for number in range(-2, stored + 3):
        if 0 <= number <= stored:
            assert is_next("notes", 4, number, stored) is (number == stored)
            continue
        with pytest.raises(LedgerError) as caught:
            is_next("notes", 4, number, stored)
        assert str(caught.value) == (
            f"The release of charge 4 in account 'notes' holds {stored} steps: step "
            f"{number} can't be stored before the one that precedes it."
        )


def test_a_release_belongs_to_a_charge_that_was_made() -> None:
    ledger = opened(MemoryLedger(), FILTERED)
    for _ in range(2):
        ledger.charge("notes", NOISY)
    for charge in (-1, 0, 3):
        with pytest.raises(
            LedgerError, match=f"has no charge {charge}: nothing is rel"
        ):
            ledger.start_release("notes", charge, "kind", "header")
    for charge in (2, 1):
        ledger.start_release("notes", charge, "kind", f"header {charge}")
        with pytest.raises(LedgerError, match=f"Charge {charge} of .* has started a"):
            ledger.start_release("notes", charge, "kind", "header")
    assert ledger.releases("notes") == [
        StoredRelease(number, "kind", f"header {number}", ()) for number in (1, 2)
    ]
    with pytest.raises(LedgerError, match=r"Charge 3 of .* has started no release"):
        ledger.store_step("notes", 3, 0, "drawn")


def test_a_charge_and_its_release_are_one(ledger: Any) -> None:
    opened(ledger, PLANNED)
    charge = ledger.charge("notes", starts=("kind", lambda one: f"of {one.sequence}"))
    assert charge.sequence == 1

    def fail(_charge: Any) -> str:
        raise LedgerError("no header")

    with pytest.raises(LedgerError, match="no header"):
        ledger.charge("notes", starts=("kind", fail))
    assert ledger.verify("notes").used == 1
    assert ledger.releases("notes") == [StoredRelease(1, "kind", "of 1")]
    assert ledger.charge("notes", starts=("other", str)).sequence == 2
    assert [one.kind for one in ledger.releases("notes")] == ["kind", "other"]


@pytest.mark.parametrize(
    "call",
    [
        lambda url: open_ledger(url, True),  # type: ignore[misc] # the mistake
        lambda url: SQLLedger(url, True),  # type: ignore[misc] # the mistake
    ],
)
def test_switches_are_named(tmp_path: Path, call: Any) -> None:
    with pytest.raises(TypeError, match="positional argument"):
        call(f"sqlite:///{tmp_path / 'a.db'}")
    assert list(tmp_path.iterdir()) == []
