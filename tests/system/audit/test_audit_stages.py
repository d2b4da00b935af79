"""Two worlds, groups asked in stages: all blocks together are one Gaussian release.

*Proven here, by enumeration.* For a corpus, each of its units x, and scripted noise
that ends the asking after any stage: what the library's own chain, groups and parser
put under noise, block by block, differs between the corpus with x and that without by
the sensitivity of *one* release at most, in L2 and over all blocks side by side. Each
block is under the noise that was charged, in full and once, and what is in it does not
depend on what the blocks before it have shown. So what is told is post-processing of
one Gaussian mechanism with the charged noise multiplier (`mechanisms.stages`).

*Not proven here.* Larger corpora; that the sampler draws a Gaussian, and how likely
transcripts then are (`tests/mechanisms`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from numpy.typing import NDArray
from support.chain_parts import EMBEDDING
from support.fakes import ScriptedModel

from langchain_dpicl import (
    DPChain,
    ESAOutputParser,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
    mechanisms,
)
from langchain_dpicl.chain import stages as chain_stages

NAMES = ("ash", "birch", "cedar", "dogwood", "elm", "fir", "gum", "hazel")
LABELS = (*NAMES, "nobody")
GROUPS = 6
STAGES = 3
QUESTION = "Which tree?"
# The last two count what is no answer.
TOWARD = np.array([*EMBEDDING.embed_query(NAMES[0]), 0.0, 0.0])
MANY = len(TOWARD)
Block = NDArray[np.float64]
Parser = Callable[[], Any]


def vote() -> Any:
    return VoteOutputParser(labels=LABELS)


def esa(select: Any = "cosine") -> Any:
    return ESAOutputParser(embedding=EMBEDDING, candidates=LABELS, select=select)


def esa_vote() -> Any:
    return esa("vote")


def corpus() -> list[Document]:
    """Return records that all say whose they are, two of each unit."""
    return [
        Document(f"tree {name}", metadata={"unit": name})
        for name in NAMES
        for _ in range(2)
    ]


def reply(text: str) -> str:
    """Return the first unit that is in the prompt: x may change it to any other."""
    return next((name for name in NAMES if f"tree {name}" in text), "nobody")


class Release:
    """Notes what was put under noise, and with which noise; adds what is scripted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, noise: Sequence[float]) -> None:
        self.blocks: list[Block] = []
        self.multipliers: list[float] = []
        self._noise = noise

        def noisy_counts(counts: Any, *, noise_multiplier: float, **_: Any) -> Block:
            return self._told(np.array(counts, dtype=float), noise_multiplier)

        def noisy_sum(
            rows: Any, *, radius: float, noise_multiplier: float, **_: Any
        ) -> Block:
            scale = np.linalg.norm(rows, axis=1) / radius
            clipped = rows / np.maximum(scale, 1)[:, None]
            return self._told(clipped.sum(axis=0), noise_multiplier)

        monkeypatch.setattr(mechanisms, "noisy_counts", noisy_counts)
        monkeypatch.setattr(mechanisms, "noisy_sum", noisy_sum)

    def _told(self, block: Block, multiplier: float) -> Block:
        # Toward the first label, or candidate.
        place = np.eye(len(block))[0] if len(block) < MANY else TOWARD
        shown: Block = block + self._noise[len(self.blocks)] * place
        self.blocks.append(block)
        self.multipliers.append(multiplier)
        return shown


def asked(groups: Any, make: Parser, noise: Sequence[float]) -> tuple[Any, float]:
    """Ask a question; return what was put under noise, and the charged multiplier."""
    budget = PrivacyBudgetHandler(epsilon=8, delta=1e-6, queries=4, ledger=":memory:")
    with pytest.MonkeyPatch.context() as patch:
        release = Release(patch, noise)
        chain = DPChain(
            groups=groups,
            model=ScriptedModel(reply=reply),
            parser=make(),
            budget=budget,
            stages=STAGES,
        )
        chain.invoke(QUESTION)
    (record,) = budget.ledger.charges(budget.account)
    return release, record.charge.events[0].noise_multiplier  # type: ignore[union-attr]


