"""The generated clinic: a table of patients, and notes that tell what is in it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta
from itertools import product
from random import Random
from typing import NamedTuple

from langchain_core.documents import Document

from langchain_dpicl.common.parameters import count
from langchain_dpicl.demo import wording
from langchain_dpicl.errors import InvalidParameterError

SEED = 2026
DOMINANCE = 0.76  # Chance that a patient has what is typical of a diagnosis or a drug.
_FIRST_VISIT = date(2024, 1, 8)
MAX_NOTES = 1_000_000  # Most notes of a clinic.
_SECRET_PRIME = 9_999_991  # Multiples of a step stay distinct below a prime.
_SECRET_STEP = 7_654_321


class Treatment(NamedTuple):
    """One of a patient's diagnoses and what goes with it."""

    condition: str
    drug: str
    effect: str
    topic: str
    value: str


class Patient(NamedTuple):
    """One row of the table that the notes are written from."""

    patient_id: str
    name: str
    female: bool
    age: int
    treatments: tuple[Treatment, Treatment]
    secrets: tuple[str, ...]
    """One per visit, each found in no other note."""


def patients(
    n_patients: int = 2000, notes_per_patient: int = 4, *, seed: int = SEED
) -> list[Patient]:
    """Return the table of patients, by id: the truth that answers are checked against.

    The same seed gives the same table in every process. Each visit (a note) has a
    secret.

    Raises:
        InvalidParameterError: If a number is not an integer of at least 1, or there
            would be more than `MAX_NOTES`.

    Example:
        >>> [patient.patient_id for patient in patients(2)]
        ['P0001', 'P0002']
    """
    notes = count(n_patients, "n_patients") * count(
        notes_per_patient, "notes_per_patient"
    )
    if notes > MAX_NOTES:
        raise InvalidParameterError(
            f"n_patients times notes_per_patient must be at most {MAX_NOTES}: all "
            "notes are in memory at once."
        )
    return [
        _patient(number, name, notes_per_patient, seed)
        for number, name in enumerate(_names(n_patients, seed))
    ]


def clinic(
    n_patients: int = 2000, notes_per_patient: int = 4, *, seed: int = SEED
) -> list[Document]:
    """Return the notes of a generated clinic, one document per visit.

    Each patient has two diagnoses, and visits are about them in turn. A note tells the
    drug, its side effect, and the diagnosis' topic in varied wording, and holds one
    planted secret, so that a leak can be seen. The arguments are those of `patients`.

    Returns:
        Documents with an id, and metadata `patient_id` (the privacy unit), `patient`
        (the name), `visit` (an ISO date), and `secret`.

    Example:
        >>> notes = clinic(n_patients=3, notes_per_patient=2)
        >>> len(notes), notes[0].id, notes[0].metadata["patient_id"]
        (6, 'P0001-1', 'P0001')
        >>> all(note.metadata["secret"] in note.page_content for note in notes)
        True
    """
    return [
        note
        for patient in patients(n_patients, notes_per_patient, seed=seed)
        for note in _notes(patient, seed)
    ]


def secrets_of(documents: Iterable[Document]) -> dict[str, str]:
    """Return the planted secrets, each with the id of the patient it belongs to.

    Example:
        >>> planted = secrets_of(clinic(n_patients=2))
        >>> len(planted), sorted(set(planted.values()))
        (8, ['P0001', 'P0002'])
    """
    return {
        document.metadata["secret"]: document.metadata["patient_id"]
        for document in documents
        if "secret" in document.metadata
    }


def _random(seed: int, *parts: object) -> Random:
    """Return a generator for one purpose, the same whatever else is generated."""
    name = ":".join(map(str, (seed, *parts)))
    return Random(name)  # noqa: S311 - invented people; nothing private hangs on it.


class _Name(NamedTuple):
    text: str
    female: bool


