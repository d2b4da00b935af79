"""One person's record spoils the reply to a list: only that person's slot changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from langchain_openai import ChatOpenAI, OpenAI
from support.servers.recording_proxy import RecordingProxy
from support.servers.scripted_lists import (
    GROUPS,
    MISDEEDS,
    PERSON,
    groups_of,
    misbehaving,
    moved,
    slots_of,
    truthful,
)
from support.servers.scripted_tokens import END, Letters, TokenServer, log_probs

from langchain_dpicl.few_shot.models.contract import TokenPrompt
from langchain_dpicl.sealed import arun_sealed, run_sealed

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

Make = Callable[..., Any]

LISTS = {"prompts_per_call": GROUPS}

corpus = cache(groups_of)


@pytest.mark.parametrize("misdeed", MISDEEDS.values(), ids=MISDEEDS.keys())
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("kind", "n", "changes"),
    [(OpenAI, 1, {}), (OpenAI, 1, LISTS), (OpenAI, 2, LISTS), (ChatOpenAI, 2, {})],
    ids=["completions", "lists", "lists-of-two-candidates", "chat"],
)
async def test_a_reply_spoiled_by_one_person_changes_that_slot_alone(
    proxy: RecordingProxy,
    make_model: Make,
    kind: Any,
    n: int,
    changes: dict[str, Any],
    asynchronous: bool,
    misdeed: Any,
) -> None:
    proxy.rule = misbehaving(truthful, misdeed)
    model = make_model(kind, n=n)
    without, present = [
        await slots_of(
            corpus(person=person), model, asynchronous=asynchronous, **changes
        )
        for person in (False, True)
    ]
    assert sum("cough" in (text or "") for text in without) == len(without)
    assert len(moved(without, present)) == 1
    # Without the person, a list is one call; a spoiled one is asked again, at once.
    if changes:
        lists = [e for e in proxy.exchanges if len(e.prompts) > 1]
        assert [len(exchange.prompts) for exchange in lists] == [GROUPS] * 2
        is_matched = misdeed in (MISDEEDS["none"], MISDEEDS["reordered"])
        assert len(proxy.exchanges) == (2 if is_matched else 2 + GROUPS)
    else:
        assert [len(e.prompts) for e in proxy.exchanges] == [1] * (2 * GROUPS)


PEOPLE = [f"Note {i}. Sentence:" for i in range(11)]
TOKENS = np.array([5, 6, 7])


@pytest.mark.parametrize("misdeed", MISDEEDS.values(), ids=MISDEEDS.keys())
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("cut", [True, False], ids=["tokens", "text"])
async def test_figures_spoiled_by_one_person_change_that_slot_alone(
    next_token: Make, cut: bool, asynchronous: bool, misdeed: Any
) -> None:
    texts = [*PEOPLE[:4], f"Note of {PERSON}. Sentence:", *PEOPLE[4:]]
    prompts = [TokenPrompt(text) for text in texts]
    model, proxy = next_token(
        misbehaving(TokenServer(), misdeed),
        tokenizer=Letters() if cut else None,
        end_tokens=[END],
    )
    model.check()
    proxy.forget()
    if asynchronous:
        found = await arun_sealed(
            lambda: model.alog_probabilities(prompts, [TOKENS] * len(prompts))
        )
    else:
        found = run_sealed(
            lambda: model.log_probabilities(prompts, [TOKENS] * len(prompts))
        )
    for text, figures in zip(texts, found, strict=True):
        if PERSON not in text:
            assert figures == pytest.approx(log_probs(text)[TOKENS])
    assert len(proxy.exchanges) in (1, 1 + len(prompts))


@pytest.mark.parametrize("numbered", [True, False])
async def test_a_server_that_numbers_no_choices_is_asked_one_by_one(
    next_token: Make, numbered: bool
) -> None:
    def unnumbered(_ids: list[int], choice: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in choice.items() if numbered or k != "index"}

    model, proxy = next_token(TokenServer(edit=unnumbered))
    for ask in (model.check, model.acheck):
        asked = ask(10)
        if asked is not None:
            await asked
    proxy.forget()
    prompts = [TokenPrompt(text) for text in PEOPLE]
    found = model.log_probabilities(prompts, [TOKENS] * len(prompts))
    for text, figures in zip(PEOPLE, found, strict=True):
        assert figures == pytest.approx(log_probs(text)[TOKENS])
    # That it numbers none is known from public text: no list is sent in vain.
    assert len(proxy.exchanges) == (1 if numbered else len(prompts))
