"""Saving and loading: the same draws, no pickle, and nothing damaged gets in."""

from __future__ import annotations

import json
import re
import stat
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
from langchain_dpicl.groups import RetrievedGroups, storage
from langchain_dpicl.groups.saved_files import checksum
from langchain_dpicl.mechanisms.random import SeededRandom

if TYPE_CHECKING:
    from pathlib import Path

TERMS: list[dict[str, Any]] = [
    {},
    {"score_threshold": 0.5},
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
    vector = loaded.prepare(QUESTION).vector
    assert contents(loaded._index.top(vector, 99, None)) == contents(
        groups._index.top(vector, 99, None)
    )


def saved(tmp_path: Path) -> Path:
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
    path = saved(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    files = sorted(path.iterdir())
    assert [file.name.split("-")[0] for file in files] == [
        "documents",
        "manifest.json",
        "vectors",
    ]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_saving_again_replaces(tmp_path: Any) -> None:
    path = saved(tmp_path)
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
    with pytest.raises(InvalidParameterError, match="'odd' of stored document 1 "):
        groups.save(path)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_save_keeps_the_earlier_one(tmp_path: Any, monkeypatch: Any) -> None:
    path = saved(tmp_path)
    bad = retrieved([note(2, "rash", odd=object())], n_groups=1)
    with pytest.raises(InvalidParameterError):
        bad.save(path)
    assert load(path).n_units == 6

    def full(*_: Any) -> None:
        raise OSError

    monkeypatch.setattr(storage, "write_vectors", full)
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
        ({"version": 2}, "format version"),
        ({"version": None}, "format version"),
        ({"secrets": {"salt": "00", "erasure_key": "00", "erasures": []}}, "salt"),
        ({"secrets": {"salt": "not hex"}}, "salt"),
        ({"secrets": None}, "salt"),
        ({"secrets": "bm90IGEgY2lwaGVy"}, "salt"),
        ({"revision": None}, "not a count"),
        ({"terms": None}, "parameters"),
        ({"terms": {}}, "parameters"),
        ({"terms": terms_with(n_groups=0)}, "parameters"),
        ({"terms": terms_with(grouping="shard")}, "parameters"),
        ({"terms": terms_with(epsilon=1)}, "parameters"),
        ({"documents": 19}, "counts"),
        ({"documents": "20"}, "not a count"),
        ({"dimension": 7}, "counts"),
        ({"dimension": -1}, "not a count"),
        ({"blake2b": None}, "checksums"),
        ({"blake2b": {}}, "checksums"),
        ({"blake2b": {"documents-1-0.jsonl": "0", "../x.npy": "0"}}, "checksums"),
        (
            {"blake2b": {"documents-1-0.jsonl": "0", "vectors-1-0.npy": "0"}},
            "documents-1-0.jsonl: it is cut short or was changed",
        ),
    ],
)
def test_a_changed_manifest_is_refused(
    tmp_path: Any, changes: Any, message: Any
) -> None:
    path = saved(tmp_path)
    edit(path, **changes)
    with pytest.raises(InvalidParameterError, match=message):
        load(path)


@pytest.mark.parametrize("name", ["documents", "vectors", "manifest"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "flipped", "longer"])
def test_a_damaged_file_is_refused(tmp_path: Any, name: Any, damage: Any) -> None:
    path = saved(tmp_path)
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
    edit(path, blake2b={file.name: checksum(file) for file in files})


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
    path = saved(tmp_path)
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
    path = saved(tmp_path)
    np.save(data(path, "vectors"), array, allow_pickle=True)
    rehash(path)
    with pytest.raises(InvalidParameterError, match=r"vectors-\w+-\w+\.npy"):
        load(path)


def test_foreign_places_are_refused(tmp_path: Any) -> None:
    for place in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InvalidParameterError, match="holds no saved groups"):
            load(place)
    with pytest.raises(InvalidParameterError, match="Embeddings"):
        RetrievedGroups.load(saved(tmp_path), None)


def test_another_embedding_is_refused_at_the_question(tmp_path: Any) -> None:
    groups = RetrievedGroups.load(saved(tmp_path), WordEmbedding(size=5))
    with pytest.raises(InvalidParameterError, match=r"5 numbers .* vectors of 6"):
        groups.prepare(QUESTION)
