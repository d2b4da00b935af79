"""Groups that are asked in stages: fewer calls, one charge, one draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import AIMessageChunk
from langchain_core.vectorstores import InMemoryVectorStore
from support.chain_parts import EMBEDDING, QUESTION, every_way, record
from support.fakes import AsyncScriptedModel, ScriptedModel, notes

from langchain_dpicl import (
    DPChain,
    ESAOutputParser,
    GroupCallError,
    InvalidParameterError,
    KSAPTROutputParser,
    LedgerError,
    PrivacyBudgetHandler,
    PublicFirstGate,
    RetrievedGroups,
    SampledGroups,
    UnsoundStoreError,
    VoteOutputParser,
)
from langchain_dpicl.accounting import FixedSampleGaussianEvent, Gaussian
from langchain_dpicl.chain.sealed_query import SealedQuery
from langchain_dpicl.groups import GroupSource
from langchain_dpicl.ledger import MemoryLedger

# So many that no group is empty.
GROUPS = RetrievedGroups.from_documents(
    notes(1600), EMBEDDING, unit_key="patient", n_groups=100
)
LABELS = ["cough", "rash"]
CANDIDATES = ["A dry cough.", "A skin rash."]
PARSERS: dict[str, Callable[[], Any]] = {
    "vote": lambda: VoteOutputParser(labels=LABELS),
    "esa": lambda: ESAOutputParser(embedding=EMBEDDING, candidates=CANDIDATES),
    "esa-vote": lambda: ESAOutputParser(
        embedding=EMBEDDING, candidates=CANDIDATES, select="vote"
    ),
}


def agree(text: str) -> str:
    if "possible answers" in text:
        return "cough\nrash"
    return "A dry cough." if "Lisinopril" in text else "I don't know."


class Half:
    """Every second group says something else, so that nothing is clear."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, text: str) -> str:
        if "Lisinopril" not in text:
            return agree(text)
        self.count += 1
        return CANDIDATES[self.count % 2]


def account(**changes: Any) -> PrivacyBudgetHandler:
    terms: dict[str, Any] = {"epsilon": 30, "delta": 1e-6, "queries": 6}
    return PrivacyBudgetHandler(**{**terms, "ledger": ":memory:", **changes})


def made(name: str = "vote", reply: Any = agree, **changes: Any) -> DPChain:
    parts: dict[str, Any] = {
        "groups": GROUPS,
        "model": AsyncScriptedModel(reply=reply),
        "parser": PARSERS[name]() if name in PARSERS else None,
        "budget": account(),
        "stages": 4,
    }
    return DPChain(**{**parts, **changes})


def steps_of(chain: DPChain) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for chunk in chain.stream(QUESTION):
        found += chunk.response_metadata.get("privacy_steps", [])
    return found


def group_calls(chain: DPChain) -> int:
    return sum("Lisinopril" in text for text in chain.model.asked)


# -- how much is asked -----------------------------------------------------------------


@pytest.mark.parametrize("name", list(PARSERS))
async def test_clear_answers_come_out_of_the_first_block_however_asked(
    name: str,
) -> None:
    budget = account()
    chain = made(name, budget=budget)
    for answer in await every_way(chain, budget):
        public = record(answer)
        assert public["status"] == "released"
        assert "cough" in str(answer.content)
        assert public["parameters"]["stages"] == 4
        assert public["parameters"]["stop_at"] == pytest.approx(1.64, abs=0.01)
        assert public["details"]["stages_asked"] == 1
        assert 25 <= public["calls"] <= 26
    assert group_calls(chain) == 6 * 25
    assert len(budget.ledger.charges(budget.account)) == 6


@pytest.mark.parametrize("name", list(PARSERS))
async def test_close_races_ask_everybody(name: str) -> None:
    budget = account(epsilon=60)
    chain = made(name, model=ScriptedModel(reply=Half()), budget=budget)
    for public in map(record, await every_way(chain, budget)):
        assert public["details"]["stages_asked"] == 4
        assert public["calls"] >= 100


def test_all_at_once_changes_nothing() -> None:
    chain = made(stages=1)
    public = record(chain.invoke(QUESTION))
    assert chain.stop_at is None
    assert {"stages", "stop_at"}.isdisjoint(public["parameters"])
    assert "stages_asked" not in public["details"]
    assert group_calls(chain) == 100


