"""Groups from vectors that exist already: the same as from documents, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from support.groups_fakes import QUESTION, SALT, WordEmbedding, contents, retrieved

from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import DPError, InvalidParameterError, UnitError
from langchain_dpicl.groups import RetrievedGroups, ingest, shard_of, shards_of

CANARY = "canary-7f3a"
WORDS = ("rash", "cough", "nausea", "fever", "sleep")


def documents(n: int = 60) -> list[Document]:
    rng = np.random.default_rng(1)
    return [
        Document(
            " ".join(rng.choice(WORDS, 3)),
            metadata={"unit": f"p-{i % 17}", "visit": i, "ward": "north"},
            id=f"note-{i}",
        )
        for i in range(n)
    ]


def arrays(given: list[Document]) -> dict[str, Any]:
    vectors = WordEmbedding().embed_documents([one.page_content for one in given])
    return {
        "text": [one.page_content for one in given],
        "embedding": np.asarray(vectors, np.float32),
        "key": [one.id for one in given],
        **{
            name: [one.metadata[name] for one in given]
            for name in ("unit", "visit", "ward")
        },
    }


def mapped(given: list[Document], folder: Path) -> dict[str, Any]:
    own = arrays(given)
    np.save(folder / "vectors.npy", own["embedding"])
    return {**own, "embedding": np.load(folder / "vectors.npy", mmap_mode="r")}


SOURCES: dict[str, Any] = {
    "arrays": lambda given, _: arrays(given),
    "lists": lambda given, _: {
        **arrays(given),
        "embedding": arrays(given)["embedding"].tolist(),
    },
    "a mapped array": mapped,
}


def opened(source: Any, **terms: Any) -> RetrievedGroups:
    given = {"unit_key": "unit", "n_groups": 4, "docs_per_group": 2, "salt": SALT}
    embedding = WordEmbedding()
    return RetrievedGroups.from_embeddings(
        source, embedding, id_column="key", **{**given, **terms}
    )


def shard_contents(groups: Any) -> list[Any]:
    """Return everything that an index holds, shard by shard."""
    return [
        (shard.vectors.tobytes(), list(shard.documents), shard.unit_ids)
        for shard in groups._index.shards
    ]


@pytest.mark.parametrize("name", list(SOURCES))
def test_the_index_is_that_of_the_documents(tmp_path: Path, name: str) -> None:
    groups = opened(SOURCES[name](documents(), tmp_path))
    assert shard_contents(groups) == shard_contents(retrieved(documents()))


@pytest.mark.parametrize(
    "terms",
    [{}, {"score_threshold": 0.5}],
)
def test_draws_are_those_of_the_documents(terms: Any) -> None:
    own, groups = retrieved(documents(), **terms), opened(arrays(documents()), **terms)
    assert sorted(contents(groups.draw(QUESTION))) == sorted(
        contents(own.draw(QUESTION))
    )
    assert groups.description == own.description


def test_columns_that_are_chosen() -> None:
    source = arrays(documents())
    del source["key"]
    plain = RetrievedGroups.from_embeddings(
        source, WordEmbedding(), unit_key="unit", n_groups=4, metadata_columns=["visit"]
    )
    found = [one for slot in plain.draw(QUESTION) for one in slot]
    assert {tuple(sorted(one.metadata)) for one in found} == {("unit", "visit")}
    assert {one.id for one in found} == {None}


def test_they_change_and_are_saved_as_others_are(tmp_path: Path) -> None:
    groups, own = opened(arrays(documents())), retrieved(documents())
    for one in (groups, own):
        assert one.delete_unit("p-3") == 4
        with pytest.raises(InvalidParameterError, match="taken"):
            one.add_documents([Document("x", metadata={"unit": 1}, id="note-1")])
        one.add_documents([Document("fever", metadata={"unit": "p-3"}, id="note-3")])
    assert shard_contents(groups) == shard_contents(own)
    groups.save(tmp_path / "saved")
    loaded = RetrievedGroups.load(tmp_path / "saved", WordEmbedding())
    assert shard_contents(loaded) == shard_contents(own)


# -- a row is read by itself ---------------------------------------------------------


@settings(deadline=None, max_examples=20)
@given(gone=st.integers(0, 16), size=st.sampled_from([1, 7, 8192]))
def test_one_unit_less_leaves_every_other_row(gone: int, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest, "_BATCH", size)
        require_rows_of_their_own(f"p-{gone}")


def require_rows_of_their_own(gone: str) -> None:
    rest = [one for one in documents() if one.metadata["unit"] != gone]
    whole = shard_contents(opened(arrays(documents())))
    less = opened(arrays(rest))
    changed = [
        number
        for number, (one, other) in enumerate(
            zip(whole, shard_contents(less), strict=True)
        )
        if one != other
    ]
    assert changed == [shard_of(gone, SALT, 4)]
    without = opened(arrays(documents()))
    without.delete_unit(gone)
    assert shard_contents(without) == shard_contents(less)


def first_row(*rows: Any, order: str = "C") -> bytes:
    """Return the first record's vector, bit for bit, among others."""
    found = np.asfortranarray(rows) if order == "F" else list(rows)
    n = len(rows)
    none: list[None] = [None] * n
    source = {"unit": range(n), "text": ["rash"] * n, "key": none, "embedding": found}
    index = opened(source, n_groups=1)._index
    return index.shards[0].vectors[0].tobytes()


