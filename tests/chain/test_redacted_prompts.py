"""What the groups' prompts hold of a record that is redacted."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import RunnableLambda
from support.chain_parts import EMBEDDING, QUESTION, record, rich
from support.fakes import AsyncScriptedModel, ScriptedModel
from support.groups_fakes import note, retrieved, slots_changed

from langchain_dpicl import (
    DPChain,
    InvalidParameterError,
    PublicFirstGate,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.audit import snapshot

NOTES = [
    Document(
        f"Ada Lovelace {i}: lisinopril gave a cough, call 555-{1000 + i}.",
        metadata={"patient": f"unit-{i}", "doctor": "Dr. Byron"},
    )
    for i in range(120)
]
GROUPS = RetrievedGroups.from_documents(
    NOTES, EMBEDDING, unit_key="patient", n_groups=30, docs_per_group=2
)
PHONE, NAME = re.compile(r"555-\d+"), re.compile(r"Ada Lovelace|Dr\. Byron")


PLAIN = PromptTemplate.from_template("{page_content}")


def hide(text: str) -> str:
    """Stand in for Presidio: names and numbers, by their patterns."""
    return NAME.sub("[NAME]", PHONE.sub("[PHONE]", text))


async def ahide(text: str) -> str:
    return hide(text)


def reply(text: str) -> str:
    return "cough" if "cough, call" in text else "?"


def make(**parts: Any) -> tuple[DPChain, Any]:
    model = AsyncScriptedModel(reply=reply)
    given: dict[str, Any] = {
        "groups": GROUPS,
        "model": model,
        "parser": VoteOutputParser(labels=["cough", "rash"]),
        "budget": rich(),
        "redact": hide,
        "document_prompt": PromptTemplate.from_template("{page_content} {doctor}"),
    }
    return DPChain(**{**given, **parts}), model


def private(model: Any) -> list[str]:
    return [text for text in model.asked if "cough, call" in text]


@pytest.mark.parametrize(
    "redact",
    [
        hide,
        RunnableLambda(hide, ahide),
        RunnableLambda(hide)
        | ScriptedModel(reply=lambda text: text)
        | StrOutputParser(),
    ],
)
@pytest.mark.parametrize("stages", [1, 2])
async def test_no_name_reaches_the_model(redact: Any, stages: int) -> None:
    chain, model = make(redact=redact, stages=stages)
    for answer in (chain.invoke(QUESTION), await chain.ainvoke(QUESTION)):
        assert answer.content == "cough"
    assert len(private(model)) > 15
    for text in private(model):
        assert "[NAME]" in text
        assert "[PHONE]" in text
        assert not NAME.search(text)
        assert not PHONE.search(text)


async def test_a_client_meets_one_loop_alone() -> None:
    """A connection of another loop would fail whichever group comes first."""
    seen: list[tuple[str, asyncio.AbstractEventLoop]] = []

    async def note(text: str) -> str:
        seen.append((text, asyncio.get_running_loop()))
        return hide(text)

    chain, _model = make(redact=RunnableLambda(hide, note))
    await chain.ainvoke(QUESTION)
    assert seen[0][0].startswith("This public")
    assert len(seen) > 15
    assert len({loop for _text, loop in seen}) == 1


def test_each_record_is_redacted_alone() -> None:
    seen: list[str] = []

    def note(text: str) -> str:
        seen.append(text)
        return text

    chain, _model = make(redact=note)
    chain.invoke(QUESTION)
    probe, *texts = seen
    assert probe.startswith("This public")
    assert len(texts) == len(set(texts)) == sum(map(len, GROUPS.draw(QUESTION)))
    assert all(text.count("cough, call") == 1 for text in texts)
    assert all(text.endswith("Dr. Byron") for text in texts)
    assert not any(QUESTION in text for text in texts)


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("wrap", [False, True])
def test_a_failure_makes_its_group_abstain(awaited: bool, wrap: bool) -> None:
    def fail(text: str) -> str:
        if re.search(r"Lovelace \d?\d: ", text):
            raise RuntimeError(text)
        return hide(text)

    chain, model = make(redact=RunnableLambda(fail) if wrap else fail, pad_calls=False)
    answer = asyncio.run(chain.ainvoke(QUESTION)) if awaited else chain.invoke(QUESTION)
    assert record(answer)["status"] in {"released", "abstained"}
    kept = [slot for slot in GROUPS.draw(QUESTION) if slot]
    whole = [
        slot
        for slot in kept
        if not any(re.search(r"Lovelace \d?\d: ", one.page_content) for one in slot)
    ]
    assert len(private(model)) == len(whole) < len(kept)


def test_one_that_fails_everywhere_costs_nothing() -> None:
    chain, model = make(redact=lambda _: None, budget=(budget := rich()))
    with pytest.raises(InvalidParameterError, match="nothing was charged"):
        chain.invoke(QUESTION)
    with pytest.raises(InvalidParameterError, match="nothing was charged"):
        asyncio.run(chain.ainvoke(QUESTION))
    assert budget.remaining().queries == 5
    assert model.asked == []
    with pytest.raises(InvalidParameterError, match="redact must be"):
        make(redact=ahide)


def test_a_gate_and_an_audit_redact_too() -> None:
    budget = rich()
    chain, model = make(
        gate=PublicFirstGate(),
        budget=type(budget)(
            epsilon=30, delta=1e-6, accounting="zcdp", ledger=":memory:", queries=5
        ),
    )
    chain.invoke(QUESTION)
    chain, other = make()
    report = snapshot(chain, 3, [QUESTION], progress=False)
    assert report.is_sound
    for one in (model, other):
        assert private(one)
        assert not any(NAME.search(text) for text in private(one))


def test_a_check_shows_what_redaction_does() -> None:

    def upper(text: str) -> str:
        return text.upper()

    chain, model = make(redact=upper, document_prompt=PLAIN)
    chain.check(QUESTION)
    assert any("THIS GARDENER" in text for text in model.asked)
    assert not any("this gardener" in text for text in model.asked)

    def fail(text: str) -> str:
        return text if "gardener" not in text else str(1 / 0)

    report = make(redact=fail, document_prompt=PLAIN)[0].check(QUESTION)
    (found,) = [one for one in report.findings if one.code == "preparation"]
    assert "redact= failed" in found.what
    assert "redact=" in found.way_out


def test_an_answer_by_another_redactor_is_another_answer() -> None:
    budget = rich()
    for redact in (None, hide, RunnableLambda(hide)):
        chain, _ = make(redact=redact, cache=True, budget=budget)
        assert record(chain.invoke(QUESTION))["status"] == "released"
        assert record(chain.invoke(QUESTION))["status"] == "cached"
    assert budget.remaining().queries == 2


def pseudonyms() -> Any:
    """Return what the docs forbid: a name's number follows from the texts before."""
    numbers: dict[str, int] = {}

    def number(text: str) -> str:
        name = text.rsplit(maxsplit=1)[-1]
        return text.replace(name, f"[{numbers.setdefault(name, len(numbers))}]")

    return number


