"""Saving and loading: the same draws, no pickle, and nothing damaged gets in."""

from __future__ import annotations

import inspect
import json
import mmap
import re
import shutil
import stat
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from langchain_core.documents import Document
from support.groups_fakes import (
    QUESTION,
    WordEmbedding,
    contents,
    corpora,
    note,
    retrieved,
)

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups import RetrievedGroups, lines, saved
from langchain_dpicl.mechanisms.random import SeededRandom
from langchain_dpicl.operate import erase

if TYPE_CHECKING:
    from pathlib import Path

TERMS: list[dict[str, Any]] = [
    {},
    {"score_threshold": 0.5},
]


def bits(groups: RetrievedGroups) -> list[Any]:
    return [
        (shard.vectors.tobytes(), list(shard.documents), shard.unit_ids)
        for shard in groups._index.shards
    ]


def load(path: Path, seed: int = 1) -> RetrievedGroups:
    return RetrievedGroups.load(path, WordEmbedding(), random=SeededRandom(seed))


@pytest.mark.parametrize("terms", TERMS)
@settings(
    deadline=None,
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(case=corpora())
def test_a_round_trip_draws_the_same(tmp_path: Any, terms: Any, case: Any) -> None:
    documents, _, gone = case
    groups = retrieved(documents, random=SeededRandom(1), **terms)
    path = tmp_path / "saved"
    groups.save(path)
    loaded = load(path)
    for question in (QUESTION, "fever", "sleep rash"):
        assert contents(loaded.draw(question)) == contents(groups.draw(question))
    assert loaded.description == groups.description
    assert loaded.n_units == groups.n_units
    # The salt came along: deleting and adding again leads to the same shard.
    own = [doc for doc in documents if doc.metadata["unit"] == gone]
    assert loaded.delete_unit(gone) == len(own)
    loaded.add_documents(own)
    assert bits(loaded) == bits(groups)


def written(tmp_path: Path) -> Path:
    path = tmp_path / "saved"
    retrieved([note(i % 6, f"rash {i}") for i in range(20)]).save(path)
    return path


def test_odd_content_survives(tmp_path: Any) -> None:
    odd = Document(
        "line one\nline two\u2028 \ud800 \x00 \U0001f600",
        metadata={"unit": "\ud800", "n": None, "x": 1.5, "deep": {"a": [1, True]}},
        id="id\n1",
    )
    groups = retrieved([odd], n_groups=1)
    groups.save(tmp_path / "saved")
    [[drawn]] = load(tmp_path / "saved").draw("line one")
    assert drawn == odd


def test_an_emptied_index_survives(tmp_path: Any) -> None:
    groups = retrieved([note(1, "rash")], n_groups=1)
    groups.delete_unit(1)
    groups.save(tmp_path / "saved")
    assert load(tmp_path / "saved").draw(QUESTION) == [[]]


def test_only_the_owner_can_read(tmp_path: Any) -> None:
    path = written(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    files = sorted(path.iterdir())
    assert [file.name.split("-")[0] for file in files] == [
        "documents",
        "manifest.json",
        "vectors",
    ]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_saving_again_replaces(tmp_path: Any) -> None:
    path = written(tmp_path)
    groups = retrieved([note("only", "fever")], n_groups=1)
    groups.save(path)
    assert load(path).n_units == 1
    assert len(list(path.iterdir())) == 3, "a former revision's file is left"
    assert [entry.name for entry in tmp_path.iterdir()] == ["saved"]
    (tmp_path / "empty").mkdir()
    groups.save(tmp_path / "empty")
    groups.save(tmp_path / "new" / "deep")
    assert load(tmp_path / "new" / "deep").n_units == 1


def test_other_things_are_not_overwritten(tmp_path: Any) -> None:
    groups = retrieved([note(1, "rash")], n_groups=1)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").touch()
    with pytest.raises(InvalidParameterError, match="something other than saved"):
        groups.save(tmp_path / "photos")
    with pytest.raises(InvalidParameterError, match="is a file"):
        groups.save(tmp_path / "photos" / "cat.png")
    assert [entry.name for entry in tmp_path.iterdir()] == ["photos"]


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", np.int64(3)])
def test_metadata_must_be_json(tmp_path: Any, value: Any) -> None:
    groups = retrieved(
        [note(1, "rash", fine=1), note(2, "rash", odd=value)], n_groups=1
    )
    path = tmp_path / "saved"
    with pytest.raises(InvalidParameterError, match="'odd' of a stored document"):
        groups.save(path)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_save_keeps_the_earlier_one(tmp_path: Any, monkeypatch: Any) -> None:
    path = written(tmp_path)
    bad = retrieved([note(2, "rash", odd=object())], n_groups=1)
    with pytest.raises(InvalidParameterError):
        bad.save(path)
    assert load(path).n_units == 6

    def full(*_: Any) -> None:
        raise OSError

    monkeypatch.setattr(saved, "_write_vectors", full)
    with pytest.raises(OSError):  # noqa: PT011  # the fake disk says no more
        retrieved([note(2, "rash")], n_groups=1).save(path)
    monkeypatch.undo()
    assert load(path).n_units == 6
    assert len(list(path.iterdir())) == 3
    assert [entry.name for entry in tmp_path.iterdir()] == ["saved"]


def edit(path: Path, **changes: Any) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    manifest.update(changes)
    (path / "manifest.json").write_text(json.dumps(manifest))


def terms_with(**changes: Any) -> dict[str, Any]:
    return {
        "unit_key": "unit",
        "n_groups": 4,
        "docs_per_group": 2,
        "score_threshold": None,
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "something else"}, "holds no saved groups"),
        ({"version": 1}, "format version"),
        ({"version": None}, "format version"),
        ({"secrets": {"salt": "00", "erasure_key": "00", "erasures": []}}, "fields"),
        ({"secrets": {"salt": "not hex"}}, "fields"),
        ({"secrets": None}, "fields"),
        ({"revision": None}, "fields"),
        ({"terms": None}, "fields"),
        ({"terms": {}}, "fields"),
        ({"terms": terms_with(n_groups=0)}, "fields"),
        ({"terms": terms_with(epsilon=1)}, "fields"),
        ({"documents": 19}, "counts"),
        ({"documents": "20"}, "fields"),
        ({"dimension": 7}, "counts"),
        ({"dimension": -1}, "fields"),
        ({"embedding_batch_size": 0}, "fields"),
        ({"blake2b": None}, "fields"),
        ({"blake2b": {}}, "cut short or was changed"),
        ({"vectors_file": "../x.npy"}, "fields"),
        ({"documents_file": "documents-1-0.jsonl"}, "cut short or was changed"),
        ({"more": 1}, "fields"),
    ],
)
def test_a_changed_manifest_is_refused(
    tmp_path: Any, changes: Any, message: Any
) -> None:
    path = written(tmp_path)
    edit(path, **changes)
    with pytest.raises(InvalidParameterError, match=message):
        load(path)


