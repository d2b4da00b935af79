"""A generation that is interrupted, wherever, goes on without paying again."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from traceback import walk_tb
from typing import Any

import pytest
from support.draws import before_draws, full
from support.few_shot_fakes import (
    BrokenModel,
    WordModel,
    budget_of,
    generator_of,
    records_of,
    watched_heights,
)

from langchain_dpicl.errors import (
    BudgetExhaustedError,
    LedgerError,
    PublicCallError,
)
from langchain_dpicl.mechanisms.random import seeded


def spent(budget: Any) -> int:
    return budget.spent().queries


def never_ending(at: int = -1, error: BaseException | None = None) -> BrokenModel:
    model = BrokenModel(at, error)
    model.ending = None
    return model


def test_a_complete_generation_is_returned_and_costs_nothing() -> None:
    # The program may have died after the last token and before it had the examples.
    budget = budget_of(queries=2)
    first = generator_of(budget=budget).generate(records_of(), resume=True)
    again = generator_of(budget=budget).generate(records_of(), resume=True)
    assert again == first
    assert again.record == first.record
    assert spent(budget) == 1
    second = generator_of(budget=budget).generate(records_of())
    assert second.record["charge"] == 2
    newest = generator_of(budget=budget).generate(records_of(), resume=True)
    assert newest == second
    assert generator_of(budget=budget).released() == [first, second]
    assert spent(budget) == 2


def test_what_was_made_without_secure_randomness_is_not_gone_on_with() -> None:
    budget = budget_of(queries=2)
    with seeded(3):
        weak = generator_of(budget=budget).generate(records_of())
    assert "not private" in weak.record["random"]
    assert generator_of(budget=budget).released() == []
    good = generator_of(budget=budget).generate(records_of(), resume=True)
    assert "random" not in good.record
    assert spent(budget) == 2


def test_another_model_does_not_go_on() -> None:
    budget = budget_of()
    with pytest.raises(PublicCallError):
        generator_of(never_ending(4), budget=budget).generate(records_of())
    other = WordModel(words=(*WordModel().words, "more"))
    with pytest.raises(BudgetExhaustedError):
        generator_of(other, budget=budget).generate(records_of(), resume=True)


def test_a_ledger_that_does_not_keep_a_token_releases_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget = budget_of()
    before_draws(monkeypatch, lambda step, _: full() if step == 2 else None)
    with pytest.raises(LedgerError, match="stands at 4 tokens"):
        generator_of(never_ending(), budget=budget).generate(records_of())
    monkeypatch.undo()
    examples = generator_of(never_ending(), budget=budget).generate(
        records_of(), resume=True
    )
    assert spent(budget) == 1
    assert examples.record["parameters"]["tokens_released"] == 8


def test_while_one_writes_another_waits_and_asks_nothing() -> None:
    budget, asked = budget_of(), threading.Event()

    class Slow(WordModel):
        def log_probabilities(self, prompts: Any, tokens: Any) -> Any:
            if not self.is_probe(prompts):  # It is charged.
                asked.set()
                time.sleep(0.05)
            return super().log_probabilities(prompts, tokens)

    def generated(model: WordModel) -> Any:
        return generator_of(model, budget=budget).generate(records_of(), resume=True)

    slow, other = Slow(ending=None), WordModel(ending=None)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(generated, slow)
        assert asked.wait(60)
        second = generated(other)
        assert first.result() == second
    assert other.calls == []
    assert spent(budget) == 1


async def test_cancelled_it_ends_its_token_and_keeps_what_it_has() -> None:
    budget = budget_of()
    reached, canceled = threading.Event(), threading.Event()

    class Slow(WordModel):
        def log_probabilities(self, prompts: Any, tokens: Any) -> Any:
            found = super().log_probabilities(prompts, tokens)
            if len(self.calls) == 3:
                reached.set()
                assert canceled.wait(60)
            return found

    slow = Slow(ending=None)
    task = asyncio.ensure_future(
        generator_of(slow, budget=budget).agenerate(records_of())
    )
    await asyncio.to_thread(reached.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    canceled.set()
    model = never_ending()
    await generator_of(model, budget=budget).agenerate(records_of(), resume=True)
    # Four tokens in all.
    assert (len(slow.calls), len(model.calls)) == (3, 1)
    assert spent(budget) == 1


def test_group_calls_that_all_fail_stop_nothing_and_a_dead_server_does() -> None:
    def no_groups(prompt: Any, found: Any) -> Any:
        return None if "red" in prompt.text or "one" in prompt.text else found

    budget = budget_of()
    generator_of(WordModel(no_groups), budget=budget).generate(records_of())
    assert spent(budget) == 1

    def dead(prompt: Any, found: Any) -> Any:
        return None if model.calls else found

    model = WordModel(dead)
    with pytest.raises(PublicCallError, match="resume=True"):
        generator_of(model).generate(records_of())


def test_an_adapter_that_raises_tells_nothing() -> None:
    def fails(prompt: Any, found: Any) -> Any:
        raise RuntimeError(prompt.text)

    with pytest.raises(PublicCallError) as caught:
        generator_of(WordModel(fails)).generate(records_of())
    assert "red green" not in str(caught.value)
    assert caught.value.__cause__ is None


class Panic(BaseException):
    """What a compiled extension raises."""


@pytest.mark.parametrize("way", ["generate", "agenerate"])
@pytest.mark.parametrize("error", [ValueError, Panic, PublicCallError])
async def test_a_record_that_breaks_an_adapter_costs_its_slot_alone(
    way: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    heights = watched_heights(monkeypatch)

    def fails(prompt: Any, found: Any) -> Any:
        if "POISON" in prompt.text:
            raise error("poison")
        return found

    # 40 of 60 are in a sample, two a group: one in 19 or 20 groups at most.
    records = [{"text": "red", "label": "color"}] * 59
    records.append({"text": "POISON", "label": "color"})
    generator = generator_of(WordModel(fails, ending=None), labels=["color"])
    if way == "generate":
        generator.generate(records)
    else:
        await generator.agenerate(records)
    assert len(heights) == 4
    assert set(heights) <= {19, 20}


@pytest.mark.parametrize("is_async", [False, True])
def test_of_several_at_once_one_pays_and_the_others_take_its_generation(
    tmp_path: Path, is_async: bool
) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    budget_of(ledger=url)
    begun = threading.Barrier(3)

    class Together(WordModel):
        waits = True

        def top_tokens(self, prompts: Any, k: int) -> Any:
            if self.waits:
                # All have looked for a stored generation by now, and found none.
                self.waits = False
                begun.wait(timeout=60)
            return super().top_tokens(prompts, k)

    def generated(_: int) -> Any:
        generator = generator_of(Together(ending=None), budget=budget_of(ledger=url))
        if is_async:
            return asyncio.run(generator.agenerate(records_of(), resume=True))
        return generator.generate(records_of(), resume=True)

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(generated, range(3)))
    assert found[0] == found[1] == found[2]
    assert budget_of(ledger=url).spent().queries == 1


def test_without_resume_a_spent_account_is_not_waited_for() -> None:
    budget = budget_of()
    first = generator_of(budget=budget).generate(records_of())
    with pytest.raises(BudgetExhaustedError, match="resume=True"):
        generator_of(budget=budget).generate(records_of())
    assert generator_of(budget=budget).generate(records_of(), resume=True) == first


@pytest.mark.parametrize("is_async", [False, True])
def test_tokens_that_could_not_be_stored_are_in_no_traceback(
    monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    budget, drawn = budget_of(), list[Any]()
    before_draws(monkeypatch, lambda _, value: full(drawn.append(value)))
    made = generator_of(WordModel(ending=None), budget=budget)
    with pytest.raises(LedgerError, match="full") as caught:
        if is_async:
            asyncio.run(made.agenerate(records_of()))
        else:
            made.generate(records_of())
    shown, error = list[Any](), caught.value
    while error is not None:
        for frame, _line in walk_tb(error.__traceback__):
            if frame.f_code.co_filename != __file__:
                shown.extend(frame.f_locals.values())
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    assert shown, "frames are looked at"
    for value in [*shown]:
        shown.extend(value.args if isinstance(value, partial) else ())
    assert type(drawn[0]) is list
    assert drawn[0] not in [
        value for value in shown if type(value) is list and {*map(type, value)} == {int}
    ]
