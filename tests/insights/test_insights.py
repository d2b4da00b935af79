"""Insights from end to end: what is charged, asked, released, and seen by nobody."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import simplemma
from langchain_core.documents import Document
from scripted import ScriptedModel
from support.insurance_chats import documents, names, people, replaying, text_of
from unit_tests.wall.marks import mark
from unit_tests.wall.observers import Run
from unit_tests.wall.ways import observe

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.accounting import Gaussian
from langchain_dpicl.budget import charges
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    NoBudgetError,
    PublicCallError,
    UnitError,
)
from langchain_dpicl.insights import Insights, Topics, ainsights, forecast, insights
from langchain_dpicl.insights.conversations import documents_of
from langchain_dpicl.insights.reading import TopicReader
from langchain_dpicl.ledger import CorpusTerms
from langchain_dpicl.mechanisms.random import seeded
from langchain_dpicl.operate import verify
from langchain_dpicl.released import ReleasedCorpus
from langchain_dpicl.sealed import open_for_tests

LISTED = ["refunds", "late fees", "login"]
TERMS: dict[str, Any] = {"unit_key": "user", "topics": LISTED}
ALONE: dict[str, Any] = {"epsilon": 3, "delta": 1e-6, "ledger": ":memory:"}


def account(**terms: Any) -> PrivacyBudgetHandler:
    given = {"epsilon": 8, "delta": 1e-6, "ledger": ":memory:", "queries": 1, **terms}
    return PrivacyBudgetHandler(**given)


def said(count: int, text: str = "Where is my refund?", start: int = 0) -> list[Any]:
    return [{"user": start + n, "text": text} for n in range(count)]


def model(reply: str | Callable[[str], Any] = "refunds") -> ScriptedModel:
    return ScriptedModel(script=reply if callable(reply) else lambda _prompt: reply)


def test_what_outside_checks_call() -> None:
    terms = {**ALONE, "account": "x", "unit_key": "user", "topics": names()}
    found = insights(documents(), replaying(), **terms)
    assert found.topics[0].name == "claim status"
    assert found.topics[0].count == pytest.approx(69, abs=8)
    assert found.people.count == pytest.approx(300, abs=12)
    assert len(found.topics) + len(found.too_few) == 30
    assert found.record["epsilon"] == pytest.approx(3, rel=1e-3)
    assert found.record["account"]["name"] == "x"
    texts = [document.page_content for document in found.documents()]
    assert any(text.startswith("claim status: among the first 2") for text in texts)
    assert any(found.too_few[0] in text for text in texts if "Too few" in text)


def test_one_call_a_person_and_one_for_everybody_before_the_charge() -> None:
    budget = account()
    spent = []

    def reply(_prompt: str) -> str:
        spent.append(budget.spent().queries)
        return "refunds"

    asked = model(reply)
    insights([*said(40), *said(40, "And now?")], asked, budget=budget, **TERMS)
    assert spent == [0] + [1] * 40
    assert all(prompt.count("Where is my refund?") <= 1 for prompt in asked.prompts)
    assert sum("And now?" in prompt for prompt in asked.prompts) == 40


def test_people_who_are_not_read_or_have_nothing_to_say_count_as_people() -> None:
    def reply(prompt: str) -> Any:
        if "broken" in prompt:
            return RuntimeError(prompt)
        return "I see." if "odd" in prompt else "none" if "empty" in prompt else "login"

    talk = [
        *said(30, "login"),
        *said(40, "broken", 100),
        *said(25, "odd", 200),
        *said(35, "empty", 300),
        *said(20, "", 400),
    ]
    with seeded(1):
        found = insights(talk, model(reply), budget=account(epsilon=60), **TERMS)
    assert found.people.count == 150
    assert found.not_read.count == 85
    assert [(one.name, one.count) for one in found.empty] == [
        ("nothing listed", 35),
        ("no second topic", 150),
    ]
    assert [(topic.name, topic.count) for topic in found.topics] == [("login", 30)]


def test_a_word_that_cannot_be_read_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = model(
        lambda prompt: "refunds\nother: broken" if "odd" in prompt else "refunds"
    )
    talk = [*said(90), *said(1, "odd", 100)]
    terms: Any = {**TERMS, "file": tmp_path / "private.jsonl", "resume": True}
    insights(talk, told, budget=account(), **terms)
    real = simplemma.Lemmatizer.lemmatize

    def failing(self: Any, word: str, **given: Any) -> str:
        if word == "broken":
            raise RuntimeError(word)
        return real(self, word, **given)

    # What was read before is in the file; another version may fail on it.
    monkeypatch.setattr("simplemma.Lemmatizer.lemmatize", failing)
    found = insights(talk, told, budget=account(), **terms)
    assert found.topics[0].count == pytest.approx(91, abs=6)


def test_topics_that_nobody_listed_are_counted_and_their_words_come_out() -> None:
    def reply(prompt: str) -> str:
        name = "Ada" if "Ada" in prompt else "parking"
        return f"1. Refund\n2. late fees\n3. login\nOther: the {name} permits"

    talk = [*said(80), *said(1, "I am Ada", 100)]
    terms = {**TERMS, "people_at_most": 3_000}
    with seeded(2):
        found = insights(talk, model(reply), budget=account(epsilon=40), **terms)
        off = insights(talk, model(reply), budget=account(epsilon=40), **TERMS)
    assert found.other.count == found.topics[0].count == 81
    assert [topic.name for topic in found.topics] == ["refunds"]
    assert [(word.name, word.count) for word in found.words] == [("park", 80)]
    assert found.has_words
    assert not off.has_words
    assert off.words == ()


def test_names_that_are_not_listed_are_dropped() -> None:
    reader = TopicReader(Topics.of(LISTED), 2)
    parsed = reader.parse("billing\n- Late fee\n- the weather\n- other: late fees")
    assert parsed == {"topics": ["late fees"]}
    assert reader.parse("billing\nthe weather") == {}
    assert reader.parse("- other: none") == reader.parse("None.") == {"topics": []}
    assert reader.parse('{"topics": ["login"], "other": "a lost card"}') == {
        "topics": ["login"],
        "other": "a lost card",
    }
    assert reader.parse("It is not about refunds.") == {}


def test_parts_of_a_long_conversation_are_read_alone_and_merged() -> None:
    replies = iter(["other: parking\nlogin", "late fees\nlogin", "nonsense"])

    def reply(prompt: str) -> str:
        return next(replies) if "Long" in prompt else "none"

    talk = [{"user": 7, "text": "Long. " * 3_990 + str(n)} for n in range(3)]
    asked = ScriptedModel(script=reply)
    with seeded(3):
        found = insights(
            [*talk, *said(50, "x", 100)], asked, budget=account(epsilon=80), **TERMS
        )
    # "login" is named by two parts, and the own topic has the last slot.
    assert [(topic.name, topic.count) for topic in found.topics] == [("login", 1)]
    assert (found.other.count, found.empty[0].count) == (1, 50)


@pytest.mark.parametrize(
    ("talk", "terms", "kind", "named"),
    [
        (said(9), {"delta": None}, NoBudgetError, "budget="),
        (said(9), {"topics": []}, InvalidParameterError, "Topics"),
        (said(9), {"by": ["plan"]}, InvalidParameterError, "by must"),
        (said(9), {"people_at_most": 0}, InvalidParameterError, "people_at_most"),
        (said(9), {"file": "notes.jsonl"}, InvalidParameterError, "private"),
        (said(9), {"unit_key": "id"}, UnitError, "id"),
        ([], {}, UnitError, "no"),
    ],
)
def test_mistakes_are_refused(
    talk: Any, terms: dict[str, Any], kind: type[Exception], named: str
) -> None:
    with pytest.raises(kind, match=named):
        insights(talk, model(), **{**ALONE, **TERMS, **terms})


def test_mistakes_and_dead_models_cost_nothing(tmp_path: Path) -> None:
    budget = account()
    with pytest.raises(PublicCallError):
        insights(said(9), model(RuntimeError), budget=budget, **TERMS)
    with pytest.raises(InvalidParameterError, match="either"):
        insights(said(9), model(), budget=budget, epsilon=1, **TERMS)
    (tmp_path / "file").touch()
    nowhere = tmp_path / "file" / "private.jsonl"
    with pytest.raises(InvalidParameterError, match="can't be written"):
        insights(said(9), model(), budget=budget, file=nowhere, **TERMS)
    with pytest.raises(InvalidParameterError, match="one by one"):
        insights(said(9), model(), budget=account(scope="unit"), **TERMS)
    assert budget.spent().queries == 0


def test_a_release_is_taken_again_and_goes_on_where_it_was_interrupted(
    tmp_path: Path,
) -> None:
    budget = account(ledger=f"sqlite:///{tmp_path / 'ledger.db'}")
    terms: Any = {**TERMS, "budget": budget, "file": tmp_path / "private.jsonl"}
    count = 0

    def reply(prompt: str) -> Any:
        nonlocal count
        count += "refund?" in prompt
        return KeyboardInterrupt() if count == 20 else "refunds"

    broken = model(reply)
    with pytest.raises(KeyboardInterrupt):
        insights(said(60), broken, max_concurrency=1, **terms)
    assert budget.spent().queries == 1
    with pytest.raises(BudgetExhaustedError, match="resume=True"):
        insights(said(60), model(), **terms)
    again = model()
    found = insights(said(60), again, **terms, resume=True)
    # Those that were read before are not asked again.
    assert 30 < len(again.prompts) < 60
    assert found.topics[0].count == pytest.approx(60, abs=6)
    assert insights([], model(), **terms, resume=True) == found
    assert budget.spent().queries == 1


def test_both_noises_are_paid_by_their_own_events() -> None:
    few = account(epsilon=1)
    insights(said(9), model(), budget=few, **TERMS)
    assert [e.kind for e in charges(few.ledger, few.account)[0].events] == ["pure"]
    many = account(epsilon=3, queries=12)
    first = insights(said(9), model(), budget=many, **TERMS)
    assert first.forecast.noise == "gaussian"
    with seeded(1):
        insights(said(9), model(), budget=many, **TERMS)
    (one, two) = charges(many.ledger, many.account)
    assert one.events == two.events
    assert isinstance(one.events[0], Gaussian)
    # Of twelve months the Gaussian tells smaller topics; of one it does not.
    assert forecast(LISTED, epsilon=3, delta=1e-6).noise == "geometric"
    shared = account(accounting="renyi", queries=3)
    last = insights(said(9), model(), budget=shared, people_at_most=10**6, **TERMS)
    assert last.record["events"][-1]["kind"] == "failure"


def test_the_next_months_are_paid_under_the_corpus_cap(tmp_path: Path) -> None:
    cap = CorpusTerms("chats", "user", epsilon=6, delta=3e-6)
    terms: Any = {"ledger": f"sqlite:///{tmp_path / 'ledger.db'}", "corpus": cap}
    listed = Topics.of({"money": LISTED[:2], "account": LISTED[2:]})
    for month in ("may", "june"):
        budget = account(epsilon=3, account=month, **terms)
        found = insights(
            said(90), model(), unit_key="user", topics=listed, budget=budget
        )
        # What came out is filed in the tree that the next month chooses from.
        listed = listed.with_words(["parking"], model("parking: parking (account)"))
    with pytest.raises(BudgetExhaustedError, match="cap"):
        account(epsilon=3, account="july", **terms)
    assert found.listed.names[-1] == listed.names[-1] == "parking"


def test_a_file_comes_back_and_an_edited_one_is_refused(tmp_path: Path) -> None:
    ledger = f"sqlite:///{tmp_path / 'ledger.db'}"
    talk = [
        {**one, "plan": ("plus", "gold")[n % 2], "age": "old"}
        for n, one in enumerate(said(200))
    ]
    terms = {**TERMS, "topics": {"money": LISTED[:2], "account": LISTED[2:]}}
    by = {"plan": ["basic", "plus"], "age": ["old"]}
    terms |= {"by": by, "people_at_most": 5_000}
    found = insights(
        talk,
        model("refunds\nother: parking"),
        budget=account(epsilon=20, ledger=ledger),
        **terms,
    )
    found.save(tmp_path / "found.json")
    assert Insights.load(tmp_path / "found.json", ledger=ledger) == found
    verdict = verify(json.loads((tmp_path / "found.json").read_text()), ledger)
    assert (verdict.is_confirmed, verdict.not_compared) == (True, ())
    wrong = json.loads((tmp_path / "found.json").read_text())
    wrong["counts"][0][0] += 1
    assert verify(wrong, ledger).wrong == ("counts is not what the ledger stored",)
    text = (tmp_path / "found.json").read_text()
    edited = text.replace('"max_topics": 2', '"max_topics": 3')
    (tmp_path / "edited.json").write_text(edited)
    with pytest.raises(InvalidParameterError, match="sha256"):
        Insights.load(tmp_path / "edited.json")
    # Attributes keep their names, though a file has lost their order.
    for each in (found, Insights.load(tmp_path / "found.json")):
        assert each.by["plan"]["plus"].people.count == pytest.approx(100, abs=9)
        assert each.by["plan"]["other"].topics[0].name == "refunds"
        assert each.by["plan"]["basic"].topics == ()
        assert each.by["age"]["old"].people.count == pytest.approx(200, abs=12)
    documents = found.documents()
    documents.save(tmp_path / "documents.json")
    # The ledger confirms each number and sentence.
    assert "documents" not in documents.verify(ledger)
    again = ReleasedCorpus.load(tmp_path / "documents.json", ledger=ledger)
    assert again.digest == documents.digest
    wrong = [Document("refunds: 7 people", metadata=documents[0].metadata)]
    with pytest.raises(InvalidParameterError, match="documents"):
        ReleasedCorpus(wrong, documents.record).verify(ledger)


@pytest.mark.parametrize(
    "call",
    [
        lambda talk: asyncio.run(ainsights(talk, model(), **ALONE, **TERMS)),
        lambda talk: documents_of(talk, "user"),
    ],
)
def test_no_frame_of_an_error_holds_a_conversation(call: Callable[[Any], Any]) -> None:
    talk = [*said(3), {"text": "My number is 555-0100."}]
    with pytest.raises(UnitError) as refused:
        call(talk)
    frames = traceback.walk_tb(refused.value.__traceback__)
    inner = [frame for frame, _ in frames if frame.f_globals["__name__"] != __name__]
    assert inner
    assert not any("555-0100" in repr(frame.f_locals) for frame in inner)


def test_an_event_loop_is_not_blocked() -> None:
    async def run() -> Insights:
        ticks = asyncio.create_task(asyncio.sleep(0))
        found = await ainsights(said(90), model(), **ALONE, **TERMS)
        await ticks
        return found

    assert asyncio.run(run()).topics[0].name == "refunds"


# ---- what nobody sees ----------------------------------------------------------------

TROUBLES = ("answers", "fails", "stops")


def marked_talk(count: int) -> list[Document]:
    """Return marked conversations of so many people."""
    return [
        Document(
            f"{text_of(person)} {mark('record', n)}",
            metadata={"user": mark("unit", n), "plan": mark("metadata", n)},
        )
        for n, person in enumerate(people()[:count])
    ]


def marking(trouble: str, **fields: Any) -> ScriptedModel:
    """Return a model that answers with marks, and meets a trouble."""

    def reply(prompt: str) -> Any:
        if "qzvrecord" not in prompt:
            return "none"
        if trouble == "stops" and mark("record", 7) in prompt:
            return KeyboardInterrupt()
        if trouble != "answers" and mark("record", 8) in prompt:
            return RuntimeError(mark("answer", 8))
        return f"claim status\nother: {mark('answer', prompt)}"

    return ScriptedModel(script=reply, **fields)


def act(trouble: str, count: int = 60) -> Callable[[Run, Any], None]:
    def run_insights(run: Run, _stack: Any) -> None:
        # One person's word comes out with a probability of delta for each person.
        url = f"sqlite:///{run.folder / 'ledger.db'}"
        budget = account(ledger=url, delta=1e-12)
        found = insights(
            marked_talk(count),
            marking(trouble, **run.fields),
            unit_key="user",
            topics=names(),
            budget=budget,
            by={"plan": ["basic"]},
            people_at_most=10_000,
            progress=False,
        )
        found.save(run.folder / "found.json")
        run.outputs += [found, found.record, [*found.documents()], repr(found)]
        run.outputs += [(run.folder / "found.json").read_text(), vars(found)]
        run.outputs += [charges(budget.ledger, budget.account)]

    return run_insights


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("crowd", ["environment", "config"])
def test_nobody_sees_anything_private(crowd: str, trouble: str) -> None:
    seen = observe(crowd, act(trouble))
    assert seen.marks == {}
    assert "qzv" not in seen.said
    details = [person["private"] for person in people()]
    assert not [detail for detail in details if detail in seen.said]
    assert (seen.error is None) == (trouble != "stops")


def test_twin_without_the_wall_observers_see_it() -> None:
    def opened(run: Run, stack: Any) -> None:
        stack.enter_context(open_for_tests())
        act("answers", 12)(run, stack)

    assert observe("config", opened).marks