@pytest.mark.parametrize("name", ["documents", "vectors", "manifest"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "flipped", "longer"])
def test_a_damaged_file_is_refused(tmp_path: Any, name: Any, damage: Any) -> None:
    path = written(tmp_path)
    file = data(path, name)
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        middle = len(content) // 2
        file.write_bytes(content[:middle] + b"\xff" + content[middle + 1 :])
    else:
        file.write_bytes(content + b"x")
    with pytest.raises(InvalidParameterError, match=re.escape(file.name)) as caught:
        load(path)
    assert "rash" not in str(caught.value)


def rehash(path: Path) -> None:
    """Make the checksums right again, as a careless tool would."""
    files = data(path, "documents"), data(path, "vectors")
    edit(path, blake2b={file.name: saved._checksum(file) for file in files})


def data(path: Path, kind: str) -> Path:
    """Return a file of a saved index."""
    (file,) = path.glob(f"{kind}*")
    return file


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[]", "line 1 is not a document"),
        ("{}", "line 1 is not a document"),
        ("{", "line 1 is not a document"),
        ('{"id": null, "page_content": 5, "metadata": {}}', "line 1 is not a document"),
        ("[" * 100_000, "line 1 is not a document"),
    ],
)
def test_lines_that_are_no_documents_are_refused(
    tmp_path: Any, line: Any, message: Any
) -> None:
    path = written(tmp_path)
    file = data(path, "documents")
    rest = file.read_text().splitlines()[1:]
    file.write_text("\n".join([line, *rest]) + "\n")
    rehash(path)
    with pytest.raises(InvalidParameterError, match=message):
        load(path)