GOES_ON = (0.0, 0.0, 0.0)
SCRIPTS = (GOES_ON, (900.0, 0.0, 0.0), (0.0, 900.0, 0.0), (-5.0, 3.0, 900.0))


def sharded(documents: list[Document]) -> RetrievedGroups:
    return RetrievedGroups.from_documents(
        documents, EMBEDDING, unit_key="unit", n_groups=GROUPS, docs_per_group=2
    )


def audit(make: Parser, source: Callable[[list[Document]], Any] = sharded) -> int:
    """Hold every pair of worlds against one release; return how many moved.

    Raises:
        AssertionError: If a pair differs by more, or noise is not as charged.
    """
    most = 2.0 if make is esa else math.sqrt(2)
    moved = 0
    for x in NAMES:
        groups = source(corpus())
        whole = {script: asked(groups, make, script) for script in SCRIPTS}
        groups.delete_unit(x)
        less = {script: asked(groups, make, script) for script in SCRIPTS}
        for world in (whole, less):
            every = world[GOES_ON][0].blocks
            assert len(every) == STAGES
            for release, multiplier in world.values():
                assert release.multipliers == [multiplier] * len(release.blocks)
                for block, same in zip(release.blocks, every, strict=False):
                    assert np.array_equal(block, same)
        assert len(whole[SCRIPTS[1]][0].blocks) < STAGES
        far = np.subtract(whole[GOES_ON][0].blocks, less[GOES_ON][0].blocks)
        assert np.linalg.norm(far) <= most * (1 + 1e-9)
        moved += bool(far.any())
    return moved


@pytest.mark.parametrize("make", [vote, esa, esa_vote])
def test_all_blocks_together_differ_by_one_release(make: Parser) -> None:
    assert audit(make) > 0


class ByUnit(RetrievedGroups):
    """The twin: a slot for each unit, in an order that one unit more moves."""

    keeps_places = True

    def draw_prepared(self, prepared: Any, **given: Any) -> Any:
        drawn = super().draw_prepared(prepared, **given)
        drawn.sort(key=lambda slot: slot[0].page_content)
        return (drawn + [[] for _ in range(GROUPS)])[:GROUPS]


def by_unit(documents: list[Document]) -> ByUnit:
    return ByUnit.from_documents(
        documents,
        EMBEDDING,
        unit_key="unit",
        n_groups=GROUPS,
        docs_per_group=2,
        grouping="unit",
        score_threshold=-1.0,
    )


def test_twin_slots_that_move_are_noticed() -> None:
    with pytest.raises(AssertionError):
        audit(vote, by_unit)


def test_twin_blocks_that_share_a_group_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def overlapping(slots: int, stages: int) -> tuple[range, ...]:
        return tuple(range(slots) for _ in range(stages))

    monkeypatch.setattr(chain_stages, "blocks", overlapping)
    with pytest.raises(AssertionError):
        audit(vote)


def test_twin_noise_that_is_shared_out_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = VoteOutputParser.noisy

    def shared(parser: Any, slots: Any, *, paid: Any, **terms: Any) -> Any:
        less = mechanisms.GaussianNoise(paid.noise.noise_multiplier / STAGES**0.5)
        return (yield from real(parser, slots, paid=replace(paid, noise=less), **terms))

    monkeypatch.setattr(VoteOutputParser, "noisy", shared)
    with pytest.raises(AssertionError):
        audit(vote)


def test_twin_a_block_that_follows_what_was_told_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here the groups of the second block depend on the noise of the first."""
    real = chain_stages.StagedAsking._stage

    def follows(asking: Any, block: range, part: Any) -> Any:
        if asking.total is not None and asking.total[0] < 0:
            drawn = asking.drawn.value
            asking.drawn.value = [*drawn[2:], *drawn[:2]]
        return (yield from real(asking, block, part))

    monkeypatch.setattr(chain_stages.StagedAsking, "_stage", follows)
    with pytest.raises(AssertionError):
        audit(vote)
