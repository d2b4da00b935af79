"""Two corpora that differ by one unit, asked the same by the library's own code.

A *world* is a corpus, its group source and its per-unit accounts. Who is eligible, who
is charged, who is left out and what the slots then hold is all decided by the real
`RetrievedGroups`, `PrivacyBudgetHandler` and `Ledger`. Only the last step is replaced:
where the library would add noise to the slots' answers, the world hands out the exact
distribution of what would be released.

An `Adversary` (`world_pairs.py`) holds two worlds, one with the unit x and one without.
`check_adaptive` measures finite outputs for the best of *all* strategies of a
given depth: the next query may be any function of everything released before.

What the groups' answers are is up to the adversary too. For histograms each content of
a slot is a label of its own, so that no change of a slot goes unseen; finite outputs
have two labels by one of the rules in `ANSWERS`, and each query may use another rule.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.documents import Document

from langchain_dpicl import PrivacyBudgetHandler, Relation
from langchain_dpicl.accounting import Charge, Event, Exponential, Failure, Gaussian
from langchain_dpicl.budget import Paid
from langchain_dpicl.common.units import Collect
from langchain_dpicl.errors import DPError
from langchain_dpicl.groups import RetrievedGroups, charging_units
from langchain_dpicl.groups.base import RetrievalTerms
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.mechanisms import voting
from support.audit.small_corpora import EMBEDDING, Content, Unit, X, built_index, names

ORDERS = (1.5, 4.0, 16.0)


ANSWERS: dict[str, Callable[[Content], bool]] = {
    "x": lambda content: X in names(content),
    "first": lambda content: names(content)[0] in "acd",
}
"""What a group says, yes or no; an empty group says nothing."""


@dataclass(frozen=True)
class Account:
    """What a per-unit account claims."""

    epsilon: float
    delta: float
    queries: int | None = None
    accounting: str | None = None
    delta0_share: float | None = None
    order: float | None = None

    def open(self, name: str, ledger: Ledger) -> PrivacyBudgetHandler:
        terms: dict[str, Any] = self.__dict__
        return PrivacyBudgetHandler(**terms, ledger=ledger, scope="unit", account=name)

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
class Setting:
    """Everything public about a world."""

    accounts: tuple[Account, ...]
    n_groups: int = 1
    docs_per_group: int = 1


@dataclass(frozen=True)
class Query:
    """One question, and how its answer is released."""

    question: int
    threshold: float
    part: Event
    account: int = 0
    delta0: float = 0.0
    """With this probability the release fails and shows everything."""

    @property
    def charge(self) -> Charge:
        """What the release asks of the account."""
        failure = (Failure(delta0=self.delta0),) if self.delta0 else ()
        return Charge(name="audit", parts=(self.part, *failure))

    @property
    def scripts(self) -> Sequence[tuple[int, ...]]:
        """What can happen before the release, in public; see `World.ask`."""
        return ((),)


@dataclass(frozen=True)
class Change:
    """The operator deletes a unit, or adds it again if it is deleted."""

    name: str

    scripts = ((),)


@dataclass(frozen=True)
class Answer:
    """What a world releases on a query, up to the last noise."""

    votes: Mapping[Content, int] = field(default_factory=dict)
    relation: Relation | None = None
    paid: Paid | None = None
    reach: float = 1.0
    """The probability of what happened before the release."""
    error: str | None = None
    """An error is seen by whoever asks."""
    released: bool = True
    """Whether there is a release after what happened before."""

    @property
    def sigma(self) -> float:
        assert self.relation is not None
        return voting.sigma(self.first, self.relation)

    @property
    def first(self) -> Any:
        """The event that was paid for the answer."""
        assert self.paid is not None
        return self.paid.events[0]

    def lead(self, rule: str) -> int:
        """Return by how many groups "yes" is ahead of "no"."""
        counts = Counter[bool]()
        for content, number in self.votes.items():
            counts[ANSWERS[rule](content)] += number
        return counts[True] - counts[False]

    def yes(self, rule: str, part: Event) -> float:
        """Return the probability that "yes" is released, of "yes" and "no"."""
        lead = self.lead(rule)
        if isinstance(part, Gaussian):
            # The noisy winner: the difference of two counts with noise each.
            return math.erfc(-lead / self.sigma / 2) / 2
        epsilon = self.first.epsilon
        if isinstance(part, Exponential):
            return 1 / (1 + math.exp(-epsilon * lead / 2))
        # The sharpest pure mechanism: one bit, flipped with probability 1/(1 + e^eps).
        return 1 / (1 + math.exp(-epsilon if lead > 0 else epsilon))


NOTHING = Answer(released=False)

Step = Query | Change


def copied(ledger: Ledger) -> Ledger:
    """Return a ledger in memory that holds the same, so that a world can go on."""
    twin = Ledger(":memory:")
    source, target = (
        each._engine.raw_connection().driver_connection for each in (ledger, twin)
    )
    source.backup(target)
    return twin


class World:
    """A corpus with its accounts, driven through the library's own code."""

    def __init__(self, units: tuple[Unit, ...], setting: Setting) -> None:
        self.units = {unit.name: unit for unit in units}
        self.index = built_index(units, setting.n_groups)
        self.setting = setting
        self.deleted = Counter[str]()
        self.memory: set[str] = set()
        self.ledger = Ledger(":memory:")
        self._open()

    def _open(self) -> None:
        self.budgets = [
            account.open(str(number), self.ledger)
            for number, account in enumerate(self.setting.accounts)
        ]

    def fork(self) -> World:
        """Return a world in which the same has happened."""
        twin = copy.copy(self)
        twin.deleted, twin.memory = self.deleted.copy(), self.memory.copy()
        twin.ledger = copied(self.ledger)
        twin._open()
        return twin

    def take(self, step: Step, script: tuple[int, ...] = ()) -> Answer:
        """Take one step."""
        if isinstance(step, Change):
            self.change(step)
            return NOTHING
        return self.answer(step, script)

    def answer(self, query: Query, script: tuple[int, ...]) -> Answer:
        """Ask one query; an error is an answer too."""
        try:
            return self.ask(query, script)
        except DPError as error:
            return Answer(error=type(error).__name__, released=False)

    def ask(self, query: Query, script: tuple[int, ...]) -> Answer:
        """Ask one query, with a script for what chance decides before the release."""
        assert not script
        source = self.source(query)
        paid = self.charge(query, source, query.charge)
        slots = self.draw(source, source.prepare(str(query.question)), paid)
        return Answer(votes(slots), source.relation, paid)

    def source(self, query: Query) -> RetrievedGroups:
        """Return the groups of this corpus for a query's threshold."""
        setting = self.setting
        return self._groups(setting.docs_per_group, query.threshold)

    def _groups(self, docs_per_group: int, threshold: float) -> RetrievedGroups:
        terms = RetrievalTerms(
            unit_key="unit",
            n_groups=self.setting.n_groups,
            docs_per_group=docs_per_group,
            score_threshold=threshold,
        )
        return RetrievedGroups(terms, EMBEDDING, self.index)

    def charge(self, query: Query, source: RetrievedGroups, shape: Charge) -> Paid:
        """Charge as a chain does."""
        return self.budgets[query.account].buy(
            shape, unit_key=source.unit_key, charges_units=charging_units(source)
        )

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
        source = self._groups(1, 0.0)
        self.deleted[unit.name] += 1
        if self.deleted[unit.name] % 2:
            source.delete_unit(unit.name)
        else:
            source.add_documents(unit.records())
        self.index = source._index


def votes(slots: Sequence[Sequence[Document]]) -> Counter[Content]:
    """Return how many slots hold what; an empty one abstains."""
    return Counter(
        tuple(document.page_content for document in slot) for slot in slots if slot
    )
