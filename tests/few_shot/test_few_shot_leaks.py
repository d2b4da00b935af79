"""What a generation is made of shows no record: reprs, pickles, frames, files.

What observers from outside see of one is in `tests/system/leaks/test_leak_few_shot.py`.
"""

from __future__ import annotations

import asyncio
import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path
from pprint import pformat
from typing import Any

import pytest
from support.few_shot_fakes import WordModel, budget_of, generator_of
from support.leaks.canaries import is_private, look, marker
from support.leaks.few_shot import asked_plainly
from support.leaks.parts import quoting

from langchain_dpicl.errors import (
    BudgetExhaustedError,
    DPError,
    LedgerError,
    PublicCallError,
)
from langchain_dpicl.few_shot import generation
from langchain_dpicl.few_shot.records import PrivateRecords
from langchain_dpicl.few_shot.step import StepPrompts
from langchain_dpicl.release.flow import result
from langchain_dpicl.sealed import Hidden, region

RECORDS = [
    {
        "text": f"red {marker('document', n)}",
        "label": "color",
        "who": marker("unit", n),
        "ward": marker("metadata", n),
    }
    for n in range(60)
]
PACKAGE = str(Path(generation.__file__).parents[1])


def generator(model: Any = None, **more: Any) -> Any:
    terms = {"labels": ["color"], "unit_key": "who", "budget": quick_budget(), **more}
    return generator_of(model, **terms)


def quick_budget(**more: Any) -> Any:
    """Return an account whose noise has a closed form."""
    return budget_of(accounting="zcdp", queries=2, epsilon=50, **more)


def parts() -> dict[str, Any]:
    """Return everything that a step is made of, with the words of its class."""
    made = generator()
    order = made._order(Hidden(RECORDS), 1, resume=False)
    begun = result(order.begin())
    step = begun._step(result(begun.asking.top(begun.drafts)))
    asked = step.draw()
    assert any(is_private(prompt.text) for prompt in asked.prompts)
    return {
        "generator": made,
        "order": order,
        "records": order.records,
        "sources": dict(order.sources),
        "source": order.sources["color"],
        "generation": begun,
        "asking": begun.asking,
        "terms": begun.terms,
        "entry": begun.entry,
        "drafts": begun.drafts,
        "step": step,
        "asked": asked,
        "prompts": asked.prompts,
        "vocabularies": step.vocabularies,
    }


def shown(part: Any) -> list[str]:
    inside = getattr(part, "__dict__", {})
    return [repr(part), str(part), f"{part}", pformat(part)] + (
        [] if isinstance(part, PrivateRecords) else [repr(inside), pformat(inside)]
    )


def test_no_repr_shows_a_record() -> None:
    found = {name: look(shown(part)).private for name, part in parts().items()}
    assert found == {name: [] for name in found}


def test_twin_plain_reprs_show_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(self: Any) -> str:
        return f"{type(self).__name__}({vars(self)})"

    monkeypatch.setattr(PrivateRecords, "__repr__", plain)
    monkeypatch.setattr(StepPrompts, "__repr__", plain)
    monkeypatch.setattr("langchain_dpicl.few_shot.TokenPrompt.__repr__", plain)
    found = {name: look(shown(part)).private for name, part in parts().items()}
    assert {name for name, private in found.items() if private} == {
        "order",
        "records",
        "asked",
        "prompts",
    }


def test_what_can_be_pickled_holds_no_record() -> None:
    made = parts()
    examples = generator().generate(RECORDS)
    made |= {"examples": examples, "record": examples.record}
    possible = {}
    # Prompts are a model's to send where it will.
    for name in made.keys() - {"prompts"}:
        try:
            possible[name] = pickle.dumps(made[name])
        except (TypeError, AttributeError, LedgerError) as error:
            possible[name] = repr(error).encode()
    assert look(list(possible.values())).private == []
    for name in ("records", "source", "sources", "asked"):
        assert b"pickled" in possible[name], "it refuses by itself"
    assert pickle.loads(possible["examples"]) == examples


class Failing(WordModel):
    """Fails on private prompts and quotes them, at one step."""

    def __init__(self, at: int = 1) -> None:
        super().__init__(ending=None)
        self.at = at

    def log_probabilities(self, prompts: Any, tokens: Any) -> Any:
        if len(prompts[0].generated) == self.at:
            # A group may be empty: the longest prompt holds records.
            raise quoting(max((prompt.text for prompt in prompts), key=len))
        return super().log_probabilities(prompts, tokens)


def chain_of(error: BaseException | None) -> Iterator[BaseException]:
    if error is not None:
        yield error
        yield from chain_of(error.__cause__)
        yield from chain_of(error.__context__)


def locals_shown(error: BaseException) -> list[str]:
    """Return how the library's frames, of all chained errors, show their locals."""
    return [
        f"{frame.f_code.co_qualname if hasattr(frame.f_code, 'co_qualname') else ''} "
        f"{name}={value!r}"
        for each in chain_of(error)
        for frame, _ in traceback.walk_tb(each.__traceback__)
        if frame.f_code.co_filename.startswith(PACKAGE)
        for name, value in frame.f_locals.items()
    ]


