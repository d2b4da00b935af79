"""Per-unit accounts with one defect each. The audit must catch every one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from langchain_core.documents import Document
from numpy.typing import NDArray

from langchain_dpicl.accounting import Cost
from langchain_dpicl.budget import PaidCharge
from langchain_dpicl.errors import BudgetExhaustedError
from langchain_dpicl.groups import RetrievedGroups
from langchain_dpicl.groups.search import FoundUnits
from support.audit.two_worlds import World

Slots = list[list[Document]]
Till = Callable[[Sequence[str]], Sequence[bool]]


def everybody(unit_ids: Sequence[str]) -> list[bool]:
    return [True] * len(unit_ids)


def takers(slots: Slots) -> list[str]:
    """Return whose documents are in the slots."""
    return sorted({str(doc.metadata["unit"]) for slot in slots for doc in slot})


class BrokenWorld(World):
    """What the defects need: a look at the balances, which the library never takes."""

    def solvent(self, paid: PaidCharge) -> Till:
        """Return what says who could pay, and charges nobody."""
        ledger, name = self.ledger, paid.account
        limit = ledger.state(name).terms.limit
        cost = ledger.charges(name)[-1].charge.cost
        spent = {balance.tag: balance.spent for balance in ledger.unit_balances(name)}

        def could(unit_ids: Sequence[str]) -> list[bool]:
            balances = [
                spent.get(ledger.unit_tag(name, unit), Cost(0, 0)) for unit in unit_ids
            ]
            return [
                balance.loss + cost.loss <= limit.loss
                and balance.failure + cost.failure <= limit.failure
                for balance in balances
            ]

        return could


def best_scores(found: FoundUnits) -> NDArray[np.float64]:
    """Return the best score of each eligible unit."""
    scores = []
    for hits in found.hits:
        best = np.full(len(hits.shard.unit_ids), -np.inf)
        np.maximum.at(best, hits.shard.units[hits.rows], hits.scores)
        scores.append(best[hits.units])
    return np.concatenate(scores)


class ChargesTheTop(BrokenWorld):
    """(1) The k best of all solvent units are retrieved, and they alone are charged."""

    def draw(self, source: RetrievedGroups, prepared: Any, paid: PaidCharge) -> Slots:
        found = source._index.eligible(prepared.vector, -1.0)
        unit_ids = found.unit_ids(np.arange(found.count))
        could = np.array(self.solvent(paid)(unit_ids), bool)
        best = [place for place in np.argsort(-best_scores(found)) if could[place]]
        top = np.array(best[: self.setting.n_groups], np.int64)
        assert all(self.till(paid)(found.unit_ids(top)))
        n = self.setting.docs_per_group
        each = [found.by_shard(top[i : i + 1], n) for i in range(len(top))]
        return [slot for slots in each for slot in slots if slot]


class ChargesTheKept(BrokenWorld):
    """(2) Whom the cap leaves out goes free."""

    def draw(self, source: RetrievedGroups, prepared: Any, paid: PaidCharge) -> Slots:
        slots = source.draw_prepared(prepared, charge_units=self.solvent(paid))
        assert all(self.till(paid)(takers(slots)))
        return slots


class RefusesLoudly(World):
    """(3) A unit that can't pay stops the query for everybody."""

    def till(self, paid: PaidCharge) -> Till:
        def charge_units(unit_ids: Sequence[str]) -> Sequence[bool]:
            let_in = super(RefusesLoudly, self).till(paid)(unit_ids)
            if not all(let_in):
                raise BudgetExhaustedError("A unit has nothing left.")
            return let_in

        return charge_units


class LetsThePoorTakePlaces(World):
    """(3) A unit that can't pay is left out, and its place in the cap stays empty."""

    def draw(self, source: RetrievedGroups, prepared: Any, paid: PaidCharge) -> Slots:
        payers: set[str] = set()

        def charge_units(unit_ids: Sequence[str]) -> list[bool]:
            let_in = self.till(paid)(unit_ids)
            payers.update(u for u, pays in zip(unit_ids, let_in, strict=True) if pays)
            return [True] * len(unit_ids)

        slots = source.draw_prepared(prepared, charge_units=charge_units)
        return [
            [doc for doc in slot if str(doc.metadata["unit"]) in payers]
            for slot in slots
        ]


class ChargesLater(World):
    """(4) The charge comes after the draw, when who can't pay has taken part."""

    def draw(self, source: RetrievedGroups, prepared: Any, paid: PaidCharge) -> Slots:
        slots = source.draw_prepared(prepared, charge_units=everybody)
        super().draw(source, prepared, paid)
        return slots


class ChargesNobody(World):
    """(4) The price is written into the journal, and nobody pays it."""

    def till(self, paid: PaidCharge) -> Till:
        return everybody


class CountsFailuresOnce(World):
    """The probability of failure is not added up: only the loss is charged."""

    def till(self, paid: PaidCharge) -> Till:
        assert isinstance(paid.charge_units, partial)
        [charge] = paid.charge_units.args
        free = replace(charge, cost=Cost(charge.cost.loss, 0))
        return partial(self.ledger.charge_units, free)


class ResetsTheDeleted(World):
    """(5) A unit that is deleted and added again starts with a full balance."""

    def till(self, paid: PaidCharge) -> Till:
        def charge_units(unit_ids: Sequence[str]) -> Sequence[bool]:
            fresh = [f"{unit} {self.deleted[unit]}" for unit in unit_ids]
            return super(ResetsTheDeleted, self).till(paid)(fresh)

        return charge_units


class SharesBalances(World):
    """(6) All tags collide: the presence of one unit empties the others' balance."""

    def till(self, paid: PaidCharge) -> Till:
        def charge_units(unit_ids: Sequence[str]) -> list[bool]:
            shared = ["one for all"] if unit_ids else []
            return [*super(SharesBalances, self).till(paid)(shared)] * len(unit_ids)

        return charge_units


class PaysOnce(World):
    """(4) A unit that has paid once is let in ever after."""

    def till(self, paid: PaidCharge) -> Till:
        def charge_units(unit_ids: Sequence[str]) -> list[bool]:
            new = [unit for unit in unit_ids if unit not in self.memory]
            let_in = super(PaysOnce, self).till(paid)(new)
            self.memory.update(u for u, pays in zip(new, let_in, strict=True) if pays)
            return [unit in self.memory for unit in unit_ids]

        return charge_units


class WeighsTheCrowd(World):
    """(6) A unit pays less where many are eligible: its price depends on the others."""

    def till(self, paid: PaidCharge) -> Till:
        def charge_units(unit_ids: Sequence[str]) -> Sequence[bool]:
            if len(unit_ids) > 1:
                return everybody(unit_ids)
            return super(WeighsTheCrowd, self).till(paid)(unit_ids)

        return charge_units
