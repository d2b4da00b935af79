"""`DPChain.check`: free of charge, on made-up records, and it says what is wrong."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import PromptTemplate
from support.chain_parts import EMBEDDING, PARSERS
from support.check_types import ROOT
from support.fakes import AsyncScriptedModel, ScriptedModel

from langchain_dpicl import (
    DPChain,
    ESAOutputParser,
    GroupSource,
    InvalidParameterError,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    PrivacyBudgetHandler,
    Relation,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.chain import CheckReport
from langchain_dpicl.chain.check_report import FINDINGS
from langchain_dpicl.parsers import DPOutputParser

QUESTION = "Which vegetable do most gardeners grow?"


class Untouchable(GroupSource):
    """Whose every look at records, their lengths or their number raises."""

    built = False

    @property
    def relation(self) -> Relation:
        return Relation.REPLACE

    @property
    def n_groups(self) -> int:
        return 40

    @property
    def unit_key(self) -> str:
        return "person"

    @property
    def description(self) -> dict[str, Any]:
        return {"n_groups": 40, "docs_per_group": 3}

    @property
    def metadata_keys(self) -> frozenset[str] | None:
        # The chain's constructor looks, and nothing later.
        return self._touched() if self.built else None

    @property
    def n_units(self) -> int:
        return self._touched()

    def prepare(self, question: str) -> Any:
        self._touched()

    def draw_prepared(self, prepared: Any, **_: Any) -> list[list[Document]]:
        self._touched()

    def _touched(self) -> NoReturn:
        raise AssertionError("a check has looked at the group source")


def chain(model: Any, parser: DPOutputParser | None = None, **more: Any) -> DPChain:
    groups = Untouchable()
    parser = parser or VoteOutputParser(labels=["beans", "peas"])
    made = DPChain(groups=groups, model=model, parser=parser, **more)
    groups.built = True
    return made


def codes(report: CheckReport) -> set[str]:
    return {finding.code for finding in report.findings}


def said(text: str) -> ScriptedModel:
    return ScriptedModel(reply=lambda _prompt: text)


def failing(error: Exception, when: Callable[[str], bool]) -> ScriptedModel:
    def reply(prompt: str) -> str:
        if when(prompt):
            raise error
        return "beans"

    return ScriptedModel(reply=reply)


class Telling(ScriptedModel):
    """Tells how many tokens it has read, and why it stopped."""

    read: int = 50

    def _generate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        message = AIMessage(
            "beans",
            usage_metadata={
                "input_tokens": self.read,
                "output_tokens": 1,
                "total_tokens": self.read + 1,
            },
            response_metadata={"finish_reason": "length"},
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


class NeedsCaller(ScriptedModel):
    """Works only where the caller's context is."""

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        from langchain_dpicl.sealed.region import _sealed

        if _sealed.get():
            raise RuntimeError("no context")
        return super()._generate(*args, **kwargs)


def test_a_good_chain_is_ready_and_the_source_is_never_looked_at() -> None:
    model = said("beans")
    report = chain(model).check(QUESTION, tokens_per_record=50)
    assert report.ok
    assert codes(report) == {"no-budget"}
    (question,) = report.questions
    assert question.options == ("beans", "peas")
    assert (question.readable, question.failed) == (8, 0)
    assert (report.group_calls, report.public_calls) == (40, 1)
    assert report.records_per_group == 3
    assert "Ready" in str(report)
    assert all("Choose one option" in text for text in model.asked if "Plot" in text)


def test_twin_the_source_tells_of_every_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget = PrivacyBudgetHandler(epsilon=8, delta=1e-6, queries=1, ledger=":memory:")
    with pytest.raises(AssertionError, match="looked"):
        chain(said("beans"), budget=budget).invoke(QUESTION)
    wrong = property(lambda groups: groups.n_units)
    monkeypatch.setattr(Untouchable, "n_groups", wrong)
    with pytest.raises(AssertionError, match="looked"):
        chain(said("beans")).check(QUESTION)


async def test_awaited_it_says_the_same() -> None:
    report = await chain(AsyncScriptedModel(reply=lambda _: "beans")).acheck(QUESTION)
    assert report.ok
    assert report.questions[0].readable == 8


@pytest.mark.parametrize("awaited", [False, True])
def test_nothing_is_charged_or_written(tmp_path: Path, awaited: bool) -> None:
    budget = PrivacyBudgetHandler(
        epsilon=8, delta=1e-6, queries=20, ledger=f"sqlite:///{tmp_path}/ledger.db"
    )
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    made = chain(said("beans"), budget=budget)
    report = asyncio.run(made.acheck()) if awaited else made.check()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert budget.remaining().queries == 20
    assert report.charge is not None
    assert report.charge["mechanisms"] == ["vote/gaussian"]
    assert 0 < report.charge["epsilon"] < 8
    assert report.charge["queries_left"] == 20


