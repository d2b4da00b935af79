"""What a charge has drawn is kept, and is never drawn for a second time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.ledgers import (
    FILTERED,
    NOISY,
    UNIT_PLANNED,
    Database,
    opened,
    sqlite_database,
)

from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import Ledger, SQLLedger
from langchain_dpicl.ledger.release_store import StoredRelease
from langchain_dpicl.ledger.sql import release_rows

Connect = Callable[[], SQLLedger]

KIND, OTHER = "k" * 64, "o" * 64


def charged(ledger: Ledger, times: int = 2) -> Ledger:
    """Open an account and charge it."""
    opened(ledger, FILTERED)
    for _ in range(times):
        ledger.charge("notes", NOISY)
    return ledger


def test_steps_are_kept_by_charge_and_kind(ledger: Ledger) -> None:
    charged(ledger, 3)
    # In no order of their charges.
    for charge, kind in ((3, KIND), (1, KIND), (2, OTHER)):
        ledger.start_release("notes", charge, kind, f"header {charge}")
        assert ledger.store_step("notes", charge, 0, f"{charge} a") == f"{charge} a"
    assert ledger.store_step("notes", 1, 1, "1 b") == "1 b"
    assert ledger.releases("notes", KIND) == [
        StoredRelease(1, KIND, "header 1", ("1 a", "1 b")),
        StoredRelease(3, KIND, "header 3", ("3 a",)),
    ]
    assert ledger.releases("notes", OTHER) == [
        StoredRelease(2, OTHER, "header 2", ("2 a",))
    ]
    assert ledger.releases("notes", "none") == []
    assert [release.charge for release in ledger.releases("notes")] == [1, 2, 3]
    ledger.verify("notes")
    ledger.charge("notes", NOISY)
    ledger.close_account("notes")
    # What was paid for may still be finished.
    assert ledger.store_step("notes", 3, 1, "3 b") == "3 b"
    assert ledger.verify("notes").used == 4


def test_the_first_draw_stays(ledger: Ledger) -> None:
    charged(ledger)
    ledger.start_release("notes", 1, KIND, "header")
    for number in range(3):
        assert ledger.store_step("notes", 1, number, f"draw {number}")
    for number in range(3):
        kept = ledger.store_step("notes", 1, number, "another")
        assert kept == f"draw {number}"
    (found,) = ledger.releases("notes", KIND)
    assert found.steps == ("draw 0", "draw 1", "draw 2")


def test_what_no_charge_pays_for_is_refused(ledger: Ledger) -> None:
    charged(ledger)
    ledger.start_release("notes", 1, KIND, "header")
    refused: list[tuple[str, Callable[[], object]]] = [
        ("no charge 3", lambda: ledger.start_release("notes", 3, KIND, "header")),
        ("no charge 0", lambda: ledger.start_release("notes", 0, KIND, "header")),
        ("before", lambda: ledger.start_release("notes", 1, KIND, "header")),
        ("before", lambda: ledger.start_release("notes", 1, OTHER, "header")),
        ("no release", lambda: ledger.store_step("notes", 2, 0, "draw")),
        ("holds 0 steps", lambda: ledger.store_step("notes", 1, 1, "draw")),
        ("holds 0 steps", lambda: ledger.store_step("notes", 1, -1, "draw")),
        ("no account", lambda: ledger.releases("unknown", KIND)),
    ]
    for message, use in refused:
        with pytest.raises(LedgerError, match=message):
            use()
    assert ledger.releases("notes", KIND) == [StoredRelease(1, KIND, "header")]
    ledger.verify("notes")


def test_of_many_that_store_at_once_all_release_the_same(ledger: Ledger) -> None:
    charged(ledger)
    ledger.start_release("notes", 1, KIND, "header")

    def follow(thread: int) -> list[str]:
        ledger.charge("notes", NOISY)
        return [
            ledger.store_step("notes", 1, number, f"{thread}, {number}")
            for number in range(6)
        ]

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(follow, range(6)))
    assert all(other == found[0] for other in found)
    assert ledger.releases("notes", KIND)[0].steps == tuple(found[0])
    assert ledger.verify("notes").used == 8


def test_a_step_and_its_note_are_stored_together_or_not_at_all(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = charged(connect())
    ledger.start_release("notes", 1, KIND, "header")

    def gone(*_: object) -> None:
        raise LedgerError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(release_rows, "_note", gone)
        with pytest.raises(LedgerError, match="full"):
            ledger.store_step("notes", 1, 0, "never released")
    assert connect().releases("notes", KIND)[0].steps == ()
    assert connect().store_step("notes", 1, 0, "released") == "released"
    connect().verify("notes")


STEP = "UPDATE dpicl_step SET {0} WHERE charge = 1 AND number = {1}"
EARLIER = "(SELECT s.drawn FROM dpicl_step s WHERE s.charge = {0} AND s.number = {1})"
RELEASE = "UPDATE dpicl_release SET {0} WHERE charge = 1"
HEADER = "(SELECT r.{0} FROM dpicl_release r WHERE r.charge = 2)"
COPIED = "INSERT INTO dpicl_step SELECT"
FROM_LAST = "FROM dpicl_step WHERE charge = 1 AND number = 2"
SECOND = "SELECT account_id, 3, kind, header, 0, digest"
FORGOTTEN = "UPDATE dpicl_account SET releases_digest = NULL"
EDITS = {
    "the first step is gone": ["DELETE FROM dpicl_step WHERE number = 0"],
    "the last step is gone": ["DELETE FROM dpicl_step WHERE number = 2"],
    "all steps are gone": ["DELETE FROM dpicl_step WHERE charge = 1"],
    "all steps and their number": [
        "DELETE FROM dpicl_step WHERE charge = 1",
        RELEASE.format("steps = 0"),
    ],
    "the last step and its note": [
        "DELETE FROM dpicl_step WHERE charge = 1 AND number = 2",
        RELEASE.format("steps = 2"),
    ],
    "the header is gone": ["DELETE FROM dpicl_release WHERE charge = 1"],
    "a whole release is gone": [
        "DELETE FROM dpicl_step WHERE charge = 1",
        "DELETE FROM dpicl_release WHERE charge = 1",
    ],
    "all releases are gone": [
        "DELETE FROM dpicl_step",
        "DELETE FROM dpicl_release",
        FORGOTTEN,
    ],
    "their digest is gone": [FORGOTTEN],
    "a step was edited": [STEP.format("drawn = 'more'", 1)],
    "an older step again": [STEP.format(f"drawn = {EARLIER.format(1, 0)}", 1)],
    "a step of another charge": [STEP.format(f"drawn = {EARLIER.format(2, 1)}", 1)],
    "the steps of another charge": [
        "DELETE FROM dpicl_step WHERE charge = 1",
        "UPDATE dpicl_step SET charge = 1",
    ],
    "the release of another charge": [
        "DELETE FROM dpicl_step WHERE charge = 1",
        "DELETE FROM dpicl_release WHERE charge = 1",
        "UPDATE dpicl_step SET charge = 1",
        "UPDATE dpicl_release SET charge = 1",
    ],
    "a step too many": [f"{COPIED} account_id, 1, 3, drawn {FROM_LAST}"],
    "a step of no release": [f"{COPIED} account_id, 3, 0, drawn {FROM_LAST}"],
    "another number": [STEP.format("number = 9", 2)],
    "another header": [RELEASE.format("header = 'header 9'")],
    "another kind": [RELEASE.format(f"kind = '{OTHER}'")],
    "another digest": [RELEASE.format(f"digest = {HEADER.format('digest')}")],
    "a second release": [
        f"INSERT INTO dpicl_release {SECOND} FROM dpicl_release WHERE charge = 1"
    ],
}
UNTYPED = {
    "no text": [STEP.format("drawn = x'00'", 1)],
    "no number": [RELEASE.format("steps = x'00'")],
    "no charge": [RELEASE.format("charge = x'00'")],
    "no kind": [RELEASE.format("kind = 1.5")],
}
"""What only SQLite lets anybody write."""


def released(ledger: Ledger) -> Ledger:
    """Charge three times, and release three steps under two of the charges."""
    charged(ledger, 3)
    for charge in (1, 2):
        ledger.start_release("notes", charge, KIND, f"header {charge}")
        for number in range(3):
            ledger.store_step("notes", charge, number, f"{charge}, {number}")
    ledger.verify("notes")
    return ledger


def refused(*ledgers: Ledger) -> None:
    """Nobody reads, draws or opens what somebody has edited."""
    uses: list[Callable[[Ledger], object]] = [
        lambda ledger: ledger.releases("notes", KIND),
        *(
            lambda ledger, number=number: ledger.store_step("notes", 1, number, "new")
            for number in range(3)
        ),
        lambda ledger: ledger.verify("notes"),
        lambda ledger: ledger.open(FILTERED),
    ]
    for use in uses:
        for ledger in ledgers:
            with pytest.raises(LedgerError, match="is damaged") as caught:
                use(ledger)
            assert "Nothing is released from it" in str(caught.value)
            assert caught.value.__cause__ is None


@pytest.mark.parametrize("edits", EDITS.values(), ids=EDITS)
def test_whatever_becomes_of_a_step_it_is_not_drawn_again(
    database: Database, connect: Connect, edits: list[str]
) -> None:
    ledger = released(connect())
    for edit in edits:
        database.execute(edit)
    refused(ledger, connect())
    with pytest.raises(LedgerError, match="is damaged"):
        connect().charge("notes", NOISY)


@pytest.mark.parametrize("edits", UNTYPED.values(), ids=UNTYPED)
def test_values_of_another_type_are_damage_too(
    tmp_path: Path, edits: list[str]
) -> None:
    database = sqlite_database(tmp_path / "ledger.db")
    ledger, other = released(SQLLedger(database.url)), SQLLedger(database.url)
    for edit in edits:
        database.execute(edit)
    refused(ledger, other)


def test_an_account_that_charges_units_keeps_its_steps_in_the_same_head(
    connect: Connect, database: Database
) -> None:
    ledger = opened(connect(), UNIT_PLANNED)
    first = ledger.charge("notes")
    ledger.start_release("notes", 1, KIND, "header")
    assert ledger.charge_units(first, ["p-1"]) == [True]
    ledger.store_step("notes", 1, 0, "draw")
    assert ledger.charge_units(ledger.charge("notes"), ["p-1"]) == [True]
    connect().verify("notes")
    database.execute(FORGOTTEN)
    with pytest.raises(LedgerError, match="is damaged"):
        ledger.charge_units(first, ["p-2"])