def test_that_the_records_do_not_tell_is_said_early_too() -> None:
    chain = made(reply=lambda _: "none of these")
    public = record(chain.invoke(QUESTION))
    assert (
        public["details"]["reason"]
        == "more groups chose none of these than any one option"
    )
    assert public["details"]["stages_asked"] == 1


def test_a_larger_lead_is_waited_for() -> None:
    public = record(made(stop_at=9.0).invoke(QUESTION))
    assert public["details"]["stages_asked"] > 1
    assert public["parameters"]["stop_at"] == 9.0


def test_a_lead_of_your_own_is_waited_for() -> None:
    parser = VoteOutputParser(labels=LABELS, min_lead=40)
    public = record(made(parser=parser).invoke(QUESTION))
    assert public["details"]["stages_asked"] == 2


def test_steps_tell_the_stages_and_nothing_private() -> None:
    found = steps_of(made(model=ScriptedModel(reply=Half())))
    stages = [step for step in found if step["step"] == "stage"]
    assert [step["stage"] for step in stages] == [1, 2, 3, 4]
    assert [step["groups"] for step in stages] == [25, 50, 75, 100]
    assert all(set(s) == {"step", "stage", "stages", "groups", "lead"} for s in stages)
    names = [step["step"] for step in found]
    assert names.index("charged") < names.index("groups") < names.index("stage")
    assert names[-1] == "merged"


def test_empty_groups_are_asked_with_their_block() -> None:
    few = RetrievedGroups.from_documents(
        notes(40), EMBEDDING, unit_key="patient", n_groups=40
    )
    model = AsyncScriptedModel(reply=agree)
    chain = made(groups=few, model=model)
    asked = record(chain.invoke(QUESTION))["details"]["stages_asked"]
    # One call more, at first, for the question alone.
    assert len(model.asked) == asked * 10 + 1
    bare = made(groups=few, pad_calls=False)
    assert "calls" not in record(bare.invoke(QUESTION))
    assert group_calls(bare) < 40


@pytest.mark.parametrize("is_async", [False, True])
async def test_many_failing_groups_are_no_answer(is_async: bool) -> None:
    def fails(text: str) -> str:
        if "Lisinopril" in text:
            raise ValueError
        return "fine"

    chain = made(reply=fails)
    answer = await chain.ainvoke(QUESTION) if is_async else chain.invoke(QUESTION)
    public = record(answer)
    assert public["status"] == "abstained"
    assert public["details"]["reason"] == "too many calls to the model failed"


# -- the slots are those of one draw ---------------------------------------------------


