"""A generation that is interrupted, wherever, goes on without paying again.

The net kills one at each call (`unit_tests/few_shot`, `integration_tests/few_shot`).
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from traceback import walk_tb
from typing import Any

import pytest
from support.draws import before_draws, full
from support.few_shot_fakes import (
    WordModel,
    budget_of,
    generator_of,
    records_of,
)

from langchain_dpicl.errors import BudgetExhaustedError, LedgerError, PublicCallError
from langchain_dpicl.mechanisms.random import seeded

GOOD = records_of()


def spent(budget: Any) -> int:
    return budget.spent().queries


def test_what_was_made_otherwise_is_not_gone_on_with() -> None:
    budget = budget_of(queries=2)
    with seeded(3):
        weak = generator_of(budget=budget).generate(GOOD)
    assert "not private" in weak.record["random"]
    good = generator_of(budget=budget).generate(GOOD, resume=True)
    assert "random" not in good.record
    assert spent(budget) == 2
    other = WordModel(words=(*WordModel().words, "more"))
    with pytest.raises(BudgetExhaustedError):
        generator_of(other, budget=budget).generate(GOOD, resume=True)


def test_a_ledger_that_does_not_keep_a_token_releases_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget, model = budget_of(), WordModel(ending=None)
    before_draws(monkeypatch, lambda step, _: full() if step == 2 else None)
    with pytest.raises(LedgerError, match="stands at 4 tokens"):
        generator_of(model, budget=budget).generate(GOOD)
    monkeypatch.undo()
    examples = generator_of(model, budget=budget).generate(GOOD, resume=True)
    assert spent(budget) == 1
    assert examples.record["parameters"]["tokens_released"] == 8


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
            return asyncio.run(generator.agenerate(GOOD, resume=True))
        return generator.generate(GOOD, resume=True)

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(generated, range(3)))
    assert found[0] == found[1] == found[2]
    assert budget_of(ledger=url).spent().queries == 1


async def test_canceled_it_ends_its_token_and_keeps_what_it_has() -> None:
    budget = budget_of()
    reached, canceled = threading.Event(), threading.Event()

    class Slow(WordModel):
        def log_probabilities(self, prompts: Any, tokens: Any) -> Any:
            found = super().log_probabilities(prompts, tokens)
            if len(self.calls) == 3:
                reached.set()
                assert canceled.wait(60)
            return found

    slow, model = Slow(ending=None), WordModel(ending=None)
    task = asyncio.ensure_future(generator_of(slow, budget=budget).agenerate(GOOD))
    await asyncio.to_thread(reached.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    canceled.set()
    await generator_of(model, budget=budget).agenerate(GOOD, resume=True)
    # Four tokens in all.
    assert (len(slow.calls), len(model.calls)) == (3, 1)
    assert spent(budget) == 1


def test_group_calls_that_all_fail_stop_nothing_and_a_dead_server_does() -> None:
    def no_groups(prompt: Any, found: Any) -> Any:
        return None if "red" in prompt.text or "one" in prompt.text else found

    budget = budget_of()
    generator_of(WordModel(no_groups), budget=budget).generate(GOOD)
    assert spent(budget) == 1

    def dead(prompt: Any, found: Any) -> Any:
        return None if model.calls else found

    model = WordModel(dead)
    with pytest.raises(PublicCallError, match="resume=True"):
        generator_of(model).generate(GOOD)


@pytest.mark.parametrize("is_async", [False, True])
def test_tokens_that_could_not_be_stored_are_in_no_traceback(
    monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    budget, drawn = budget_of(), list[Any]()
    before_draws(monkeypatch, lambda _, value: full(drawn.append(value)))
    made = generator_of(WordModel(ending=None), budget=budget)
    with pytest.raises(LedgerError, match="full") as caught:
        if is_async:
            asyncio.run(made.agenerate(GOOD))
        else:
            made.generate(GOOD)
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
