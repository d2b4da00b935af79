"""Filters in a store that searches by itself: the groups of the embedded index."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_postgres import Column
from support.groups_fakes import contents
from support.known_corpus import DIMENSION
from support.list_store import ListStore
from support.pgvector_parts import EMBEDDING, SALT, VectorServer, table_of
from support.store_check import check_shard_store

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.errors import InvalidParameterError, UnsoundStoreError
from langchain_dpicl.groups.ingest import embed_documents, take_documents
from langchain_dpicl.groups.records import EmbeddedRecords
from langchain_dpicl.groups.shards import ShardIndex
from langchain_dpicl.groups.stores.pgvector.store import PGVectorShards
from langchain_dpicl.groups.stores.pgvector.tables import SPACES
from langchain_dpicl.groups.terms import RetrievalTerms
from langchain_dpicl.mechanisms.random import SeededRandom
from langchain_dpicl.release.flow import result

QUESTION = "Who coughs?"
COLUMNS = [Column("ward", "TEXT"), Column("floor", "INTEGER"), Column("old", "BOOLEAN")]
WARDS = ["3", " 3\t", "\u00e9", "e\u0301", "4", "", None, "3 ", "o'hara\"%s", "\u2003"]
FILTERS: list[dict[str, Any]] = [
    {"ward": "3"},
    {"ward": [3, "\u00e9"]},
    {"ward": "o'hara\"%s"},
    {"ward": ["x\0y", "4", "\ud800"]},
    {"ward": ["x\0y"]},
    {"floor": [0, "1"]},
    {"floor": 1, "old": True},
    {"old": False, "ward": ["3", "4", "\u00e9"]},
]
TERMS: list[dict[str, Any]] = [
    {},
    {"score_threshold": 0.1},
    {"sampling_rate": 0.6},
]


def corpus() -> list[Document]:
    """Return people of one to three records, not all of whom agree."""
    found = []
    for person in range(60):
        for visit in range(1 + person % 3):
            ward = WARDS[(person + (visit if person % 4 == 0 else 0)) % len(WARDS)]
            spelled = f" p-{person}" if visit == 2 else f"p-{person}"
            metadata: dict[str, Any] = {"unit": spelled, "floor": person % 5}
            metadata |= {"old": person % 2 == 0, "visit": visit}
            if ward is not None:
                metadata["ward"] = ward
            found.append(Document(f"Note {person} {visit}.", metadata=metadata))
    return found


def embedded(documents: list[Document], terms: RetrievalTerms) -> RetrievedGroups:
    taken, unit_ids = take_documents(documents, "unit")
    vectors = result(embed_documents(EMBEDDING, taken, unit_ids, progress=False))
    index = ShardIndex.from_vectors(
        vectors, taken, unit_ids, n_shards=terms.n_groups, salt=SALT
    )
    return RetrievedGroups(terms, EmbeddedRecords("unit", EMBEDDING, index))


@contextmanager
def opened(store: Any, **terms: Any) -> Iterator[RetrievedGroups]:
    groups = RetrievedGroups.from_vectorstore(
        store, unit_key="unit", n_groups=6, salt=SALT, embedding=EMBEDDING, **terms
    )
    yield groups
    groups._records._store.close()  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def store(vectors: VectorServer) -> Any:
    return vectors.by_column(corpus(), further=COLUMNS)


def places(slots: Any) -> list[Any]:
    return [tuple(sorted(one.page_content for one in slot)) for slot in slots]


@pytest.mark.parametrize("terms", TERMS[:2])
@pytest.mark.parametrize("only", FILTERS)
def test_postgres_finds_the_groups_of_the_embedded_index(
    store: Any, terms: Any, only: Any
) -> None:
    with opened(store, **terms) as groups:
        own = embedded(corpus(), groups._terms)
        assert groups.n_units == groups.where(only).n_units == 60
        found = places(groups.where(only).draw(QUESTION))
        assert found == places(own.where(only).draw(QUESTION))
    nobody = only == {"ward": ["x\0y"]}
    assert bool([slot for slot in found if slot]) is not nobody


def test_a_sample_in_postgres_is_one_of_those_who_match(store: Any) -> None:
    with opened(store, sampling_rate=0.6, random=SeededRandom(1)) as groups:
        only = {"floor": [0, 1, 2]}
        everybody = {
            one.metadata["unit"].strip()
            for slot in embedded(corpus(), groups._terms)
            .where(only)
            ._index.top(groups.prepare(QUESTION).vector, 999, None)
            for one in slot
        }
        assert len(everybody) == 36
        drawn = [
            {one.metadata["unit"].strip() for slot in slots for one in slot}
            for slots in (groups.where(only).draw(QUESTION) for _ in range(12))
        ]
    assert all(own < everybody for own in drawn)
    assert len(set.union(*drawn)) > max(map(len, drawn))


def test_a_record_written_later_counts_for_its_unit(vectors: VectorServer) -> None:
    people = [
        Document("Note.", metadata={"unit": f"p-{i}", "ward": "3"}) for i in range(9)
    ]
    store = vectors.by_column(people, further=COLUMNS)
    with opened(store, docs_per_group=20) as groups:
        only = groups.where({"ward": "3"})

        def drawn() -> set[str]:
            slots = contents(only.draw(QUESTION))
            return {unit for slot in slots for unit, _ in slot}

        assert len(drawn()) == 9
        store.add_documents([Document("Moved.", metadata={"unit": "p-4", "ward": "5"})])
        assert drawn() == {f"p-{i}" for i in range(9)} - {"p-4"}
        # One whose vector has no direction is a record of the person's too.
        store.add_documents([Document("Flat.", metadata={"unit": "p-7", "ward": "5"})])
        zeros = ",".join("0" * DIMENSION)
        vectors.run(
            f"UPDATE {table_of(store)} SET embedding = '[{zeros}]' "
            "WHERE content = 'Flat.'"
        )
        assert drawn() == {f"p-{i}" for i in range(9)} - {"p-4", "p-7"}
        groups.delete_unit("p-1")
        assert len(drawn()) == 6


def test_attributes_in_the_json_are_refused(store: Any) -> None:
    with opened(store) as groups:
        for key in ("tags", "langchain_metadata", "content", "shard"):
            with pytest.raises(InvalidParameterError, match="not a metadata column"):
                groups.where({key: "3"})


def test_without_known_persons_nobody_is_left_out(store: Any) -> None:
    with opened(store) as groups:
        shards: PGVectorShards = groups._records._store  # type: ignore[attr-defined]
        shards._has_persons = False
        with pytest.raises(UnsoundStoreError, match="ask without a filter"):
            groups.where({"ward": "3"})


def test_spaces_are_those_of_python() -> None:
    every = map(chr, range(sys.maxunicode + 1))
    assert "".join(filter(str.isspace, every)) == SPACES


class Filtering(ListStore):
    """A store in a list that can leave units out; `wrong`: by record."""

    wrong = False
    only: Any = None

    def where(self, only: Any) -> Any:
        same = type(self).__new__(type(self))
        vars(same).update(vars(self), only=only)
        return same

    def assigned(self) -> Any:
        found = super().assigned()
        if self.only is None:
            return found
        from langchain_dpicl.common.units import canonical_unit_id
        from langchain_dpicl.groups.filtering import UnitAttributes

        ids = [canonical_unit_id(self.value(row[0])) for row in found]
        numbers = {unit: n for n, unit in enumerate(dict.fromkeys(ids))}
        units = np.array([numbers[unit] for unit in ids])
        if self.wrong:
            units = np.arange(len(found))
        kept = UnitAttributes([row[0] for row in found], units, len(found))
        matches = kept.matching(self.only)
        return [row for row, unit in zip(found, units, strict=True) if matches[unit]]


def test_an_adapters_filter_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    check_shard_store(Filtering)
    monkeypatch.setattr(Filtering, "wrong", True)
    with pytest.raises(AssertionError, match="Filtering"):
        check_shard_store(Filtering)
