"""The charge comes first; one owner draws for it; what was paid is given again.

The model looks into the ledger through a connection of its own while its group calls
run: the charge must stand there. What can't be paid asks no group.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from faces import (
    BudgetExhaustedError,
    DPError,
    InvalidParameterError,
    KSAPTROutputParser,
    LedgerError,
    NoBudgetError,
    PlanMismatchError,
    PrivacyBudgetHandler,
    PublicCallError,
    UnsealableModelError,
    VoteOutputParser,
    chain,
    record,
)
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda
from questions import (
    ASK,
    ASKED,
    account,
    clinic,
    exact_vote,
    group_prompts,
    slots,
    stored,
)
from scripted import AsyncScriptedModel, ScriptedModel
from sqlalchemy import Pool, event
from suite import pairs

GROUPS = stored(clinic(), n_groups=8, docs_per_group=9)
HELD = sum(map(bool, slots(GROUPS, ASKED)))
LABELS = ["oak", "elm"]
WAYS = pytest.mark.parametrize("way", ASK)


def plan(url: str = ":memory:", **terms: Any) -> PrivacyBudgetHandler:
    """Open an account with a plan that leaves votes nearly exact."""
    return account(ledger=url, **{"epsilon": 1e4, "queries": 4, **terms})


def vote(**terms: Any) -> VoteOutputParser:
    return VoteOutputParser(labels=LABELS, **terms)


# ---- before --------------------------------------------------------------------------


@pytest.mark.promise("charge-before-call")
@pytest.mark.promise("charge-before-call", twin=True)
@WAYS
async def test_group_calls_find_the_charge_in_the_ledger(
    way: str, tmp_path: Path
) -> None:
    """The charge is durable before the first group call: another connection sees it."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    other, seen = plan(url), list[int]()

    def script(prompt: str) -> str:
        if "<" in prompt:
            seen.append(other.spent().queries)
        return "oak"

    made = chain(
        GROUPS, AsyncScriptedModel(script=script), vote(), plan(url), cache=False
    )
    for number in (1, 2):
        answer = await ASK[way](made, ASKED)
        check_charged_first(seen, number)
        assert record(answer)["status"] == "released"
        seen.clear()
    # The twin: groups that are asked before the chain charges.
    for _ in range(HELD):
        script("<")
    await ASK[way](made, ASKED)
    with pytest.raises(AssertionError):
        check_charged_first(seen[:HELD], 3)


def check_charged_first(seen: list[int], number: int) -> None:
    """Each group call found so many charges in the ledger."""
    assert seen == [number] * HELD


def spent_account(path: Path) -> PrivacyBudgetHandler:
    budget = plan(queries=1)
    chain(GROUPS, ScriptedModel(), vote(), budget).invoke("another question: cough")
    return budget


def closed_account(path: Path) -> PrivacyBudgetHandler:
    budget = plan()
    budget.ledger.close_account(budget.account)
    return budget


def lost_ledger(path: Path) -> PrivacyBudgetHandler:
    file = path / "ledger.db"
    budget = plan(f"sqlite:///{file}")
    for each in path.iterdir():
        each.write_bytes(b"no database at all" * 512)
    return budget


def other_kind(path: Path) -> PrivacyBudgetHandler:
    budget = plan()
    chain(GROUPS, ScriptedModel(), KSAPTROutputParser(k=1), budget).invoke("cough ?")
    return budget


def per_unit(path: Path) -> PrivacyBudgetHandler:
    return plan(scope="unit")


REFUSED: dict[str, tuple[Any, type[DPError]]] = {
    "no budget": (lambda path: None, NoBudgetError),
    "exhausted": (spent_account, BudgetExhaustedError),
    "closed": (closed_account, LedgerError),
    "unreachable": (lost_ledger, LedgerError),
    "another release": (other_kind, PlanMismatchError),
    "nobody can pay alone": (per_unit, InvalidParameterError),
}


