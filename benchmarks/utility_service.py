"""A service on a public table: short records, and questions as they would come in.

The table is `tab_adult` (39,073 people of a census), worded by `utility_people.py`; a
row is one person, hence one privacy unit. Here a record is a row's words and nothing
else ("male; white; bachelor; single; ..."), and each value is one word (hyphens are
left out), so that a cosine tells who a question is about.

A question names two values and asks for a third: "Among people listed as clerk and
bachelor, which employer is most common?" There is one for every pair of occupation,
education and marital status that at least `MIN_ROWS` people share, and for every other
attribute: some 740, none of them picked, near-ties included. Questions come in as they
do everywhere: a few are asked all the time, most of them once. The popularity of the
question of rank r is proportional to 1 / r (Zipf's law), and which question has which
rank is drawn from a public seed. The true answers are counted in the table.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.outputs import ChatResult
from pydantic import Field, PrivateAttr
from utility_people import ADULT, UNIT, load_table

from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel

MIN_ROWS = 150
"""People that a question must be about; a public choice."""
ZIPF_EXPONENT = 1.0
DIMENSIONS = 768

GIVEN = ("Occupation", "Education", "Marital status")
ASKED = {
    # Label of the column, and how a question words it.
    "Sex": "sex",
    "Race": "race",
    "Education": "education",
    "Marital status": "marriage",
    "Family role": "role",
    "Employer": "employer",
    "Occupation": "occupation",
    "Income class": "income",
}


@dataclass(frozen=True)
class Question:
    """A question, and what it means on the table."""

    text: str
    about: str
    given: tuple[tuple[str, str], ...]
    options: tuple[str, ...]
    truth: str
    rows: int
    """People that it is about."""
    lead: float
    """Share of the true answer among them, less the runner-up's."""


@dataclass(frozen=True, eq=False)
class Service:
    """The records, and all questions about them."""

    rows: list[dict[str, str]]
    documents: list[Document]
    questions: tuple[Question, ...]
    embedding: Embeddings

    def stream(self, n: int, seed: int) -> list[Question]:
        """Return the questions as they come in; the seed is public."""
        # Not a secret: who asks what is the world's doing, and public here.
        random = Random(seed)
        by_rank = random.sample(self.questions, len(self.questions))
        weights = [rank**-ZIPF_EXPONENT for rank in range(1, len(by_rank) + 1)]
        return random.choices(by_rank, weights, k=n)

    @cached_property
    def _vectors(self) -> Any:
        found = self.embedding.embed_documents(
            [document.page_content for document in self.documents]
        )
        return np.array(found, np.float32)

    def eligible(self, question: Question, threshold: float) -> Any:
        """Return for each row whether it reaches the threshold."""
        vector = np.array(self.embedding.embed_query(question.text), np.float32)
        return self._vectors @ vector >= threshold

    def fitting(self, question: Question) -> Any:
        """Return for each row whether the question is about it."""
        return np.array(
            [
                all(row[label] == value for label, value in question.given)
                for row in self.rows
            ]
        )


def load_service(data: Path) -> Service:
    """Read the table; write records and questions."""
    rows = [
        {label: _one_word(row[label]) for label in ASKED}
        for row in load_table("adult", data).rows
    ]
    documents = [
        Document("; ".join(row.values()) + ".", metadata={UNIT: number})
        for number, row in enumerate(rows)
    ]
    return Service(rows, documents, tuple(_questions(rows)), KnownEmbeddings())


def _one_word(value: str) -> str:
    return value.replace("-", "")


def _questions(rows: Sequence[dict[str, str]]) -> list[Question]:
    found = []
    for labels in itertools.combinations(GIVEN, 2):
        cells: defaultdict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
        for row in rows:
            cells[tuple(row[label] for label in labels)].append(row)
        for values, people in sorted(cells.items()):
            # Who is listed as "unknown" is no group that anybody asks about.
            if len(people) < MIN_ROWS or "unknown" in values:
                continue
            given = tuple(zip(labels, values, strict=True))
            found += [
                _question(about, given, people)
                for about in ASKED
                if about not in labels
            ]
    return found


def _question(
    about: str, given: tuple[tuple[str, str], ...], people: Sequence[dict[str, str]]
) -> Question:
    counts = Counter(person[about] for person in people)
    (truth, most), (_, second) = [*counts.most_common(2), ("", 0)][:2]
    (_, first_value), (_, second_value) = given
    _, _, words = ADULT[about]
    return Question(
        f"Among people listed as {first_value} and {second_value}, which "
        f"{ASKED[about]} is most common?",
        about,
        given,
        tuple(dict.fromkeys(map(_one_word, words.values()))),
        truth,
        len(people),
        (most - second) / len(people),
    )


class KnownEmbeddings(HashingEmbeddings):
    """Hashing embeddings that embed no text twice: many people have one wording."""

    def __init__(self) -> None:
        super().__init__(DIMENSIONS)
        self._known: dict[str, list[float]] = {}

    def embed_query(self, text: str) -> list[float]:
        """Return the text's vector."""
        if text not in self._known:
            self._known[text] = super().embed_query(text)
        return self._known[text]


class RememberingModel(BaseChatModel):
    """A model that answers a prompt the same way each time: keep it.

    It saves this benchmark its time. With the offline stand-in it changes no answer; of
    another model each prompt is asked once. Every call is counted.
    """

    inner: BaseChatModel = Field(default_factory=OfflineChatModel)

    _known: dict[str, ChatResult] = PrivateAttr(default_factory=dict)
    _calls: int = PrivateAttr(default=0)

    @property
    def calls(self) -> int:
        """Calls so far, those answered from memory included."""
        return self._calls

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
        # Asked from one thread at a time here (`max_concurrency=1`).
        self._calls += 1
        prompt = "\0".join(message.text for message in messages)
        if prompt not in self._known:
            self._known[prompt] = self.inner._generate(messages, *args, **kwargs)  # noqa: SLF001 - a model around a model
        return self._known[prompt]

    @property
    def _llm_type(self) -> str:
        return "remembering"
