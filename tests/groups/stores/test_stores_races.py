"""One person's record, written or deleted amid a draw, fails nobody's query."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from support.chain_parts import EMBEDDING, PARSERS, QUESTION, reply
from support.fakes import ScriptedModel
from support.list_store import ListStore
from support.store_parts import chroma, ids, opened, records, searching

from langchain_dpicl import DPChain, InvalidParameterError, UnsoundStoreError
from langchain_dpicl.groups.stores import VectorReader

# As near to the question as can be, or as far.
NEAR, FAR = "What did lisinopril give? A cough.", "A bicycle."


class Interrupted(ListStore):
    """Runs `meanwhile` before the call that is named."""

    meanwhile: Any = None
    before: str = ""

    def happens(self, call: str) -> None:
        if self.meanwhile is not None and call == self.before:
            self.meanwhile(self)

    def sizes(self, n_shards: int) -> Any:
        self.happens("sizes")
        return super().sizes(n_shards)

    def best(self, vector: Any, n: int, n_shards: int) -> Any:
        self.happens("best")
        return super().best(vector, n, n_shards)

    def of_shard(self, vector: Any, shard: int, score: float) -> Any:
        self.happens("of_shard")
        return super().of_shard(vector, shard, score)


def world(text: str, before: str, meanwhile: Any, **terms: Any) -> Any:
    alike = [
        Document("Lisinopril gave a cough.", metadata={"patient": f"p{i}"}, id=f"d{i}")
        for i in range(60)
    ]
    target = Document(text, metadata={"patient": "target"}, id="t")
    store = searching([*alike, target], Interrupted)
    groups = opened(store, n_groups=5, **terms)
    store.before, store.meanwhile = before, meanwhile
    return groups


def erase(store: ListStore) -> None:
    store.delete("target")


def flicker(store: Any) -> None:
    """Take the target's record away, or bring it back: it is never there twice."""
    gone = [row for row in store.rows if row[0].id != "t"]
    if len(gone) < len(store.rows):
        store.kept = store.rows
        store.rows = gone
    else:
        store.rows = store.kept


@pytest.mark.parametrize("text", [NEAR, FAR])
@pytest.mark.parametrize("happens", [erase, flicker])
@pytest.mark.parametrize(
    ("before", "terms"),
    [
        ("of_shard", {"docs_per_group": 2}),
        ("best", {"docs_per_group": 40}),
        ("sizes", {"docs_per_group": 40}),
        ("sizes", {"score_threshold": -1.0}),
    ],
)
def test_a_draw_amid_an_erasure_is_a_draw_before_or_after_it(
    before: str, terms: Any, happens: Any, text: str
) -> None:
    slots = ids(world(text, before, happens, **terms).draw(QUESTION))
    rest = [{one for one in slot if one != "t"} for slot in slots]
    assert all(len(slot) <= terms.get("docs_per_group", 4) for slot in slots)
    assert any(rest)


def test_a_store_that_is_short_every_time_is_still_refused() -> None:
    class Short(ListStore):
        def best(self, vector: Any, n: int, n_shards: int) -> Any:
            return super().best(vector, n, n_shards)[:-1]

    groups = opened(searching(records(60, 0), Short), n_groups=5)
    with pytest.raises(UnsoundStoreError, match="fewer documents"):
        groups.draw(QUESTION)


class Poisoned(InMemoryVectorStore):
    """Holds a record whose vector says nothing."""

    def poison(self, vector: list[float]) -> None:
        own = {"id": "bad", "text": "x", "metadata": {"patient": "bad"}}
        self.store["bad"] = {**own, "vector": vector}


@pytest.mark.parametrize("number", [0.0, float("nan"), float("inf")])
def test_one_record_without_a_direction_stops_no_refresh(number: float) -> None:
    store = Poisoned(EMBEDDING)
    documents = records(60, 0)
    store.add_documents(documents)
    groups = opened(store, n_groups=5)
    store.poison([number] * len(EMBEDDING.embed_query("x")))
    store.delete([one.id for one in documents if one.metadata["patient"] == "unit-7"])
    groups.refresh()
    assert groups.n_units == 59
    found = {one.metadata["patient"] for slot in groups.draw(QUESTION) for one in slot}
    assert found.isdisjoint({"bad", "unit-7"})
    # A person is erased whole, vector or not.
    assert groups.delete_unit("bad") == 1
    assert "bad" not in store.store


def test_erasing_in_chroma_takes_records_without_a_text_too() -> None:
    store = chroma(records(30, 0))
    groups = opened(store, n_groups=5)
    store._collection.add(
        ids=["image"],
        embeddings=[EMBEDDING.embed_query("x")],
        metadatas=[{"patient": "unit-3"}],
    )
    assert groups.delete_unit("unit-3") == 3
    assert not store.get(where={"patient": "unit-3"})["ids"]


def test_a_reader_of_no_pairs_is_refused() -> None:
    class Reader(VectorReader):
        def read(self) -> Any:
            return [(Document("x", metadata={"patient": "1"}), [1.0], "more")]

        def delete(self, document_ids: Any) -> None:
            raise NotImplementedError

    with pytest.raises(InvalidParameterError, match="must yield pairs"):
        opened(Reader(), n_groups=1, embedding=EMBEDDING)


def test_what_is_no_store_is_told_what_to_pass() -> None:
    store = InMemoryVectorStore(EMBEDDING)
    with pytest.raises(InvalidParameterError, match=r"retriever\.vectorstore"):
        opened(store.as_retriever())
    with pytest.raises(InvalidParameterError, match="from_documents"):
        opened(records(3, 0))
    with pytest.raises(InvalidParameterError, match="from_vectorstore"):
        DPChain(
            groups=store, model=ScriptedModel(reply=reply), parser=PARSERS["vote"]()
        )