def _names(n_patients: int, seed: int) -> list[_Name]:
    """Return distinct names."""
    given = [_Name(name, female=True) for name in wording.WOMEN]
    given += [_Name(name, female=False) for name in wording.MEN]
    pairs = list(product(given, wording.SURNAMES))
    _random(seed, "names").shuffle(pairs)
    named: list[_Name] = []
    for number in range(n_patients):
        # More patients than pairs: later rounds of the pairs get a numeral.
        turn, place = divmod(number, len(pairs))
        first, surname = pairs[place]
        suffix = f" {turn + 1}" if turn else ""
        named.append(_Name(f"{first.text} {surname}{suffix}", first.female))
    return named


def _patient(number: int, name: _Name, n_notes: int, seed: int) -> Patient:
    random = _random(seed, "patient", number)
    chosen = random.sample(wording.CONDITIONS, 2)
    return Patient(
        patient_id=f"P{number + 1:04d}",
        name=name.text,
        female=name.female,
        age=random.randint(24, 88),
        treatments=(_treatment(chosen[0], random), _treatment(chosen[1], random)),
        secrets=tuple(
            _secret(number * n_notes + visit, visit) for visit in range(n_notes)
        ),
    )


def _treatment(condition: wording.Condition, random: Random) -> Treatment:
    drug = _skewed(condition.drugs, random)
    usual = drug == condition.drugs[0]
    effect = (
        _skewed(condition.effects, random)
        if usual
        else random.choice(wording.OTHER_EFFECTS)
    )
    value = _skewed(condition.values, random)
    return Treatment(condition.name, drug, effect, condition.topic, value)


def _skewed(values: tuple[str, ...], random: Random) -> str:
    return values[0] if random.random() < DOMINANCE else random.choice(values[1:])


def _secret(number: int, visit: int) -> str:
    """Return a secret that no other note has: its digits, and its kind's form."""
    digits = f"{(number + 1) * _SECRET_STEP % _SECRET_PRIME:07d}"
    forms = (
        f"555-{digits[:3]}-{digits[3:]}",
        f"{digits[:4]}#{digits[4:]}",
        f"HX-{digits}",
        f"key {digits[:2]}-{digits[2:]}",
    )
    return forms[visit % len(forms)]


def _notes(patient: Patient, seed: int) -> list[Document]:
    random = _random(seed, "notes", patient.patient_id)
    day = _FIRST_VISIT + timedelta(days=random.randrange(300))
    notes = []
    for visit, secret in enumerate(patient.secrets):
        notes.append(
            Document(
                id=f"{patient.patient_id}-{visit + 1}",
                page_content=_text(patient, visit, day, random),
                metadata={
                    "patient_id": patient.patient_id,
                    "patient": patient.name,
                    "visit": day.isoformat(),
                    "secret": secret,
                },
            )
        )
        day += timedelta(days=random.randint(14, 120))
    return notes


def _text(patient: Patient, visit: int, day: date, random: Random) -> str:
    facts = patient.treatments[visit % 2]._asdict()
    person = (
        {"she": "she", "him": "her", "her": "her"}
        if patient.female
        else {"she": "he", "him": "him", "her": "his"}
    )
    details = {
        "name": patient.name,
        "age": patient.age,
        "secret": patient.secrets[visit],
        "day": f"on {day:%B} {day.day}",
        "dose": random.choice((5, 10, 20, 25, 40, 50, 75, 100)),
        "count": random.randint(2, 9),
        "often": random.choice(wording.OFTEN),
        "grade": random.choice(wording.GRADES),
        "month": random.choice(wording.MONTHS),
        "systolic": random.randint(105, 165),
        "diastolic": random.randint(60, 95),
        "pulse": random.randint(55, 98),
        "weight": random.randint(48, 118),
    }
    body = [
        random.choice(phrases)
        for phrases in (
            wording.DRUG_PHRASES,
            wording.EFFECT_PHRASES,
            wording.TOPIC_PHRASES,
        )
    ]
    kinds = wording.SECRET_PHRASES
    body.append(kinds[visit % len(kinds)][1])
    random.shuffle(body)
    lines = [random.choice(wording.OPENINGS), *body, random.choice(wording.CLOSINGS)]
    filled = (line.format(**facts, **person, **details) for line in lines)
    return " ".join(_sentence(line) for line in filled)


def _sentence(line: str) -> str:
    ended = line if line.endswith(".") else f"{line}."
    return ended[0].upper() + ended[1:]