class Spied:
    """Notes what each block's release was made of."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.blocks: list[tuple[str, ...]] = []
        self.noises: list[float] = []
        real = VoteOutputParser.noisy

        def noisy(parser: Any, slots: Any, *, paid: Any, **terms: Any) -> Any:
            self.blocks.append(tuple(slot.text for slot in slots))
            self.noises.append(paid.noise.noise_multiplier)
            return (yield from real(parser, slots, paid=paid, **terms))

        monkeypatch.setattr(VoteOutputParser, "noisy", noisy)


def says_its_notes(text: str) -> str:
    numbers = [part.split(".")[0] for part in text.split("Note ")[1:]]
    return "/".join(numbers) or "nothing"


@pytest.mark.parametrize("is_async", [False, True])
async def test_each_record_is_read_in_one_block_under_the_charged_noise(
    is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spied = Spied(monkeypatch)
    chain = made(reply=says_its_notes, stop_at=99.0)
    answer = await chain.ainvoke(QUESTION) if is_async else chain.invoke(QUESTION)
    assert [len(block) for block in spied.blocks] == [25, 25, 25, 25]
    read = [
        note for block in spied.blocks for text in block for note in text.split("/")
    ]
    assert len(read) == len(set(read)) > 300
    charged = record(answer)["parameters"]["noise_multiplier"]
    assert spied.noises == [charged] * 4


def sampled_over(**changes: Any) -> SampledGroups:
    terms: dict[str, Any] = {"n_groups": 20, "sampling_rate": 0.5}
    return SampledGroups.from_documents(
        notes(400), unit_key="patient", **{**terms, **changes}
    )


def searched_over(sampling: Any) -> RetrievedGroups:
    store = InMemoryVectorStore(EMBEDDING)
    store.add_documents(notes(400))
    return RetrievedGroups.from_vectorstore(
        store,
        unit_key="patient",
        n_groups=20,
        docs_per_group=20,
        sampling_rate=0.5,
        sampling=sampling,
    )


SAMPLED: dict[str, Callable[[], Any]] = {
    "dealt": sampled_over,
    "units": lambda: searched_over("units"),
    "shards": lambda: searched_over("shards"),
}


def units_in_two_blocks(chain: DPChain, spied: Spied) -> int:
    chain.invoke(QUESTION)
    assert len(spied.blocks) == 4
    each = [{n for t in block for n in t.split("/")} for block in spied.blocks]
    return sum(len(a & b) for i, a in enumerate(each) for b in each[:i])


@pytest.mark.parametrize("kind", list(SAMPLED))
def test_one_sample_serves_all_blocks(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spied = Spied(monkeypatch)
    chain = made(groups=SAMPLED[kind](), reply=says_its_notes, stop_at=99.0)
    assert units_in_two_blocks(chain, spied) == 0
    assert chain.budget is not None
    (charge,) = chain.budget.ledger.charges("default")
    (event,) = charge.charge.events
    assert isinstance(event, Gaussian | FixedSampleGaussianEvent)
    assert event.sampling_rate == 0.5


@pytest.mark.parametrize("kind", list(SAMPLED))
def test_the_groups_are_drawn_once_a_question(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, draws = SAMPLED[kind](), []
    real = type(groups).draw_prepared

    def counted(source: Any, prepared: Any, **given: Any) -> Any:
        draws.append(prepared)
        return real(source, prepared, **given)

    monkeypatch.setattr(type(groups), "draw_prepared", counted)
    made(groups=groups, stop_at=99.0).invoke(QUESTION)
    assert len(draws) == 1


def test_twin_a_sample_for_each_block_has_units_in_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spied, real = Spied(monkeypatch), SealedQuery.ask_groups

    def anew(query: Any, asked: Any, drawn: Any, places: range) -> Any:
        drawn = query.groups.draw_prepared(asked.embedded)[places.start : places.stop]
        return (yield from real(query, asked, drawn, places))

    monkeypatch.setattr(SealedQuery, "ask_groups", anew)
    chain = made(groups=sampled_over(), reply=says_its_notes, stop_at=99.0)
    assert units_in_two_blocks(chain, spied) > 8


def test_all_eligible_units_pay_once_before_the_first_block() -> None:
    paying: list[int] = []

    class Noting(RetrievedGroups):
        def draw_prepared(self, prepared: Any, *, charge_units: Any = None) -> Any:
            def charge(units: Any) -> Any:
                paying.append(len(units))
                return charge_units(units)

            return super().draw_prepared(prepared, charge_units=charge)

    groups = Noting.from_documents(
        notes(400), EMBEDDING, unit_key="patient", n_groups=100, score_threshold=0.1
    )
    chain = made(groups=groups, budget=account(scope="unit"))
    assert record(chain.invoke(QUESTION))["details"]["stages_asked"] == 1
    assert paying == [400]


def test_a_source_that_draws_another_number_of_groups_is_refused() -> None:
    class Breaks(RetrievedGroups):
        def draw_prepared(self, prepared: Any, **given: Any) -> Any:
            return list(super().draw_prepared(prepared, **given))[:-1]

    groups = Breaks.from_documents(
        notes(200), EMBEDDING, unit_key="patient", n_groups=50
    )
    chain = made(groups=groups)
    with pytest.raises(UnsoundStoreError, match="keep their places"):
        chain.invoke(QUESTION)
    assert group_calls(chain) == 0


# -- what goes on ----------------------------------------------------------------------


def test_what_follows_a_vote_asks_all_groups_anew() -> None:
    then = KSAPTROutputParser(k=1)
    parser = VoteOutputParser(labels=["headache", "rash"], then=then)
    chain = made(parser=parser, reply=lambda _: "cough", budget=account(epsilon=60))
    public = record(chain.invoke(QUESTION))
    assert public["mechanism"] == "ksa/ptr"
    assert public["keywords"] == ["cough"]
    assert public["details"]["before"]["stages_asked"] == 1
    assert "stages_asked" not in public["details"]
    # A block, all of them for what follows, and one call without records.
    assert 125 <= public["calls"] <= 128


# -- one draw a charge -----------------------------------------------------------------


def used(chain: DPChain) -> int:
    assert chain.budget is not None
    return len(chain.budget.ledger.charges("default"))


def test_a_stored_answer_is_given_again_with_its_stages() -> None:
    chain = made(cache=True)
    first, again = record(chain.invoke(QUESTION)), record(chain.invoke(QUESTION))
    assert (again["status"], used(chain)) == ("cached", 1)
    assert again["details"]["stages_asked"] == first["details"]["stages_asked"]
    assert again["parameters"] == first["parameters"]
    assert again["calls"] == 0


@pytest.mark.parametrize("changes", [{"stages": 1}, {"stages": 2}, {"stop_at": 2.0}])
def test_an_answer_that_was_asked_for_otherwise_is_another(
    changes: dict[str, Any],
) -> None:
    chain = made(cache=True)
    chain.invoke(QUESTION)
    other = made(cache=True, budget=chain.budget, **changes)
    assert record(other.invoke(QUESTION))["status"] == "released"
    assert used(chain) == 2


class Stopped(BaseException):
    """A process that dies where this is raised, as far as one can in a test."""


class DiesAt(BaseCallbackHandler):
    raise_error = True

    def __init__(self, name: str) -> None:
        self.name = name

    def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
        if data["step"] == self.name:
            raise Stopped


def lost_and_asked_again(at: str) -> tuple[list[int], int]:
    """Lose a question at a step; return the charges of its draws, and its answer's."""
    drawn: list[int] = []

    class Noting(VoteOutputParser):
        def noisy(self, slots: Any, *, paid: Any, **terms: Any) -> Any:
            drawn.append(paid.sequence)
            return (yield from super().noisy(slots, paid=paid, **terms))

    parser = Noting(labels=LABELS)
    chain = made(parser=parser, cache=True, stop_at=99.0)
    with pytest.raises(Stopped):
        chain.invoke(QUESTION, {"callbacks": [DiesAt(at)]})
    public = record(chain.invoke(QUESTION))
    first = public["details"].get("first", {"charge": public["charge"]})
    return drawn, first["charge"]


