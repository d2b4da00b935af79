"""Vectors and documents in mapped files: the same draws, from the disk."""

from __future__ import annotations

import inspect
import mmap
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from support.groups_fakes import QUESTION, WordEmbedding, contents, note, retrieved

from langchain_dpicl import erase
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups import RetrievedGroups, lines
from langchain_dpicl.groups.flat import FlatIndex
from langchain_dpicl.mechanisms.random import SeededRandom

NOTES = [
    Document(
        f"rash {'cough ' * (i % 3)}{i}", metadata={"unit": i % 9, "n": None}, id=f"{i}"
    )
    for i in range(40)
]


def saved(path: Path, documents: Any = NOTES, **terms: Any) -> RetrievedGroups:
    groups = retrieved(documents, random=SeededRandom(1), **terms)
    groups.save(path)
    return groups


def load(path: Path, **options: Any) -> RetrievedGroups:
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
    groups = saved(tmp_path / "saved", **terms)
    loaded = load(tmp_path / "saved")
    for question in (QUESTION, "fever", "7"):
        assert contents(loaded.draw(question)) == contents(groups.draw(question))
    assert loaded.n_units == groups.n_units
    assert loaded.metadata_keys == groups.metadata_keys


def test_it_stays_on_the_disk(tmp_path: Path) -> None:
    saved(tmp_path / "saved")
    for shard in load(tmp_path / "saved")._index.shards:
        base: Any = shard.vectors()
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
    groups, loaded = saved(path), load(path)
    for one in (groups, loaded):
        assert one.delete_unit(3) == 5
        with pytest.raises(InvalidParameterError, match="taken"):
            one.add_documents([Document("x", metadata={"unit": 1}, id="1")])
        assert one.add_documents([note(1, "fever"), note("new", "fever")]) == 2
    loaded.save(path)
    again = load(path)
    assert len(list(path.iterdir())) == 3
    for question in (QUESTION, "fever"):
        drawn = contents(groups.draw(question))
        assert contents(loaded.draw(question)) == drawn
        assert contents(again.draw(question)) == drawn


def test_an_erasure_reaches_those_that_follow(tmp_path: Path) -> None:
    path = tmp_path / "saved"
    saved(path, n_groups=2, docs_per_group=50)
    following, holding = load(path, follow=True), load(path)
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
    saved(tmp_path / "saved")
    path = next((tmp_path / "saved").glob(f"{kind}-*"))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InvalidParameterError, match=path.name):
        load(tmp_path / "saved")


def nested(levels: int) -> dict[str, Any]:
    deep: Any = 0
    for _ in range(levels):
        deep = [deep]
    return {"deep": deep}


def draw_deeply_nested(path: Path, patch: pytest.MonkeyPatch) -> None:
    """Draw one document of many levels where the caller's stack is nearly full."""
    documents = [*NOTES, Document("rash", metadata={"unit": "deep", **nested(400)})]
    saved(path, documents, docs_per_group=99)
    loaded = load(path)
    parsed = lines.parsed_line

    def on_a_full_stack(line: bytes) -> Document:
        if b"[[[" in line:
            raise RecursionError
        return parsed(line)

    patch.setattr(lines, "parsed_line", on_a_full_stack)
    assert sum(map(len, loaded.draw(QUESTION))) == len(documents)


def test_one_deep_document_fails_nobodys_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_deeply_nested(tmp_path / "saved", monkeypatch)


def test_twin_parsing_it_again_fails_the_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_DEEP", 10_000)
    with pytest.raises(RecursionError):
        draw_deeply_nested(tmp_path / "saved", monkeypatch)


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
    for levels in (0, 95):
        notes = [Document("rash", metadata={"unit": i, "ward": 1}) for i in range(9)]
        own = {"unit": "deep", "ward": 2, **nested(levels)}
        notes.append(Document("rash", metadata=own))
        saved(tmp_path / str(levels), notes, n_groups=2, docs_per_group=99)
        loaded = load(tmp_path / str(levels))
        found.append(deepest(loaded.where(asked) if asked else loaded))
    assert found[0] == found[1] > 100


def test_documents_as_lines_are_a_sequence() -> None:
    index = lines.LineIndex()
    texts = [lines.line_of(one, 0) for one in NOTES]
    for line in texts:
        index.add(line)
    found = index.over(b"".join(texts))
    assert list(found) == NOTES
    assert list(found[3:9:2]) == NOTES[3:9:2]
    assert found[-1] == NOTES[-1]
    assert list(found.take(np.asarray([5, 1]))) == [NOTES[5], NOTES[1]]
    assert "rash" not in repr(found)
    with pytest.raises(IndexError):
        found[len(NOTES)]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 60), st.sampled_from([1, 3, 8, 40]), st.integers(0, 2**31))
def test_the_flat_index_is_that_of_faiss(n: int, dimension: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(-2, 3, (n, dimension)).astype(np.float32)
    question = rng.standard_normal((1, dimension), dtype=np.float32)
    ours, theirs = FlatIndex(rows), faiss.IndexFlatIP(dimension)
    theirs.add(rows)
    assert (ours.ntotal, ours.d) == (n, dimension)
    same(ours.range_search(question, 0.5), theirs.range_search(question, 0.5)[1:])
    if n:
        k = int(rng.integers(1, n + 1))
        same(ours.search(question, k), theirs.search(question, k))
        among = np.flatnonzero(rng.random(n) < 0.5)
        only: Any = faiss.SearchParameters
        params = only(sel=faiss.IDSelectorArray(among))
        k = max(1, len(among))
        same(ours.search(question, k, among), theirs.search(question, k, params=params))


def same(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one, other)


def test_the_flat_index_reads_no_other_memory() -> None:
    index = FlatIndex(np.eye(3, dtype=np.float32))
    for question in (np.zeros((1, 2)), np.zeros((2, 3)), np.zeros((1, 3))):
        with pytest.raises(ValueError, match="float32"):
            index.search(question, 1)
        with pytest.raises(ValueError, match="float32"):
            index.range_search(question, 0.0)