@pytest.mark.parametrize(
    "array",
    [
        np.full((20, 6), np.nan, np.float32),
        np.zeros((20, 6), np.float32),
        np.full((20, 6), 9, np.float32),
        np.eye(20, 6),
        np.zeros(20, np.float32),
        np.array([{"code": "runs"}], dtype=object),
    ],
)
def test_vectors_that_are_none_are_refused(tmp_path: Any, array: Any) -> None:
    path = written(tmp_path)
    np.save(data(path, "vectors"), array, allow_pickle=True)
    rehash(path)
    with pytest.raises(InvalidParameterError, match=r"vectors-\w+-\w+\.npy"):
        load(path)


def test_foreign_places_are_refused(tmp_path: Any) -> None:
    for place in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InvalidParameterError, match="holds no saved groups"):
            load(place)
    with pytest.raises(InvalidParameterError, match="Embeddings"):
        RetrievedGroups.load(written(tmp_path), None)


def test_another_embedding_is_refused_at_the_question(tmp_path: Any) -> None:
    groups = RetrievedGroups.load(written(tmp_path), WordEmbedding(size=5))
    with pytest.raises(InvalidParameterError, match=r"5 numbers .* vectors of 6"):
        groups.prepare(QUESTION)


# ---- following -----------------------------------------------------------------------

UNITS = 8


def words_saved(path: Path, word: str = "first", **terms: Any) -> Path:
    documents = [note(i, f"rash {word} {i}") for i in range(UNITS)]
    retrieved(documents, docs_per_group=UNITS, **terms).save(path)
    return path


def following(path: Path, *, follow: bool = True) -> RetrievedGroups:
    return RetrievedGroups.load(path, WordEmbedding(), follow=follow)


def words(slots: Any) -> set[str]:
    return {text.split()[1] for slot in contents(slots) for text in slot_texts(slot)}


def slot_texts(slot: Any) -> list[str]:
    return [part for pair in slot for part in pair if part.startswith("rash")]


def test_a_question_sees_what_was_saved_before_it(tmp_path: Path) -> None:
    path = words_saved(tmp_path / "saved")
    groups, twin = following(path), following(path, follow=False)
    words_saved(path, "second")
    assert words(groups.draw(QUESTION)) == {"second"}
    assert words(twin.draw(QUESTION)) == {"first"}
    words_saved(path, "fourth")
    groups.refresh()
    assert groups.n_units == UNITS
    assert words(groups.draw(QUESTION)) == {"fourth"}


def test_a_directory_is_read_again_only_if_it_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = following(words_saved(tmp_path / "saved"))

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(saved, "load", fail)
    assert words(groups.draw(QUESTION)) == {"first"}


def test_a_revision_that_comes_after_the_question_was_prepared_waits(
    tmp_path: Path,
) -> None:
    path = words_saved(tmp_path / "saved")
    groups = following(path)
    prepared = groups.prepare(QUESTION)
    words_saved(path, "second")
    # After the charge nothing is loaded: a failure would cost the charge.
    assert words(groups.draw_prepared(prepared)) == {"first"}