@pytest.mark.parametrize("at", ["groups", "stage"])
def test_a_question_that_was_lost_between_stages_is_charged_anew(at: str) -> None:
    drawn, charge = lost_and_asked_again(at)
    assert charge == 2
    assert drawn == [1] * (at == "stage") + [2] * 4


def test_a_lost_stream_releases_nothing_more_for_its_charge() -> None:
    chain = made(cache=True, stop_at=99.0)
    stream: Any = chain.stream(QUESTION)
    for chunk in stream:
        steps = chunk.response_metadata.get("privacy_steps", [])
        if any(step["step"] == "stage" for step in steps):
            break
    stream.close()
    assert chain.budget is not None
    (lost,) = chain.budget.ledger.releases("default")
    assert lost.steps == ("null",)
    assert record(chain.invoke(QUESTION))["charge"] == 2


def test_an_outcome_is_stored_before_its_stage_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chain = made(cache=True)
    told: list[int] = []

    class Looks(BaseCallbackHandler):
        def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
            if data["step"] == "stage":
                (release,) = chain.budget.ledger.releases("default")  # type: ignore[union-attr]
                told.append(len(release.steps))

    chain.invoke(QUESTION, {"callbacks": [Looks()]})
    assert told == [1]

    def full(*_: Any) -> str:
        raise LedgerError("The disk is full.")

    monkeypatch.setattr(MemoryLedger, "store_step", full)
    with pytest.raises(LedgerError, match="full"):
        made(cache=True).invoke(QUESTION)


