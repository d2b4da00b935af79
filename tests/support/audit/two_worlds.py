"""A corpus of a few people with its accounts, driven through the library's own code.

The real `RetrievedGroups`, `PrivacyBudgetHandler` and `Ledger` decide who is eligible,
who is charged, who is left out, and what the slots then hold. Only the
last step is replaced: where the library would add noise to the slots' answers, a
`World` hands out the exact distribution of what would be released.

What the groups' answers are is up to the adversary: two labels by one of the rules in
`ANSWERS`, and each query may use another rule.
"""

from __future__ import annotations

import copy
import functools
import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.accounting import Charge, Event, Exponential, Failure, Gaussian
from langchain_dpicl.budget import Paid
from langchain_dpicl.common.units import Collect
from langchain_dpicl.errors import DPError
from langchain_dpicl.groups import RetrievedGroups, charging_units
from langchain_dpicl.groups.base import RetrievalTerms
from langchain_dpicl.groups.index import ShardIndex
from langchain_dpicl.groups.records import embed_documents, no_rows, read_documents
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.mechanisms import voting

ORDERS = (1.5, 4.0, 16.0)
SALT = bytes(range(32))
X = "x"
"""The unit by which two worlds differ."""
_QUESTIONS = 4
_PAD = 0.25
_PADS = 16

Content = tuple[str, ...]
"""A slot's documents, in their order."""


# ---- people ------------------------------------------------------------------------


@dataclass(frozen=True)
class Unit:
    """A person: for each document its score on each question."""

    name: str
    documents: tuple[tuple[float, ...], ...]

    def records(self) -> list[Document]:
        return [
            Document(
                f"{self.name}/{number}: {' '.join(map(str, scores))};",
                metadata={"unit": self.name},
            )
            for number, scores in enumerate(self.documents)
        ]


def people(*profiles: tuple[tuple[float, ...], ...]) -> tuple[Unit, ...]:
    """Return the other units: a, b, c, ..."""
    return tuple(Unit(chr(ord("a") + i), found) for i, found in enumerate(profiles))


class GivenScores(Embeddings):
    """A document's text holds its scores; question i is the i-th axis.

    Multiples of a quarter are exact in every step of the library, so that ties at a
    threshold are ties.
    """

    def embed_query(self, text: str) -> list[float]:
        vector = [0.0] * (_QUESTIONS + _PADS)
        vector[int(text)] = 1.0
        return vector

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self._document(text) for text in texts]

    def _document(self, text: str) -> list[float]:
        scores = [float(score) for score in text.rstrip(";").split(": ")[1].split()]
        scores += [0.0] * (_QUESTIONS - len(scores))
        rest = 1 - sum(score**2 for score in scores)
        pads = rest / _PAD**2
        if pads != int(pads):
            return [*scores, math.sqrt(rest), *[0.0] * (_PADS - 1)]
        return [*scores, *[_PAD] * int(pads), *[0.0] * (_PADS - int(pads))]


EMBEDDING = GivenScores()


@functools.cache
def built_index(units: tuple[Unit, ...], n_groups: int) -> ShardIndex:
    """Return the index of a corpus, which may be empty."""
    documents = [record for unit in units for record in unit.records()]
    lines, unit_ids = read_documents(documents, "unit")
    rows = no_rows(_QUESTIONS + _PADS)
    if unit_ids:
        rows = embed_documents(EMBEDDING, lines, unit_ids)
    return ShardIndex.of(rows, n_shards=n_groups, salt=SALT)


def _names(content: Content) -> list[str]:
    return [document.split("/")[0] for document in content]


ANSWERS: dict[str, Callable[[Content], bool]] = {
    "x": lambda content: X in _names(content),
    "first": lambda content: _names(content)[0] in "acd",
}
"""What a group says, yes or no; an empty group says nothing."""


# ---- accounts and questions --------------------------------------------------------


@dataclass(frozen=True)
class Account:
    """What a per-unit account claims."""

    epsilon: float
    delta: float
    queries: int | None = None
    accounting: str | None = None
    delta0_share: float | None = None
    order: float | None = None

    def open(self, ledger: Ledger) -> PrivacyBudgetHandler:
        terms: dict[str, Any] = self.__dict__
        return PrivacyBudgetHandler(**terms, ledger=ledger, scope="unit")

    def renyi_claims(self, events: Sequence[Event]) -> list[tuple[float, float]]:
        """Return orders, and the Renyi divergence that the account keeps to at each.

        Args:
            events: Under a plan, those of one query.
        """
        if self.order is None:
            each = math.fsum(map(_zero_concentrated, events))
            return [(order, order * (self.queries or 0) * each) for order in ORDERS]
        # Canonne, Kamath and Steinke 2020, Proposition 12.
        delta, order = self.delta * (1 - (self.delta0_share or 0)), self.order
        price = (math.log(delta) + math.log(order)) / (order - 1)
        return [(order, self.epsilon - math.log1p(-1 / order) + price)]


