"""What fails in one group or in all, and what the caller sees of it."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessageChunk
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.prompts import PromptTemplate
from support.chain_parts import EMBEDDING, PARSERS, QUESTION, record, reply, rich
from support.fakes import AsyncScriptedModel, ScriptedModel, notes

from langchain_dpicl import (
    DPChain,
    GroupCallError,
    PublicCallError,
    RetrievedGroups,
    VoteOutputParser,
)


async def test_one_bad_group_changes_nothing_for_the_others(
    groups: RetrievedGroups,
) -> None:
    def fragile(text: str) -> str:
        if "Note 7." in text:
            raise RuntimeError("canary-7f3a " + text)
        return reply(text)

    for model_class in (ScriptedModel, AsyncScriptedModel):
        chain = DPChain(
            groups=groups, model=model_class(reply=fragile), parser=PARSERS["ptr"]()
        )
        budget = rich(2)
        for answer in (
            chain.invoke(QUESTION, {"callbacks": [budget]}),
            await chain.ainvoke(QUESTION, {"callbacks": [budget]}),
        ):
            assert record(answer)["status"] == "released"
            assert "canary" not in repr(answer)


@pytest.mark.parametrize("bad", ["", "   ", "\n"])
def test_groups_that_say_nothing_abstain(groups: RetrievedGroups, bad: str) -> None:
    chain = DPChain(
        groups=groups,
        model=ScriptedModel(reply=lambda text: bad if "Lisinopril" in text else "No."),
        parser=PARSERS["ptr"](),
        budget=rich(),
    )
    answer = chain.invoke(QUESTION)
    assert record(answer)["status"] == "abstained"
    assert answer.content == "No answer: the test for agreement was not passed."


def test_a_model_that_always_fails_is_told_before_anything_is_charged(
    groups: RetrievedGroups,
) -> None:
    def broken(text: str) -> str:
        raise RuntimeError("canary-7f3a")

    budget = rich()
    chain = DPChain(
        groups=groups, model=ScriptedModel(reply=broken), parser=PARSERS["ptr"]()
    )
    with pytest.raises(PublicCallError, match="RuntimeError") as caught:
        chain.invoke(QUESTION, {"callbacks": [budget]})
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert budget.spent().queries == 0


@pytest.mark.parametrize("fallback", ["model", "refuse"])
async def test_a_vote_whose_calls_all_fail_abstains(
    groups: RetrievedGroups, fallback: Any
) -> None:
    def broken(text: str) -> str:
        if "Records:" in text:
            raise RuntimeError("canary-7f3a")
        return "I can't say."

    chain = DPChain(
        groups=groups,
        model=ScriptedModel(reply=broken),
        parser=VoteOutputParser(labels=["a", "b"]),
        fallback=fallback,
        budget=rich(),
    )
    for answer in (chain.invoke(QUESTION), await chain.ainvoke(QUESTION)):
        is_public = fallback == "model"
        assert record(answer)["status"] == ("fallback" if is_public else "abstained")
        assert answer.content == (
            "From general knowledge, not from the records: I can't say."
            if is_public
            else "No answer: too many calls to the model failed."
        )
        reason = record(answer)["details"]["reason"]
        assert reason == "too many calls to the model failed"
        assert "canary" not in repr(answer)
    assert chain.budget is not None
    assert chain.budget.spent().queries == 2


async def test_a_text_parser_behind_a_chain_shows_no_guess_as_an_answer(
    groups: RetrievedGroups,
) -> None:
    """By default a refusal; where guesses are asked for, each says what it is."""
    note = "From general knowledge, not from the records: "
    for terms, expected in (
        ({}, "No answer: the test for agreement was not passed."),
        ({"abstain_text": "Sorry."}, "Sorry."),
        ({"fallback": "model"}, f"{note}Paris, I think."),
    ):
        model = ScriptedModel(
            reply=lambda text: "" if "Records:" in text else "Paris, I think."
        )
        chain: Any = DPChain(
            groups=groups, model=model, parser=PARSERS["ptr"](), budget=rich(5), **terms
        )
        said = chain | StrOutputParser()
        # The first question has a zero-shot answer beforehand, and others have not.
        for _ in range(2):
            assert said.invoke(QUESTION) == expected
        assert await said.ainvoke(QUESTION) == expected
        assert "".join(said.stream(QUESTION)) == expected
        assert "".join([piece async for piece in said.astream(QUESTION)]) == expected


@pytest.mark.parametrize("name", sorted(PARSERS))
async def test_a_model_that_is_not_there_costs_nothing_on_the_first_question(
    groups: RetrievedGroups, name: str
) -> None:
    def broken(text: str) -> str:
        raise RuntimeError("wrong key")

    budget = rich()
    model = ScriptedModel(reply=broken)
    chain = DPChain(groups=groups, model=model, parser=PARSERS[name](), budget=budget)
    with pytest.raises(PublicCallError):
        chain.invoke(QUESTION)
    with pytest.raises(PublicCallError):
        await chain.ainvoke(QUESTION)
    assert budget.spent().queries == 0


def test_released_words_survive_a_failing_rewrite(groups: RetrievedGroups) -> None:
    def no_rewrite(text: str) -> str:
        if "word suggestions" in text:
            raise RuntimeError("down")
        return reply(text)

    chain = DPChain(
        groups=groups,
        model=ScriptedModel(reply=no_rewrite),
        parser=PARSERS["ptr"](),
        budget=rich(),
    )
    assert chain.invoke(QUESTION).content == "cough"
    assert "".join(str(c.content) for c in chain.stream(QUESTION)) == "cough"


def test_a_failing_item_of_a_batch_does_not_stop_the_others(
    groups: RetrievedGroups,
) -> None:
    chain = DPChain(
        groups=groups,
        model=ScriptedModel(reply=reply),
        parser=PARSERS["vote"](),
        budget=rich(2),
    )
    found = chain.batch([QUESTION] * 4, return_exceptions=True)
    kinds = sorted(type(item).__name__ for item in found)
    assert kinds == ["AIMessage"] * 2 + ["BudgetExhaustedError"] * 2


def test_a_sealed_region_that_fails_is_charged_and_says_nothing(
    groups: RetrievedGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: Any) -> None:
        raise RuntimeError("canary-7f3a")

    budget = rich()
    chain = DPChain(
        groups=groups, model=ScriptedModel(), parser=PARSERS["vote"](), budget=budget
    )
    monkeypatch.setattr(RetrievedGroups, "draw_prepared", broken)
    with pytest.raises(GroupCallError) as caught:
        chain.invoke(QUESTION)
    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None
    assert budget.spent().queries == 1


def test_a_record_that_cannot_be_written_into_the_prompt_silences_its_group_only() -> (
    None
):
    documents = notes(300)
    for document in documents[1:]:
        document.metadata["visit"] = "May"
    groups = RetrievedGroups.from_documents(
        documents, EMBEDDING, unit_key="patient", n_groups=60
    )
    chain = DPChain(
        groups=groups,
        model=ScriptedModel(reply=reply),
        parser=PARSERS["ptr"](),
        document_prompt=PromptTemplate.from_template("{visit}: {page_content}"),
        budget=rich(),
    )
    assert record(chain.invoke(QUESTION))["status"] == "released"


@pytest.mark.parametrize("model_class", [ScriptedModel, AsyncScriptedModel])
async def test_released_words_survive_a_rewrite_that_says_nothing(
    groups: RetrievedGroups, model_class: Any
) -> None:
    chain = DPChain(
        groups=groups,
        model=model_class(
            reply=lambda text: " " if "word suggestions" in text else reply(text)
        ),
        parser=PARSERS["ptr"](),
        budget=rich(),
    )
    assert str(chain.invoke(QUESTION).content).strip() == "cough"
    assert str((await chain.ainvoke(QUESTION)).content).strip() == "cough"
    streamed = "".join(str(chunk.content) for chunk in chain.stream(QUESTION))
    assert streamed.strip() == "cough"


def test_words_after_a_broken_off_rewrite_stand_on_a_line_of_their_own(
    groups: RetrievedGroups,
) -> None:
    class BreakingOff(ScriptedModel):
        def _stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            if "word suggestions" not in str(messages[-1].content):
                message = AIMessageChunk(content=reply(str(messages[-1].content)))
                yield ChatGenerationChunk(message=message)
                return
            yield ChatGenerationChunk(message=AIMessageChunk(content="They rep"))
            raise RuntimeError("connection lost")

    chain = DPChain(
        groups=groups,
        model=BreakingOff(reply=reply),
        parser=PARSERS["ptr"](),
        budget=rich(),
    )
    streamed = "".join(str(chunk.content) for chunk in chain.stream(QUESTION))
    assert streamed == "They rep\ncough"


@pytest.mark.parametrize(
    "wording",
    [
        "I'm sorry, but I can't help with that.",
        "It most often gave a headache.",
        "It was not cough.",
    ],
)
async def test_a_wording_that_loses_the_released_words_is_not_the_answer(
    groups: RetrievedGroups, wording: str
) -> None:
    def losing(text: str) -> str:
        return wording if "word suggestions" in text else reply(text)

    chain = DPChain(
        groups=groups,
        model=ScriptedModel(reply=losing),
        parser=PARSERS["ptr"](),
        budget=rich(),
        cache=True,
    )
    answer = chain.invoke(QUESTION)
    assert (answer.content, record(answer)["status"]) == ("cough", "released")
    # It is not kept for the next one either, who gets the words.
    again = await chain.ainvoke(QUESTION)
    assert (again.content, record(again)["status"]) == ("cough", "cached")
    # What was streamed can't be taken back: the words come after it.
    streamed = "".join(str(chunk.content) for chunk in chain.stream(QUESTION))
    assert streamed == f"{wording}\ncough"
    assert chain.budget is not None
    assert chain.budget.spent().queries == 1
