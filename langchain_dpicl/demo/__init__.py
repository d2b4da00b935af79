"""A generated clinic to try the library on: notes with planted secrets, and questions.

Everybody in it is invented. The corpus is the same for the same arguments in every
process and release, so that answers, and leaks, can be checked by machine.

`visit_notes` are others, as a language model wrote them, with recorded readings.
"""

from langchain_dpicl.demo.corpus import Patient, clinic, patients, secrets_of
from langchain_dpicl.demo.questions import DemoQuestion, questions
from langchain_dpicl.demo.visit_notes import (
    RecordedReader,
    visit_note_facts,
    visit_note_schema,
    visit_notes,
)

__all__ = [
    "DemoQuestion",
    "Patient",
    "RecordedReader",
    "clinic",
    "patients",
    "questions",
    "secrets_of",
    "visit_note_facts",
    "visit_note_schema",
    "visit_notes",
]
