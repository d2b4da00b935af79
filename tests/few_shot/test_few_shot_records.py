"""Private records: a unit's label, its id and its place are matters of its own."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document

from langchain_dpicl.few_shot import records as module
from langchain_dpicl.few_shot.records import (
    LABEL,
    UNIT,
    PrivateRecords,
    RecordFields,
)

LABELS = ("a", "b", "c")
FIELDS = RecordFields("text", "label", "who")
Corpus = list[dict[str, Any]]


def read(corpus: Sequence[Any]) -> PrivateRecords:
    return PrivateRecords.read(corpus, LABELS, FIELDS)


def held(corpus: Corpus) -> dict[str, list[tuple[str, str]]]:
    """Return, for each unit, label and text of the records that take part."""
    found: dict[str, list[tuple[str, str]]] = {}
    for label, documents in read(corpus).by_label.items():
        for document in documents:
            assert document.metadata[LABEL] == label
            found.setdefault(document.metadata[UNIT], []).append(
                (label, document.page_content)
            )
    return found


def of_each(corpus: Corpus) -> dict[str, Corpus]:
    units: dict[str, Corpus] = {}
    for record in corpus:
        units.setdefault(record["who"], []).append(record)
    return units


def units_are_independent(corpus: Corpus) -> bool:
    """Whether what is held of each unit is what is held of it alone, or of the rest."""
    all_held = held(corpus)
    units = of_each(corpus)
    for unit, alone in units.items():
        rest = [record for record in corpus if record["who"] != unit]
        if held(alone).get(unit) != all_held.get(unit):
            return False
        others = {name: each for name, each in all_held.items() if name != unit}
        if rest and held(rest) != others:
            return False
    return True


corpora = st.lists(
    st.tuples(st.sampled_from("uvwxyz"), st.sampled_from(LABELS)),
    min_size=1,
    max_size=25,
).map(
    lambda rows: [
        {"who": who, "label": label, "text": f"t{n}"}
        for n, (who, label) in enumerate(rows)
    ]
)


@settings(deadline=None, max_examples=150)
@given(corpora)
def test_a_units_label_is_a_function_of_that_unit_alone(corpus: Corpus) -> None:
    assert units_are_independent(corpus)
    for unit, rows in held(corpus).items():
        (label,) = {label for label, _ in rows}
        counts = Counter(record["label"] for record in of_each(corpus)[unit])
        most = max(counts.values())
        assert label == next(each for each in LABELS if counts[each] == most)
        assert len(rows) == most


@settings(deadline=None, max_examples=80)
@given(corpora, st.randoms(use_true_random=False))
def test_the_order_of_records_chooses_nobodys_label(
    corpus: Corpus, random: Any
) -> None:
    mixed = random.sample(corpus, len(corpus))
    chosen = [
        {unit: {label for label, _ in rows} for unit, rows in held(each).items()}
        for each in (corpus, mixed)
    ]
    assert chosen[0] == chosen[1]


TIED = [
    {"who": who, "label": label, "text": f"{who}{label}"}
    for who, label in [("u", "a"), ("u", "b"), ("v", "b"), ("w", "b"), ("x", "a")]
]


def by_the_corpus(documents: list[Document], labels: Sequence[str]) -> list[Document]:
    """Settle a unit's ties by what is common among all records: a plausible mistake."""
    common = Counter(document.metadata[LABEL] for document in documents)
    chosen: dict[str, str] = {}
    for document in documents:
        unit, label = document.metadata[UNIT], document.metadata[LABEL]
        chosen[unit] = max(
            chosen.get(unit, label), label, key=lambda each: common[each]
        )
    return [
        document
        for document in documents
        if document.metadata[LABEL] == chosen[document.metadata[UNIT]]
    ]


def seen_first(documents: list[Document], labels: Sequence[str]) -> list[Document]:
    """Give a record to its unit while its label has room: another mistake."""
    room = Counter(dict.fromkeys(labels, 2))
    kept = []
    for document in documents:
        if room[document.metadata[LABEL]]:
            room[document.metadata[LABEL]] -= 1
            kept.append(document)
    return kept


@pytest.mark.parametrize("mistake", [by_the_corpus, seen_first])
def test_twin_labels_chosen_by_others_are_found_out(
    mistake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert units_are_independent(TIED)
    monkeypatch.setattr(module, "_with_one_label", mistake)
    assert not units_are_independent(TIED)


def test_ids_that_are_spelled_in_several_ways_are_one_unit() -> None:
    composed = "Jos\u00e9"
    ids = [
        [7, "7", " 7 ", "7\n"],
        [composed, unicodedata.normalize("NFD", composed), f"\t{composed}"],
    ]
    corpus = [
        {"text": f"{n}{m}", "label": "a", "who": each}
        for n, spellings in enumerate(ids)
        for m, each in enumerate(spellings)
    ]
    found = read(corpus)
    assert found.sizes["a"] == 2
    assert {d.metadata[UNIT] for d in found.by_label["a"]} == {"7", composed}


def test_documents_and_mappings_are_read_alike() -> None:
    corpus = [{"text": f"t{n}", "label": LABELS[n % 3], "who": n % 4} for n in range(9)]
    documents = [
        Document(
            r["text"], metadata={"label": r["label"], "who": r["who"], "more": [1]}
        )
        for r in corpus
    ]
    assert read(corpus).by_label == read(documents).by_label
    assert read([corpus[0], *documents[1:]]).by_label == read(corpus).by_label
    # A document's text is its content, whatever its metadata holds under the name.
    odd = Document("content", metadata={"text": "other", "label": "a", "who": 1})
    assert read([odd]).by_label["a"][0].page_content == "content"


def test_records_are_read_once_and_kept_apart_from_the_callers() -> None:
    corpus: Corpus = [{"text": "t", "label": "a", "who": 1}]
    found = read(iter(corpus))  # type: ignore[arg-type]
    corpus[0]["text"] = "changed"
    assert found.by_label["a"][0].page_content == "t"
    assert found.by_label["a"][0].metadata == {LABEL: "a", UNIT: "1"}


def test_without_a_unit_key_each_record_is_a_unit() -> None:
    fields = RecordFields("text", "label", None)
    corpus = [{"text": "same", "label": "a"}] * 5
    found = PrivateRecords.read(corpus, LABELS, fields)
    assert found.sizes == {"a": 5, "b": 0, "c": 0}
