"""The demo's patients: what the clinic holds, and what is read of the visit notes."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import pytest
from support.table_parts import account

from langchain_dpicl.common.prompts import GROUP_PROMPT, SENTENCE_INSTRUCTIONS
from langchain_dpicl.demo import (
    RecordedReader,
    clinic,
    insurance_chats,
    questions,
    visit_note_schema,
    visit_notes,
)
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import seeded
from langchain_dpicl.offline import UNKNOWN, HashingEmbeddings, OfflineChatModel
from langchain_dpicl.released import ReleasedCorpus
from langchain_dpicl.tabular import GDPTable, TextRows


def test_a_larger_clinic_holds_the_smaller_one() -> None:
    first = clinic(30)
    assert first == clinic(30) == clinic(40)[: len(first)]


def test_every_note_has_a_secret_of_its_own_and_every_patient_a_name() -> None:
    notes = clinic(300)
    secrets = [note.metadata["secret"] for note in notes]
    everything = "\n".join(note.page_content for note in notes)
    assert len(notes) == 1200
    assert "{" not in everything
    assert all(everything.count(secret) == 1 for secret in secrets)
    assert set(Counter(note.metadata["patient_id"] for note in notes).values()) == {4}
    assert len({note.metadata["patient"] for note in notes}) == 300


def test_sixteen_questions_are_about_all_and_four_about_one() -> None:
    asked = questions()
    assert len({question.text for question in asked}) == 20
    persons = [question for question in asked if question.kind == "person"]
    notes = {note.metadata["secret"]: note.metadata["patient"] for note in clinic()}
    assert len(persons) == 4
    for question in persons:
        (secret,) = question.keywords
        assert notes[secret] in question.text
        assert question.answered_by(f"It is {secret}.")
        assert not question.answered_by(UNKNOWN)
    assert {question.kind for question in questions(1)} <= {"population", "person"}


@pytest.mark.parametrize("wrong", [0, -1, 2.0, True, 10**9])
def test_a_wrong_number_of_patients_is_refused(wrong: Any) -> None:
    for make in (clinic, questions):
        with pytest.raises(InvalidParameterError, match="n_patients"):
            make(wrong)


def test_groups_agree_on_what_all_share_and_one_knows_a_secret() -> None:
    # The story of the demo, on an eighth of it: 12 groups of 20 patients.
    notes, embedding, model = clinic(240), HashingEmbeddings(), OfflineChatModel()
    texts = [note.page_content for note in notes]
    vectors = np.array(embedding.embed_documents(texts))
    group = np.array([int(note.metadata["patient_id"][1:]) % 12 for note in notes])
    prompt = GROUP_PROMPT.partial(format_instructions=SENTENCE_INSTRUCTIONS) | model
    for asked in questions(240):
        near = vectors @ np.array(embedding.embed_query(asked.text))
        answers = []
        for place in range(12):
            members = np.flatnonzero(group == place)
            best = members[np.argsort(-near[members])[:8]]
            context = "\n\n---\n\n".join(texts[at] for at in best)
            given = {"context": context, "question": asked.text}
            answers.append(prompt.invoke(given).text)
        right = sum(map(asked.answered_by, answers))
        if asked.kind == "person":
            assert (right, answers.count(UNKNOWN)) == (1, 11)
        else:
            assert right >= 9


# ---- the visit notes -----------------------------------------------------------------

# A fact's wording, where a value of the public schema says the same in other words.
MEANT = {
    "hoarse voice": "hoarseness",
    "sumatriptan only": "sumatriptan",
    "tingling in the hands": "tingling",
    "swollen ankles": "swelling",
    "fast heartbeat": "palpitations",
    "trouble finding words": "word-finding trouble",
    "sweet drinks": "sweet food or drinks",
    "conflict at home": "family conflict",
    "red wine": "alcohol",
    "cats": "animals",
    "stress at work": "stress",
    "skipped doses": "missed medication",
    "isolation": "loneliness",
    "not mentioned": "unknown",
}
SENTENCES = (
    "Most frequent of on with is whose patients about then or too close small to "
    "another rare be named tell the are counts"
)
PAIRS = [("condition", "drug"), ("condition", "trigger"), ("drug", "side effect")]


@cache
def facts() -> dict[str, dict[str, Any]]:
    """Return what each note was written from, by the patient's id."""
    notes = resources.files("langchain_dpicl.demo").joinpath("visit_notes.jsonl")
    lines = map(json.loads, notes.read_text("utf-8").splitlines())
    return {line["id"]: line["facts"] for line in lines}


