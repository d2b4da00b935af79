"""For one charge of a cached answer one draw is given out, whatever comes between."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from support.chain_parts import EMBEDDING, QUESTION, record, reply
from support.fakes import ScriptedModel, notes

from langchain_dpicl import (
    DPChain,
    DPError,
    GroupCallError,
    KSAPTROutputParser,
    LedgerError,
    NoisyThreshold,
    PrivacyBudgetHandler,
    PublicFirstGate,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.chain import answers
from langchain_dpicl.chain.answers import Bought, forget
from langchain_dpicl.common.outcome import Outcome, Status
from langchain_dpicl.exceptions import BudgetExhaustedError
from langchain_dpicl.groups import SampledGroups
from langchain_dpicl.ledger import Ledger, MemoryLedger

NOTES = notes(300)
GROUPS = RetrievedGroups.from_documents(
    NOTES, EMBEDDING, unit_key="patient", n_groups=20
)


class Stopped(BaseException):
    """A process that dies where this is raised, as far as one can in a test."""


class Dies(BaseCallbackHandler):
    raise_error = True

    def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
        if data["step"] == "groups":
            raise Stopped


class Draws(VoteOutputParser):
    """Draws another label each time; what it does with it is a test's."""

    drawn: list[Any] = []  # noqa: RUF012
    noises: list[float] = []  # noqa: RUF012
    outcome: Callable[[int], Any] = lambda _: None

    def release(self, slots: Any, *, paid: Any, **terms: Any) -> Outcome:
        super().release(slots, paid=paid, **terms)
        self.noises.append(paid.noise.noise_multiplier)
        text = f"draw {len(self.drawn)}"
        self.drawn.append(text)
        then = self.outcome(len(self.drawn))
        return then if isinstance(then, Outcome) else Outcome(Status.RELEASED, text)


def drawing(then: Callable[[int], Any] = lambda _: None) -> Draws:
    return Draws(labels=["cough", "rash"], drawn=[], noises=[], outcome=then)


def account(ledger: Ledger, **changes: Any) -> PrivacyBudgetHandler:
    terms: dict[str, Any] = {"epsilon": 30, "delta": 1e-6, "accounting": "zcdp"}
    return PrivacyBudgetHandler(ledger=ledger, **{**terms, "queries": 4, **changes})


def made(parser: Any, budget: Any, **changes: Any) -> DPChain:
    parts: dict[str, Any] = {"groups": GROUPS, "model": ScriptedModel(reply=reply)}
    return DPChain(parser=parser, budget=budget, cache=True, **{**parts, **changes})


def die(chain: DPChain) -> None:
    with pytest.raises(Stopped):
        chain.invoke(QUESTION, {"callbacks": [Dies()]})


def used(budget: PrivacyBudgetHandler) -> int:
    return len(budget.ledger.charges(budget.account))


async def ask(chain: DPChain, *, is_async: bool) -> Any:
    return await chain.ainvoke(QUESTION) if is_async else chain.invoke(QUESTION)


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_noise_of_a_resumed_draw_is_the_charged_one(is_async: bool) -> None:
    ledger, parser = MemoryLedger(), drawing()
    budget = account(ledger)
    die(made(parser, budget))
    # These would be charged for much more noise, and a spent account for none.
    later = account(ledger, queries=400)
    template = parser.event_template(1.0)
    charged = template.read(ledger.charges("default")[0].charge.events)
    assert later.quote(template).noise_multiplier > 5 * charged.noise_multiplier
    answer = await ask(made(parser, later), is_async=is_async)
    assert parser.noises == [charged.noise_multiplier]
    assert answer.content == "draw 0"
    assert record(answer)["parameters"]["noise_multiplier"] == charged.noise_multiplier
    assert used(budget) == 1


def test_a_spent_account_draws_for_what_it_has_paid() -> None:
    budget = account(MemoryLedger(), accounting=None, queries=1)
    chain = made(KSAPTROutputParser(k=1), budget)
    die(chain)
    answer = chain.invoke(QUESTION)
    assert "cough" in str(answer.content)
    again = chain.invoke(QUESTION)
    for public in (record(answer), record(again)):
        assert (public["status"], public["charge"], public["events"]) == (
            "cached",
            None,
            [],
        )
        assert public["details"]["first"] == {"status": "released", "charge": 1}
        assert public["account"]["queries_spent"] == 1
    with pytest.raises(BudgetExhaustedError):
        chain.invoke("Another question?")


THRESHOLD = NoisyThreshold(units=200)
OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gate": ({}, {"gate": PublicFirstGate()}),
    "units": (
        {"scope": "unit"},
        {
            "groups": RetrievedGroups.from_documents(
                NOTES, EMBEDDING, unit_key="patient", n_groups=20, score_threshold=0.1
            )
        },
    ),
    "threshold": (
        {},
        {
            "groups": RetrievedGroups.from_documents(
                NOTES,
                EMBEDDING,
                unit_key="patient",
                n_groups=20,
                score_threshold=THRESHOLD,
            )
        },
    ),
}


@pytest.mark.parametrize("case", sorted(OTHERS))
def test_elsewhere_a_lost_draw_is_charged_anew(case: str) -> None:
    terms, changes = OTHERS[case]
    budget, parser = account(MemoryLedger(), **terms), drawing()
    chain = made(parser, budget, **changes)
    die(chain)
    before = used(budget)
    answer = chain.invoke(QUESTION)
    assert record(answer)["status"] == "released"
    assert record(answer)["charge"] == used(budget) > before
    # What this one has stored is given again.
    charges = used(budget)
    assert chain.invoke(QUESTION).content == answer.content
    assert (used(budget), len(parser.drawn)) == (charges, 1)


