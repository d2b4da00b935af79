"""Facts of the visit notes: what is right, what is stated, and what stays inside."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from typing import Any

import pytest
from support.table_parts import account

from langchain_dpicl.demo import RecordedReader, visit_note_schema, visit_notes
from langchain_dpicl.demo.visit_notes import visit_note_facts
from langchain_dpicl.mechanisms.random import SeededRandom
from langchain_dpicl.released import ReleasedCorpus
from langchain_dpicl.tabular import CategoricalColumn, GDPTable, TextRows

PAIRS = [("condition", "drug"), ("condition", "trigger"), ("drug", "side effect")]
WAYS = [("drug", "condition"), ("trigger", "condition"), ("side effect", "drug")]
ASIDE = ("none", "unknown")
SEEDS = range(25)


@cache
def read() -> tuple[TextRows, list[dict[str, Any]]]:
    rows = TextRows(
        visit_notes(), visit_note_schema(), RecordedReader(), unit_key="patient_id"
    )
    return rows, list(map(dict, rows))


def released(epsilon: float, seed: int) -> GDPTable:
    rows, _ = read()
    return GDPTable(
        rows,
        rows.schema,
        measure=PAIRS,
        budget=account(epsilon),
        random=SeededRandom(seed),
    ).release()


def documents(epsilon: float, seed: int) -> ReleasedCorpus:
    phrases = {"drug": "on {value}", "condition": "with {value}"}
    return released(epsilon, seed).documents(
        people="patients", phrases=phrases, untold=ASIDE
    )


def ranked(of: str, by: str, value: str) -> list[tuple[str, int]]:
    told = Counter(row[of] for row in read()[1] if row[by] == value)
    return [one for one in told.most_common() if one[0] not in ASIDE]


def values(name: str) -> tuple[str, ...]:
    column = visit_note_schema().column(name)
    assert isinstance(column, CategoricalColumn)
    return tuple(column.values)


def questions() -> list[tuple[str, str, str]]:
    """Return what one value answers, of two patients or more."""
    found = []
    for of, by in WAYS:
        for value in values(by):
            first, second = [*ranked(of, by, value), ("", 0), ("", 0)][:2]
            if first[1] > max(second[1], 1):
                found.append((of, by, value))
    return found


@pytest.mark.parametrize(("epsilon", "least"), [(1, 55), (3, 82), (8, 94)])
def test_the_largest_released_count_is_the_true_one(epsilon: float, least: int) -> None:
    asked = questions()
    assert len(asked) >= 24
    right = []
    for seed in SEEDS:
        statistics = released(epsilon, seed).statistics
        for of, by, value in asked:
            counts = [v for v, _ in statistics.counts(of, {by: value})]
            first = next(one for one in counts if one not in ASIDE)
            right.append(first == ranked(of, by, value)[0][0])
    assert 100 * sum(right) / len(right) >= least


@pytest.mark.parametrize("epsilon", [1, 3, 8])
def test_what_the_documents_state_is_true(epsilon: float) -> None:
    told = []
    for seed in SEEDS:
        for one in documents(epsilon, seed):
            meta = one.metadata
            if not meta["by"]:
                continue
            counts = Counter(
                row[meta["of"]] for row in read()[1] if row[meta["by"]] == meta["value"]
            )
            text = one.page_content.split(", of about")[0].split(": ", 1)[1]
            for name, count, margin in re.findall(
                r"([^(]+) \(about (\d+) ± (\d+)\)", text
            ):
                value = next(
                    v
                    for v in counts | Counter(values(meta["of"]))
                    if name.strip().endswith(v)
                )
                told.append(abs(counts[value] - int(count)) <= int(margin))
            if meta["status"] == "ranked":
                top = ranked(meta["of"], meta["by"], meta["value"])
                told.append(bool(top) and f": {top[0][0]} (" in one.page_content)
    assert len(told) > 100
    assert sum(told) >= 0.95 * len(told)


def test_ordinary_retrieval_brings_the_document_of_each_question() -> None:
    retriever = documents(3, 1).as_retriever(k=1)
    for of, by, value in questions():
        who = f"on {value}" if by == "drug" else f"with {value}"
        (found,) = retriever.invoke(f"Which {of} do patients {who} have most?")
        meta = found.metadata
        assert (meta["of"], meta["by"], meta["value"]) == (of, by, value)


def test_no_word_of_a_note_leaves_but_those_of_the_schema() -> None:
    corpus = documents(8, 1)
    ours = "Most frequent of on with whose is patients about then or too close small to"
    public = f"{ours} tell the counts are {json.dumps(read()[0].schema.describe())}"
    known = set(re.findall(r"[a-z]+", public.lower()))
    for one in corpus:
        assert set(re.findall(r"[a-z]+", one.page_content.lower())) <= known
    everything = json.dumps([*(one.page_content for one in corpus), corpus.record])
    for fact in visit_note_facts().values():
        assert fact["private"] not in everything