def test_a_release_that_fails_closes_its_charge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise ValueError("private")

    chain = made(cache=True)
    with monkeypatch.context() as patch:
        patch.setattr(VoteOutputParser, "said", fails)
        with pytest.raises(GroupCallError):
            chain.invoke(QUESTION)
    assert chain.budget is not None
    (closed,) = chain.budget.ledger.releases("default")
    assert closed.steps == ("null",)
    assert record(chain.invoke(QUESTION))["charge"] == 2


# -- what is refused -------------------------------------------------------------------


class Own(GroupSource):
    """A source that says nothing of places."""

    relation = GROUPS.relation
    n_groups = 100
    unit_key = "patient"
    description: dict[str, Any] = {"source": "own"}  # noqa: RUF012

    def prepare(self, question: str) -> Any:
        return question

    def draw_prepared(self, prepared: Any, *, charge_units: Any = None) -> Any:
        return [[Document("Lisinopril gave a dry cough.")]] * 100


class Promises(Own):
    keeps_places = True


def by_unit(**changes: Any) -> RetrievedGroups:
    return RetrievedGroups.from_documents(
        notes(400),
        EMBEDDING,
        unit_key="patient",
        n_groups=100,
        grouping="unit",
        score_threshold=0.1,
        **changes,
    )


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({"stages": 0}, "stages must be"),
    "negative": ({"stages": -1}, "stages must be"),
    "more than groups": ({"stages": 101}, "between 1 and 100"),
    "never": ({"stop_at": 0.0}, "stop_at must be"),
    "below": ({"stop_at": -2.0, "stages": 1}, "stop_at must be"),
    "infinite": ({"stop_at": float("inf")}, "stop_at must be"),
    "nan": ({"stop_at": float("nan")}, "stop_at must be"),
    "keywords": ({"parser": KSAPTROutputParser(k=1)}, "VoteOutputParser"),
    "flip": (
        {"parser": VoteOutputParser(labels=LABELS, mechanism="permute_and_flip")},
        "gaussian",
    ),
    "gate": ({"gate": PublicFirstGate()}, "leave one of the two out"),
    "by unit": ({"groups": by_unit()}, 'grouping="shard"'),
    "by unit, capped": ({"groups": by_unit(max_groups=50)}, 'grouping="shard"'),
    "sampled by unit": (
        {"groups": sampled_over(grouping="unit")},
        'grouping="shard"',
    ),
    "own": ({"groups": Own()}, "keeps_places"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_can_not_be_asked_in_stages_is_refused(case: str) -> None:
    changes, words = REFUSED[case]
    with pytest.raises(InvalidParameterError, match=words):
        made(**changes)


def test_a_copy_is_held_to_the_same() -> None:
    copy = made().model_copy(update={"stages": 2})
    assert record(copy.invoke(QUESTION))["parameters"]["stages"] == 2
    with pytest.raises(InvalidParameterError, match="between 1 and 100"):
        copy.model_copy(update={"stages": 200})


def test_a_source_of_your_own_may_promise() -> None:
    public = record(made(groups=Promises()).invoke(QUESTION))
    assert public["details"]["stages_asked"] == 1


def test_as_many_stages_as_groups() -> None:
    groups = sampled_over(sampling_rate=1.0)
    found = record(made(groups=groups, stages=20, stop_at=99.0).invoke(QUESTION))
    assert found["details"]["stages_asked"] == 20


# -- what is told beforehand -----------------------------------------------------------


def test_a_check_says_the_calls_at_most() -> None:
    report = made(model=ScriptedModel(reply=agree)).check()
    assert (report.group_calls, report.stages) == (100, 4)
    assert "100 group calls at most, in up to 4 stages" in str(report)
    at_once = str(made(stages=1, model=ScriptedModel(reply=agree)).check())
    assert "100 group calls and" in at_once


def test_drafted_labels() -> None:
    chain = made(parser=VoteOutputParser(labels="draft"))
    answer = AIMessageChunk(content="")
    for chunk in chain.stream(QUESTION):
        answer += chunk  # type: ignore[assignment]
    public = record(answer)
    assert answer.content == "cough"
    assert public["details"]["labels"] == ["cough", "rash"]
    # A block, and the draft.
    assert public["calls"] == 26
    assert np.isclose(public["parameters"]["stop_at"], 2.49, atol=0.01)