def test_no_draw_mixes_two_revisions(tmp_path: Path) -> None:
    path = words_saved(tmp_path / "saved")
    groups, seen, done = following(path), [], threading.Event()

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
    assert all(len(found) == 1 and count == UNITS for found, count in seen)
    assert words(groups.draw(QUESTION)) == {"revision-11"}


def test_a_revision_that_comes_while_one_is_read_is_read_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = words_saved(tmp_path / "saved")
    read, revisions = saved._read_vectors, ["second"]

    def interrupted(*given: Any, **mapped: Any) -> Any:
        if revisions:
            words_saved(path, revisions.pop())
        return read(*given, **mapped)

    monkeypatch.setattr(saved, "_read_vectors", interrupted)
    assert words(following(path).draw(QUESTION)) == {"second"}


def test_what_can_not_be_followed_ends_before_the_charge(tmp_path: Path) -> None:
    path = words_saved(tmp_path / "saved")
    shutil.copytree(path, tmp_path / "older")
    words_saved(path, "second")
    groups = following(path)
    for change, message in {
        "older": "older revision",
        "terms": "other parameters",
        "damaged": "can't be parsed|holds no saved groups",
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
        for ask in (groups.prepare, groups.draw):
            with pytest.raises(InvalidParameterError, match=message):
                ask(QUESTION)
        shutil.rmtree(path, ignore_errors=True)
        kept.rename(path)
    assert words(groups.draw(QUESTION)) == {"second"}


def test_groups_that_follow_are_not_changed_themselves(tmp_path: Path) -> None:
    groups = following(words_saved(tmp_path / "saved"))
    with pytest.raises(InvalidParameterError, match="follow a saved index"):
        groups.delete_unit(1)
    with pytest.raises(InvalidParameterError, match="follow a saved index"):
        groups.add_documents([note(1, "rash")])
    groups.save(tmp_path / "elsewhere")
    assert following(tmp_path / "elsewhere").n_units == UNITS


def test_a_stale_copy_does_not_bring_the_erased_back(tmp_path: Path) -> None:
    path = words_saved(tmp_path / "saved")
    stale, fresh = following(path, follow=False), following(path, follow=False)
    fresh.delete_unit(3)
    fresh.save(path)
    fresh.delete_unit(4)
    fresh.save(path)
    stale.delete_unit(5)
    with pytest.raises(InvalidParameterError, match="saved anew by somebody else"):
        stale.save(path)
    assert following(path).n_units == UNITS - 2
    stale.save(tmp_path / "elsewhere")


def test_the_manifest_shows_nothing_of_a_person(tmp_path: Path) -> None:
    manifest = json.loads(
        (words_saved(tmp_path / "saved") / "manifest.json").read_text()
    )
    assert manifest.keys() == {
        *("format", "version", "revision", "terms", "dimension", "documents"),
        *("embedding_batch_size", "documents_file", "vectors_file"),
        *("secrets", "blake2b"),
    }
    assert "rash" not in json.dumps(manifest)


# ---- mapped files --------------------------------------------------------------------

NOTES = [
    Document(
        f"rash {'cough ' * (i % 3)}{i}", metadata={"unit": i % 9, "n": None}, id=f"{i}"
    )
    for i in range(40)
]


def noted(path: Path, documents: Any = NOTES, **terms: Any) -> RetrievedGroups:
    groups = retrieved(documents, random=SeededRandom(1), **terms)
    groups.save(path)
    return groups


def mapped(path: Path, **options: Any) -> RetrievedGroups:
    random = SeededRandom(1)
    return RetrievedGroups.load(
        path, WordEmbedding(), memory_map=True, random=random, **options
    )


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"score_threshold": 0.5},
        {"sampling_rate": 0.5},
    ],
)
def test_a_mapped_index_draws_the_same(tmp_path: Path, terms: Any) -> None:
    groups = noted(tmp_path / "saved", **terms)
    loaded = mapped(tmp_path / "saved")
    for question in (QUESTION, "fever", "7"):
        assert contents(loaded.draw(question)) == contents(groups.draw(question))
    assert loaded.n_units == groups.n_units
    assert loaded.metadata_keys == groups.metadata_keys


