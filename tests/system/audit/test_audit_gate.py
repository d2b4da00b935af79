"""Two worlds, a public-first gate: whoever shapes the answer has paid for the answer.

*Proven here, by enumeration.* The real `SealedQuery` charges the test, draws, asks,
tests, charges the release, draws and asks again. Both values of the test's bit are
forced, each with its exact probability (a Gaussian tail at the number of groups that
agree), and the release that follows a "no" is an exponential mechanism on two labels,
exact too. The best adaptive strategy over three queries (two where there are
two other units) learns no more from bits and
answers together than the account claims.

*Not proven here.* Other parsers (their releases are tested with them), larger corpora.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
from langchain_core.documents import Document
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import PromptTemplate
from support.audit.exact_losses import PrivacyViolationError, above
from support.audit.small_corpora import people, read_contents, unit_x
from support.audit.two_worlds import ANSWERS, Account, Answer, Query, Setting, World
from support.audit.world_pairs import neighbors
from support.release_templates import template

from langchain_dpicl import mechanisms
from langchain_dpicl.accounting import EventTemplate, ExponentialPart
from langchain_dpicl.accounting.parts import Part
from langchain_dpicl.chain.gate import PublicFirstGate
from langchain_dpicl.chain.prompting import Prompting, Question
from langchain_dpicl.chain.sealed_query import SealedQuery
from langchain_dpicl.chain.steps import PreparedQuery
from langchain_dpicl.common.outcome import Outcome, Status
from langchain_dpicl.common.slots import Slot, answered
from langchain_dpicl.parsers.base import PublicAnswer
from langchain_dpicl.release.flow import in_thread, result, run
from langchain_dpicl.sealed import Hidden

BOTH = ((0.5, 0.5),)
LOW = ((0.25, 0.25),)
XS = [unit_x((0.5, 0.25))]
ONE = [people(LOW)]

ZCDP = Account(1.0, 0.05, accounting="zcdp", delta0_share=0.0)
"""rho is 0.188: one release and two tests, or three tests and no release after them."""
PART = ExponentialPart(1.1)
GATE = PublicFirstGate(agreement=0.5, noise_multiplier=6.0)


class Recorder:
    """A parser up to its noise: it keeps what it would release."""

    random = None
    second = None

    def __init__(self, part: Part) -> None:
        self.part = part
        self.seen: dict[str, Any] | None = None

    def public_outcome(self, prepared: object) -> None:  # nothing is public_outcome
        return None

    def event_template(self, sampling_rate: float) -> EventTemplate:
        return template("audit", (self.part,), sampling_rate)

    def release(self, slots: Sequence[Slot], **terms: Any) -> Outcome:
        self.seen = {**terms, "slots": [slot.text for slot in slots]}
        return Outcome(Status.RELEASED, "said")

    arelease = release  # never awaited here


class Repeats:
    """A model whose answer is its group's documents."""

    def answer(self, prompts: Sequence[PromptValue], done: object = None) -> list[Slot]:
        return [answered(prompt.to_string()) for prompt in prompts]

    aanswer = answer  # never awaited here


@dataclass(frozen=True)
class GatedQuery(Query):
    """A query with a gate; a script holds the gate's bit."""

    rule: str = "x"
    """What agrees with the public answer."""

    scripts = ((0,), (1,))


class GatedWorld(World):
    """Asks through the chain's private part, with the bit of a script."""

    private_part: type[SealedQuery] = SealedQuery
    gate = GATE

    def ask(self, query: Query, script: tuple[int, ...]) -> Answer:
        assert isinstance(query, GatedQuery)
        [bit] = script
        reach: list[float] = []

        def exceeds(
            count: int,
            threshold: float,
            *,
            noise_multiplier: float,
            relation: object,  # the sensitivity is 1 under both
            random: object,  # noise is what the script stands for
        ) -> bool:
            passes = above(threshold, count, noise_multiplier)
            reach.append(passes if bit else 1 - passes)
            return bool(bit)

        source, parser = self.source(query), Recorder(query.part)
        template = PromptTemplate.from_template("{page_content}")
        private = self.private_part(
            source,
            parser,  # type: ignore[arg-type]  # as much of a parser as is used
            Prompting(None, None, template, "\n"),
            Repeats(),  # type: ignore[arg-type]  # as much of a model as is used
            self.gate,
            pad_calls=True,
        )
        asked = PreparedQuery(
            Question(str(query.question)),
            self.budgets[query.account],
            source.prepare(str(query.question)),
            ("yes",),
            None,
            PublicAnswer("yes", lambda text: ANSWERS[query.rule](read_contents(text))),
        )
        with mock.patch.object(mechanisms, "exceeds", exceeds):
            for _step in run(private.release(asked)):
                pass
        [probability] = reach
        if parser.seen is None:
            return Answer(reach=probability, released=False)
        held = Counter(map(read_contents, parser.seen["slots"]))
        return Answer(held, source.relation, parser.seen["paid"], probability)


class ReusesTheAnswers(SealedQuery):
    """(7) The gate's answers serve the release, which nobody is asked to pay."""

    def _kept(self, hidden: Any, paid: Any) -> Any:
        return Hidden(hidden.value[1])


class ReusesTheAnswersOfThePoor(ReusesTheAnswers):
    """(7) All who can pay for the release do, and the others' answers count too."""

    def _merge(self, asked: Any, paid: Any, answers: Any, place: int) -> Outcome:
        self.groups.draw_prepared(asked.embedded, charge_units=paid.paid.charge_units)
        return super()._merge(asked, paid, answers, place)


class TestsForNothing(SealedQuery):
    """The test's charge is written, and nobody pays it."""

    __test__ = False

    def _test(self, asked: Any, public: Any, paid: Any) -> Any:
        free: list[list[Document]] = self.groups.draw_prepared(
            asked.embedded, charge_units=lambda unit_ids: [True] * len(unit_ids)
        )
        slots = result(self.ask_groups(asked, free, range(self.groups.n_groups)))
        passed = self._passes(slots, public, paid.paid)
        return in_thread(lambda: (passed, None))


def audit(
    private_part: type[SealedQuery] = SealedQuery,
    gate: PublicFirstGate = GATE,
    corpora: Any = ONE,
    depth: int = 3,
) -> tuple[float, ...]:
    """Hold gated queries against the claim; return how much of it is used."""

    class Kind(GatedWorld):
        pass

    Kind.private_part, Kind.gate = private_part, gate
    queries = [GatedQuery(0, 0.25, PART), GatedQuery(1, 0.25, PART, rule="first")]
    pairs = neighbors(corpora, XS, Setting((ZCDP,)), depth, Kind)
    used = [pair.check_adaptive(queries) for pair in pairs]
    return tuple(max(each) for each in zip(*used, strict=True))


def test_tests_and_answers_together_keep_the_claim() -> None:
    assert max(audit()) > 0.6
    audit(corpora=[people(), people(LOW, BOTH)], depth=2)


@pytest.mark.parametrize("twin", [ReusesTheAnswers, ReusesTheAnswersOfThePoor])
def test_answers_that_are_used_twice_are_caught(twin: type[SealedQuery]) -> None:
    with pytest.raises(PrivacyViolationError):
        audit(twin)


def test_a_gate_that_nobody_pays_is_caught() -> None:
    sharp = PublicFirstGate(agreement=0.5, noise_multiplier=2.0)
    audit(SealedQuery, sharp)
    with pytest.raises(PrivacyViolationError):
        audit(TestsForNothing, sharp)
