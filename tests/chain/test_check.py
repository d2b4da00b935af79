"""`DPChain.check`: free of charge, on one public record, and it says what is wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NoReturn

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import PromptTemplate
from support.chain_parts import PARSERS
from support.check_types import ROOT
from support.fakes import ScriptedModel

from langchain_dpicl import (
    DPChain,
    ESAOutputParser,
    GroupSource,
    InvalidParameterError,
    PrivacyBudgetHandler,
    Relation,
    VoteOutputParser,
)
from langchain_dpicl.check import WAYS_OUT, CheckReport
from langchain_dpicl.parsers import DPOutputParser

QUESTION = "What does this gardener grow?"


class Untouchable(GroupSource):
    """Whose every look at records, their lengths or their number raises."""

    relation = Relation.REPLACE
    n_groups = 40
    unit_key = "person"
    description = {"n_groups": 40}  # noqa: RUF012 - a property elsewhere

    def prepare(self, question: str) -> Any:
        return question

    def draw_prepared(self, prepared: Any, **_: Any) -> list[list[Document]]:
        self._touched()

    @property
    def n_units(self) -> int:
        return self._touched()

    def _touched(self) -> NoReturn:
        raise AssertionError("a check has looked at the group source")


def chain(model: Any, parser: DPOutputParser | None = None, **more: Any) -> DPChain:
    parser = parser or VoteOutputParser(labels=["beans", "peas"])
    return DPChain(groups=Untouchable(), model=model, parser=parser, **more)


def said(text: str) -> ScriptedModel:
    return ScriptedModel(reply=lambda _prompt: text)


class Cut(ScriptedModel):
    """Tells that it was cut."""

    def _generate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        message = AIMessage("beans", response_metadata={"finish_reason": "length"})
        return ChatResult(generations=[ChatGeneration(message=message)])


class Down(DeterministicFakeEmbedding):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise ConnectionError("embedding server is down")


def failing(_: str) -> str:
    raise RuntimeError("no such model")


def account() -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(epsilon=8, delta=1e-6, queries=1, ledger=":memory:")


def spent() -> PrivacyBudgetHandler:
    budget = account()
    budget.buy(VoteOutputParser(labels=["a", "b"]).charge()).leave()
    return budget


def test_a_good_chain_is_ready_and_the_source_is_never_looked_at(
    tmp_path: Path,
) -> None:
    budget = PrivacyBudgetHandler(
        epsilon=8, delta=1e-6, queries=20, ledger=f"sqlite:///{tmp_path}/ledger.db"
    )
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    made = chain(said("beans"), budget=budget)
    report = made.check(QUESTION)
    assert report.ok
    assert report.findings == {}
    assert (report.reply, report.reading) == ("beans", "answer")
    assert report.options == ("beans", "peas")
    assert (report.group_calls, report.public_calls) == (40, 1)
    assert "Ready" in str(report)
    (prompt,) = made.model.asked
    assert "Choose one option" in prompt
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    # The twin: a question does look.
    with pytest.raises(Exception, match="sealed region"):
        made.invoke(QUESTION)


DRAFT = VoteOutputParser(labels="draft")
BROKEN: dict[str, tuple[Any, str]] = {
    "no-answer": (lambda: chain(ScriptedModel(reply=failing)), "no such model"),
    "no-answer draft": (
        lambda: chain(ScriptedModel(reply=failing), DRAFT),
        "no such model",
    ),
    "cut": (lambda: chain(Cut()), "cut at the model's limit"),
    "empty": (lambda: chain(said("  ")), "is empty"),
    "format": (lambda: chain(said("Well, all sorts of things.")), "Well, all"),
    "says-nothing": (lambda: chain(said("none of these")), "does not tell"),
    "no-options": (lambda: chain(said("I can't list any."), DRAFT), "can't list any"),
    "preparation": (
        lambda: chain(
            said("beans"),
            prompt=PromptTemplate.from_template("{context} {question} {tone}"),
        ),
        "tone",
    ),
    "preparation embedding": (
        lambda: chain(
            said("a"),
            ESAOutputParser(embedding=Down(size=4), candidates=["a", "b"]),
        ),
        "server is down",
    ),
    "budget": (lambda: chain(said("beans"), budget=spent()), "default"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_everything_that_can_be_wrong_is_found_and_says_why(case: str) -> None:
    make, shown = BROKEN[case]
    name = case.partition(" ")[0]
    report = make().check(QUESTION)
    assert set(report.findings) == {name}
    assert shown in report.findings[name]
    assert report.ok == (name in {"cut", "says-nothing"})
    assert WAYS_OUT[name] in str(report)
    assert report.to_dict()["ok"] == report.ok


def test_all_ways_out_are_tested_and_documented() -> None:
    assert {case.partition(" ")[0] for case in BROKEN} == set(WAYS_OUT)
    page = (ROOT / "docs/operate/troubleshooting.md").read_text()
    assert set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)) == set(WAYS_OUT)


def test_the_record_may_be_the_users() -> None:
    prompt = PromptTemplate.from_template("{date}: {page_content}")
    made = chain(said("beans"), document_prompt=prompt)
    made.check(QUESTION, "Otters swim.")
    made.check(QUESTION, Document("They swim.", metadata={"date": "May"}))
    first, second = made.model.asked
    assert "made-up: Otters swim." in first
    assert "May: They swim." in second
    with pytest.raises(InvalidParameterError):
        made.check("")


def test_drafts_are_part_of_the_path() -> None:
    def reply(prompt: str) -> str:
        return "beans\npeas" if "Possible answers" in prompt else "beans"

    model = ScriptedModel(reply=reply)
    report: CheckReport = chain(model, DRAFT).check(QUESTION)
    assert report.options == ("beans", "peas")
    assert report.public_calls == 2
    assert "- beans\n- peas\n- none of these" in model.asked[-1]


@pytest.mark.parametrize(
    ("parser", "reply", "kind"),
    [
        ("vote", "Cough.", "answer"),
        ("vote", "none of these", "nothing"),
        ("vote", "Otters swim", "unreadable"),
        ("ptr", "dry cough", "answer"),
        ("ptr", "I don't know.", "nothing"),
    ],
)
def test_a_reply_is_read_as_the_parser_reads_it(
    parser: str, reply: str, kind: str
) -> None:
    report = chain(said(reply), PARSERS[parser]()).check(QUESTION)
    assert report.reading == kind
