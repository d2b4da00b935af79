"""Small corpora, and the same without one person; they know nothing of the package."""

from __future__ import annotations

from collections.abc import Iterable

from langchain_core.documents import Document

UNIT = "patient"
QUESTION = "Which side effect does lisinopril have?"


def notes(
    people: int = 120, text: str = "Lisinopril gave a dry cough."
) -> list[Document]:
    """Return one note each of so many people."""
    return [
        Document(f"{text} Note {number}.", metadata={UNIT: f"unit-{number}"})
        for number in range(people)
    ]


def without(documents: Iterable[Document], unit: str) -> list[Document]:
    """Return the neighbor of a corpus: all records of one person are gone."""
    return [document for document in documents if document.metadata[UNIT] != unit]
