from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
from langchain_core.messages import HumanMessage

from langchain_dpicl.demo import DemoQuestion, clinic, patients, questions, secrets_of
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.offline import UNKNOWN, HashingEmbeddings, OfflineChatModel
from langchain_dpicl.offline.words import STOP_WORDS, words

PROMPT = (
    "Answer the question from the records below in one short sentence. "
    'If the records do not say, answer "I don\'t know."\n\n'
    "Records:\n{context}\n\nQuestion: {question}\nAnswer:"
)


def test_the_same_arguments_give_the_same_clinic() -> None:
    first = clinic(30)
    assert first == clinic(30)
    assert [note.page_content for note in first] != [
        note.page_content for note in clinic(30, seed=1)
    ]
    # A larger clinic holds the smaller one, so that figures can be compared.
    assert clinic(40)[: len(first)] == first


def test_every_note_has_a_secret_of_its_own() -> None:
    notes = clinic(300)
    planted = secrets_of(notes)
    assert len(planted) == len(notes) == 1200
    everything = "\n".join(note.page_content for note in notes)
    assert all(everything.count(secret) == 1 for secret in planted)
    assert Counter(planted.values()) == Counter(
        {patient.patient_id: 4 for patient in patients(300)}
    )


def test_patients_have_names_of_their_own() -> None:
    table = patients(6000, 1)
    assert len({patient.name for patient in table}) == 6000


def test_notes_tell_what_the_table_holds() -> None:
    by_id = {patient.patient_id: patient for patient in patients(50)}
    for note in clinic(50):
        patient = by_id[note.metadata["patient_id"]]
        text = note.page_content.casefold()
        assert patient.name in note.page_content
        assert "{" not in text
        assert any(
            {t.condition, t.drug, t.effect, t.value} <= set(words(text))
            for t in patient.treatments
        )


def test_what_is_typical_is_typical() -> None:
    rows = [row for patient in patients(2000) for row in patient.treatments]
    effects: defaultdict[str, Counter[str]] = defaultdict(Counter)
    drugs: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        effects[row.drug][row.effect] += 1
        drugs[row.condition][row.drug] += 1
    for asked in questions():
        if asked.text.startswith("Which side effect do"):
            counts = effects[asked.text.split(" on ")[1].split()[0]]
        elif asked.text.startswith("Which drug do"):
            counts = drugs[asked.text.split(" with ")[1].split()[0]]
        else:
            continue
        assert asked.keywords == (counts.most_common(1)[0][0],)
        assert 0.6 < counts[asked.keywords[0]] / counts.total() < 0.85


def test_twenty_questions() -> None:
    asked = questions()
    assert len(asked) == len({question.text for question in asked}) == 20
    persons = [question for question in asked if question.kind == "person"]
    planted = secrets_of(clinic())
    assert len(persons) == 4
    for question in persons:
        assert planted[question.keywords[0]] == question.patient_id
    assert all(question.keywords for question in asked)


def test_small_clinics_ask_what_they_can_answer() -> None:
    assert {question.kind for question in questions(1, 1)} == {"population", "person"}
    assert all(question.keywords for question in questions(1, 1))
    assert len(clinic(1, 9)) == len(secrets_of(clinic(1, 9))) == 9


@pytest.mark.parametrize("bad", [0, -1, 2.0, True])
def test_bad_sizes_are_refused(bad: object) -> None:
    with pytest.raises(InvalidParameterError, match="n_patients"):
        clinic(bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="notes_per_patient"):
        questions(2, bad)  # type: ignore[arg-type]


def test_answers_are_checked_by_words_and_secrets_by_text() -> None:
    asked = DemoQuestion("Which?", "population", ("cough",))
    assert asked.answered_by("A dry Cough.")
    assert not asked.answered_by("Coughing fits.")
    leak = DemoQuestion("What?", "person", ("555-01",), "P0001")
    assert leak.answered_by("It is 555-01.")
    assert not leak.answered_by(UNKNOWN)


def test_groups_agree_on_population_answers_and_one_knows_a_secret() -> None:
    # The figures of the demo, on a quarter of it: 25 groups of 20 patients.
    notes = clinic(500)
    vectors = np.array(
        HashingEmbeddings().embed_documents([note.page_content for note in notes])
    )
    shard = np.array([int(note.metadata["patient_id"][1:]) % 25 for note in notes])
    model = OfflineChatModel()
    for asked in questions(500):
        near = vectors @ np.array(HashingEmbeddings().embed_query(asked.text))
        answers = []
        for place in range(25):
            own = np.flatnonzero(shard == place)
            best = own[np.argsort(-near[own], kind="stable")[:8]]
            context = "\n\n---\n\n".join(notes[at].page_content for at in best)
            prompt = PROMPT.format(context=context, question=asked.text)
            answers.append(model._generate([HumanMessage(prompt)]).generations[0].text)
        if asked.kind == "person":
            assert sum(map(asked.answered_by, answers)) == 1
            assert answers.count(UNKNOWN) == 24
            continue
        known = (answer for answer in answers if answer != UNKNOWN)
        counts = Counter(word for answer in known for word in set(words(answer)))
        for word in STOP_WORDS | set(words(asked.text)):
            del counts[word]
        (top, first), (_, second) = counts.most_common(2)
        assert (top,) == asked.keywords
        assert first - second >= 0.5 * 25
