"""A public draft: what models write, in forms and out of them."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableLambda

from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.insights import Topics, draft_topics

ABOUT = "The assistant in the app of a shop."
TREE = {"Orders": ["late delivery", "returns"], "Account": ["login trouble"]}


class Recorded(FakeListChatModel):
    """Answers in turn, and keeps what it was asked."""

    asked: list[str] = []  # noqa: RUF012 - pydantic copies it for each object

    def _call(self, messages: list[BaseMessage], *args: Any, **more: Any) -> str:
        self.asked.append(messages[0].text)
        return super()._call(messages, *args, **more)


@pytest.mark.parametrize(
    "reply",
    [
        "# Orders\n- late delivery\n- returns\n\n# Account\n- login trouble",
        (
            "Sure! Here is a list:\n\n**Orders**\n* Late delivery\n* Returns - back\n"
            "\n**Account:**\n* Login trouble\n\nLet me know if you need more topics!"
        ),
        (
            "1. **Orders**\n   - late delivery\n   - returns\n2. **Account**\n"
            "   - login trouble"
        ),
        (
            "<think>What else?</think>Orders:\nlate delivery\nreturns\n\nAccount:\n"
            "- login trouble"
        ),
    ],
)
def test_a_draft_is_read_in_the_forms_that_models_use(reply: str) -> None:
    model = Recorded(responses=[reply, "none", "None.", "none"])
    drafted = draft_topics(model, about=ABOUT)
    tree = {k: [name.lower() for name in names] for k, names in drafted.tree.items()}
    assert tree == TREE
    assert drafted.about == ABOUT


def test_three_drafts_are_merged_and_doubles_go() -> None:
    replies = [
        "# Orders\n- late delivery\n- returns",
        "# Account\n- login trouble\n- delivery, late\n# orders\n- lost parcel",
        "# Account\n- password problem\n- data request\n# Orders\n- slow shipping",
        (
            "login trouble = password problem\nslow shipping = late delivery\n"
            "late delivery = slow shipping\nunknown = returns\nreturns = voucher"
        ),
    ]
    model = Recorded(responses=replies)
    drafted = draft_topics(model, about=ABOUT, topics=["voucher"])
    assert drafted.tree == {
        "": ["voucher"],
        "Orders": ["lost parcel", "slow shipping"],
        "Account": ["login trouble", "data request"],
    }
    assert "privacy" in model.asked[1]
    assert "late delivery" in model.asked[1]  # What is listed so far is shown.
    assert (
        len(draft_topics(Recorded(responses=replies), about=ABOUT, most=3).names) == 3
    )


def test_what_was_given_stays_and_stands_first() -> None:
    last = Topics.of(TREE)
    replies = ["# Account\n- closing", "none", "none", "closing = login trouble"]
    drafted = draft_topics(Recorded(responses=replies), about=ABOUT, topics=last)
    assert drafted.tree == TREE


def test_released_words_are_filed_into_the_tree() -> None:
    model = Recorded(
        responses=[
            (
                "Here you are:\n- **strike**: postal strike (orders)\n"
                "- app: app crashes (Technical)\n- voucher: late delivery (Orders)"
            )
        ]
    )
    topics = Topics.of(TREE, ABOUT)
    more = topics.with_words(["strike", "app", "voucher", "gift", "return"], model)
    assert more.tree == {
        "Orders": ["late delivery", "returns", "postal strike"],
        "Account": ["login trouble"],
        "Technical": ["app crashes"],
        "": ["gift"],
    }
    assert "return," not in model.asked[0]
    assert topics.with_words(["returns"], model) is topics


def test_a_failing_model_and_an_empty_draft_are_errors_of_public_calls() -> None:
    def fail(_: Any) -> str:
        raise RuntimeError("key sk-123 is wrong")

    with pytest.raises(PublicCallError, match="RuntimeError") as failed:
        draft_topics(RunnableLambda(fail), about=ABOUT)
    assert "sk-123" not in str(failed.value)
    # The second is what a model of 135 M parameters has said.
    for talk in (
        "I can't help.",
        'A group of people talking about a so-called "topic"',
    ):
        with pytest.raises(PublicCallError, match="no topics"):
            draft_topics(Recorded(responses=[talk]), about=ABOUT)


@pytest.mark.parametrize("given", [{"about": " "}, {"about": 7}, {"most": 1}])
def test_wrong_arguments_are_refused(given: Any) -> None:
    with pytest.raises(InvalidParameterError):
        draft_topics(Recorded(responses=["none"]), **{"about": ABOUT, **given})