def test_it_stays_on_the_disk(tmp_path: Path) -> None:
    noted(tmp_path / "saved")
    for shard in mapped(tmp_path / "saved")._index.shards:
        base: Any = shard.vectors
        while isinstance(base, np.ndarray) and base.base is not None:
            base = base.base
        assert isinstance(base, mmap.mmap)
        assert isinstance(shard.documents, lines.DocumentLines)
    loaded = RetrievedGroups.load(tmp_path / "saved", WordEmbedding())
    assert not any(
        isinstance(shard.documents, lines.DocumentLines)
        for shard in loaded._index.shards
    )


def test_it_is_changed_and_saved_in_place(tmp_path: Path) -> None:
    path = tmp_path / "saved"
    groups, loaded = noted(path), mapped(path)
    for one in (groups, loaded):
        assert one.delete_unit(3) == 5
        with pytest.raises(InvalidParameterError, match="taken"):
            one.add_documents([Document("x", metadata={"unit": 1}, id="1")])
        assert one.add_documents([note(1, "fever"), note("new", "fever")]) == 2
    loaded.save(path)
    again = mapped(path)
    assert len(list(path.iterdir())) == 3
    for question in (QUESTION, "fever"):
        drawn = contents(groups.draw(question))
        assert contents(loaded.draw(question)) == drawn
        assert contents(again.draw(question)) == drawn


def test_an_erasure_reaches_those_that_follow(tmp_path: Path) -> None:
    path = tmp_path / "saved"
    noted(path, n_groups=2, docs_per_group=50)
    following, holding = mapped(path, follow=True), mapped(path)
    before = contents(holding.draw(QUESTION))
    assert erase(3, index=path).index["documents_erased"] == 5
    units = {unit for slot in contents(following.draw(QUESTION)) for unit, _ in slot}
    assert units == {str(i) for i in range(9) if i != 3}
    assert following._records._base.memory_map
    # The files are gone, and who had them mapped reads on.
    assert contents(holding.draw(QUESTION)) == before
    names = {one.name.partition("-")[0] for one in path.iterdir()}
    assert names == {"documents", "vectors", "manifest.json"}
    assert len(list(path.iterdir())) == 3


@pytest.mark.parametrize("kind", ["documents", "vectors"])
def test_damaged_files_are_refused(tmp_path: Path, kind: str) -> None:
    noted(tmp_path / "saved")
    path = next((tmp_path / "saved").glob(f"{kind}-*"))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InvalidParameterError, match=path.name):
        mapped(tmp_path / "saved")


def nested(levels: int) -> dict[str, Any]:
    deep: Any = 0
    for _ in range(levels):
        deep = [deep]
    return {"deep": deep}


def test_metadata_that_is_nested_deep_is_refused_before_any_draw(
    tmp_path: Path,
) -> None:
    noted(tmp_path / "saved", [*NOTES, note(1, "rash", **nested(30))])
    with pytest.raises(InvalidParameterError, match="nested more than 20 levels"):
        mapped(tmp_path / "saved")


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
def test_how_full_a_stack_may_be_says_nothing_of_anybody(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    """Also of who does not match: a filter reads every document once."""
    found = []
    for levels in (0, 18):
        notes = [Document("rash", metadata={"unit": i, "ward": 1}) for i in range(9)]
        own = {"unit": "deep", "ward": 2, **nested(levels)}
        notes.append(Document("rash", metadata=own))
        noted(tmp_path / str(levels), notes, n_groups=2, docs_per_group=99)
        loaded = mapped(tmp_path / str(levels))
        found.append(deepest(loaded.where(asked) if asked else loaded))
    assert found[0] == found[1] > 100