async def failed(made: Any, way: str) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - what comes is looked at
        if way == "generate":
            made.generate(RECORDS)
        else:
            await made.agenerate(RECORDS)
    return caught.value


WAYS = pytest.mark.parametrize("way", ["generate", "agenerate"])


@WAYS
async def test_no_frame_of_a_failed_step_holds_a_record(way: str) -> None:
    error = await failed(generator(Failing()), way)
    assert isinstance(error, PublicCallError)
    frames = locals_shown(error)
    assert any("order=" in frame for frame in frames), "the frames are looked at"
    assert look(frames).private == []
    assert look([str(e) for e in chain_of(error)]).private == []
    assert error.__cause__ is None
    for each in chain_of(error):
        assert isinstance(each, DPError)
        assert not getattr(each, "__notes__", [])


@WAYS
async def test_no_frame_of_a_failed_ledger_holds_a_record(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = quick_budget()

    def store(*_: Any) -> None:
        raise LedgerError("The disk is full.")

    made = generator(budget=budget)
    monkeypatch.setattr(budget.ledger, "store_step", store)
    error = await failed(made, way)
    assert isinstance(error, LedgerError)
    assert look(locals_shown(error)).private == []


@WAYS
async def test_no_frame_of_a_failed_public_call_holds_a_record(way: str) -> None:
    model = WordModel()

    def gone(prompts: Any, k: int) -> Any:
        raise RuntimeError("The server is gone.")

    model.top_tokens = gone  # type: ignore[method-assign]
    error = await failed(generator(model), way)
    assert look(locals_shown(error)).private == []


@WAYS
async def test_no_frame_of_a_spent_account_holds_a_record(way: str) -> None:
    budget = budget_of(accounting="zcdp", queries=1, epsilon=50)
    made = generator(budget=budget)
    made.generate(RECORDS)
    error = await failed(made, way)
    assert isinstance(error, BudgetExhaustedError)
    assert any("records=<hidden>" in frame for frame in locals_shown(error))
    assert look(locals_shown(error)).private == []


@WAYS
async def test_twin_without_the_seal_frames_hold_records(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def acall(step: Any) -> Any:
        return await step()

    monkeypatch.setattr(region, "run_sealed", lambda step: step())
    monkeypatch.setattr(region, "arun_sealed", acall)
    monkeypatch.setattr(generation, "answered", asked_plainly)
    monkeypatch.setattr(
        StepPrompts, "__repr__", lambda self: repr([*map(vars, self.prompts)])
    )
    error = await failed(generator(Failing()), way)
    assert isinstance(error, RuntimeError)
    assert "document" in look(locals_shown(error)).private
    assert "document" in look(str(error)).private


def test_the_ledger_keeps_tokens_and_public_terms_alone(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    budget = quick_budget(ledger=f"sqlite:///{file}")
    made = generator(WordModel(ending=None), budget=budget)
    made.generate(RECORDS)
    entry = made.released()[0]
    kept = [path.read_bytes() for path in tmp_path.iterdir()]
    assert look([kept, entry, entry.record]).private == []
    store = generation_store(made)
    stored = store.entries()[0]
    assert [stored.step(n) is None for n in range(5)] == [False] * 4 + [True]
    for n in range(4):
        (token,) = stored.step(n) or []
        assert 0 <= token < 10
    assert set(stored.header) == {
        "account",
        "charge",
        "created",
        "delta",
        "epsilon",
        "events",
        "library",
        "noise",
        "owner",
        "rates",
        "record",
        "sizes",
    }


def generation_store(made: Any) -> Any:
    from langchain_dpicl.few_shot.request import store_of

    return store_of(made._asking, made._terms, made._budget, 1)


def test_the_bar_shows_public_numbers_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    generator().generate(RECORDS, progress=True)
    with pytest.raises(PublicCallError):
        generator(Failing()).generate(RECORDS, progress=True)
    printed = capsys.readouterr()
    assert "Writing examples" in printed.err
    assert look([printed.out, printed.err]).private == []


async def test_a_cancelled_generation_says_nothing_of_its_groups() -> None:
    started = asyncio.Event()

    class Hanging(WordModel):
        async def alog_probabilities(self, prompts: Any, tokens: Any) -> Any:
            quoted = [prompt.text for prompt in prompts]
            started.set()
            await asyncio.sleep(3600)
            return quoted

    asked = asyncio.ensure_future(generator(Hanging()).agenerate(RECORDS))
    await asyncio.wait_for(started.wait(), timeout=60)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await asked
    assert look(locals_shown(caught.value)).private == []
    assert look([str(e) for e in chain_of(caught.value)]).private == []
    assert asyncio.all_tasks() == {asyncio.current_task()}
