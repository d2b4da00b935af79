"""Per-unit accounts with one defect each. The audit must catch every one of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from langchain_core.documents import Document

from langchain_dpicl.accounting import Cost
from langchain_dpicl.budget import Paid
from langchain_dpicl.common.units import Collect
from langchain_dpicl.errors import BudgetExhaustedError
from langchain_dpicl.groups import RetrievedGroups
from langchain_dpicl.ledger.book import Transaction
from langchain_dpicl.ledger.units import collect
from support.audit.two_worlds import World

Slots = list[list[Document]]


def everybody(unit_ids: Iterable[str]) -> set[str]:
    return set(unit_ids)


def takers(slots: Slots) -> list[str]:
    """Return whose documents are in the slots."""
    return sorted({str(doc.metadata["unit"]) for slot in slots for doc in slot})


class BrokenWorld(World):
    """What the defects need: a look at the balances, which the library never takes."""

    def solvent(self, paid: Paid) -> Collect:
        """Return what says who could pay, and charges nobody."""
        ledger, name, cost = self.ledger, paid.stored.account, paid.stored.cost
        limit = ledger.state(name).account.limit
        spent = {balance.tag: balance.spent for balance in ledger.unit_balances(name)}

        def can_pay(unit: str) -> bool:
            balance = spent.get(ledger.unit_tag(name, unit), Cost(0, 0))
            return all(
                have + price <= most
                for have, price, most in zip(balance, cost, limit, strict=True)
            )

        return lambda unit_ids: {unit for unit in unit_ids if can_pay(unit)}


def best_scores(source: RetrievedGroups, prepared: Any) -> dict[str, float]:
    """Return the best score of each unit."""
    scores: dict[str, float] = {}
    for shard in source._index.shards:
        for unit, row in zip(shard.rows.unit_ids, shard.vectors, strict=True):
            score = float(row @ prepared.vector[0])
            scores[unit] = max(score, scores.get(unit, -2.0))
    return scores


class ChargesTheTop(BrokenWorld):
    """(1) The k best of all solvent units are retrieved, and they alone are charged."""

    def draw(self, source: RetrievedGroups, prepared: Any, paid: Paid) -> Slots:
        scores = best_scores(source, prepared)
        could = self.solvent(paid)(scores)
        best = sorted(could, key=lambda unit: (-scores[unit], unit))
        asked = best[: self.n_groups]
        assert self.till(paid)(asked) == {*asked}
        terms = prepared.terms.model_copy(update={"score_threshold": -1.0})
        everybody = replace(prepared, terms=terms)
        each = [source._index.search(everybody, {unit}) for unit in asked]
        return [slot for slots in each for slot in slots if slot]


class ChargesTheKept(BrokenWorld):
    """(2) Whom the cap leaves out goes free."""

    def draw(self, source: RetrievedGroups, prepared: Any, paid: Paid) -> Slots:
        slots = source.draw_prepared(prepared, collect=self.solvent(paid))
        assert self.till(paid)(takers(slots)) == {*takers(slots)}
        return slots


class RefusesLoudly(World):
    """(3) A unit that can't pay stops the query for everybody."""

    def till(self, paid: Paid) -> Collect:
        def collect(unit_ids: Iterable[str]) -> set[str]:
            asked = [*unit_ids]
            let_in = super(RefusesLoudly, self).till(paid)(asked)
            if len(let_in) < len(asked):
                raise BudgetExhaustedError("A unit has nothing left.")
            return let_in

        return collect


class LetsThePoorTakePlaces(World):
    """(3) A unit that can't pay is left out, and its place in the cap stays empty."""

    def draw(self, source: RetrievedGroups, prepared: Any, paid: Paid) -> Slots:
        payers: set[str] = set()

        def collect(unit_ids: Iterable[str]) -> set[str]:
            asked = {*unit_ids}
            payers.update(self.till(paid)(asked))
            return asked

        slots = source.draw_prepared(prepared, collect=collect)
        return [
            [doc for doc in slot if str(doc.metadata["unit"]) in payers]
            for slot in slots
        ]


class ChargesLater(World):
    """(4) The charge comes after the draw, when who can't pay has taken part."""

    def draw(self, source: RetrievedGroups, prepared: Any, paid: Paid) -> Slots:
        slots = source.draw_prepared(prepared, collect=everybody)
        super().draw(source, prepared, paid)
        return slots


class ChargesNobody(World):
    """(4) The price is written into the journal, and nobody pays it."""

    def till(self, paid: Paid) -> Collect:
        return everybody


class CountsFailuresOnce(World):
    """The probability of failure is not added up: only the loss is charged."""

    def till(self, paid: Paid) -> Collect:
        def charge(transaction: Transaction, unit_ids: list[str]) -> set[str]:
            book = transaction.load("account", paid.stored.account, "alone")
            free = Cost(paid.stored.cost.loss, 0)
            return collect(transaction, book, paid.charge, free, unit_ids)

        return lambda unit_ids: self.ledger.run(lambda t: charge(t, [*unit_ids]))


class ResetsTheDeleted(World):
    """(5) A unit that is deleted and added again starts with a full balance."""

    def till(self, paid: Paid) -> Collect:
        def collect(unit_ids: Iterable[str]) -> set[str]:
            fresh = {f"{unit} {self.deleted[unit]}": unit for unit in unit_ids}
            return {
                fresh[name] for name in super(ResetsTheDeleted, self).till(paid)(fresh)
            }

        return collect


class SharesBalances(World):
    """(6) All tags collide: the presence of one unit empties the others' balance."""

    def till(self, paid: Paid) -> Collect:
        def collect(unit_ids: Iterable[str]) -> set[str]:
            asked = {*unit_ids}
            shared = ["one for all"] if asked else []
            return asked if super(SharesBalances, self).till(paid)(shared) else set()

        return collect


class PaysOnce(World):
    """(4) A unit that has paid once is let in ever after."""

    def till(self, paid: Paid) -> Collect:
        def collect(unit_ids: Iterable[str]) -> set[str]:
            asked = {*unit_ids}
            self.memory |= super(PaysOnce, self).till(paid)(asked - self.memory)
            return asked & self.memory

        return collect


class WeighsTheCrowd(World):
    """(6) A unit pays less where many are eligible: its price depends on the others."""

    def till(self, paid: Paid) -> Collect:
        def collect(unit_ids: Iterable[str]) -> set[str]:
            asked = {*unit_ids}
            if len(asked) > 1:
                return asked
            return super(WeighsTheCrowd, self).till(paid)(asked)

        return collect
