"""Erasing one person: what goes, what stays, and what the certificate says."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from support.chain_parts import record
from support.erasure_workers import MARK, PERSON, chain_over, saved
from support.frames import private_locals
from support.groups_fakes import QUESTION, WordEmbedding, bits, note, retrieved
from support.ledgers import UNIT_PLANNED, spend
from unit_tests.wall.marks import mark

from langchain_dpicl import (
    InvalidParameterError,
    LedgerError,
    PrivacyBudgetHandler,
    RetrievedGroups,
    UnitError,
)
from langchain_dpicl.budget import charges
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.operate import ErasureCertificate, erase

ERASED = 2
"""Documents of the person."""


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return saved(tmp_path / "index")


def bytes_of(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def load(path: Path) -> RetrievedGroups:
    return RetrievedGroups.load(path, WordEmbedding())


def test_the_person_goes_and_nobody_else_moves(index: Path) -> None:
    before = bits(load(index))
    made = erase(PERSON, index=index)
    assert made.index["documents_erased"] == ERASED
    assert (made.index["revision_before"], made.index["revision_after"]) == (1, 2)
    assert bits(load(index)) == [one for one in before if one[0] != PERSON]
    data = b"".join(bytes_of(index).values())
    assert MARK.encode() not in data
    assert PERSON.encode() not in data
    modes = {stat.S_IMODE(file.stat().st_mode) for file in index.iterdir()}
    assert modes == {0o600}


def test_nobody_is_erased_by_a_mistyped_id(index: Path, tmp_path: Path) -> None:
    before = bytes_of(index)
    for unit in ("p-nobody", "", " ", 1.5, f"{PERSON}x"):
        with pytest.raises(UnitError, match="nothing was deleted") as caught:
            erase(unit, index=index, certificate=tmp_path / "c.json")  # type: ignore[arg-type]
        assert "p-" not in str(caught.value)
    assert bytes_of(index) == before
    assert not (tmp_path / "c.json").exists()


def test_erasing_again_changes_nothing(index: Path, tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    first = erase(PERSON, index=index, certificate=file)
    before, written = bytes_of(index), file.read_bytes()
    assert erase(f" {PERSON} ", index=index, certificate=file) == first
    assert erase(PERSON, index=index) == first
    assert (bytes_of(index), file.read_bytes()) == (before, written)
    # Who returns is erased again, and has another certificate.
    groups = load(index)
    groups.add_documents([note(PERSON, "rash, returned")])
    groups.save(index)
    again = erase(PERSON, index=index, certificate=tmp_path / "second.json")
    assert again.index["documents_erased"] == 1
    assert again.fingerprint == first.fingerprint


def test_a_certificate_of_somebody_else_is_not_overwritten(
    index: Path, tmp_path: Path
) -> None:
    file = tmp_path / "c.json"
    erase("p-1", index=index, certificate=file)
    before = bytes_of(index), file.read_bytes()
    with pytest.raises(InvalidParameterError, match="Nothing was erased"):
        erase(PERSON, index=index, certificate=file)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InvalidParameterError, match="holds no erasure certificate"):
        erase(PERSON, index=index, certificate=tmp_path / "notes.txt")
    assert (bytes_of(index), file.read_bytes()) == before


def test_a_certificate_can_be_rechecked_and_names_nobody(
    index: Path, tmp_path: Path
) -> None:
    file = tmp_path / "c.json"
    made = erase(PERSON, index=index, certificate=file)
    content = json.loads(file.read_text())
    assert content["format"] == "langchain-dpicl/erasure-certificate"
    assert content["version"] == 1
    assert PERSON not in file.read_text() + repr(made)
    for certificate in (made, ErasureCertificate.load(file)):
        assert certificate.is_of(PERSON, index)
        assert not certificate.is_of("p-1", index)
    # Another index has another key: a fingerprint says nothing of other corpora.
    other = saved(tmp_path / "other")
    assert not made.is_of(PERSON, other)
    assert erase(PERSON, index=other).fingerprint != made.fingerprint
    content["erased_at"] = "2020-01-01"
    file.write_text(json.dumps(content))
    with pytest.raises(InvalidParameterError, match="changed after it was saved"):
        ErasureCertificate.load(file)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_balances_stay_and_are_not_in_the_certificate(
    index: Path, tmp_path: Path, kind: str
) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    ledger = Ledger(":memory:" if kind == "memory" else url)
    spend(ledger, UNIT_PLANNED, [PERSON, "p-1"])
    before = list(ledger.unit_balances("notes"))
    made = erase(PERSON, index=index, ledger=ledger, accounts=["notes"])
    assert list(ledger.unit_balances("notes")) == before
    ledger.verify("notes")
    (account,) = made.accounts
    assert (account["scope"], account["releases"], account["closed"]) == ("unit", 1, 0)
    # Twin: the same erasure of somebody who has spent nothing says the same.
    other = erase("p-2", index=index, ledger=ledger, accounts=["notes"])
    assert other.accounts == made.accounts
    assert ledger.unit_tag("notes", PERSON) not in made.model_dump_json()


def test_cached_answers_stay_unless_they_are_cleared(
    index: Path, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    chain = chain_over(index, follow=True).model_copy(update={"cache": True})
    budget = PrivacyBudgetHandler(epsilon=30, delta=1e-6, queries=9, ledger=url)

    def status() -> Any:
        return record(chain.invoke(QUESTION, {"callbacks": [budget]}))["status"]

    assert [status(), status()] == ["released", "cached"]
    arguments: Any = {"index": index, "ledger": url, "accounts": ["default"]}
    assert erase(PERSON, **arguments).cached_answers_cleared == 0
    assert status() == "cached"
    steps = budget_steps(url)
    assert erase("p-1", **arguments, clear_cache=True).cached_answers_cleared == 1
    # What was drawn stays; an entry says that it is not given again.
    assert budget_steps(url) == steps
    assert [status(), status()] == ["released", "cached"]


def budget_steps(url: str) -> list[tuple[Any, ...]]:
    ledger = Ledger(url)
    found = [stored.values for stored in charges(ledger, "default")]
    ledger.dispose()
    return found


def test_what_can_not_be_erased_from_changes_nothing(
    index: Path, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    before = bytes_of(index)
    for arguments, error in (
        ({"ledger": url, "accounts": ["notes"]}, LedgerError),
        ({"accounts": ["notes"]}, InvalidParameterError),
        ({"index": tmp_path / "missing" / "deep"}, InvalidParameterError),
    ):
        with pytest.raises(error):
            erase(PERSON, **{"index": index, **arguments})  # type: ignore[arg-type]
    Ledger(url).dispose()
    with pytest.raises(LedgerError, match="no account 'notes'"):
        erase(PERSON, index=index, ledger=url, accounts=["notes"])
    assert bytes_of(index) == before
    assert {one.name for one in tmp_path.iterdir()} == {"index", "ledger.db"}


@pytest.mark.parametrize("cause", ["unknown", "broken"])
def test_no_frame_of_an_error_names_the_person(
    index: Path, tmp_path: Path, cause: str
) -> None:
    unit = mark("unit", 17)
    retrieved([note(unit, mark("record", 17))], n_groups=1).save(tmp_path / "one")
    if cause == "broken":
        index = tmp_path / "one"
        next(index.glob("vectors-*")).unlink()
    for use in (
        lambda: erase(unit, index=index),
        lambda: (
            load(tmp_path / "one") if cause == "broken" else erase(unit, index=index)
        ),
    ):
        with pytest.raises((UnitError, InvalidParameterError)) as caught:
            use()
        assert private_locals(caught.value, __name__) == []
    # Twin: the function itself, which does not hide them.
    with pytest.raises((UnitError, InvalidParameterError)) as caught:
        erase.__wrapped__(unit, index=index)  # type: ignore[attr-defined]
    assert private_locals(caught.value, __name__) != []


@pytest.mark.parametrize("shown", [False, True])
def test_long_work_shows_how_far_it_is(
    shown: bool, index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Documents beyond a bar's step.
    documents = [note(f"p-{i}", "beans") for i in range(2_100)]
    big = tmp_path / "big"
    retrieved(documents).save(big)

    def heard() -> str:
        return " ".join(capsys.readouterr().err.split())

    erase("p-3", index=big, progress=shown)
    said = heard()
    assert ("Documents read and written 4,199" in said) == shown
    assert "p-3" not in said


class Table:
    """A store of rows by unit id, which others may write into."""

    def __init__(self, *units: str, stays: bool = False) -> None:
        self.units, self.stays = [*units], stays

    def delete_unit(self, unit_id: str) -> int:
        if unit_id not in self.units:
            raise UnitError("nothing was deleted")
        if not self.stays:
            self.units.remove(unit_id)
        return 1


def test_each_store_is_searched_after_the_erasure(index: Path) -> None:
    stores = [Table(PERSON, "p-1"), Table(), Table(PERSON, stays=True), object()]
    made = erase(PERSON, index=index, stores=stores)
    states = [(one.store, one.state) for one in made.stores]
    assert states[:5] == [
        (str(index), "erased"),
        ("Table", "erased"),
        ("Table", "erased"),
        ("Table", "unknown"),  # Its records came back.
        ("object", "not supported"),
    ]
    assert stores[0].units == ["p-1"]  # type: ignore[attr-defined]
    # What nobody can search is never said to be erased.
    assert {state for _, state in states[5:]} == {"unknown"}
    assert any("backups" in store for store, _ in states[5:])