@pytest.mark.promise("fail-closed", "budget-errors-are-raised")
@pytest.mark.parametrize(("case", "way"), pairs(REFUSED, ASK))
async def test_what_cannot_be_paid_asks_no_group(
    case: str, way: str, tmp_path: Path
) -> None:
    """The typed error reaches the caller, through a sequence too; no group is asked."""
    make, error = REFUSED[case]
    model = AsyncScriptedModel(script=lambda prompt: "oak")
    made = chain(GROUPS, model, vote(), make(tmp_path))
    for runnable in (made, made | StrOutputParser()):
        with pytest.raises(error):
            await ASK[way](runnable, ASKED)
    assert group_prompts(model) == []


@pytest.mark.promise("budget-errors-are-raised", twin=True)
async def test_a_runnable_that_swallows_the_error_is_noticed(tmp_path: Path) -> None:
    made = chain(GROUPS, ScriptedModel(), vote(), spent_account(tmp_path))
    swallowing = made.with_fallbacks([RunnableLambda(lambda _: "oak")])
    with pytest.raises(pytest.fail.Exception), pytest.raises(BudgetExhaustedError):
        await swallowing.ainvoke(ASKED)


@pytest.mark.promise("fail-closed")
async def test_of_a_batch_only_what_was_paid_is_answered() -> None:
    """The others are errors; none is an answer, and none is swallowed."""
    model, budget = AsyncScriptedModel(script=lambda prompt: "oak"), plan(queries=2)
    made = chain(GROUPS, model, vote(), budget, cache=False)
    found = await made.abatch([ASKED] * 5, return_exceptions=True)
    kinds = Counter(type(one).__name__ for one in found)
    assert kinds == {"AIMessage": 2, "BudgetExhaustedError": 3}
    assert len(group_prompts(model)) == 2 * HELD