def test_columns_side_by_side_are_added_up_row_by_row() -> None:
    """NumPy adds up such a matrix's rows in another order where it has one row."""
    row, other = np.random.default_rng(16).normal(size=(4048, 384))[[4047, 4046]]
    assert first_row(row, order="F") == first_row(row, other, order="F")


def test_one_row_of_words_changes_no_other_row() -> None:
    row, other = np.float32([0.1, 0.7, 0.3]), ["0.1", "0.2", "0.3"]
    assert first_row(row) == first_row(row, row) == first_row(row, other)


def test_twin_scaling_by_the_batch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    true = ingest.unit_rows

    def centered(vectors: Any, places: Any) -> Any:
        return true(np.asarray(vectors) - np.mean(vectors, axis=0), places)

    monkeypatch.setattr(ingest, "unit_rows", centered)
    with pytest.raises(AssertionError):
        require_rows_of_their_own("p-3")


# -- what is refused -------------------------------------------------------------------


def spoiled(**cells: Any) -> dict[str, Any]:
    """Return columns with a cell of row 5 in its place."""
    own = {name: list(column) for name, column in arrays(documents()).items()}
    for name, cell in cells.items():
        own[name][5] = cell
    return own


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else 0


ZERO, NAN, SHORT = [0.0] * 6, [float("nan")] * 6, [1.0] * 5
REFUSED: dict[str, tuple[Any, type[DPError], str]] = {
    "no unit": (spoiled(unit=None), UnitError, "Unit 5"),
    "an empty unit": (spoiled(unit=" "), UnitError, "Unit 5"),
    "a float": (spoiled(unit=1.5), UnitError, "Unit 5"),
    "zero": (spoiled(embedding=ZERO), InvalidParameterError, "document 5"),
    "NaN": (spoiled(embedding=NAN), InvalidParameterError, "document 5"),
    "short": (spoiled(embedding=SHORT), InvalidParameterError, "one vector"),
    "no vector": (spoiled(embedding=None), InvalidParameterError, "one vector"),
    "no number": (spoiled(embedding=[CANARY] * 6), InvalidParameterError, "number"),
    "no text": (spoiled(text=None), InvalidParameterError, "'text' holds no string"),
    "a number as id": (spoiled(key=5), InvalidParameterError, "'key' holds no"),
    "an id twice": (spoiled(key="note-4"), InvalidParameterError, "row 5"),
    "no JSON": (spoiled(ward={1, 2}), InvalidParameterError, "'ward'"),
    "lengths": (
        {**spoiled(), "text": [CANARY]},
        InvalidParameterError,
        "different numbers of rows",
    ),
    "no column of units": ({"text": [], "embedding": []}, UnitError, "'unit'"),
    "no column of texts": ({"unit": [], "key": []}, InvalidParameterError, "'text'"),
    "a string": ({**spoiled(), "text": CANARY}, InvalidParameterError, "a str"),
    "nothing": ({name: [] for name in spoiled()}, UnitError, "no documents"),
    "few units": (arrays(documents(3)), UnitError, "n_groups=4"),
    "deep metadata": (spoiled(ward=deep(30)), InvalidParameterError, "nested more"),
    "a number": (7, InvalidParameterError, "int"),
    "documents": ([Document(CANARY)], InvalidParameterError, "a list"),
    "a frame": (pd.DataFrame({"unit": [CANARY]}), InvalidParameterError, "DataFrame"),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_is_refused(name: str) -> None:
    source, error, message = REFUSED[name]
    with pytest.raises(error, match=message) as caught:
        opened(source)
    require_silent(caught.value)


def require_silent(error: BaseException) -> None:
    assert CANARY not in str(error)
    assert "p-" not in str(error)
    assert error.__cause__ is None
    assert error.__context__ is None


@pytest.mark.parametrize("salt", [b"short", "x" * 32])
def test_salts_that_are_no_salts(salt: Any) -> None:
    with pytest.raises(InvalidParameterError, match="32 secret bytes"):
        opened(arrays(documents()), salt=salt)
    with pytest.raises(InvalidParameterError, match="32 secret bytes"):
        shard_of(1, salt, 4)


# -- public shards -------------------------------------------------------------------


@given(
    st.lists(st.text(min_size=1) | st.integers() | st.uuids(), max_size=20),
    st.binary(min_size=32, max_size=32),
    st.integers(1, 2**63 - 1) | st.integers(1, 200),
)
def test_many_shards_are_those_of_each(units: Any, salt: bytes, n: int) -> None:
    units = [one for one in units if canonical_unit_id(one) is not None]
    found = shards_of([*units, *units], salt, n).tolist()
    assert found == [shard_of(one, salt, n) for one in units] * 2
    assert all(0 <= number < n for number in found)


def test_shards_are_where_the_index_puts_units() -> None:
    for number, shard in enumerate(retrieved(documents())._index.shards):
        assert {shard_of(one, SALT, 4) for one in shard.unit_ids} <= {number}
    # Written down once: another hash would move everybody of a saved index.
    assert shards_of(np.arange(8), SALT, 100).tolist() == PINNED


PINNED = [77, 75, 37, 2, 16, 61, 0, 96]


@pytest.mark.parametrize("unit", [None, 1.5, " ", True])
def test_no_unit_has_no_shard(unit: Any) -> None:
    with pytest.raises(UnitError, match="no unit id"):
        shard_of(unit, SALT, 4)


@pytest.mark.parametrize("n", [0, -1, 2**63])
def test_numbers_of_shards_that_are_refused(n: int) -> None:
    with pytest.raises(InvalidParameterError, match="n must be"):
        shard_of("p-1", SALT, n)
