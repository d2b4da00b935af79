"""What documents of released counts say, and how often it is true."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.documents import Document
from support.table_parts import account

from langchain_dpicl.errors import InvalidParameterError, LedgerError
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.mechanisms.random import seeded
from langchain_dpicl.operate import verify
from langchain_dpicl.released import ReleasedCorpus, ReleasedExamples
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
    {"drug": drug, "side_effect": effect, "patient": f"{drug} {effect} {number}"}
    for drug, each in SHARES.items()
    for effect, tenths in zip(EFFECTS, each, strict=True)
    for number in range(tenths * (3 if drug == "zinc" else 12))
]
PAIR = ("drug", "side_effect")
ASIDE = ("none", "unknown")


def table(epsilon: float = 3, **terms: Any) -> GDPTable:
    terms = {"measure": [PAIR], **terms}
    terms.setdefault("budget", account(epsilon))
    return GDPTable(ROWS, SCHEMA, unit_key="patient", **terms)


def documents(epsilon: float) -> ReleasedCorpus:
    with seeded(1):
        return table(epsilon).documents(people="patients", untold=ASIDE)


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
        others = [n for v, n in counts.items() if v not in (*named, *ASIDE)]
        told.append(("first", real[0] >= max([*real, *others])))
    return told


def test_a_document_for_each_column_and_each_value_of_a_pair() -> None:
    corpus = documents(epsilon=50)
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
        "± 0), then rash (about 12 ± 0), of about 120 ± 0 patients. Side effect none: "
        "about 24 ± 0."
    )
    assert found.metadata["status"] == "ranked"
    numbers = json.loads(found.metadata["numbers"])
    assert set(numbers) == set(EFFECTS)
    assert abs(numbers["nausea"][0] - 84) < 2


def test_what_is_even_is_too_close_and_what_is_rare_is_too_few() -> None:
    corpus = documents(1)
    close = about(corpus, "side_effect", "codeine")
    assert close.metadata["status"] == "close"
    assert ": too close to tell, " in close.page_content
    few = about(corpus, "side_effect", "zinc")
    assert few.metadata["status"] == "few"
    assert ": the counts are too small to tell" in few.page_content


def releases(
    rows: Any, epsilon: float, count: int, measure: Any = (PAIR,), **terms: Any
) -> Iterator[GDPTable]:
    """Yield tables of one account, each at about this epsilon."""
    budget = account(epsilon * count, queries=count)
    terms = {"schema": SCHEMA, "measure": [*measure], "budget": budget, **terms}
    for seed in range(count):
        with seeded(seed):
            made = GDPTable(rows, **terms).release()
        yield made


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_what_is_stated_is_true(noise: Any) -> None:
    told = [
        is_true
        for made in releases(ROWS, 2, 15, unit_key="patient", noise=noise)
        for one in made.documents(people="patients", untold=ASIDE)
        for _, is_true in statements(one)
    ]
    assert len(told) > 75
    assert told.count(False) <= 0.05 * len(told)


def test_twin_margins_that_are_too_narrow_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "MISSED", 0.4)
    with pytest.raises(AssertionError):
        test_what_is_stated_is_true("laplace")


def test_of_two_even_values_one_is_said_to_lead_in_one_of_twenty() -> None:
    rows = rows_of(("codeine", "nausea", 48), ("codeine", "rash", 48))
    found = [
        made.documents()[0].metadata["status"]
        for made in releases(rows, 1, 80, ["side_effect"])
    ]
    assert found.count("ranked") <= 0.05 * 80 + 3 * (80 * 0.05 * 0.95) ** 0.5


def test_twin_a_lead_within_the_noise_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "EVEN", 0.6)
    with pytest.raises(AssertionError):
        test_of_two_even_values_one_is_said_to_lead_in_one_of_twenty()


def test_phrases_say_it_in_the_readers_words() -> None:
    corpus = table().documents(people="patients", phrases={"drug": "on {value}"})
    text = about(corpus, "side_effect", "iron").page_content
    assert text.startswith("Most frequent side effect of patients on iron: ")
    untold = table(8).documents(untold=()).as_retriever(k=1)
    assert "none" in untold.invoke("side effect whose drug is zinc")[0].page_content


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, Any]]:
    """Return a ledger, and the facts that it was charged for as their file has them."""
    budget = account(3)
    made = table(budget=budget)
    corpus = made.documents(people="patients", phrases={"drug": "on {value}"})
    path = tmp_path_factory.mktemp("facts") / "facts.json"
    corpus.save(path)
    assert list(ReleasedCorpus.load(path, ledger=budget.ledger)) == list(corpus)
    with pytest.raises((InvalidParameterError, LedgerError)):
        corpus.verify(Ledger(":memory:"))
    return budget.ledger, json.loads(path.read_text())


def corpus_of(content: dict[str, Any]) -> ReleasedCorpus:
    documents = [
        Document(one["text"], metadata=one["metadata"]) for one in content["documents"]
    ]
    return ReleasedCorpus(documents, content["record"])


def test_the_ledger_confirms_the_documents(saved: tuple[Any, dict[str, Any]]) -> None:
    ledger, content = saved
    # What people are called is the operator's word, and in no ledger.
    assert corpus_of(content).verify(ledger) == ("wording",)
    found = verify(content, ledger)
    assert (found.is_confirmed, found.not_compared) == (True, ("wording",))
    assert "documents" in corpus_of(content).verify()


Edit = Callable[[dict[str, Any], dict[str, Any]], Any]
FORGED: dict[str, Edit] = {
    "sentence": lambda one, _: one.update(text="All patients on zinc died."),
    "margin": lambda one, _: one.update(text=re.sub(r"± \d+", "± 1", one["text"])),
    "counts": lambda one, _: one["metadata"].update(numbers='{"zinc": [99, 1]}'),
    "field": lambda one, _: one["metadata"].update(invented=True),
    "unit": lambda _, record: record.update(unit="a visit"),
    "noise": lambda _, record: record["parameters"]["noise_deviations"].update(
        {"drug x side_effect": 0.1}
    ),
    "phrases": lambda _, record: record["wording"].update(
        phrases={"drug": "not on {value}"}
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_fact_is_found(saved: tuple[Any, dict[str, Any]], name: str) -> None:
    ledger, content = saved[0], json.loads(json.dumps(saved[1]))
    told = next(one for one in content["documents"] if "±" in one["text"])
    FORGED[name](told, content["record"])
    assert content != saved[1]
    with pytest.raises(InvalidParameterError, match="stored"):
        corpus_of(content).verify(ledger)
    found = verify(content, ledger)
    assert "is not what the ledger stored" in found.summary


def test_what_no_ledger_stores_is_named(saved: tuple[Any, dict[str, Any]]) -> None:
    ledger, content = saved[0], json.loads(json.dumps(saved[1]))
    # Documents of somebody's own making: nothing says what they should be.
    del content["record"]["wording"]
    assert corpus_of(content).verify(ledger) == ("documents",)
    budget = account(3)
    examples = table(budget=budget).examples(2)
    assert examples.verify(budget.ledger) == ("examples",)
    record = {**examples.record, "relation": "replace"}
    with pytest.raises(
        InvalidParameterError, match="'relation' is not what the ledger stored"
    ):
        ReleasedExamples(examples, record).verify(budget.ledger)


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
    unpaid = table(budget=budget)
    with pytest.raises(InvalidParameterError, match=name):
        unpaid.documents(**{name: words})
    assert not budget.spent().queries


def rows_of(*counts: tuple[str, str, int]) -> list[dict[str, str]]:
    return [
        {"drug": drug, "side_effect": effect}
        for drug, effect, count in counts
        for _ in range(count)
    ]


def test_no_is_an_answer_and_unknown_is_none() -> None:
    values = ["yes", "no", "not stated"]
    schema = TableSchema(
        label="ill",
        columns=[
            CategoricalColumn(name="ill", values=values),
            CategoricalColumn(name="sex", values=["f", "m"]),
        ],
    )
    counts = {"no": 150, "yes": 50, "not stated": 200}
    rows = [{"ill": ill, "sex": "f"} for ill, n in counts.items() for _ in range(n)]
    made = GDPTable(rows, schema, budget=account(8), measure=["ill"])
    (text,) = (one.page_content for one in made.documents())
    assert text.startswith("Most frequent ill of rows: no (about 1")
    assert ", then yes (about " in text
    assert ". Ill not stated: about " in text


@pytest.mark.parametrize(
    ("terms", "who"),
    [
        ({}, "rows"),
        ({"unit_key": "patient", "rows_per_unit": 2}, "rows"),
        ({"unit_key": "patient"}, "patients"),
    ],
)
def test_rows_that_may_not_be_people_are_called_rows(
    terms: dict[str, Any], who: str
) -> None:
    data = [{**row, "patient": str(n)} for n, row in enumerate(ROWS)]
    made = GDPTable(
        data if terms else [{k: row[k] for k in PAIR} for row in data],
        SCHEMA,
        budget=account(50),
        measure=[PAIR],
        **terms,
    )
    text = made.documents(people="patients")[0].page_content
    assert text.startswith(f"Most frequent drug of {who}: ")
    assert text.endswith(f" {who}.")


@pytest.mark.parametrize(
    ("size", "measure", "noise"),
    [(40, ["a"], "gaussian"), (3, ["a", "b"], "laplace")],
)
def test_a_value_of_nobody_is_told_in_one_of_a_hundred_documents(
    size: int, measure: Any, noise: Any
) -> None:
    values = [*(f"v{number}" for number in range(size)), "unknown"]
    columns = [CategoricalColumn(name=name, values=values) for name in "ab"]
    schema = TableSchema(label="a", columns=columns)
    rows = [{"a": "unknown", "b": "unknown"}] * 60
    told = [
        " v" in one.page_content
        for made in releases(rows, 3, 60, measure, schema=schema, noise=noise)
        for one in made.documents()
    ]
    assert sum(told) <= 0.01 * len(told) + 3 * (0.01 * len(told)) ** 0.5


def test_a_group_that_may_be_empty_tells_nothing() -> None:
    data = rows_of(("aspirin", "rash", 60), ("iron", "rash", 9), ("zinc", "none", 9))
    silent = 0
    for made in releases(data, 1, 20):
        corpus, found = made.documents(), made.statistics
        clear = found.table("drug").law.threshold(0.01, among=1)
        least = found.table(PAIR).law.threshold(0.01, among=len(EFFECTS))
        for drug in DRUGS:
            one = about(corpus, "side_effect", drug)
            largest = max(n for n, _ in json.loads(one.metadata["numbers"]).values())
            if one.metadata["size"] < clear:
                assert "about" not in one.page_content
                silent += largest >= least
    # Some had a count that would have been told of a larger group.
    assert silent > 2


def test_parts_are_never_more_than_the_whole_that_they_are_told_of() -> None:
    # Everybody with a drug has the same effect: by noise the part is often the larger.
    data = rows_of(("aspirin", "rash", 40), ("codeine", "nausea", 30))
    with_whole = without = 0
    for made in releases(data, 1, 20, [PAIR, "drug"]):
        for one in made.documents():
            parts, _, whole = one.page_content.partition(", of about ")
            counts = map(int, re.findall(r"about (\d+)", parts))
            if whole and one.metadata["status"] != "few":
                with_whole += 1
                aside = map(int, re.findall(r": about (\d+)", whole))
                assert sum(counts) + sum(aside) <= int(whole.split()[0])
            without += not whole and one.metadata["status"] != "few"
    assert with_whole > 10
    assert without > 10
