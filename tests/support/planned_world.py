"""A made-up world in which groups answer as a plan assumes, asked by real chains.

N people have one record each on the topic, which says their name. The model answers by
what stands in a group: it reads the names and the question, and says what a keyed hash
of both says, in the parts that the plan assumes. So each group answers by itself, and
anew for each question. A group of nobody is empty: other records, of which there are
some, miss the score threshold.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from langchain_dpicl import DPChain, PrivacyBudgetHandler, RetrievedGroups
from langchain_dpicl.budget import PaidCharge
from langchain_dpicl.common.outcome import Outcome
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import Slot
from langchain_dpicl.mechanisms import GaussianNoise, SeededRandom
from langchain_dpicl.parsers import (
    DPOutputParser,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    VoteOutputParser,
)
from langchain_dpicl.planner.crowd import Crowd
from langchain_dpicl.planner.result import Option
from support.fakes import ScriptedModel

WORDS = (
    *("anemia", "bruising", "cough", "dizziness", "eczema", "fever", "gout", "hives"),
    *("insomnia", "jaundice"),
)
RIGHT = WORDS[0]
_OTHERS = 30
_ROUNDS = 30
"""How often the people are dealt to groups anew.

The questions of one deal share how many groups are of nobody, so few deals would vary
by far more than as many questions that are independent."""


class TopicEmbedding(Embeddings):
    """One axis for the topic, one for everything else."""

    def embed_query(self, text: str) -> list[float]:
        return [0.0, 1.0] if text.startswith("Other") else [1.0, 0.0]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


@dataclass(frozen=True)
class Measured:
    """What came out of the questions that were asked."""

    right: float
    wrong: float
    calls: float
    asks: int


def _said(text: str, crowd: Crowd) -> str:
    """Return what a group says, by a hash of its records and the question."""
    records = text.split("Records:\n")[1]
    if "Name" not in records:
        return "I don't know."
    digest = hashlib.blake2b(records.encode(), digest_size=8).digest()
    level = int.from_bytes(digest, "big") / 2**64
    place = int(np.searchsorted(np.cumsum(crowd.shares), level, side="right"))
    return WORDS[place] if place < crowd.choices else "I don't know."


def model_of(crowd: Crowd) -> ScriptedModel:
    """Return the model of a world: it answers a group, lists the words, or repeats."""

    def reply(text: str) -> str:
        if "Records:" in text:
            return _said(text, crowd)
        if "Possible answers:" in text:
            return "\n".join(WORDS[: crowd.choices])
        return "I don't know."

    return ScriptedModel(reply=reply)


def parser_of(name: str, crowd: Crowd, noise: Any, seed: int) -> DPOutputParser[Any]:
    """Return the parser of an option, which releases with the noise of a plan.

    The account of a world is so large that many questions can be asked; what a chain
    charges there is not what the plan charges, whatever the noise is.
    """

    def with_noise(parser: type[Any]) -> type[Any]:
        class WithNoise(parser):  # type: ignore[misc]  # one of the four
            def release(
                self, slots: Sequence[Slot], *, paid: PaidCharge[Any], **terms: Any
            ) -> Outcome:
                paid = replace(paid, noise=noise)
                released: Outcome = super().release(slots, paid=paid, **terms)
                return released

        return WithNoise

    random = SeededRandom(seed)
    if isinstance(noise, GaussianNoise):
        drafted: dict[str, Any] = {"labels": "draft", "max_labels": crowd.choices}
        given: dict[str, Any] = {"labels": WORDS[: crowd.choices]}
        terms = drafted if name == "draft" else given
        return VoteOutputParser(**terms, **vars(noise), random=random)
    kind = KSAPTROutputParser if name == "ptr" else KSAThresholdOutputParser
    parser: DPOutputParser[Any] = with_noise(kind)(
        mechanism="gaussian", noise_multiplier=1.0, delta0=1e-9, random=random
    )
    return parser


def groups_of(crowd: Crowd, option: Option, seed: int) -> RetrievedGroups:
    """Return real groups over the people of a world, and over some others."""
    people = [
        Document(f"Name {seed} {i}.", metadata={"person": f"{seed}-{i}"})
        for i in range(crowd.people)
    ]
    others = [
        Document(f"Other {i}.", metadata={"person": f"other-{seed}-{i}"})
        for i in range(max(_OTHERS, option.groups))
    ]
    salt = hashlib.blake2b(b"deal %d" % seed, digest_size=32).digest()
    # The same people meet in each run: a test that fails now and then tells nothing.
    with mock.patch("langchain_dpicl.groups.records.new_salt", return_value=salt):
        return RetrievedGroups.from_documents(
            [*people, *others],
            TopicEmbedding(),
            unit_key="person",
            n_groups=option.groups,
            docs_per_group=2,
            score_threshold=0.5,
            sampling_rate=option.sampling_rate,
            random=SeededRandom(seed),
        )


def measure(
    crowd: Crowd, option: Option, noise: Any, *, asks: int, seed: int = 0
) -> Measured:
    """Ask a real chain over real groups again and again; return what came out."""
    found: Counter[str] = Counter()
    calls = 0
    for deal in range(_ROUNDS):
        budget = PrivacyBudgetHandler(
            epsilon=1e6,
            delta=0.9 / (crowd.people + 2 * option.groups + _OTHERS),
            accounting="renyi",
            ledger=":memory:",
            account=f"world-{deal}",
        )
        groups = groups_of(crowd, option, seed + deal)
        assert groups.relation is Relation.REPLACE
        chain = DPChain(
            groups=groups,
            model=model_of(crowd),
            parser=parser_of(option.parser, crowd, noise, seed + deal),
            budget=budget,
            stages=option.stages,
            fallback="refuse",
        )
        for ask in range(asks // _ROUNDS):
            answer = chain.invoke(f"Which one is it, number {ask}?")
            record = answer.response_metadata["privacy"]
            calls += record["calls"]
            if record["status"] == "released":
                said = record["keywords"] or [answer.content]
                found["right" if list(said) == [RIGHT] else "wrong"] += 1
    made = asks // _ROUNDS * _ROUNDS
    return Measured(found["right"] / made, found["wrong"] / made, calls / made, made)
