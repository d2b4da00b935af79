"""Private records: a unit's label, its id and its place are matters of its own."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document

from langchain_dpicl.few_shot.decoding import Greedy
from langchain_dpicl.few_shot.prompts import LABEL
from langchain_dpicl.few_shot.records import UNIT, Records, counted, read_records
from langchain_dpicl.few_shot.terms import GenerationTerms

LABELS = ("a", "b", "c")
Corpus = list[dict[str, Any]]
Read = Callable[[Corpus], Records]
Held = dict[str, list[tuple[str, str]]]


def read(corpus: Sequence[Any], unit_key: str | None = "who") -> Records:
    terms = GenerationTerms(
        model="words",
        prompt="{examples}{label}",
        labels=LABELS,
        sizes=None,
        n_groups=1,
        records_per_group=1,
        max_tokens=1,
        top_k_public=None,
        mechanism=Greedy(),
        unit_key=unit_key,
    )
    return read_records(corpus, terms)


def held(corpus: Corpus, by: Read = read) -> Held:
    """Return, for each unit, label and text of the records that take part."""
    found: Held = {}
    for label, documents in by(corpus).items():
        for document in documents:
            assert document.metadata[LABEL] == label
            own = found.setdefault(document.metadata[UNIT], [])
            own.append((label, document.page_content))
    return found


def of_each(corpus: Corpus) -> dict[str, Corpus]:
    units: dict[str, Corpus] = {}
    for record in corpus:
        units.setdefault(record["who"], []).append(record)
    return units


def units_are_independent(corpus: Corpus, by: Read = read) -> bool:
    """Whether what is held of each unit is what is held of it alone, or of the rest."""
    all_held = held(corpus, by)
    for unit, alone in of_each(corpus).items():
        rest = [record for record in corpus if record["who"] != unit]
        if held(alone, by).get(unit) != all_held.get(unit):
            return False
        others = {name: each for name, each in all_held.items() if name != unit}
        if rest and held(rest, by) != others:
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


@settings(deadline=None, max_examples=100)
@given(corpora, st.randoms(use_true_random=False))
def test_a_units_label_is_a_function_of_that_unit_alone(
    corpus: Corpus, random: Any
) -> None:
    assert units_are_independent(corpus)
    mixed = held(random.sample(corpus, len(corpus)))
    for unit, rows in held(corpus).items():
        (label,) = {label for label, _ in rows}
        counts = Counter(record["label"] for record in of_each(corpus)[unit])
        most = max(counts.values())
        assert label == next(each for each in LABELS if counts[each] == most)
        assert sorted(rows) == sorted(mixed[unit])
        assert len(rows) == most


def by_the_corpus(corpus: Corpus) -> Records:
    """The twin: settle a unit's ties by what is common among all records."""
    common = Counter(record["label"] for record in corpus)
    found: Records = {label: [] for label in LABELS}
    for unit, rows in of_each(corpus).items():
        label = max((row["label"] for row in rows), key=lambda each: common[each])
        found[label] += [
            Document(row["text"], metadata={LABEL: label, UNIT: unit})
            for row in rows
            if row["label"] == label
        ]
    return found


def test_twin_labels_chosen_by_others_are_found_out() -> None:
    pairs = [("u", "a"), ("u", "b"), ("v", "b"), ("w", "b"), ("x", "a")]
    tied = [{"who": who, "label": label, "text": who + label} for who, label in pairs]
    assert units_are_independent(tied)
    assert not units_are_independent(tied, by_the_corpus)


def test_ids_that_are_spelled_in_several_ways_are_one_unit() -> None:
    composed = "Jos\u00e9"
    ids = [7, "7", " 7 ", "7\n"]
    ids += [composed, unicodedata.normalize("NFD", composed), f"\t{composed}"]
    corpus = [{"text": f"{n}", "label": "a", "who": each} for n, each in enumerate(ids)]
    found = read(corpus)
    assert counted(found) == {"a": 2, "b": 0, "c": 0}
    assert {document.metadata[UNIT] for document in found["a"]} == {"7", composed}


def test_documents_and_mappings_are_read_alike() -> None:
    corpus = [{"text": f"t{n}", "label": LABELS[n % 3], "who": n % 4} for n in range(9)]
    documents = [
        Document(r["text"], metadata={"label": r["label"], "who": r["who"], "x": [1]})
        for r in corpus
    ]
    assert read(corpus) == read(documents) == read([corpus[0], *documents[1:]])
    # A document's text is its content, whatever its metadata holds under the name.
    odd = Document("content", metadata={"text": "other", "label": "a", "who": 1})
    assert read([odd])["a"][0].page_content == "content"


def test_records_are_read_once_and_kept_apart_from_the_callers() -> None:
    corpus: Corpus = [{"text": "t", "label": "a", "who": 1}]
    found = read(iter(corpus))  # type: ignore[arg-type]
    corpus[0]["text"] = "changed"
    assert found["a"] == [Document("t", metadata={LABEL: "a", UNIT: "1"})]


def test_without_a_unit_key_each_record_is_a_unit() -> None:
    assert counted(read([{"text": "same", "label": "a"}] * 5, None))["a"] == 5


@pytest.mark.parametrize("size", [None, 5])
def test_no_record_at_all_is_refused_only_where_sizes_are_counted(
    size: int | None,
) -> None:
    from support.few_shot_fakes import budget_of, generator_of

    from langchain_dpicl.errors import UnitError

    labels: Any = ["color"] if size is None else {"color": size}
    made = generator_of(
        labels=labels, n_groups=2, records_per_group=1, budget=budget_of(epsilon=50)
    )
    if size is None:
        with pytest.raises(UnitError, match="no records"):
            made.generate([])
    else:
        assert made.generate([]).record["charge"] == 1
