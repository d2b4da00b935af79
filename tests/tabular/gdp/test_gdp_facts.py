"""What documents of released counts say, and how often it is true."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.table_parts import account

from langchain_dpicl.exceptions import InvalidParameterError, LedgerError, ReleaseError
from langchain_dpicl.ledger import MemoryLedger
from langchain_dpicl.mechanisms.source import SeededRandom
from langchain_dpicl.released import ReleasedCorpus
from langchain_dpicl.tabular import CategoricalColumn, GDPTable, TableSchema
from langchain_dpicl.tabular.gdp import facts

DRUGS = ["aspirin", "codeine", "iron", "zinc"]
EFFECTS = ["nausea", "rash", "cough", "sleep", "itch", "none", "unknown"]
# Shares of each effect by drug, out of ten: a clear one, a close one, hardly any.
SHARES = {
    "aspirin": [7, 1, 0, 0, 0, 2, 0],
    "codeine": [4, 4, 0, 0, 0, 2, 0],
    "iron": [0, 0, 5, 2, 1, 1, 1],
    "zinc": [0, 0, 0, 0, 1, 9, 0],
}
SCHEMA = TableSchema(
    label="drug",
    columns=[
        CategoricalColumn(name="drug", values=DRUGS),
        CategoricalColumn(name="side_effect", values=EFFECTS),
    ],
)
ROWS = [
    {"drug": drug, "side_effect": effect}
    for drug, each in SHARES.items()
    for effect, tenths in zip(EFFECTS, each, strict=True)
    for _ in range(tenths * (3 if drug == "zinc" else 12))
]
PAIR = ("drug", "side_effect")


def table(epsilon: float = 3, seed: int = 1, **terms: Any) -> GDPTable:
    terms = {"measure": [PAIR], "random": SeededRandom(seed), **terms}
    return GDPTable(ROWS, SCHEMA, budget=account(epsilon), **terms)


def about(corpus: ReleasedCorpus, of: str, value: str) -> Any:
    return next(
        one
        for one in corpus
        if (one.metadata["of"], one.metadata["value"]) == (of, value)
    )


def true_counts(metadata: dict[str, Any]) -> Counter[str]:
    by, value = metadata["by"], metadata["value"]
    return Counter(row[metadata["of"]] for row in ROWS if not by or row[by] == value)


def statements(document: Any) -> list[tuple[str, bool]]:
    """Return what a document states, and whether it is true."""
    counts, text = true_counts(document.metadata), document.page_content
    told = []
    for value, count, margin in re.findall(
        r"([\w ]+?)(?: \(|: )about (\d+) ± (\d+)", text
    ):
        name = next(one for one in (*EFFECTS, *DRUGS) if value.endswith(one))
        told.append((value, abs(counts[name] - int(count)) <= int(margin)))
    if document.metadata["status"] == "ranked":
        named = re.findall(r"([a-z]+) \(about", text)
        real = [counts[name] for name in named]
        others = [n for v, n in counts.items() if v not in (*named, *facts.UNTOLD)]
        told.append(("first", real[0] >= max([*real, *others])))
    return told


def test_a_document_for_each_column_and_each_value_of_a_pair() -> None:
    corpus = table(epsilon=50).documents(people="patients")
    asked = [(d.metadata["of"], d.metadata["by"], d.metadata["value"]) for d in corpus]
    assert asked == [
        ("drug", "", ""),
        ("side_effect", "", ""),
        *(("side_effect", "drug", value) for value in DRUGS),
        *(("drug", "side_effect", value) for value in EFFECTS[:-2]),
    ]
    found = about(corpus, "side_effect", "aspirin")
    assert found.page_content == (
        "Most frequent side effect of patients whose drug is aspirin: nausea (about 84 "
        "± 1), then rash (about 12 ± 1), of about 120 ± 1 patients. Side effect none: "
        "about 24 ± 1."
    )
    assert found.metadata["status"] == "ranked"
    numbers = json.loads(found.metadata["numbers"])
    assert set(numbers) == set(EFFECTS)
    assert abs(numbers["nausea"][0] - 84) < 2


def test_what_is_even_is_too_close_and_what_is_rare_is_too_few() -> None:
    corpus = table(1).documents()
    close = about(corpus, "side_effect", "codeine")
    assert close.metadata["status"] == "close"
    assert ": too close to tell, " in close.page_content
    few = about(corpus, "side_effect", "zinc")
    assert few.metadata["status"] == "few"
    assert ": the counts are too small to tell" in few.page_content


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("epsilon", [1, 3])
def test_what_is_stated_is_true(epsilon: float, noise: Any) -> None:
    told = [
        is_true
        for seed in range(60)
        for one in table(epsilon, seed, noise=noise).documents()
        for _, is_true in statements(one)
    ]
    assert len(told) > 300
    assert told.count(False) <= 0.05 * len(told)


def test_twin_margins_that_are_too_narrow_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "MARGIN", 0.7)
    with pytest.raises(AssertionError):
        test_what_is_stated_is_true(1, "laplace")


def test_of_two_even_values_one_is_said_to_lead_in_one_of_twenty() -> None:
    ranked = sum(
        about(table(2, seed).documents(), "side_effect", "codeine").metadata["status"]
        == "ranked"
        for seed in range(300)
    )
    assert ranked <= 0.05 * 300 + 3 * (300 * 0.05 * 0.95) ** 0.5


def test_twin_a_lead_within_the_noise_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "CLEAR", 1.0)
    with pytest.raises(AssertionError):
        test_of_two_even_values_one_is_said_to_lead_in_one_of_twenty()


def test_phrases_say_it_in_the_readers_words() -> None:
    corpus = table().documents(people="patients", phrases={"drug": "on {value}"})
    text = about(corpus, "side_effect", "iron").page_content
    assert text.startswith("Most frequent side effect of patients on iron: ")
    untold = table().documents(untold=()).as_retriever(k=1)
    assert "none" in untold.invoke("side effect whose drug is zinc")[0].page_content


def test_ordinary_retrieval_brings_the_document_of_each_question() -> None:
    corpus = table().documents(people="patients")
    retriever = corpus.as_retriever(k=1)
    for drug in DRUGS:
        question = f"Which side effect do patients on {drug} report most?"
        (found,) = retriever.invoke(question)
        assert (found.metadata["of"], found.metadata["value"]) == ("side_effect", drug)
    for effect in EFFECTS[:-2]:
        (found,) = retriever.invoke(f"Which drug do patients with {effect} take?")
        assert (found.metadata["of"], found.metadata["value"]) == ("drug", effect)


def test_documents_follow_from_what_was_released_alone() -> None:
    released = table().release()
    assert list(released.documents()) == list(released.documents())


def test_the_ledger_confirms_the_documents(tmp_path: Path) -> None:
    budget = account(3)
    corpus = GDPTable(ROWS, SCHEMA, budget=budget, measure=[PAIR]).documents()
    corpus.verify(budget.ledger)
    corpus.save(tmp_path / "facts.json")
    again = ReleasedCorpus.load(tmp_path / "facts.json", ledger=budget.ledger)
    assert list(again) == list(corpus)
    with pytest.raises((ReleaseError, LedgerError)):
        corpus.verify(MemoryLedger())


def test_what_was_not_measured_by_name_has_no_documents() -> None:
    budget = account(3)
    with pytest.raises(InvalidParameterError, match="measure="):
        GDPTable(ROWS, SCHEMA, budget=budget).documents()
    assert not budget.spent().queries


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("phrases", {"color": "in {value}"}),
        ("phrases", {"drug": "on"}),
        ("phrases", "on {value}"),
        ("people", 3),
        ("people", " "),
        ("untold", "none"),
        ("untold", None),
    ],
)
def test_words_that_say_nothing_are_refused_before_the_charge(
    name: str, words: Any
) -> None:
    budget = account(3)
    unpaid = GDPTable(ROWS, SCHEMA, budget=budget, measure=[PAIR])
    with pytest.raises(InvalidParameterError, match=name):
        unpaid.documents(**{name: words})
    assert not budget.spent().queries


def test_untold_values_are_known_in_any_case() -> None:
    told, aside = (
        about(table(50).documents(untold=untold), "side_effect", "").page_content
        for untold in ([], [EFFECTS[0].upper()])
    )
    assert f": {EFFECTS[0]} (" in told
    assert f": {EFFECTS[0]} (" not in aside


def test_of_hardly_any_people_hardly_anything_is_told() -> None:
    rows = [{"drug": "iron", "side_effect": "none"}]
    statuses = Counter(
        one.metadata["status"]
        for seed in range(40)
        for one in GDPTable(
            rows,
            SCHEMA,
            budget=account(1),
            measure=[PAIR],
            random=SeededRandom(seed),
        ).documents()
    )
    assert statuses["few"] >= 0.98 * statuses.total()
