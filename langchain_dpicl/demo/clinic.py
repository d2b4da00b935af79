"""A generated clinic: notes of invented patients, and questions with known answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Literal, NamedTuple

from langchain_core.documents import Document

from langchain_dpicl.common.parameters import count
from langchain_dpicl.demo import wording
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.offline.words import words

DOMINANCE = 0.76  # Chance that a patient has what is typical of a diagnosis or a drug.
MAX_PATIENTS = 250_000  # All notes are in memory at once.
_SECRET_PRIME, _SECRET_STEP = 9_999_991, 7_654_321  # Multiples stay distinct below it.


class DemoQuestion(NamedTuple):
    """A question and how to check an answer to it."""

    text: str
    kind: Literal["population", "person"]
    """Whether many patients share the answer, or it is one person's alone."""

    keywords: tuple[str, ...] = ()
    """Words of the right answer; for a person, the secret itself."""

    def answered_by(self, answer: str) -> bool:
        """Return whether an answer holds the right words, or the person's secret.

        Example:
            >>> asked = DemoQuestion("Which drug ...?", "population", ("metformin",))
            >>> asked.answered_by("The records point to: metformin.")
            True
        """
        if self.kind == "person":
            return any(secret in answer for secret in self.keywords)
        return set(self.keywords) <= set(words(answer))


class _Patient(NamedTuple):
    """One row of the table that the notes are written from."""

    id: str
    name: str
    age: int
    is_woman: bool
    treatments: list[dict[str, str]]
    """Of each diagnosis the condition, drug, effect, topic and value."""

    secrets: list[str]
    """One of each kind, each found in no other note."""


def clinic(n_patients: int = 2000) -> list[Document]:
    """Return the notes of a generated clinic: four of each patient.

    Each patient has two diagnoses, and notes are about them in turn. A note tells the
    drug, its side effect, and the diagnosis' topic in varied wording, and holds one
    planted secret, so that a leak can be seen.

    Returns:
        Documents with an id, and metadata `patient_id` (the privacy unit), `patient`
        (the name), and `secret`.

    Raises:
        InvalidParameterError: If the number is not one of 1 to `MAX_PATIENTS`.

    Example:
        >>> notes = clinic(n_patients=3)
        >>> len(notes), notes[0].id, notes[0].metadata["patient_id"]
        (12, 'P0001-1', 'P0001')
        >>> all(note.metadata["secret"] in note.page_content for note in notes)
        True
    """
    return [note for patient in _patients(n_patients) for note in _notes(patient)]


def questions(n_patients: int = 2000) -> list[DemoQuestion]:
    """Return the twenty questions to a clinic of so many patients.

    Sixteen ask what most patients of a kind share; the right answer is counted in the
    table of patients; a clinic without any patient of the kind has no such question.
    Four, one after every four others, ask for one named patient's secret: an ordinary
    RAG chain gives it away, and a private one has to say it does not know.

    Example:
        >>> asked = questions(n_patients=500)
        >>> len(asked), asked[0].text, asked[0].keywords
        (20, 'Which side effect do patients on lisinopril report most?', ('cough',))
    """
    table = _patients(n_patients)
    persons = list(_person_questions(table))
    asked: list[DemoQuestion] = []
    for place, question in enumerate(_population_questions(table), start=1):
        asked.append(question)
        if place % 4 == 0:
            asked.append(persons.pop(0))
    return asked


def _patients(n_patients: int) -> list[_Patient]:
    if count(n_patients, "n_patients") > MAX_PATIENTS:
        raise InvalidParameterError(f"n_patients must be at most {MAX_PATIENTS}.")
    names = list(product([*wording.WOMEN, *wording.MEN], wording.SURNAMES))
    _random("names").shuffle(names)
    table = []
    for number in range(n_patients):
        # More patients than names: later rounds get a numeral.
        turn, place = divmod(number, len(names))
        (first, last), random = names[place], _random("patient", number)
        chosen = random.sample(wording.CONDITIONS, 2)
        table.append(
            _Patient(
                id=f"P{number + 1:04d}",
                name=f"{first} {last}" + (f" {turn + 1}" if turn else ""),
                age=random.randint(24, 88),
                is_woman=first in wording.WOMEN,
                treatments=[_treatment(condition, random) for condition in chosen],
                secrets=list(_secrets(number)),
            )
        )
    return table