def broken(code: str) -> tuple[DPChain, dict[str, Any]]:
    """Return a chain that has one thing wrong, and the arguments of its check."""
    gone = RuntimeError("secret-free: no such model")
    long = ValueError("This model's maximum context length is 512 tokens.")
    records: dict[str, Any] = {"records": ["Otters swim."]}
    spent = PrivacyBudgetHandler(epsilon=1, delta=1e-6, queries=1, ledger=":memory:")
    if code == "budget":
        spent.buy(VoteOutputParser(labels=["a", "b"]).charge()).leave()
    filled = PromptTemplate.from_template("{context} {question} {tone}")
    made: dict[str, tuple[DPChain, dict[str, Any]]] = {
        "no-answer": (chain(failing(gone, lambda _: True)), {}),
        "some-failed": (
            chain(failing(gone, lambda text: "Plot 5:" in text)),
            {},
        ),
        "context": (chain(failing(long, lambda text: "Plot" in text)), {}),
        "truncated": (chain(Telling(read=20)), {"tokens_per_record": 400}),
        "cut": (chain(Telling()), {}),
        "empty": (chain(said("  ")), {}),
        "format": (chain(said("Well, all sorts of things grow.")), {}),
        "says-nothing": (chain(said("I don't know.")), records),
        "no-options": (
            chain(said("I can't list any."), VoteOutputParser(labels="draft")),
            {},
        ),
        "preparation": (chain(said("beans"), prompt=filled), {}),
        "sealed": (chain(NeedsCaller(reply=lambda _: "beans")), {}),
        "budget": (chain(said("beans"), budget=spent), {}),
        "no-budget": (chain(said("beans")), {}),
        "group-size": (chain(said("beans")), {}),
        "record-length": (chain(said("beans")), {}),
    }
    return made[code]


@pytest.mark.parametrize("code", FINDINGS)
def test_everything_that_can_be_wrong_is_found(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, arguments = broken(code)
    if code == "group-size":
        monkeypatch.setattr(Untouchable, "description", {"n_groups": 40})
    report = made.check(**arguments)
    assert code in codes(report)
    found = next(f for f in report.findings if f.code == code)
    assert found.way_out == FINDINGS[code][1]
    assert found.what in str(report)
    severities = [finding.severity for finding in report.findings]
    assert severities == sorted(severities, key=["error", "warning", "info"].index)
    assert report.ok == ("error" not in severities)
    if code not in {"budget", "group-size", "no-budget", "record-length"}:
        assert code not in codes(chain(said("beans")).check())


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("no-answer", "no such model"),
        ("context", "512 tokens"),
        ("some-failed", "no such model"),
        ("preparation", "tone"),
    ],
)
def test_the_real_reason_is_shown(code: str, shown: str) -> None:
    made, arguments = broken(code)
    found = next(f for f in made.check(**arguments).findings if f.code == code)
    assert shown in found.what


class Draft(Telling):
    """Drafts in prose, and is cut off in it."""

    def _generate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        found = super()._generate(messages, *args, **kwargs)
        if "Possible answers" in str(messages[-1].content):
            found.generations[0].message.content = "<think>I might list peas"
        return found


def test_a_draft_without_options_is_shown_and_told_to_be_cut() -> None:
    report = chain(Draft(), VoteOutputParser(labels="draft")).check(QUESTION)
    assert {"no-options", "cut"} <= codes(report)

    def prose(_: str) -> str:
        return "I would rather not say."

    esa = ESAOutputParser(embedding=EMBEDDING, n_candidates=2)
    text = str(chain(ScriptedModel(reply=prose), esa).check(QUESTION))
    assert "I would rather not say." in text
    assert "labels=" not in text


class Short(ScriptedModel):
    """Names what it takes, as LangChain allows: no run manager."""

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, **bound: Any
    ) -> ChatResult:
        assert not bound
        return super()._generate(messages)


class NoStop(AsyncScriptedModel):
    """Takes no stop words where it is awaited."""

    async def _agenerate(  # type: ignore[override]
        self, messages: list[BaseMessage]
    ) -> ChatResult:
        return self._generate(messages)


async def test_a_model_is_called_in_a_group_as_langchain_calls_it() -> None:
    report = chain(Short(reply=lambda _: "beans")).check(QUESTION)
    assert report.questions[0].readable == 8
    broken = await chain(NoStop(reply=lambda _: "beans")).acheck(QUESTION)
    (sealed,) = [one for one in broken.findings if one.code == "sealed"]
    assert "_agenerate() got an unexpected keyword argument" in sealed.what
    assert "_generate(messages, stop=..., run_manager=..., **bound)" in sealed.what


