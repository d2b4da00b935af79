"""Saving and loading: the same draws, no pickle, and nothing damaged gets in."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import shutil
import stat
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from support.groups_fakes import (
    QUESTION,
    WordEmbedding,
    bits,
    note,
    retrieved,
    units,
)

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups import RetrievedGroups
from langchain_dpicl.mechanisms.random import SeededRandom
from langchain_dpicl.operate import erase

ODD = Document(
    "line one\nline two\u2028 \ud800 \x00 \U0001f600",
    metadata={"unit": "\ud800", "n": None, "x": 1.5, "deep": {"a": [1, True]}},
    id="id\n1",
)
NOTES = [
    Document(f"rash {'cough ' * (i % 3)}{i}", metadata={"unit": i % 9}, id=f"{i}")
    for i in range(40)
]


def saved(path: Path, documents: Any = NOTES, **terms: Any) -> RetrievedGroups:
    groups = retrieved(documents, random=SeededRandom(1), **terms)
    groups.save(path)
    return groups


def load(path: Path, **options: Any) -> RetrievedGroups:
    random = SeededRandom(1)
    return RetrievedGroups.load(path, WordEmbedding(), random=random, **options)


both = pytest.mark.parametrize("mapped", [False, True])


@both
@pytest.mark.parametrize("terms", [{}, {"score_threshold": 0.5, "sampling_rate": 0.5}])
def test_a_round_trip_draws_the_same(tmp_path: Path, terms: Any, mapped: bool) -> None:
    path = tmp_path / "saved"
    groups = saved(path, [*NOTES, ODD], **terms)
    loaded = load(path, memory_map=mapped)
    for question in (QUESTION, "fever", "7"):
        assert loaded.draw(question) == groups.draw(question)
    assert loaded.description == groups.description
    assert loaded.n_units == groups.n_units
    assert loaded.metadata_keys == groups.metadata_keys == {"unit", "n", "x", "deep"}
    # The salt came along: added again, a unit is where it was.
    for one in (groups, loaded):
        assert one.delete_unit(3) == 5
        with pytest.raises(InvalidParameterError, match="taken"):
            one.add_documents([Document("x", metadata={"unit": 1}, id="1")])
        assert one.add_documents([note(3, "fever"), note("new", "fever")]) == 2
    assert bits(loaded) == bits(groups)
    loaded.save(path)
    assert len(list(path.iterdir())) == 3
    assert bits(load(path, memory_map=mapped)) == bits(groups)


def test_odd_content_survives(tmp_path: Path) -> None:
    groups = saved(tmp_path / "saved", [ODD], n_groups=1)
    assert load(tmp_path / "saved").draw("line one") == [[ODD]]
    groups.delete_unit("\ud800")
    groups.save(tmp_path / "saved")
    for mapped in (False, True):
        assert load(tmp_path / "saved", memory_map=mapped).draw(QUESTION) == [[]]


def test_only_the_owner_can_read_and_the_manifest_shows_nobody(tmp_path: Path) -> None:
    path = tmp_path / "saved"
    saved(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    names = sorted(file.name.split("-")[0] for file in path.iterdir())
    assert names == ["documents", "manifest.json", "vectors"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()} == {0o600}
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest.keys() == {
        *("format", "version", "revision", "terms", "dimension", "documents"),
        *("embedding_batch_size", "documents_file", "vectors_file"),
        *("secrets", "blake2b"),
    }
    assert "rash" not in json.dumps(manifest)


def test_saving_again_replaces(tmp_path: Path) -> None:
    path = tmp_path / "saved"
    saved(path)
    groups = saved(path, [note("only", "fever")], n_groups=1)
    assert load(path).n_units == 1
    assert len(list(path.iterdir())) == 3, "a former revision's file is left"
    (tmp_path / "empty").mkdir()
    groups.save(tmp_path / "empty")
    groups.save(tmp_path / "new" / "deep")
    assert load(tmp_path / "new" / "deep").n_units == 1


def test_a_failed_save_keeps_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "saved"
    saved(path)

    def full(*_: Any) -> None:
        raise OSError

    for place, count in ((path, 3), (tmp_path / "new", 0)):
        with monkeypatch.context() as patch:
            patch.setattr(np.lib.format, "write_array_header_1_0", full)
            with pytest.raises(OSError):  # noqa: PT011  # the fake disk says no more
                saved(place, [note(2, "rash")], n_groups=1)
        assert len(list(place.glob("*"))) == count
    assert load(path).n_units == 9
    assert [entry.name for entry in tmp_path.iterdir()] == ["saved"]


def test_other_places_are_refused(tmp_path: Path) -> None:
    groups = retrieved([note(1, "rash")], n_groups=1)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").touch()
    with pytest.raises(InvalidParameterError, match="something other than saved"):
        groups.save(tmp_path / "photos")
    with pytest.raises(InvalidParameterError, match="is a file"):
        groups.save(tmp_path / "photos" / "cat.png")
    for place in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InvalidParameterError, match="holds no saved groups"):
            load(place)
    saved(tmp_path / "saved")
    with pytest.raises(InvalidParameterError, match="Embeddings"):
        RetrievedGroups.load(tmp_path / "saved", None)  # type: ignore[arg-type]  # what is tested
    other = RetrievedGroups.load(tmp_path / "saved", WordEmbedding(size=5))
    with pytest.raises(InvalidParameterError, match=r"5 numbers .* vectors of 6"):
        other.prepare(QUESTION)


# ---- damage --------------------------------------------------------------------------


def edit(path: Path, **changes: Any) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    manifest.update(changes)
    (path / "manifest.json").write_text(json.dumps(manifest))


def data(path: Path, kind: str) -> Path:
    """Return a file of a saved index."""
    (file,) = path.glob(f"{kind}*")
    return file


def rehash(path: Path) -> None:
    """Make the checksums right again, as a careless tool would."""
    files = data(path, "documents"), data(path, "vectors")
    digests = {
        file.name: hashlib.blake2b(file.read_bytes(), digest_size=32).hexdigest()
        for file in files
    }
    edit(path, blake2b=digests)


TERMS = {"unit_key": "unit", "n_groups": 4, "docs_per_group": 2}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "something else"}, "holds no saved groups"),
        ({"version": 1}, "format version"),
        ({"secrets": {"salt": "00", "erasure_key": "00", "erasures": []}}, "fields"),
        ({"secrets": None}, "fields"),
        ({"revision": None}, "fields"),
        ({"terms": {}}, "fields"),
        ({"terms": {**TERMS, "n_groups": 0}}, "fields"),
        ({"terms": {**TERMS, "epsilon": 1}}, "fields"),
        ({"documents": 39}, "counts"),
        ({"documents": "40"}, "fields"),
        ({"dimension": 7}, "counts"),
        ({"embedding_batch_size": 0}, "fields"),
        ({"blake2b": {}}, "cut short or was changed"),
        ({"vectors_file": "../x.npy"}, "fields"),
        ({"documents_file": "documents-1-0.jsonl"}, "cut short or was changed"),
        ({"more": 1}, "fields"),
    ],
)
def test_a_changed_manifest_is_refused(
    tmp_path: Path, changes: Any, message: str
) -> None:
    saved(tmp_path / "saved")
    edit(tmp_path / "saved", **changes)
    with pytest.raises(InvalidParameterError, match=message):
        load(tmp_path / "saved")


@both
@pytest.mark.parametrize("name", ["documents", "vectors", "manifest"])
def test_a_damaged_file_is_refused(tmp_path: Path, name: str, mapped: bool) -> None:
    saved(tmp_path / "saved")
    file = data(tmp_path / "saved", name)
    content, middle = file.read_bytes(), file.stat().st_size // 2
    flipped = content[:middle] + b"\xff" + content[middle + 1 :]
    for damaged in (b"", content[:middle], flipped, content + b"x", None):
        file.unlink()
        if damaged is not None:
            file.write_bytes(damaged)
        with pytest.raises(InvalidParameterError, match=re.escape(file.name)) as caught:
            load(tmp_path / "saved", memory_map=mapped)
        assert "rash" not in str(caught.value)
        file.touch()


@pytest.mark.parametrize(
    "line",
    [
        *("[]", "{", '{"id": null, "page_content": 5, "metadata": {}}'),
        *("[" * 100_000, json.dumps({"page_content": "", "metadata": [[]] * 2})),
        json.dumps(
            {"page_content": "", "metadata": {"a": json.loads("[" * 30 + "]" * 30)}}
        ),
    ],
)
def test_lines_that_are_no_documents_are_refused(tmp_path: Path, line: str) -> None:
    """One that is nested deep neither: a draw may have no stack for it."""
    saved(tmp_path / "saved")
    file = data(tmp_path / "saved", "documents")
    rest = file.read_text().splitlines()[1:]
    file.write_text("\n".join([line, *rest]) + "\n")
    rehash(tmp_path / "saved")
    with pytest.raises(InvalidParameterError, match="line 1 is not a document"):
        load(tmp_path / "saved")


@pytest.mark.parametrize(
    "array",
    [
        np.full((40, 6), np.nan, np.float32),
        np.zeros((40, 6), np.float32),
        np.full((40, 6), 9, np.float32),
        np.eye(40, 6),
        np.zeros(40, np.float32),
        np.array([{"code": "runs"}], dtype=object),
    ],
)
def test_vectors_that_are_none_are_refused(tmp_path: Path, array: Any) -> None:
    saved(tmp_path / "saved")
    np.save(data(tmp_path / "saved", "vectors"), array, allow_pickle=True)
    rehash(tmp_path / "saved")
    with pytest.raises(InvalidParameterError, match=r"vectors-\w+-\w+\.npy"):
        load(tmp_path / "saved")


# ---- following -----------------------------------------------------------------------


def words_saved(path: Path, word: str = "first", **terms: Any) -> Path:
    notes = [note(i, f"rash {word} {i}") for i in range(8)]
    retrieved(notes, docs_per_group=8, **terms).save(path)
    return path


def words(slots: Any) -> set[str]:
    return {one.page_content.split()[1] for slot in slots for one in slot}


def test_a_question_sees_what_was_saved_before_it(tmp_path: Path) -> None:
    path = words_saved(tmp_path / "saved")
    groups, twin = load(path, follow=True), load(path)
    prepared = groups.prepare(QUESTION)
    words_saved(path, "second")
    # After the charge nothing is loaded: a failure would cost the charge.
    assert words(groups.draw_prepared(prepared)) == {"first"}
    assert words(groups.draw(QUESTION)) == {"second"}
    assert words(twin.draw(QUESTION)) == {"first"}
    words_saved(path, "third")
    groups.refresh()
    assert words(groups.draw_prepared(prepared)) == {"third"}
    # A revision that is there already is not read again.
    data(path, "vectors").unlink()
    assert words(groups.draw(QUESTION)) == {"third"}


def test_no_draw_mixes_two_revisions(tmp_path: Path) -> None:
    path = words_saved(tmp_path / "saved")
    groups, seen, done = load(path, follow=True), [], threading.Event()

    def draw() -> None:
        while not done.is_set():
            slots = groups.draw(QUESTION)
            seen.append((words(slots), sum(map(len, slots))))

    threads = [threading.Thread(target=draw) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(12):
        words_saved(path, f"revision-{number}")
    done.set()
    for thread in threads:
        thread.join()
    assert all(len(found) == 1 and count == 8 for found, count in seen)
    assert words(groups.draw(QUESTION)) == {"revision-11"}


def test_a_revision_that_comes_while_one_is_read_is_read_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = words_saved(tmp_path / "saved")
    read, revisions = np.load, ["second"]

    def interrupted(*given: Any, **mapped: Any) -> Any:
        if revisions:
            words_saved(path, revisions.pop())
        return read(*given, **mapped)

    monkeypatch.setattr(np, "load", interrupted)
    assert words(load(path, follow=True).draw(QUESTION)) == {"second"}


def test_what_can_not_be_followed_ends_before_the_charge(tmp_path: Path) -> None:
    path = words_saved(tmp_path / "saved")
    shutil.copytree(path, tmp_path / "older")
    words_saved(path, "second")
    groups = load(path, follow=True)
    for change, message in {
        "older": "older revision",
        "terms": "other parameters",
        "damaged": "holds no saved groups",
        "gone": "holds no saved groups",
    }.items():
        kept = tmp_path / "kept"
        shutil.copytree(path, kept)
        if change == "terms":
            words_saved(path, n_groups=3)
        else:
            shutil.rmtree(path)
        if change == "older":
            shutil.copytree(tmp_path / "older", path)
        if change == "damaged":
            path.mkdir(mode=0o700)
            (path / "manifest.json").write_text("{")
        with pytest.raises(InvalidParameterError, match=message):
            groups.prepare(QUESTION)
        shutil.rmtree(path, ignore_errors=True)
        kept.rename(path)
    assert words(groups.draw(QUESTION)) == {"second"}


def test_groups_that_follow_are_not_changed_themselves(tmp_path: Path) -> None:
    groups = load(words_saved(tmp_path / "saved"), follow=True)
    with pytest.raises(InvalidParameterError, match="follow a saved index"):
        groups.delete_unit(1)
    with pytest.raises(InvalidParameterError, match="follow a saved index"):
        groups.add_documents([note(1, "rash")])
    groups.save(tmp_path / "elsewhere")
    assert load(tmp_path / "elsewhere").n_units == 8


def test_a_stale_copy_does_not_bring_the_erased_back(tmp_path: Path) -> None:
    path = words_saved(tmp_path / "saved")
    stale, fresh = load(path), load(path)
    for unit in (3, 4):
        fresh.delete_unit(unit)
        fresh.save(path)
    stale.delete_unit(5)
    with pytest.raises(InvalidParameterError, match="saved anew by somebody else"):
        stale.save(path)
    assert load(path).n_units == 6
    stale.save(tmp_path / "elsewhere")


# ---- mapped files --------------------------------------------------------------------


def test_an_erasure_reaches_those_that_follow(tmp_path: Path) -> None:
    path = tmp_path / "saved"
    saved(path, n_groups=2, docs_per_group=50)
    files = [str(data(path, kind)) for kind in ("documents", "vectors")]
    following, holding = (load(path, memory_map=True, follow=f) for f in (True, False))
    before = holding.draw(QUESTION)
    assert all(file in Path("/proc/self/maps").read_text() for file in files)
    assert erase(3, index=path).index["documents_erased"] == 5
    assert units(following.draw(QUESTION)) == set(range(9)) - {3}
    # The files are gone, and who had them mapped reads on.
    assert holding.draw(QUESTION) == before
    assert len(list(path.iterdir())) == 3


def deepest(groups: RetrievedGroups) -> int:
    """Return under how many calls of a caller's a draw still works."""
    prepared = groups.prepare(QUESTION)

    def under(calls: int) -> None:
        if calls:
            under(calls - 1)
        else:
            groups.draw_prepared(prepared)

    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 500)
    try:
        # From the top: what one draw has read, the next does not read again.
        for calls in reversed(range(1, 500)):
            with suppress(RecursionError):
                under(calls)
                return calls
    finally:
        sys.setrecursionlimit(usual)
    return 0


@pytest.mark.parametrize("asked", [{}, {"ward": 1}])
@pytest.mark.parametrize("mapped", [None, False, True])
def test_how_full_a_stack_may_be_says_nothing_of_anybody(
    tmp_path: Path, asked: dict[str, Any], mapped: bool | None
) -> None:
    """Also of who does not match: a filter reads every document once."""
    found = []
    for levels in (0, 18):
        notes = [Document("rash", metadata={"unit": i, "ward": 1}) for i in range(9)]
        deep = json.loads("[" * levels + "]" * levels or "0")
        notes.append(note("deep", "rash", ward=2, deep=deep))
        groups = saved(tmp_path / str(levels), notes, n_groups=2, docs_per_group=99)
        if mapped is not None:
            groups = load(tmp_path / str(levels), memory_map=mapped)
        found.append(deepest(groups.where(asked) if asked else groups))
    assert found[0] == found[1] > 100