def prompts(documents: list[Document], redact: Any) -> list[str]:
    """Return the groups' prompts, place by place."""
    source = retrieved(documents, n_groups=6)
    model = ScriptedModel(reply=lambda _: "cough")
    chain = make(
        groups=source,
        model=model,
        redact=redact,
        max_concurrency=1,
        document_prompt=PLAIN,
    )[0]
    chain.invoke("rash cough cough")
    return [text for text in model.asked if "Records" in text]


@pytest.mark.parametrize("gone", range(12))
def test_one_person_changes_one_redacted_prompt(gone: int) -> None:
    documents = [note(f"p{i}", f"rash cough name{i}") for i in range(12)]
    rest = documents[:gone] + documents[gone + 1 :]
    plain = re.compile(r"name\d+")
    one, other = (
        prompts(corpus, lambda text: plain.sub("[NAME]", text))
        for corpus in (documents, rest)
    )
    assert len(one) == len(other) >= 6
    assert slots_changed(one, other) <= 1


def test_twin_numbers_over_several_texts_change_many_prompts() -> None:
    documents = [note(f"p{i}", f"rash cough name{i}") for i in range(12)]
    changed = [
        slots_changed(
            prompts(documents, pseudonyms()),
            prompts(documents[:gone] + documents[gone + 1 :], pseudonyms()),
        )
        for gone in range(12)
    ]
    assert max(changed) > 1
