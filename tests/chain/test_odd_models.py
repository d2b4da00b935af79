"""Models that answer with something else than text, and questions of any length."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from support.chain_parts import EMBEDDING, PARSERS, QUESTION, record, reply, rich
from support.fakes import ScriptedModel, notes

from langchain_dpicl import DPChain, InvalidParameterError, RetrievedGroups
from langchain_dpicl.budget import charges

GROUPS = RetrievedGroups.from_documents(
    notes(300), EMBEDDING, unit_key="patient", n_groups=20
)
CALL = {"name": "look_up", "args": {"patient": "canary-7"}, "id": "1"}
TEXT = {"type": "text", "text": "cough"}


class OddModel(ScriptedModel):
    """Answers a group's prompt with an odd message, and anything else with a label."""

    odd: Any

    def _generate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        asked_of_a_group = "Lisinopril" in str(messages[-1].content)
        said = self.odd if asked_of_a_group else AIMessage(content="rash")
        return ChatResult(generations=[ChatGeneration(message=said)])


@pytest.mark.parametrize(
    ("odd", "reads"),
    [
        (AIMessage(content="", tool_calls=[CALL]), None),
        (AIMessage(content="cough", tool_calls=[CALL]), "cough"),
        (
            AIMessage(content=[{"type": "reasoning", "reasoning": "canary"}, TEXT]),
            "cough",
        ),
        (AIMessage(content=[TEXT, {"type": "image_url", "image_url": "x"}]), "cough"),
        (AIMessage(content=[{"type": "refusal", "refusal": "canary: no"}]), None),
        (AIMessage(content="", additional_kwargs={"refusal": "canary: no"}), None),
        (AIMessage(content=[]), None),
    ],
    ids=["tools", "tools-text", "blocks", "image", "refusal", "refused", "empty"],
)
@pytest.mark.parametrize("name", sorted(PARSERS))
async def test_what_is_no_text_is_no_answer(name: str, odd: Any, reads: Any) -> None:
    chain = DPChain(
        groups=GROUPS,
        model=OddModel(odd=odd),
        parser=PARSERS[name](),
        fallback="refuse",
        budget=rich(),
    )
    for answer in (chain.invoke(QUESTION), await chain.ainvoke(QUESTION)):
        assert record(answer)["charge"]
        assert "canary" not in repr(answer)
        if reads:
            assert record(answer)["status"] == "released"
            said = [str(answer.content), *record(answer)["keywords"]]
            assert any("cough" in text for text in said)
        elif name == "ptr":
            # The groups said nothing, so no words can pass the test.
            assert record(answer)["status"] == "abstained"


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_a_public_answer_that_is_no_text_breaks_nothing(name: str) -> None:
    class Silent(ScriptedModel):
        def _generate(
            self, messages: list[BaseMessage], *args: Any, **kwargs: Any
        ) -> ChatResult:
            text = str(messages[-1].content)
            message = (
                AIMessage(content="cough")
                if "Lisinopril" in text
                else AIMessage(content="", tool_calls=[CALL])
            )
            return ChatResult(generations=[ChatGeneration(message=message)])

    chain = DPChain(
        groups=GROUPS, model=Silent(), parser=PARSERS[name](), budget=rich()
    )
    answer = chain.invoke(QUESTION)
    assert record(answer)["status"] == "released"
    assert "cough" in str(answer.content)


LONG = "What did lisinopril give? " * 4_000


@pytest.mark.parametrize("question", [LONG, {"question": LONG}])
@pytest.mark.parametrize("name", sorted(PARSERS))
async def test_a_question_no_model_can_read_is_refused_before_the_charge(
    name: str, question: Any
) -> None:
    budget, model = rich(), ScriptedModel(reply=reply)
    chain = DPChain(groups=GROUPS, model=model, parser=PARSERS[name](), budget=budget)
    with pytest.raises(InvalidParameterError, match="max_question_chars"):
        chain.invoke(question)
    with pytest.raises(InvalidParameterError, match="104000 characters"):
        await chain.ainvoke(question)
    with pytest.raises(InvalidParameterError, match="20000"):
        list(chain.stream(question))
    assert not model.asked
    assert not charges(budget.ledger, "default")


@pytest.mark.parametrize(
    "more",
    [
        {"filter": {"patient": LONG}},
        {"filter": {"patient": ["p-1", *map(str, range(10_000))]}},
        {"language": LONG},
        {"history": [HumanMessage(LONG), ("ai", "Yes.")]},
        {"language": LONG[:15_000], "filter": {"patient": LONG[:15_000]}},
    ],
)
def test_filters_and_variables_no_model_can_read_are_refused_before_the_charge(
    more: dict[str, Any],
) -> None:
    budget, model = rich(), ScriptedModel(reply=reply)
    chain = DPChain(
        groups=GROUPS,
        model=model,
        parser=PARSERS["vote"](),
        budget=budget,
        filter_keys=("patient",),
    )
    with pytest.raises(InvalidParameterError, match="max_question_chars"):
        chain.invoke({"question": QUESTION, **more})
    assert not model.asked
    assert not charges(budget.ledger, "default")


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_a_long_question_is_answered_where_it_is_allowed(name: str) -> None:
    chain = DPChain(
        groups=GROUPS,
        model=ScriptedModel(reply=reply),
        parser=PARSERS[name](),
        budget=rich(),
        max_question_chars=None,
    )
    answer = chain.invoke(LONG)
    assert record(answer)["status"] == "released"


@pytest.mark.parametrize("most", [0, -1, 1.5, "many"])
def test_a_length_that_is_none_is_refused(most: Any) -> None:
    with pytest.raises(InvalidParameterError, match="max_question_chars"):
        DPChain(
            groups=GROUPS,
            model=ScriptedModel(reply=reply),
            parser=PARSERS["vote"](),
            max_question_chars=most,
        )
