"""Groups that follow a saved index: the newest revision, whole, before the charge."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from support.groups_fakes import QUESTION, WordEmbedding, contents, note, retrieved

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups import (
    RetrievedGroups,
    saved_files,
    storage,
)

UNITS = 8


def saved(path: Path, word: str = "first", **terms: Any) -> Path:
    documents = [note(i, f"rash {word} {i}") for i in range(UNITS)]
    retrieved(documents, docs_per_group=UNITS, **terms).save(path)
    return path


def load(path: Path, *, follow: bool = True) -> RetrievedGroups:
    return RetrievedGroups.load(path, WordEmbedding(), follow=follow)


def words(slots: Any) -> set[str]:
    return {text.split()[1] for slot in contents(slots) for text in slot_texts(slot)}


def slot_texts(slot: Any) -> list[str]:
    return [part for pair in slot for part in pair if part.startswith("rash")]


def test_a_question_sees_what_was_saved_before_it(tmp_path: Path) -> None:
    path = saved(tmp_path / "saved")
    groups, twin = load(path), load(path, follow=False)
    saved(path, "second")
    assert words(groups.draw(QUESTION)) == {"second"}
    assert words(twin.draw(QUESTION)) == {"first"}
    saved(path, "third")
    assert words(asyncio.run(groups.adraw(QUESTION))) == {"third"}
    saved(path, "fourth")
    groups.refresh()
    assert groups.n_units == UNITS
    assert words(groups.draw(QUESTION)) == {"fourth"}


def test_a_directory_is_read_again_only_if_it_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = load(saved(tmp_path / "saved"))

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(storage, "load", fail)
    assert words(groups.draw(QUESTION)) == {"first"}


def test_a_revision_that_comes_after_the_question_was_prepared_waits(
    tmp_path: Path,
) -> None:
    path = saved(tmp_path / "saved")
    groups = load(path)
    prepared = groups.prepare(QUESTION)
    saved(path, "second")
    # After the charge nothing is loaded: a failure would cost the charge.
    assert words(groups.draw_prepared(prepared)) == {"first"}


def test_no_draw_mixes_two_revisions(tmp_path: Path) -> None:
    path = saved(tmp_path / "saved")
    groups, seen, done = load(path), [], threading.Event()

    def draw() -> None:
        while not done.is_set():
            slots = groups.draw(QUESTION)
            seen.append((words(slots), sum(map(len, slots))))

    threads = [threading.Thread(target=draw) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(12):
        saved(path, f"revision-{number}")
    done.set()
    for thread in threads:
        thread.join()
    assert all(len(found) == 1 and count == UNITS for found, count in seen)
    assert words(groups.draw(QUESTION)) == {"revision-11"}


def test_a_revision_that_comes_while_one_is_read_is_read_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path / "saved")
    read, revisions = saved_files.read_vectors, ["second"]

    def interrupted(*given: Any) -> Any:
        if revisions:
            saved(path, revisions.pop())
        return read(*given)

    monkeypatch.setattr(storage, "read_vectors", interrupted)
    assert words(load(path).draw(QUESTION)) == {"second"}


def test_what_can_not_be_followed_ends_before_the_charge(tmp_path: Path) -> None:
    path = saved(tmp_path / "saved")
    shutil.copytree(path, tmp_path / "older")
    saved(path, "second")
    groups = load(path)
    for change, message in {
        "older": "older revision",
        "terms": "other parameters",
        "damaged": "can't be parsed|holds no saved groups",
        "gone": "holds no saved groups",
    }.items():
        kept = tmp_path / "kept"
        shutil.copytree(path, kept)
        if change == "terms":
            saved(path, n_groups=3)
        else:
            shutil.rmtree(path)
        if change == "older":
            shutil.copytree(tmp_path / "older", path)
        if change == "damaged":
            path.mkdir(mode=0o700)
            (path / "manifest.json").write_text("{")
        for ask in (groups.prepare, groups.draw):
            with pytest.raises(InvalidParameterError, match=message):
                ask(QUESTION)
        shutil.rmtree(path, ignore_errors=True)
        kept.rename(path)
    assert words(groups.draw(QUESTION)) == {"second"}


def test_groups_that_follow_are_not_changed_themselves(tmp_path: Path) -> None:
    groups = load(saved(tmp_path / "saved"))
    with pytest.raises(InvalidParameterError, match="follow a saved index"):
        groups.delete_unit(1)
    with pytest.raises(InvalidParameterError, match="follow a saved index"):
        groups.add_documents([note(1, "rash")])
    groups.save(tmp_path / "elsewhere")
    assert load(tmp_path / "elsewhere").n_units == UNITS


def test_a_stale_copy_does_not_bring_the_erased_back(tmp_path: Path) -> None:
    path = saved(tmp_path / "saved")
    stale, fresh = load(path, follow=False), load(path, follow=False)
    fresh.delete_unit(3)
    fresh.save(path)
    fresh.delete_unit(4)
    fresh.save(path)
    stale.delete_unit(5)
    with pytest.raises(InvalidParameterError, match="saved anew by somebody else"):
        stale.save(path)
    assert load(path).n_units == UNITS - 2
    stale.save(tmp_path / "elsewhere")


def test_the_manifest_shows_nothing_of_a_person(tmp_path: Path) -> None:
    manifest = json.loads((saved(tmp_path / "saved") / "manifest.json").read_text())
    assert manifest.keys() == {
        *("format", "version", "revision", "terms", "dimension", "documents"),
        *("secrets", "blake2b"),
    }
    assert "rash" not in json.dumps(manifest)
