"""Asking the groups in stages: the public terms, and the order of the steps.

The units pay, and the groups are drawn, once, before the first block is asked. That
blocks of one draw cost what one release costs is proven in `mechanisms.stages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from langchain_core.documents import Document
from numpy.typing import NDArray

from langchain_dpicl.chain.steps import PreparedQuery, Step
from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import Hidden
from langchain_dpicl.errors import InvalidParameterError, UnsoundStoreError
from langchain_dpicl.groups import GroupSource
from langchain_dpicl.mechanisms.stages import Asked, blocks, usual_stop
from langchain_dpicl.parsers import DPOutputParser
from langchain_dpicl.parsers.staged import Said, StagedOutputParser
from langchain_dpicl.release.flow import Flow, in_thread
from langchain_dpicl.sealed import sealed

if TYPE_CHECKING:
    from langchain_dpicl.chain.answers import Bought
    from langchain_dpicl.chain.sealed_query import SealedQuery
    from langchain_dpicl.common.outcome import Outcome

Drawn = Sequence[Sequence[Document]]


@dataclass(frozen=True)
class Stages:
    """In how many blocks the groups are asked, and when it is enough. Public.

    Attributes:
        count: How many blocks.
        stop_at: By how many deviations a lead is clear.
    """

    count: int
    stop_at: float

    @classmethod
    def of(
        cls,
        count: int,
        stop_at: float | None,
        *,
        groups: GroupSource,
        parser: DPOutputParser,
        has_gate: bool,
    ) -> Stages | None:
        """Return the terms of a chain; None where all groups are asked at once.

        Raises:
            InvalidParameterError: If the chain's parts can't be asked in stages.
        """
        parameters.count(count, "stages")
        if stop_at is not None:
            parameters.positive("stop_at", stop_at)
        if count > groups.n_groups:
            raise InvalidParameterError(
                f"stages must be between 1 and {groups.n_groups}, the number of "
                f"groups, not {count}: each stage asks one group at least."
            )
        if count == 1:
            return None
        if not (isinstance(parser, StagedOutputParser) and parser.has_stages):
            raise InvalidParameterError(
                f"stages={count} needs a parser that releases a noisy sum: "
                "VoteOutputParser with mechanism='gaussian', or ESAOutputParser. What "
                f"this {type(parser).__name__} releases can't be added up: with it, "
                "leave stages out."
            )
        if has_gate:
            raise InvalidParameterError(
                "gate= asks all groups for its test, so that stages= would save "
                "nothing: leave one of the two out."
            )
        if not groups.keeps_places:
            raise InvalidParameterError(
                f"stages={count} needs groups that keep their places: one person more "
                "must move no group from one stage to another. Use "
                'RetrievedGroups or SampledGroups with grouping="shard", or, for a '
                "source of your own, see GroupSource.keeps_places."
            )
        if stop_at is None:
            stop_at = usual_stop(count, lets_ties_out=parser.lets_ties_out)
        return cls(count, float(stop_at))

    def public_parameters(self) -> dict[str, Any]:
        """Return the terms for an answer's record and for its cache key."""
        return {"stages": self.count, "stop_at": self.stop_at}


@dataclass(repr=False)
class StagedAsking:
    """One question that is asked in stages.

    Attributes:
        query: The chain's private parts.
        terms: How it is asked.
        asked: The question.
        bought: What pays for it.
        place: As which step the outcome is stored.
        total: The sum of what was released so far; None: nothing was.
        drawn: The drawn groups, private.
    """

    query: SealedQuery
    terms: Stages
    asked: PreparedQuery
    bought: Bought
    place: int
    total: NDArray[np.float64] | None = None
    drawn: Hidden[Drawn] | None = None

    def steps(self) -> Flow[Outcome]:
        """Hand on the stages; return the outcome, which is stored, with a cache."""
        slots = self.query.groups.n_groups
        every = blocks(slots, self.terms.count)
        for number, block in enumerate(every, 1):
            self.asked.use.calls += len(block)
            part = Asked(block.stop, slots, number, len(every))
            said, is_last = yield sealed(partial(self._stage, block, part))
            told = {"stage": number, "stages": len(every), "groups": block.stop}
            yield Step("stage", {**told, "lead": round(said.lead, 2)})
            if is_last:
                break
        outcome: Outcome = said.outcome
        return outcome

    def _stage(self, block: range, part: Asked) -> Flow[tuple[Said, bool]]:
        """Ask one block and release its sum.

        Returns:
            What the sums so far say, and whether it is the last block. Both follow from
            what was released: see `mechanisms.stages`.
        """
        query, paid = self.query, self.bought.paid
        if self.drawn is None:
            drawn = yield from query.draw_groups(self.asked, paid)
            if len(drawn) != query.groups.n_groups:
                raise UnsoundStoreError(
                    f"{type(query.groups).__name__} says that its groups keep their "
                    "places, and drew another number than n_groups: nothing was "
                    "released. See GroupSource.keeps_places."
                )
            self.drawn = Hidden(drawn)
        own = self.drawn.value[block.start : block.stop]
        answers = yield from query.ask_groups(self.asked, own, block)
        parser: Any = query.parser
        terms = {
            "paid": paid,
            "relation": query.groups.relation,
            "prepared": self.asked.prepared,
        }
        noisy = yield from parser.noisy(answers, slot_count=len(block), **terms)
        self.total = noisy if self.total is None else self.total + noisy
        said: Said = parser.said(self.total, asked=part, **terms)
        is_clear = said.is_answer and said.lead >= self.terms.stop_at
        is_last = part.is_whole or is_clear
        if is_last:
            said = yield from self._stored(said, part)
        return said, is_last

    def _stored(self, said: Said, part: Asked) -> Flow[Said]:
        """Store the outcome in the sealed region, as one that is asked for at once."""
        found = {"stages_asked": part.stages}
        details = {**said.outcome.details, **found}
        outcome = replace(said.outcome, details=details)
        if self.bought.entry is not None:
            kept = partial(self.bought.kept, outcome, self.place)
            outcome = yield in_thread(kept, shielded=True)
        return replace(said, outcome=outcome)