@cache
def read() -> tuple[TextRows, list[dict[str, Any]]]:
    reader = RecordedReader()
    rows = TextRows(
        visit_notes(),
        visit_note_schema(),
        reader,
        unit_key="patient_id",
        progress=False,
    )
    return rows, list(map(dict, rows))


def documents(epsilon: float, seed: int) -> ReleasedCorpus:
    rows, _ = read()
    table = GDPTable(
        rows,
        rows.schema,
        measure=PAIRS,
        budget=account(epsilon),
        progress=False,
    )
    phrases = {"drug": "on {value}", "condition": "with {value}"}
    untold = ("none", "unknown")
    with seeded(seed):
        table.release()
    return table.documents(people="patients", phrases=phrases, untold=untold)


def test_there_is_a_note_for_each_patient_with_the_facts_behind_it() -> None:
    notes = visit_notes()
    assert {note.metadata["patient_id"] for note in notes} == set(facts())
    assert len({note.page_content for note in notes}) == len(facts()) == 240
    nothing = json.loads(RecordedReader().invoke("Hello").text)
    assert set(nothing).isdisjoint(visit_note_schema().names)


def test_what_was_read_is_right_or_unknown() -> None:
    _, rows = read()
    for name, least in {
        "condition": 1,
        "drug": 1,
        "side effect": 0.99,
        "trigger": 0.95,
    }.items():
        true = [fact[name.replace(" ", "_")] for _, fact in sorted(facts().items())]
        pairs = [
            (row[name], MEANT.get(t, t)) for row, t in zip(rows, true, strict=True)
        ]
        known = [(one, fact) for one, fact in pairs if fact != "unknown"]
        assert sum(one == fact for one, fact in known) >= least * len(known)
        assert {one for one, fact in known if one != fact} <= {"unknown"}


def test_what_the_documents_state_is_true_and_no_word_of_a_note_leaves() -> None:
    stated = []
    schema = json.dumps(read()[0].schema.describe())
    public = f"{SENTENCES} {schema}"
    known = set(re.findall(r"[a-z]+", public.lower()))
    for seed in range(10):
        for document in documents(3, seed):
            assert set(re.findall(r"[a-z]+", document.page_content.lower())) <= known
            meta = document.metadata
            if not meta["by"]:
                continue
            of, by, value = meta["of"], meta["by"], meta["value"]
            counts = Counter(row[of] for row in read()[1] if row[by] == value)
            text = document.page_content.split(", of about")[0].split(": ", 1)[1]
            for name, count, margin in re.findall(
                r"([^(]+) \(about (\d+) ± (\d+)", text
            ):
                true = max(
                    (counts[v] for v in counts if name.strip().endswith(v)), default=0
                )
                stated.append(abs(true - int(count)) <= int(margin))
    assert len(stated) > 100
    assert sum(stated) >= 0.95 * len(stated)


def test_the_recorded_reader_names_listed_topics_and_one_that_is_not() -> None:
    people = insurance_chats()
    assert len({one["user"] for one in people}) == 300
    said = "\n".join(one["text"] for chat in people[2]["chats"] for one in chat)
    both = ["claim status", "reimbursement too low"]
    for listed, told in ((both, both), (both[:1], [both[0], f"other: {both[1]}"])):
        names = "\n".join(f"- {name}" for name in listed)
        prompt = f"Which of these topics?\n\n{names}\n\nThe person:\n\n{said}"
        assert RecordedReader().invoke(prompt).text == "\n".join(told)
