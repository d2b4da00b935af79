"""Released examples in LangChain's prompts and chains, free of charge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel, FakeListLLM
from support.ledgers import bought
from support.released_parts import EVENTS, QUESTIONS, record, released

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.accounting import Charge
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel
from langchain_dpicl.released import (
    ReleasedExamples,
    classification_chain,
)

LABELS = ("person", "place", "time")
ASKED = {
    "Who composed Aida?": "person",
    "Where is Mount Etna?": "place",
    "When did Troy fall?": "time",
}
BRACES = [*QUESTIONS, {"text": "Who wrote {text} and {other}?", "label": "person"}]


async def test_a_chain_classifies_and_charges_nothing(tmp_path: Path) -> None:
    ledger = Ledger(":memory:")
    handler = PrivacyBudgetHandler(
        epsilon=8, delta=1e-5, queries=1, ledger=ledger, account="notes"
    )
    bought(handler, Charge(name="a", parts=EVENTS), unit_key="patient_id")
    before = ledger.state("notes"), handler.spent()

    released().save(tmp_path / "examples.json")
    loaded = ReleasedExamples.load(tmp_path / "examples.json", ledger=ledger)
    config: Any = {"callbacks": [handler]}
    for examples in (loaded, tmp_path / "examples.json"):
        chain = classification_chain(examples, OfflineChatModel(), LABELS)
        for text, label in ASKED.items():
            assert chain.invoke(text, config) == label
            assert chain.invoke({"text": text}, config) == label
            assert await chain.ainvoke(text, config) == label
        assert chain.batch(list(ASKED), config) == list(ASKED.values())
        assert await chain.abatch(list(ASKED), config) == list(ASKED.values())
        assert list(chain.stream(next(iter(ASKED)), config)) == ["person"]

    assert (ledger.state("notes"), handler.spent()) == before


def test_the_examples_decide_what_the_model_says() -> None:
    # A twin: the same questions under turned labels give turned answers.
    turn = {"person": "time", "place": "person", "time": "place"}
    turned = [{**e, "label": turn[e["label"]]} for e in QUESTIONS]
    chain = classification_chain(released(turned), OfflineChatModel())
    assert [chain.invoke(text) for text in ASKED] == [turn[y] for y in ASKED.values()]


def test_the_prompt_names_the_labels_and_escapes_all_braces() -> None:
    chain: Any = classification_chain(
        released(BRACES),
        OfflineChatModel(),
        ["person", "place", "time {of} day", "time"],
        instruction="Say {which}.",
    )
    shown = chain.first.invoke("What is {this}?").to_string()
    assert shown.startswith(
        "Say {which}.\n\n"
        "Labels:\n- person\n- place\n- time {of} day\n- time\n\n"
        "Text: Who wrote Hamlet?"
    )
    assert "Who wrote {text} and {other}?" in shown
    assert shown.endswith("Text: What is {this}?\nLabel:")


def test_other_keys_are_those_of_the_record() -> None:
    reviews = [{"review": e["text"], "stars": e["label"]} for e in QUESTIONS]
    keys = {"text_key": "review", "label_key": "stars"}
    examples = released(reviews, parameters=keys)
    chain = classification_chain(examples, OfflineChatModel())
    assert chain.invoke("Where is Mount Etna?") == "place"
    nearest = examples.selector(1, embedding=HashingEmbeddings())
    assert nearest.select_examples(reviews[3]) == [reviews[3]]


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("person", "person"),
        (" Label: PERSON.\n", "person"),
        ("person or place", None),
        ("I don't know.", None),
        ("", None),
    ],
)
@pytest.mark.parametrize(
    ("unknown", "kind"), [(None, FakeListChatModel), ("unknown", FakeListLLM)]
)
def test_an_answer_is_a_label_or_unknown(
    answer: str, label: str | None, unknown: str | None, kind: Any
) -> None:
    model = kind(responses=[answer])
    chain = classification_chain(released(), model, LABELS, unknown=unknown)
    assert chain.invoke("Who?") == (unknown if label is None else label)


@pytest.mark.parametrize(
    ("labels", "unknown", "message"),
    [
        (["person", "place"], None, "none of labels="),
        (["person"], None, "at least two labels"),
        (["person", "Person!"], None, "the same"),
        (LABELS, "time", "unknown='time'"),
    ],
)
def test_labels_that_do_not_fit_are_refused(
    labels: Any, unknown: str | None, message: str
) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        classification_chain(released(), OfflineChatModel(), labels, unknown=unknown)


def test_examples_need_a_text_and_a_label() -> None:
    for key in ("text", "label"):
        plain = ReleasedExamples([{key: "x"}, {key: "y"}], record())
        with pytest.raises(InvalidParameterError, match="no examples with the key"):
            classification_chain(plain, OfflineChatModel())