def _zero_concentrated(event: Any) -> float:
    """Return the rho of one event: its divergence of order a is at most a rho."""
    if isinstance(event, Gaussian):
        return 1 / (2 * (event.noise_multiplier or 0) ** 2)
    return event.epsilon**2 / (8 if isinstance(event, Exponential) else 2)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Query:
    """One question, and how its answer is released."""

    question: int
    threshold: float
    part: Event
    delta0: float = 0.0
    """With this probability the release fails and shows everything."""

    @property
    def charge(self) -> Charge:
        """What the release asks of the account."""
        failure = (Failure(delta0=self.delta0),) if self.delta0 else ()
        return Charge(name="audit", parts=(self.part, *failure))


@dataclass(frozen=True)
class Change:
    """The operator deletes a unit, or adds it again if it is deleted."""

    name: str


Step = Query | Change


@dataclass(frozen=True)
class Answer:
    """What a world releases on a query, up to the last noise."""

    votes: Counter[Content]
    sigma: float
    events: tuple[Event, ...]
    """What was paid."""

    def lead(self, rule: str) -> int:
        """Return by how many groups "yes" is ahead of "no"."""
        counts = Counter[bool]()
        for content, number in self.votes.items():
            counts[ANSWERS[rule](content)] += number
        return counts[True] - counts[False]

    def yes(self, rule: str) -> float:
        """Return the probability that "yes" is released, of "yes" and "no"."""
        lead, paid = self.lead(rule), self.events[0]
        if isinstance(paid, Gaussian):
            # The noisy winner: the difference of two counts with noise each.
            return math.erfc(-lead / self.sigma / 2) / 2
        epsilon: float = paid.epsilon  # type: ignore[union-attr,assignment]
        if isinstance(paid, Exponential):
            return 1 / (1 + math.exp(-epsilon * lead / 2))
        # The sharpest pure mechanism: one bit, flipped with probability 1/(1 + e^eps).
        return 1 / (1 + math.exp(-epsilon if lead > 0 else epsilon))


# ---- worlds ------------------------------------------------------------------------


@functools.cache
def _shared() -> tuple[Ledger, sqlite3.Connection, sqlite3.Connection]:
    """Return the one ledger that all worlds take turns in, its database, and a copy.

    A ledger of its own for each step would compile its statements anew.
    """
    ledger, empty = Ledger(":memory:"), sqlite3.connect(":memory:")
    database: Any = ledger._engine.raw_connection().driver_connection
    database.backup(empty)
    return ledger, database, empty


class World:
    """A corpus with its accounts, after some steps."""

    def __init__(
        self, units: tuple[Unit, ...], account: Account, n_groups: int = 1
    ) -> None:
        self.units = {unit.name: unit for unit in units}
        self.index = built_index(units, n_groups)
        self.account, self.n_groups = account, n_groups
        self.deleted = Counter[str]()
        self.memory: set[str] = set()
        self.ledger, _, self._saved = _shared()

    def after(self, step: Step) -> tuple[World, Answer | str]:
        """Return the world after one more step, and what it answers or raises."""
        twin = copy.copy(self)
        twin.deleted, twin.memory = self.deleted.copy(), self.memory.copy()
        _, database, _ = _shared()
        self._saved.backup(database)
        # It would tell that its book was put back.
        self.ledger._seen.clear()
        answer: Answer | str = ""
        if isinstance(step, Change):
            twin.change(step)
        else:
            try:
                answer = twin.ask(step)
            except DPError as error:
                answer = type(error).__name__
        twin._saved = sqlite3.connect(":memory:")
        database.backup(twin._saved)
        return twin, answer

    def ask(self, query: Query) -> Answer:
        """Ask one query, charging as a chain does."""
        source = self._groups(query.threshold)
        paid = self.account.open(self.ledger).buy(
            query.charge,
            unit_key=source.unit_key,
            charges_units=charging_units(source),
        )
        slots = self.draw(source, source.prepare(str(query.question)), paid)
        held = (tuple(one.page_content for one in slot) for slot in slots if slot)
        paid_first: Any = paid.events[0]
        sigma = 0.0
        if isinstance(paid_first, Gaussian):
            sigma = voting.sigma(paid_first, source.relation)
        return Answer(Counter(held), sigma, paid.events)

    def _groups(self, threshold: float) -> RetrievedGroups:
        terms = RetrievalTerms(
            unit_key="unit",
            n_groups=self.n_groups,
            docs_per_group=1,
            score_threshold=threshold,
        )
        return RetrievedGroups(terms, EMBEDDING, self.index)

    def draw(
        self, source: RetrievedGroups, prepared: Any, paid: Paid
    ) -> list[list[Document]]:
        """Return the slots: here is what a broken world does otherwise."""
        return source.draw_prepared(prepared, collect=self.till(paid))

    def till(self, paid: Paid) -> Collect:
        """Return what charges the units."""
        assert paid.collect is not None
        return paid.collect

    def change(self, change: Change) -> None:
        """Delete a unit, or add it again; do nothing where it never was."""
        unit = self.units.get(change.name)
        if unit is None:
            return
        source = self._groups(0.0)
        self.deleted[unit.name] += 1
        if self.deleted[unit.name] % 2:
            source.delete_unit(unit.name)
        else:
            source.add_documents(unit.records())
        self.index = source._index