FRAMED = "Happily sharing insight: cough prevails."


@pytest.mark.parametrize("kind", [KSAPTROutputParser, KSAThresholdOutputParser])
def test_dropped_words_are_not_counted(kind: Any) -> None:
    records = [
        Document("Dry cough.", metadata={"person": str(person)}) for person in range(80)
    ]
    budget = PrivacyBudgetHandler(epsilon=50, delta=1e-6, queries=2, ledger=":memory:")
    learning = DPChain(
        groups=RetrievedGroups.from_documents(
            records, EMBEDDING, unit_key="person", n_groups=40
        ),
        model=said(FRAMED),
        parser=kind(),
        budget=budget,
        fallback="refuse",
    )
    words = ["happily", "insight", "prevail", "sharing"]
    parser = learning.parser.without(words)
    learned = learning.model_copy(update={"parser": parser})
    found = [chain.invoke("Why?") for chain in (learning, learned)]
    privacy = [message.response_metadata["privacy"] for message in found]
    assert privacy[0]["keywords"] != ["cough"]
    assert privacy[1]["keywords"] == ["cough"]
    assert "dropped_words" not in privacy[0]["parameters"]
    assert privacy[1]["parameters"]["dropped_words"] == words


def test_drafts_are_part_of_the_path() -> None:
    def reply(prompt: str) -> str:
        return "beans\npeas" if "Possible answers" in prompt else "beans"

    model = ScriptedModel(reply=reply)
    report = chain(model, VoteOutputParser(labels="draft")).check([QUESTION, "What?"])
    assert [question.options for question in report.questions] == [
        ("beans", "peas")
    ] * 2
    assert report.public_calls == 2
    groups = [text for text in model.asked if "Plot" in text]
    assert groups
    assert all("- beans\n- peas\n- none of these" in text for text in groups)


def test_a_failing_draft_shows_why() -> None:
    model = failing(RuntimeError("wrong key"), lambda _: True)
    report = chain(model, VoteOutputParser(labels="draft")).check()
    assert "RuntimeError: wrong key" in str(report)
    assert not report.ok


def test_an_embedding_that_fails_shows_why() -> None:
    class Down(DeterministicFakeEmbedding):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            raise ConnectionError("embedding server is down")

    parser = ESAOutputParser(embedding=Down(size=4), candidates=["a", "b"])
    assert "embedding server is down" in str(chain(said("a"), parser).check())


def test_records_of_the_user_have_the_declared_length() -> None:
    model = said("beans")
    prompt = PromptTemplate.from_template("{date}: {page_content}")
    made = chain(model, document_prompt=prompt)
    made.check(
        records=["Otters swim. ", Document("x", metadata={"date": "May"})],
        tokens_per_record=10,
        n=1,
    )
    (text,) = {text for text in model.asked if "Otters" in text}
    assert "made-up: Otters swim.  Otters swim.  Otters swim.\n" in text
    assert "May: " + "x " * 20 in text
    for wrong in ({"records": []}, {"records": [" "]}, {"n": 0}, {"questions": []}):
        with pytest.raises(InvalidParameterError):
            made.check(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parser", "reply", "kind"),
    [
        ("vote", "Cough.", "answer"),
        ("vote", "none of these", "nothing"),
        ("vote", "Otters swim", "unreadable"),
        ("ptr", "dry cough", "answer"),
        ("ptr", "Many patients developed some persistent coughing.", "loose"),
        ("ptr", "I don't know.", "nothing"),
        ("joint", "a cough", "answer"),
        ("joint", "The records do not say.", "nothing"),
        ("joint", "otters", "unreadable"),
        ("esa", "A dry cough.", "answer"),
        ("esa", "I don't know.", "nothing"),
    ],
)
def test_a_parser_tells_how_it_reads_a_reply(
    parser: str, reply: str, kind: str
) -> None:
    made = PARSERS[parser]()
    prepared: Any = {"vote": ("cough", "rash"), "joint": ("cough", "rash", "nausea")}
    assert made.reads(reply, prepared.get(parser, frozenset())) == kind


def test_the_page_lists_every_finding_with_its_severity() -> None:
    # The way out comes with the finding itself.
    page = (ROOT / "docs" / "operate" / "troubleshooting.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| (\w+) \| .+ \|$", page, re.MULTILINE)
    found = {code: severity for code, severity in rows if code in FINDINGS}
    assert found == {code: severity for code, (severity, _) in FINDINGS.items()}
