"""An answer that was paid for is given again; nothing else is."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.prompts import PromptTemplate
from support.chain_parts import PARSERS
from support.fakes import ScriptedModel, notes

from langchain_dpicl import (
    DPChain,
    InvalidParameterError,
    KSAJointOutputParser,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    LedgerError,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.mechanisms.random import SeededRandom
from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel
from langchain_dpicl.parsers import DPOutputParser

QUESTION = "What did lisinopril give?"


@pytest.fixture(scope="module")
def groups() -> RetrievedGroups:
    return RetrievedGroups.from_documents(
        notes(300), HashingEmbeddings(), unit_key="patient", n_groups=60
    )


def reply(text: str) -> str:
    return "cough" if "Lisinopril" in text or "suggestions" in text else "Who knows?"


def make(
    groups: RetrievedGroups, ledger: str = ":memory:", **changes: Any
) -> tuple[DPChain, ScriptedModel]:
    model = ScriptedModel(reply=reply)
    budget = PrivacyBudgetHandler(
        epsilon=30, delta=1e-6, queries=3, ledger=ledger, account="notes"
    )
    parts: dict[str, Any] = {
        "parser": KSAPTROutputParser(k=1),
        "budget": budget,
        "cache": True,
    }
    return DPChain(groups=groups, model=model, **{**parts, **changes}), model


def privacy(message: Any) -> dict[str, Any]:
    found = message.response_metadata["privacy"]
    assert isinstance(found, dict)
    return found


async def test_the_second_answer_is_free_by_every_way(groups: RetrievedGroups) -> None:
    chain, model = make(groups)
    first = chain.invoke(QUESTION)
    model.asked.clear()
    streamed = AIMessageChunk(content="")
    for chunk in chain.stream(QUESTION):
        streamed += chunk  # type: ignore[assignment]
    astreamed = AIMessageChunk(content="")
    async for chunk in chain.astream({"question": QUESTION}):
        astreamed += chunk  # type: ignore[assignment]
    again = [
        chain.invoke(QUESTION),
        await chain.ainvoke(f"  {QUESTION}\n"),
        streamed,
        astreamed,
    ]
    for answer in again:
        assert answer.content == first.content
        public = privacy(answer)
        assert public["status"] == "cached"
        assert public["details"]["first"] == {"status": "released", "charge": 1}
        assert (public["charge"], public["events"]) == (None, [])
        assert public["account"]["queries_spent"] == 1
    assert model.asked == []


def test_what_streams_first_is_stored_whole(groups: RetrievedGroups) -> None:
    chain, _ = make(groups)
    streamed = "".join(str(chunk.content) for chunk in chain.stream(QUESTION))
    assert chain.invoke(QUESTION).content == streamed


def test_another_question_and_another_parser_pay(groups: RetrievedGroups) -> None:
    chain, _ = make(groups)
    chain.invoke(QUESTION)
    assert privacy(chain.invoke("What did lisinopril cause?"))["charge"] == 2
    budget = chain.budget
    other, _ = make(groups, budget=budget, parser=KSAPTROutputParser(k=2))
    assert privacy(other.invoke(QUESTION))["charge"] == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            VoteOutputParser(labels=["cough", "rash"]),
            VoteOutputParser(labels=["cough", "pain"]),
        ),
        (
            KSAJointOutputParser(k=1, domain=["cough", "rash"]),
            KSAJointOutputParser(k=1, domain=["cough", "pain"]),
        ),
        (KSAPTROutputParser(k=1), KSAPTROutputParser(k=1, stop_words=["rash"])),
        (KSAPTROutputParser(k=1), KSAPTROutputParser(k=1).without(["noted"])),
        (KSAPTROutputParser(k=1), KSAPTROutputParser(k=1, random=SeededRandom(7))),
    ],
)
def test_every_public_parameter_is_in_the_key(
    groups: RetrievedGroups, one: DPOutputParser, other: DPOutputParser
) -> None:
    chain, _ = make(groups, parser=one)
    chain.invoke(QUESTION)
    changed, _ = make(groups, budget=chain.budget, parser=other)
    assert privacy(changed.invoke(QUESTION))["charge"] == 2


def test_a_spent_account_still_says_what_it_said(
    groups: RetrievedGroups, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    chain, _ = make(groups, url)
    for word in ("give", "cause", "bring"):
        chain.invoke(f"What did lisinopril {word}?")
    later, model = make(groups, url)
    assert privacy(later.invoke("What did lisinopril cause?"))["status"] == "cached"
    assert model.asked == []


def test_that_groups_disagreed_is_paid_once(groups: RetrievedGroups) -> None:
    chain, model = make(groups, parser=KSAPTROutputParser(k=2))
    model.reply = lambda text: f"word{hash(text)}" if "Lisinop" in text else "No."
    assert privacy(chain.invoke(QUESTION))["charge"] == 1
    assert privacy(chain.invoke(QUESTION))["charge"] is None


def step(chunk: AIMessage, name: str) -> bool:
    steps = chunk.response_metadata.get("privacy_steps", [])
    return any(found["step"] == name for found in steps)


def test_whoever_stops_listening_half_way_has_paid_for_the_answer(
    groups: RetrievedGroups,
) -> None:
    chain, _ = make(groups)
    stream = chain.stream(QUESTION)
    while not step(next(stream), "merged"):
        pass
    stream.close()  # type: ignore[attr-defined]
    answer = chain.invoke(QUESTION)
    assert privacy(answer)["status"] == "cached"
    assert "cough" in str(answer.content)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("name", ["vote", "esa"])
async def test_an_answer_that_nobody_waited_for_is_kept_whole(
    groups: RetrievedGroups, name: str, is_async: bool
) -> None:
    """Also where there is no wording to wait for."""
    chain, _ = make(groups, parser=PARSERS[name]())
    stream: Any = chain.astream(QUESTION) if is_async else chain.stream(QUESTION)
    while not step(await stream.__anext__() if is_async else next(stream), "merged"):
        pass
    if is_async:
        await stream.aclose()
    else:
        stream.close()
    answer = chain.invoke(QUESTION)
    assert privacy(answer)["status"] == "cached"
    assert "cough" in str(answer.content)


class FailsAtTheEnd(BaseCallbackHandler):
    """Raises when the answers are merged."""

    raise_error = True

    def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
        if data["step"] == "merged":
            raise RuntimeError("a handler's own fault")


@pytest.mark.parametrize("name", ["vote", "ptr"])
async def test_a_handler_that_raises_loses_no_answer(
    groups: RetrievedGroups, name: str
) -> None:
    for is_async in (False, True):
        chain, _ = make(groups, parser=PARSERS[name]())
        config: Any = {"callbacks": [FailsAtTheEnd()]}
        with pytest.raises(RuntimeError, match="own fault"):
            if is_async:
                await chain.ainvoke(QUESTION, config)
            else:
                chain.invoke(QUESTION, config)
        answer = chain.invoke(QUESTION)
        assert privacy(answer)["status"] == "cached"
        assert "cough" in str(answer.content)


async def test_whoever_stops_listening_asynchronously_has_paid_as_well(
    groups: RetrievedGroups,
) -> None:
    chain, _ = make(groups)
    stream: Any = chain.astream(QUESTION)
    while not step(await stream.__anext__(), "merged"):
        pass
    # Stored when this returns, and not when the loop comes to collect generators.
    await stream.aclose()
    assert privacy(chain.invoke(QUESTION))["status"] == "cached"


def test_a_caller_that_stops_before_the_groups_are_asked_has_lost_the_charge(
    groups: RetrievedGroups,
) -> None:
    chain, model = make(groups)
    stream = chain.stream(QUESTION)
    while not step(next(stream), "charged"):
        pass
    stream.close()  # type: ignore[attr-defined]
    assert not any("Lisinopril" in text for text in model.asked)
    answer = chain.invoke(QUESTION)
    assert (privacy(answer)["status"], privacy(answer)["charge"]) == ("released", 2)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"question": QUESTION}, {"question": QUESTION.upper()}),
        (
            {"question": QUESTION, "tone": "kind"},
            {"question": QUESTION, "tone": "curt"},
        ),
    ],
)
def test_every_input_is_in_the_key(
    groups: RetrievedGroups, one: dict[str, str], other: dict[str, str]
) -> None:
    chain, _ = make(groups)
    chain.invoke(one)
    assert privacy(chain.invoke(other))["charge"] == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"document_prompt": PromptTemplate.from_template("Note: {page_content}")},
        {"document_separator": "\n"},
        {"public_prompt": PromptTemplate.from_template("Say: {question}")},
        {
            "parser": KSAPTROutputParser(
                k=1, prompt=PromptTemplate.from_template("{keywords} in German")
            )
        },
        {"model": OfflineChatModel()},
    ],
    ids=["document", "separator", "public", "rewrite", "model"],
)
def test_every_template_and_the_model_are_in_the_key(
    groups: RetrievedGroups, changes: dict[str, Any]
) -> None:
    chain, model = make(groups)
    chain.invoke(QUESTION)
    parts = {"model": model, "parser": KSAPTROutputParser(k=1), **changes}
    other = DPChain(groups=groups, budget=chain.budget, cache=True, **parts)
    assert privacy(other.invoke(QUESTION))["charge"] == 2


def test_how_a_model_is_called_is_not_in_the_key(groups: RetrievedGroups) -> None:
    chain, _ = make(groups)
    paid = chain.invoke(QUESTION)
    for model in (
        ScriptedModel(reply=lambda _: "Something else"),
        ScriptedModel(reply=reply).bind(temperature=1.0, stop=["cough"]),
    ):
        other = DPChain(
            groups=groups,
            model=model,
            parser=KSAPTROutputParser(k=1),
            budget=chain.budget,
            cache=True,
        )
        found = other.invoke(QUESTION)
        assert privacy(found)["status"] == "cached"
        assert found.text == paid.text


@pytest.mark.parametrize(
    "parser",
    [
        KSAPTROutputParser(k=1, tokenizer=str.split),
        KSAThresholdOutputParser(tokenizer=str.split),
        KSAJointOutputParser(k=1, domain=["cough", "rash"], tokenizer=str.split),
    ],
)
def test_answers_of_tokenizers_that_have_no_name_are_not_stored(
    groups: RetrievedGroups, parser: DPOutputParser
) -> None:
    chain, _ = make(groups, parser=parser)
    with pytest.raises(InvalidParameterError, match="tokenizer"):
        chain.invoke(QUESTION)


def test_what_cannot_be_told_apart_is_not_stored(groups: RetrievedGroups) -> None:
    plain, _ = make(groups)
    with pytest.raises(InvalidParameterError, match="told"):
        plain.invoke({"question": QUESTION, "thing": object()})


def test_without_the_cache_every_question_pays(groups: RetrievedGroups) -> None:
    chain, _ = make(groups, cache=None)
    assert privacy(chain.invoke(QUESTION))["charge"] == 1
    assert privacy(chain.invoke(QUESTION))["charge"] == 2


def test_a_damaged_answer_is_not_given(groups: RetrievedGroups, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    chain, _ = make(groups, f"sqlite:///{path}")
    chain.invoke(QUESTION)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE dpicl_entry SET body = '{}' WHERE kind = 'draw'")
    connection.close()
    with pytest.raises(LedgerError, match="damaged"):
        chain.invoke(QUESTION)
