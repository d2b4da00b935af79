"""Stores that sample wrongly, and tables of shards that hold what they should not."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.documents import Document
from support.known_corpus import known_corpus
from support.list_store import ListStore
from support.pgvector_parts import EMBEDDING, VectorServer
from support.store_check import check_shard_store

from langchain_dpicl import InvalidParameterError, RetrievedGroups
from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import UnsoundStoreError
from langchain_dpicl.groups.sampling import UnitSample
from langchain_dpicl.groups.stores import ShardStore
from langchain_dpicl.groups.stores.pgvector.store import PGVectorShards

TERMS: dict[str, Any] = {"unit_key": "unit", "n_groups": 3, "docs_per_group": 99}


class SamplingStore(ListStore):
    """Samples as it should."""

    can_sample = True
    coin: Callable[[str], bool] | None = None

    def sampled(self, sample: UnitSample) -> ShardStore:
        same = copy.copy(self)
        same.coin = lambda person: self.tossed(sample, person)
        return same

    def tossed(self, sample: UnitSample, person: str) -> bool:
        return digest(sample.nonce + person.encode()) < sample.bound

    def assigned(self) -> Any:
        coin = self.coin
        return [
            row
            for row in super().assigned()
            if coin is None or coin(str(canonical_unit_id(self.value(row[0]))))
        ]


class HalfWhateverTheRate(SamplingStore):
    def tossed(self, sample: UnitSample, person: str) -> bool:
        return digest(sample.nonce + person.encode())[0] < 128


class FiveEighthsForAHalf(SamplingStore):
    def tossed(self, sample: UnitSample, person: str) -> bool:
        return digest(sample.nonce + person.encode())[0] < 160


class OneCoinForManyUnits(SamplingStore):
    """Its samples are no Poisson samples: eight coins for all units."""

    def tossed(self, sample: UnitSample, person: str) -> bool:
        family = digest(person.encode())[0] % 8
        return digest(sample.nonce + bytes([family])) < sample.bound


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:8]


def test_a_store_that_samples_as_it_should_passes() -> None:
    check_shard_store(SamplingStore)


@pytest.mark.parametrize(
    "store", [HalfWhateverTheRate, FiveEighthsForAHalf, OneCoinForManyUnits]
)
def test_a_store_that_samples_otherwise_is_found(store: Any) -> None:
    with pytest.raises(AssertionError, match="sample"):
        check_shard_store(store)


def reader_of(vectors: VectorServer) -> str:
    """Return the URL of a role that may read what there is, and write nothing."""
    schema, role = f'"{vectors.schema}"', "only_reads"
    if not vectors.run(f"SELECT 1 FROM pg_roles WHERE rolname = '{role}'"):
        vectors.run(f"CREATE ROLE {role} LOGIN")
    vectors.run(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    vectors.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
    return vectors.url.replace("//postgres@", f"//{role}@")


def test_who_may_only_read_samples_no_person_by_two_coins(
    vectors: VectorServer,
) -> None:
    """The persons go wrong after the store was opened, and can't be put right."""
    spellings = ("s-1", " s-1", "q", "r")
    store = vectors.by_column(
        [Document("cough", metadata={"unit": unit}) for unit in spellings]
    )
    RetrievedGroups.from_vectorstore(store, **TERMS)
    shards = PGVectorShards(store, "unit", connection=reader_of(vectors))
    terms = {**TERMS, "sampling_rate": 0.5, "embedding": EMBEDDING}
    groups = RetrievedGroups.from_vectorstore(shards, **terms)
    groups.draw("Who coughs?")
    table = f'"{vectors.schema}".langchain_dpicl_shards'
    wrong = f"UPDATE {table} SET person = unit WHERE unit LIKE '%s-1'"
    vectors.run(wrong)
    groups.refresh()
    with pytest.raises(UnsoundStoreError, match="persons"):
        groups.draw("Who coughs?")
    with pytest.raises(InvalidParameterError, match="score_threshold"):
        RetrievedGroups.from_vectorstore(shards, **terms)
    # A role that may write puts them right, and the reader samples again.
    RetrievedGroups.from_vectorstore(store, **TERMS)
    groups.refresh()
    groups.draw("Who coughs?")
    shards.close()


def test_who_may_only_read_opens_a_table_of_an_earlier_version(
    vectors: VectorServer,
) -> None:
    store = vectors.by_column(known_corpus()[:60])
    RetrievedGroups.from_vectorstore(store, **TERMS)
    table = f'"{vectors.schema}".langchain_dpicl_shards'
    vectors.run(f"ALTER TABLE {table} DROP COLUMN person")
    shards = PGVectorShards(store, "unit", connection=reader_of(vectors))
    # Nothing is sampled: the assignments that are there are all that is needed.
    RetrievedGroups.from_vectorstore(shards, embedding=EMBEDDING, **TERMS)
    shards.close()


def test_spellings_of_a_person_that_were_kept_as_two_are_put_right(
    vectors: VectorServer,
) -> None:
    spellings = ("p-1", " p-1", "q", "r")
    store = vectors.by_column(
        [Document("cough", metadata={"unit": unit}) for unit in spellings]
    )
    RetrievedGroups.from_vectorstore(store, **TERMS)
    table = f'"{vectors.schema}".langchain_dpicl_shards'
    vectors.run(f"UPDATE {table} SET person = unit WHERE unit LIKE '%p-1'")
    RetrievedGroups.from_vectorstore(store, sampling_rate=0.25, **TERMS)
    kept = f"SELECT DISTINCT person FROM {table} WHERE unit LIKE '%p-1'"
    # Two coins: the person would be in 44 % of the draws, and 25 % is charged.
    assert vectors.run(kept) == [("p-1",)]