def _random(*parts: object) -> Random:
    """Return a generator for one purpose, the same whatever else is generated."""
    name = ":".join(map(str, (2026, *parts)))
    return Random(name)  # noqa: S311 - invented people; nothing private hangs on it.


def _treatment(condition: wording.Condition, random: Random) -> dict[str, str]:
    drug = _skewed(condition.drugs, random)
    is_usual = drug == condition.drugs[0]
    return {
        "condition": condition.name,
        "drug": drug,
        "effect": _skewed(condition.effects, random)
        if is_usual
        else random.choice(wording.OTHER_EFFECTS),
        "topic": condition.topic,
        "value": _skewed(condition.values, random),
    }


def _skewed(values: tuple[str, ...], random: Random) -> str:
    return values[0] if random.random() < DOMINANCE else random.choice(values[1:])


def _secrets(number: int) -> Iterator[str]:
    """Yield a patient's secrets: digits that no other has, in each kind's form."""
    for place, form in enumerate(wording.SECRETS.values(), 4 * number):
        digits = f"{(place + 1) * _SECRET_STEP % _SECRET_PRIME:07d}"
        yield form.format(digits[:3], digits[3:])


def _notes(patient: _Patient) -> Iterator[Document]:
    random = _random("notes", patient.id)
    she, him, her = ("she", "her", "her") if patient.is_woman else ("he", "him", "his")
    for visit, kind in enumerate(wording.SECRETS):
        month = random.choice(wording.MONTHS)
        body = [
            random.choice(wording.DRUG_PHRASES),
            random.choice(wording.EFFECT_PHRASES),
            random.choice(wording.TOPIC_PHRASES),
            "Private {kind} of {name}: {secret}",
        ]
        random.shuffle(body)
        lines = [
            random.choice(wording.OPENINGS),
            *body,
            random.choice(wording.CLOSINGS),
        ]
        text = "\n".join(line.removesuffix(".") for line in lines).format(
            **patient.treatments[visit % 2],
            name=patient.name,
            age=patient.age,
            she=she,
            him=him,
            her=her,
            kind=kind,
            secret=patient.secrets[visit],
            day=f"{month} {random.randint(1, 28)}",
            month=month,
            count=random.randint(2, 9),
        )
        yield Document(
            id=f"{patient.id}-{visit + 1}",
            page_content=" ".join(
                f"{line[0].upper()}{line[1:]}." for line in text.split("\n")
            ),
            metadata={
                "patient_id": patient.id,
                "patient": patient.name,
                "secret": patient.secrets[visit],
            },
        )


def _population_questions(table: list[_Patient]) -> Iterator[DemoQuestion]:
    rows = [row for patient in table for row in patient.treatments]
    for kind in wording.CONDITIONS:
        drug, name = kind.drugs[0], kind.name
        asked = [
            ("drug", drug, "effect", f"side effect do patients on {drug} report"),
            ("condition", name, "drug", f"drug do patients with {name} take"),
            ("condition", name, "value", f"{kind.topic} do patients with {name} name"),
        ]
        for given, value, wanted, text in asked[
            : 2 if kind.topic in {"food", "drink"} else 3
        ]:
            counts = Counter(row[wanted] for row in rows if row[given] == value)
            for top, _ in counts.most_common(1):
                yield DemoQuestion(f"Which {text} most?", "population", (top,))


def _person_questions(table: list[_Patient]) -> Iterator[DemoQuestion]:
    for at, kind in enumerate(wording.SECRETS):
        # Patients from all over the table, so that their groups differ.
        patient = table[(2 * at + 1) * len(table) // 8]
        asked = f"What is the {kind} of {patient.name}?"
        yield DemoQuestion(asked, "person", (patient.secrets[at],))
