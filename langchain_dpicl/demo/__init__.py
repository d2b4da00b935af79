"""Invented patients to try the library on: a generated clinic, and written notes.

The clinic's notes have planted secrets, and questions come with it. It is the same for
the same arguments in every process, so that answers, and leaks, can be checked by
machine. The visit notes, and an insurer's conversations, were written by a language
model and read by one.
"""

from langchain_dpicl.demo.clinic import DemoQuestion, clinic, questions
from langchain_dpicl.demo.notes import (
    RecordedReader,
    insurance_chats,
    visit_note_schema,
    visit_notes,
)

__all__ = [
    "DemoQuestion",
    "RecordedReader",
    "clinic",
    "insurance_chats",
    "questions",
    "visit_note_schema",
    "visit_notes",
]