@pytest.mark.promise("fail-closed")
def test_an_account_is_not_opened_with_other_terms(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    plan(url)
    for terms in ({"epsilon": 2e4}, {"queries": 5}, {"delta": 1e-7}, {"scope": "unit"}):
        with pytest.raises(PlanMismatchError):
            plan(url, **terms)


@pytest.mark.promise("public-failure-is-free")
@WAYS
async def test_a_model_that_is_not_there_costs_nothing(way: str) -> None:
    """The question alone is asked first; the error says no text of the client's."""

    def broken(prompt: str) -> Any:
        return RuntimeError("canary")

    model, budget = AsyncScriptedModel(script=broken), plan()
    for parser in (vote(), VoteOutputParser(labels="draft"), KSAPTROutputParser(k=1)):
        with pytest.raises(PublicCallError) as caught:
            await ASK[way](chain(GROUPS, model, parser, budget), ASKED)
        assert "canary" not in str(caught.value)
    assert budget.spent().queries == 0
    assert group_prompts(model) == []


@pytest.mark.promise("unsealable-models-refused")
@pytest.mark.parametrize(
    "model",
    [
        ScriptedModel().with_retry(),
        ScriptedModel().with_fallbacks([ScriptedModel()]),
        ScriptedModel().with_listeners(on_end=print),
        ScriptedModel() | StrOutputParser(),
        RunnableLambda(str),
        "openai:gpt",
        None,
    ],
    ids=["retry", "fallbacks", "listeners", "sequence", "lambda", "name", "nothing"],
)
def test_models_whose_calls_would_be_seen_are_refused(model: Any) -> None:
    """When the chain is made, before anything is asked or charged."""
    with pytest.raises(UnsealableModelError):
        chain(GROUPS, model, vote(), plan())


# ---- after ---------------------------------------------------------------------------


@pytest.mark.promise("statuses")
@WAYS
async def test_the_status_says_where_an_answer_comes_from(way: str) -> None:
    """Released, cached, abstained with the true reason, or the model's own, labeled."""
    model = AsyncScriptedModel(script=lambda prompt: "oak")
    made = chain(GROUPS, model, exact_vote(LABELS), account())
    first, again = await ASK[way](made, ASKED), await ASK[way](made, f"  {ASKED} ")
    assert (first.content, record(first)["status"]) == ("oak", "released")
    assert (again.content, record(again)["status"]) == ("oak", "cached")
    for script, reason in (
        (lambda prompt: "none of these" if "<" in prompt else "Paris", "none"),
        (lambda prompt: "?!" if "<" in prompt else "Paris", "read"),
        (lambda prompt: ValueError() if "<" in prompt else "Paris", "failed"),
    ):
        for fallback, status in (("refuse", "abstained"), ("model", "fallback")):
            budget, model = account(), AsyncScriptedModel(script=script)
            made = chain(GROUPS, model, exact_vote(LABELS), budget, fallback=fallback)
            answer = await ASK[way](made, ASKED)
            assert record(answer)["status"] == status
            assert reason in record(answer)["details"]["reason"]
            assert ("Paris" in answer.content) == (status == "fallback")
            assert (reason in answer.content) == (status == "abstained")
            assert not answer.content.startswith("Paris")
            assert budget.spent().queries == 1


@pytest.mark.promise("repeated-question-is-free")
@WAYS
async def test_a_repeated_question_is_paid_and_asked_once(way: str) -> None:
    model, budget = AsyncScriptedModel(script=lambda prompt: "oak"), plan(queries=1)
    made = chain(GROUPS, model, vote(), budget)
    found = [await ASK[way](made, ASKED) for _ in range(3)]
    assert [record(one)["status"] for one in found] == ["released", "cached", "cached"]
    assert len(group_prompts(model)) == HELD
    # Without the cache each asking is a charge, and this account has no second one.
    with pytest.raises(BudgetExhaustedError):
        await ASK[way](chain(GROUPS, model, vote(), budget, cache=False), ASKED)


@pytest.mark.promise("cache-key-is-all-public-terms")
async def test_other_terms_are_another_question() -> None:
    """Who takes part, the threshold, and the parser's terms are in the key."""
    model, budget = AsyncScriptedModel(script=lambda prompt: "oak"), account()
    terms: dict[str, Any] = {"n_groups": 8, "docs_per_group": 9}
    by_ward: dict[str, Any] = {"filter_keys": ("ward",)}
    threshold = stored(clinic(), score_threshold=0.5, **terms)
    asked: list[tuple[Any, Any, Any, dict[str, Any]]] = [
        (GROUPS, exact_vote(LABELS), ASKED, {}),
        (GROUPS, exact_vote(LABELS), f"{ASKED} rash", {}),
        *(
            (GROUPS, exact_vote(LABELS), {"question": ASKED, "filter": only}, by_ward)
            for only in ({"ward": "1"}, {"ward": "0"})
        ),
        (GROUPS.where({"ward": "1"}), exact_vote(LABELS), f"{ASKED}?", {}),
        (GROUPS, exact_vote(LABELS), f"{ASKED}?", {}),
        (threshold, exact_vote(LABELS), ASKED, {}),
        (GROUPS, exact_vote([*LABELS, "ash"]), ASKED, {}),
        (GROUPS, exact_vote(LABELS, aliases={"oak": ["oaks"]}), ASKED, {}),
        (GROUPS, exact_vote(LABELS, min_lead=2.0), ASKED, {}),
        (GROUPS, VoteOutputParser(labels=LABELS, noise_multiplier=0.06), ASKED, {}),
    ]
    for expected in ("released", "cached"):
        for groups, parser, question, changes in asked:
            made = chain(groups, model, parser, budget, **changes)
            answer = await made.ainvoke(question)
            assert record(answer)["status"] == expected
    assert budget.spent().queries == len(asked)


# ---- one owner -----------------------------------------------------------------------


async def at_once(made: Any, kind: str, count: int) -> list[Any]:
    """Ask the same question several times at once."""
    if kind == "tasks":
        return await asyncio.gather(*(made.ainvoke(ASKED) for _ in range(count)))
    if kind == "batch":
        return await asyncio.to_thread(made.batch, [ASKED] * count)
    with ThreadPoolExecutor(count) as pool:
        calls = [pool.submit(made.invoke, ASKED) for _ in range(count)]
        return [await asyncio.wrap_future(call) for call in calls]


@pytest.mark.promise("one-owner-one-draw")
@pytest.mark.parametrize("kind", ["tasks", "threads", "batch"])
@pytest.mark.parametrize("model", [ScriptedModel, AsyncScriptedModel])
async def test_four_askers_share_one_charge_and_one_draw(
    kind: str, model: Any, tmp_path: Path
) -> None:
    """Nobody is refused: the account pays for one question only."""
    asked = model(script=lambda prompt: "oak", seconds=0.05)
    budget = plan(f"sqlite:///{tmp_path / 'ledger.db'}", queries=1)
    found = await at_once(chain(GROUPS, asked, vote(), budget), kind, 4)
    assert Counter(record(one)["status"] for one in found) == {
        "released": 1,
        "cached": 3,
    }
    assert {one.content for one in found} == {"oak"}
    assert (budget.spent().queries, len(group_prompts(asked))) == (1, HELD)


class Draws:
    """A model of temperature, one of whose slots is slow in its first draw."""

    def __init__(self, slow: str) -> None:
        self.slow, self.lock = slow, threading.Lock()
        self.times: Counter[str] = Counter()

    def script(self, prompt: str) -> str:
        with self.lock:
            self.times[prompt] += 1
            first = self.times[prompt] == 1
        if "<" not in prompt:
            return "oak"
        if first and self.slow in prompt:
            time.sleep(0.5)
        return "oak" if first else "elm"


@pytest.mark.promise("one-owner-one-draw")
@pytest.mark.parametrize("slow", ["<7>", "nobody"])
@pytest.mark.parametrize("kind", ["tasks", "threads"])
async def test_a_slow_slot_does_not_choose_the_draw(slow: str, kind: str) -> None:
    """The first draw says oak, a second one would say elm, and would be the quicker."""
    for _ in range(1 if slow == "<7>" else 15):
        draws, budget = Draws(slow), account()
        model = ScriptedModel(script=draws.script)
        made = chain(GROUPS, model, exact_vote(LABELS), budget)
        check_first([one.content for one in await at_once(made, kind, 4)])
        assert budget.spent().queries == 1


def check_first(contents: list[str]) -> None:
    """All have the first draw."""
    assert set(contents) == {"oak"}


@pytest.mark.promise("one-owner-one-draw", twin=True)
def test_the_quicker_of_two_draws_is_caught() -> None:
    """The twin: two workers draw for one charge, and the quicker one counts."""
    draws, released = Draws("<7>"), list[str]()
    prompts = [f"<{n}>" for n in range(8)]

    def worker() -> None:
        said = Counter(draws.script(prompt) for prompt in prompts)
        released.append(said.most_common(1)[0][0])

    first = threading.Thread(target=worker)
    first.start()
    time.sleep(0.1)
    worker()
    first.join()
    with pytest.raises(AssertionError):
        check_first(released[:1])


@pytest.mark.promise("lost-draw-charged-anew")
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_cancelled_owner_is_followed_by_a_charge_of_its_own(
    is_async: bool,
) -> None:
    """Who waits, or asks later, has a stored answer; no charge has two draws."""
    begun = threading.Event()

    def seconds(prompt: str) -> float:
        if "<" in prompt and not begun.is_set():
            begun.set()
            return 0.4
        return 0.0

    kind = AsyncScriptedModel if is_async else ScriptedModel
    model, budget = kind(script=lambda prompt: "oak", seconds=seconds), plan()
    made = chain(GROUPS, model, vote(), budget)
    owner = asyncio.create_task(made.ainvoke(ASKED))
    await asyncio.to_thread(begun.wait, 10)
    others = [asyncio.create_task(made.ainvoke(ASKED)) for _ in range(2)]
    await asyncio.sleep(0.05)
    owner.cancel()
    with pytest.raises(asyncio.CancelledError):
        await owner
    found = await asyncio.wait_for(asyncio.gather(*others), 30)
    assert {one.content for one in found} == {"oak"}
    # Today's owner gives up, and is followed; a redesign may finish and store its draw.
    drawn = len(group_prompts(model)) / HELD
    assert budget.spent().queries in (1, 2)
    assert drawn <= budget.spent().queries
    assert record(await made.ainvoke(ASKED))["status"] == "cached"


@pytest.mark.promise("lost-draw-charged-anew")
def test_failed_calls_are_asked_again_for_a_charge() -> None:
    """A question whose calls failed is worth another charge, and only that."""
    down = True

    def script(prompt: str) -> Any:
        return ValueError() if down and "<" in prompt else "oak"

    budget = account()
    made = chain(GROUPS, ScriptedModel(script=script), exact_vote(LABELS), budget)
    assert record(made.invoke(ASKED))["status"] == "abstained"
    down = False
    assert made.invoke(ASKED).content == "oak"
    assert budget.spent().queries == 2


@pytest.mark.promise("lost-draw-charged-anew", "charge-stays")
@pytest.mark.parametrize("kind", [ScriptedModel, AsyncScriptedModel])
def test_an_owner_that_fails_is_followed_by_another_charge(kind: Any) -> None:
    """Ctrl-C in a group call: nothing is released, and nothing is given back."""
    stop = True

    def script(prompt: str) -> Any:
        return KeyboardInterrupt() if stop and "<" in prompt else "oak"

    budget = account()
    made = chain(GROUPS, kind(script=script), exact_vote(LABELS), budget)
    with pytest.raises(KeyboardInterrupt):
        made.invoke(ASKED)
    stop = False
    answer = made.invoke(ASKED)
    assert (answer.content, record(answer)["status"]) == ("oak", "released")
    assert budget.spent().queries == 2


@pytest.mark.promise("one-owner-one-draw")
def test_a_draw_may_end_after_any_look_of_another_asker(tmp_path: Path) -> None:
    """The owner ends after the second transaction of another asker, the third, ...

    It begins after the first one, which found nothing. Whenever it ends, the other
    asker is given its draw, and pays nothing.
    """
    for after in range(2, 9):
        _ends_after(f"sqlite:///{tmp_path}/ledger {after}.db", after)


def _ends_after(url: str, after: int) -> None:
    """Let the owner's calls end after so many transactions of another asker."""
    inside, gate, owners = threading.Event(), threading.Event(), list[Future[Any]]()
    looks, looking = 0, 0

    def script(prompt: str) -> str:
        if "<" in prompt and not gate.is_set():
            inside.set()
            assert gate.wait(30)
        return "oak"

    budget = account(ledger=url)
    made = chain(GROUPS, ScriptedModel(script=script), exact_vote(LABELS), budget)

    def ask() -> Any:
        nonlocal looking
        looking = threading.get_ident()
        return made.invoke(ASKED)

    def ended(*_: Any) -> None:
        nonlocal looks
        if threading.get_ident() != looking or gate.is_set():
            return
        looks += 1
        if looks == 1:
            owners.append(pool.submit(made.invoke, ASKED))
            inside.wait(10)
        if looks == after:
            gate.set()
            owners[0].result(10)

    with ThreadPoolExecutor(2) as pool:
        event.listen(Pool, "checkin", ended)
        try:
            found = [pool.submit(ask).result(30), owners[0].result(30)]
        finally:
            event.remove(Pool, "checkin", ended)
    assert [record(one)["status"] for one in found] == ["cached", "released"]
    assert (looks, budget.spent().queries) == (after, 1)


@pytest.mark.promise("fail-closed")
def test_an_account_closed_during_a_question_answers_that_one_and_no_other() -> None:
    budget = plan()

    def script(prompt: str) -> str:
        if "<" in prompt:
            budget.ledger.close_account(budget.account)
        return "oak"

    model = ScriptedModel(script=script)
    made = chain(GROUPS, model, vote(), budget, cache=False, max_concurrency=1)
    assert record(made.invoke(ASKED))["status"] == "released"
    with pytest.raises(LedgerError):
        made.invoke(ASKED)
    assert len(group_prompts(model)) == HELD


@pytest.mark.promise("charge-stays")
@WAYS
async def test_released_words_survive_a_bad_wording(way: str) -> None:
    """The words are paid for: a rewrite that fails or loses them is no answer."""
    for wording in (
        ValueError("down"),
        "",
        "I can't help with that.",
        "It was a rash.",
    ):

        def script(prompt: str, wording: Any = wording) -> Any:
            if "word suggestions" in prompt:
                return wording
            return "cough" if "<" in prompt else "Perhaps."

        parser = KSAPTROutputParser(k=1, noise_multiplier=0.05, delta0=1e-8)
        model = AsyncScriptedModel(script=script)
        answer = await ASK[way](chain(GROUPS, model, parser, account()), ASKED)
        assert record(answer)["status"] == "released"
        assert record(answer)["keywords"] == ["cough"]
        assert str(answer.content).strip().endswith("cough")