def test_sampled_groups_are_drawn_for_the_charge_by_another_sample() -> None:
    groups = SampledGroups.from_documents(
        NOTES, unit_key="patient", n_groups=20, sampling_rate=0.5
    )
    budget = account(MemoryLedger(), accounting="renyi")
    chain = made(drawing(), budget, groups=groups)
    die(chain)
    assert record(chain.invoke(QUESTION))["details"]["first"]["charge"] == 1
    assert used(budget) == 1


@pytest.mark.parametrize("is_async", [False, True])
async def test_several_that_draw_at_once_give_out_one_draw(is_async: bool) -> None:
    assert await at_once(is_async=is_async) == (1, 1)


async def test_twin_what_is_not_taken_from_the_ledger_is_drawn_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Bought, "kept", lambda _, outcome, place=0: outcome)
    charges, texts = await at_once(is_async=False)
    assert texts > charges


async def at_once(*, is_async: bool) -> tuple[int, int]:
    """Let three draw before one of them stores; return charges and answers."""
    barrier = threading.Barrier(3, timeout=20)
    budget = account(MemoryLedger())
    parser = drawing(lambda _: barrier.wait())
    chain = made(parser, budget)
    die(chain)

    def one(_: int) -> str:
        if is_async:
            return str(asyncio.run(chain.ainvoke(QUESTION)).content)
        return str(chain.invoke(QUESTION).content)

    with ThreadPoolExecutor(3) as pool:
        found = set(pool.map(one, range(3)))
    assert len(parser.drawn) == 3
    return used(budget), len(found)


def fails(count: int) -> None:
    if count == 1:
        raise ValueError("private")


def odd(count: int) -> Outcome | None:
    details = {"odd": object()}
    return Outcome(Status.RELEASED, "odd", details=details) if count == 1 else None


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("then", [fails, odd])
async def test_a_draw_that_fails_by_itself_is_not_drawn_until_it_works(
    then: Any, is_async: bool
) -> None:
    budget, parser = account(MemoryLedger()), drawing(then)
    chain = made(parser, budget)
    with pytest.raises(GroupCallError):
        await ask(chain, is_async=is_async)
    answer = await ask(chain, is_async=is_async)
    assert record(answer)["charge"] == 2
    assert budget.ledger.releases("default")[0].steps == (answers.CLOSED,)


def test_twin_a_charge_that_is_not_closed_is_drawn_for_until_it_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Bought, "close", lambda _, place=0: None)
    budget = account(MemoryLedger())
    chain = made(drawing(fails), budget)
    with pytest.raises(GroupCallError):
        chain.invoke(QUESTION)
    chain.invoke(QUESTION)
    assert used(budget) == 1


@pytest.mark.parametrize("is_async", [False, True])
async def test_what_could_not_be_stored_was_not_released_and_is_shown_nowhere(
    is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget, parser = account(MemoryLedger()), drawing()
    chain = made(parser, budget)

    def full(*_: Any) -> str:
        raise LedgerError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryLedger, "store_step", full)
        with pytest.raises(LedgerError, match="full") as caught:
            await ask(chain, is_async=is_async)
    shown = traceback.TracebackException.from_exception(
        caught.value, capture_locals=True
    )
    frames = [line for line in shown.format() if "test_answer_resume" not in line]
    assert "draw 0" not in "".join(frames)
    answer = await ask(chain, is_async=is_async)
    assert answer.content == "draw 1"
    assert used(budget) == 1


def test_a_fallback_is_stored_and_neither_drawn_nor_given_again() -> None:
    budget = account(MemoryLedger())
    parser = drawing(lambda count: Outcome(Status.FALLBACK) if count == 1 else None)
    chain = made(parser, budget)
    assert record(chain.invoke(QUESTION))["status"] == "fallback"
    (stored,) = budget.ledger.releases("default")
    assert len(stored.steps) == 1
    assert record(chain.invoke(QUESTION))["charge"] == 2


def test_a_resumed_fallback_says_that_it_was_paid_for_before() -> None:
    budget = account(MemoryLedger())
    chain = made(drawing(lambda _: Outcome(Status.FALLBACK)), budget)
    die(chain)
    public = record(chain.invoke(QUESTION))
    assert (public["status"], public["charge"]) == ("fallback", None)
    assert public["details"]["first"] == {"status": "fallback", "charge": 1}


def test_a_wording_that_fails_is_worded_again_and_a_whole_one_is_kept() -> None:
    says = iter([ValueError("down"), "They cough.", "Something else."])

    def worded(text: str) -> str:
        if "word suggestions" not in text:
            return reply(text)
        said = next(says)
        if isinstance(said, Exception):
            raise said
        return said

    budget = account(MemoryLedger())
    model = ScriptedModel(reply=worded)
    chain = made(KSAPTROutputParser(k=1), budget, model=model)
    texts = [str(chain.invoke(QUESTION).content) for _ in range(3)]
    assert texts == ["cough", "They cough.", "They cough."]
    assert used(budget) == 1


def test_what_is_forgotten_is_charged_again() -> None:
    ledger = MemoryLedger()
    budget, other = account(ledger), account(ledger, account="other")
    chain = made(KSAPTROutputParser(k=1), budget)
    for asked in (chain, made(KSAPTROutputParser(k=1), other)):
        asked.invoke(QUESTION)
    assert (forget(ledger, "default"), forget(ledger, "default")) == (1, 0)
    assert record(chain.invoke(QUESTION))["charge"] == 2
    assert record(chain.invoke(QUESTION))["details"]["first"]["charge"] == 2
    assert forget(ledger, "other") == 1
    with pytest.raises(DPError, match="no account"):
        forget(ledger, "unknown")
