"""Votes by likelihood: one slot, one vote; what a slot's figures choose; its calls."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.language_models import LLM
from langchain_core.prompts import PromptTemplate
from pydantic import PrivateAttr
from questions import (
    ASK,
    ASKED,
    account,
    clinic,
    exact_vote,
    moved,
    note,
    stored,
    votes,
    worlds,
)
from scripted import ScriptedModel
from worlds import without

from langchain_dpicl import DPChain, VoteOutputParser
from langchain_dpicl.common.replies import ABSTAIN, FAILED, Slot
from langchain_dpicl.errors import (
    InvalidParameterError,
    PublicCallError,
)
from langchain_dpicl.operate.audit import snapshot
from langchain_dpicl.parsers.likelihood import risen

LABELS = ("oak", "elm", "ash")
GROUPS = 6
CALIBRATIONS: list[Any] = ["question", "public", ["a tree", "the sea"]]
CALIBRATED = pytest.mark.parametrize("calibrate", CALIBRATIONS, ids=str)


def likes(prompt: str, options: Sequence[str], seed: int = 0) -> list[float]:
    """Return figures that only this prompt, or few others, would get."""
    return [
        -hashlib.sha256(f"{seed} {prompt} {option}".encode()).digest()[0] / 50
        for option in options
    ]


class WeighingModel(ScriptedModel):
    """A chat model that weighs options as `figures(prompt, options)` says."""

    figures: Callable[..., Any] = likes

    _weighed: list[tuple[str, ...]] = PrivateAttr(default_factory=list)

    def log_likelihoods(
        self, prompts: Sequence[str], continuations: Sequence[str]
    ) -> Any:
        with self._lock:
            self._weighed.append(tuple(prompts))
        told = self.figures(prompts[0], continuations)
        if isinstance(told, BaseException):
            raise told
        return [told]


def vote(calibrate: Any = "question", **terms: Any) -> VoteOutputParser:
    return exact_vote(LABELS, read="likelihood", calibrate=calibrate, **terms)


def chain(
    model: Any, parser: Any = None, documents: Any = None, **terms: Any
) -> DPChain:
    groups = stored(documents or clinic(), n_groups=GROUPS, docs_per_group=9)
    given = {"budget": account(), "cache": False, **terms}
    return DPChain(groups=groups, model=model, parser=parser or vote(), **given)


def asked(
    documents: list[Document], parser: Any = None, figures: Any = likes
) -> tuple[Counter[str], Counter[str]]:
    """Ask once; return what the slots were taken to say, and the prompts."""
    model = WeighingModel(figures=figures)
    answer = chain(model, parser, documents).invoke(ASKED)
    assert {len(prompts) for prompts in model._weighed} == {1}
    details = answer.response_metadata["privacy"]
    assert details["calls"] == len(model._weighed)
    return votes(answer), Counter(prompt for (prompt,) in model._weighed)


def check_neighbors(one: Any, other: Any, parser: VoteOutputParser) -> None:
    """One vote is another, in as many calls, and one slot's prompts are others."""
    assert max(moved(one[0], other[0])) <= 1
    assert one[1].total() == other[1].total()
    assert max(moved(one[1], other[1])) <= 1 + len(parser.calibration_texts)


# ---- one slot, one vote --------------------------------------------------------------


@CALIBRATED
@pytest.mark.promise("likelihood-one-vote")
def test_one_person_changes_one_vote(calibrate: Any) -> None:
    """Each of some people is gone, under figures that no two prompts share."""
    documents, parser = clinic(), vote(calibrate)
    whole = asked(documents, parser)
    seen = set()
    for gone in range(0, 40, 7):
        rest = asked(without(documents, f"p{gone}"), parser)
        check_neighbors(whole, rest, parser)
        seen.add(moved(whole[0], rest[0]))
    assert (1, 1) in seen


@pytest.mark.whole
@given(world=worlds(), seed=st.integers(0, 9), calibrate=st.sampled_from(CALIBRATIONS))
def test_one_person_changes_one_vote_of_any_corpus(
    world: Any, seed: int, calibrate: Any
) -> None:
    parser = vote(calibrate)
    found = [
        asked(documents, parser, lambda p, o: likes(p, o, seed))
        for documents in world[:2]
    ]
    check_neighbors(*found, parser)


class MeanOverSlots(VoteOutputParser):
    """The twin: a baseline that one person moves for all."""

    def ask(self, model: Any, prompts: Any, prepared: Any, *more: Any) -> list[Slot]:
        rows = [row[0] for row in model.score(prompts, prepared.texts)]
        mean = [math.fsum(column) / len(rows) for column in zip(*rows, strict=True)]
        places = [risen(row, tuple(mean), 0.0) for row in rows]
        return [Slot(prepared.texts[place or 0]) for place in places]


class OneBatch(VoteOutputParser):
    """The twin: all slots in one call, padded to the longest prompt."""

    def ask(self, model: Any, prompts: Any, prepared: Any, *more: Any) -> list[Slot]:
        longest = max(len(prompt.to_string()) for (prompt,) in prompts)
        row = padded("x" * longest, prepared.texts)
        place = risen(tuple(row), prepared.figures, 0.0)
        return [Slot(prepared.texts[place or 0])] * len(prompts)


def padded(prompt: str, options: Sequence[str]) -> list[float]:
    """Return figures whose last bits follow from the shape of a pass."""
    return [-1.0 - 1e-7 * ((len(prompt) * (2 * k + 1)) % 7) for k in range(3)]


def biased(prompt: str, options: Sequence[str]) -> list[float]:
    """Return figures that differ by little, but for one person's record."""
    few = [figure * 1e-3 for figure in likes(prompt, options)]
    return [few[0] - 9 * ("<7>" in prompt), *few[1:]]


@pytest.mark.parametrize(
    ("kind", "figures"), [(MeanOverSlots, biased), (OneBatch, padded)]
)
@pytest.mark.promise("likelihood-one-vote", twin=True)
def test_twins_in_which_slots_meet_are_caught(kind: Any, figures: Any) -> None:
    documents = clinic()
    longer = [
        note("p7", "cough of person <7>" + " rash" * 3, ward="1")
        if one.metadata["patient"] == "p7"
        else one
        for one in documents
    ]
    pairs = [(documents, other) for other in (without(documents, "p7"), longer)]

    def check(made: Any) -> None:
        parser = made(LABELS, read="likelihood", noise_multiplier=0.05)
        for pair in pairs:
            check_neighbors(*(asked(each, parser, figures) for each in pair), parser)

    check(VoteOutputParser)
    with pytest.raises(AssertionError):
        check(kind)


FAULTS: dict[str, tuple[Any, str]] = {
    "raises": (ValueError("canary"), "failed"),
    "panics": (SystemExit("canary"), "failed"),
    "nan": ([-1.0, math.nan, -1.0], "unreadable"),
    "inf": ([-1.0, math.inf, -1.0], "unreadable"),
    "nothing": ([-math.inf] * 3, "unreadable"),
    "short": ([-1.0], "unreadable"),
    "deep": ([[-1.0] * 3] * 2, "unreadable"),
    "words": (["a", "b", "c"], "unreadable"),
    "none": (None, "unreadable"),
}


@pytest.mark.parametrize("calibrate", CALIBRATIONS[:2])
@pytest.mark.parametrize("fault", FAULTS)
def test_figures_that_can_not_be_read_are_their_slots_alone(
    fault: str, calibrate: Any
) -> None:
    told, place = FAULTS[fault]

    def figures(prompt: str, options: Sequence[str]) -> Any:
        return told if "<7>" in prompt else likes(prompt, options)

    parser = vote(calibrate)
    sound, broken = (asked(clinic(), parser, each) for each in (likes, figures))
    check_neighbors(sound, broken, parser)
    assert sound[1] == broken[1]
    assert broken[0][place] == 1


@CALIBRATED
def test_the_number_of_calls_is_public(calibrate: Any) -> None:
    few = [note(f"p{n}", "fever <1>", ward="3") for n in range(GROUPS)]
    parser = vote(calibrate)
    counts = {asked(each, parser)[1].total() for each in (clinic(), few)}
    assert counts == {1 + GROUPS * (1 + len(parser.calibration_texts))}


# ---- what is chosen ------------------------------------------------------------------


def favorite(prompt: str, options: Sequence[str]) -> list[float]:
    """Return figures of a model that likes "oak", and learns a little of records."""
    learned = {"elm": 0.5} if "<" in prompt else {}
    if "a tree" in prompt or "N/A" in prompt:
        learned = {}
    bias = {"oak": -0.1, "elm": -3.0, "ash": -math.inf}
    return [bias[option] + learned.get(option, 0.0) for option in options]


@pytest.mark.parametrize(
    ("way", "calibrate"),
    [*((way, "question") for way in ASK), ("invoke", "public"), ("batch", ["a tree"])],
    ids=str,
)
async def test_a_vote_is_what_records_raise_and_not_the_models_favorite(
    way: str, calibrate: Any
) -> None:
    made = chain(WeighingModel(figures=favorite), vote(calibrate))
    answer = await ASK[way](made, ASKED)
    assert votes(answer) == {"elm": GROUPS}
    parameters = answer.response_metadata["privacy"]["parameters"]
    assert parameters["read"] == "likelihood"


def test_a_gain_below_the_margin_is_none_of_these() -> None:
    found = [asked(clinic(), vote(margin=margin), favorite)[0] for margin in (0.4, 0.5)]
    assert found == [{"elm": GROUPS}, {"none": GROUPS}]


@pytest.mark.parametrize(
    ("figures", "public", "place"),
    [
        ((-1.0, -1.0), (-1.0, -1.0), 0),
        ((-1.0, -1.0), (-2.0, -2.0), 0),
        ((-0.1, -2.0), (-0.05, -3.0), 1),
        ((-900.0, -901.0), (-1.0, -1.0), 0),
        ((-5.0, -6.0, -5.0), (-1.0, -3.0, -1.0), 1),
    ],
)
def test_the_largest_gain_is_chosen_and_ties_go_to_the_first(
    figures: Any, public: Any, place: int
) -> None:
    assert risen(figures, public, 0.0) == place
    moved_alike = tuple(figure - 7.0 for figure in figures)
    assert risen(moved_alike, public, 0.0) == place


class WeighingLLM(LLM):
    """A completion model; bound arguments reach it by name."""

    _given: list[Any] = PrivateAttr(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "weighing"

    def _call(self, prompt: str, *args: Any, **kwargs: Any) -> str:
        return "oak\nelm" if "possible answers" in prompt else "nothing"

    def log_likelihoods(self, prompts: Any, continuations: Any, top: int = 0) -> Any:
        self._given.append((prompts[0], tuple(continuations), top))
        return [likes(prompts[0], continuations)[0], *[-9.0] * (len(continuations) - 1)]


def test_a_completion_model_with_bound_arguments_weighs_what_it_drafted() -> None:
    model = WeighingLLM()
    parser = VoteOutputParser("draft", read="likelihood", noise_multiplier=0.05)
    made = chain(model.bind(top=3, stop=["x"]), parser)
    answer = made.invoke(ASKED)
    assert answer.response_metadata["privacy"]["details"]["labels"] == ["oak", "elm"]
    assert answer.response_metadata["privacy"]["calls"] == GROUPS + 2
    assert {given[1:] for given in model._given} == {(("oak", "elm"), 3)}
    first, *others = (prompt for prompt, *_ in model._given)
    assert "<" not in first
    assert all("<" in prompt for prompt in others)
    for prompt in (first, *others):
        assert "Options:\n- oak\n- elm\n\nQuestion" in prompt
        assert prompt.endswith("\n\nAnswer:")
        assert "none of these" not in prompt


def test_of_one_drafted_label_nobody_is_asked() -> None:
    model = WeighingModel(script=lambda _prompt: "oak")
    parser = VoteOutputParser("draft", read="likelihood", noise_multiplier=1.0)
    made = chain(model, parser)
    answer = made.invoke(ASKED)
    assert "only one option" in answer.content
    assert model._weighed == []
    assert made.budget is not None
    assert made.budget.spent().queries == 0


# ---- around a chain ------------------------------------------------------------------


def test_a_model_without_figures_is_refused_when_the_chain_is_made() -> None:
    with pytest.raises(InvalidParameterError, match="likelihoods makes them"):
        chain(ScriptedModel())


@pytest.mark.parametrize("told", [ValueError("x"), [math.nan] * 3, [-math.inf] * 3])
def test_a_model_that_fails_on_the_question_alone_costs_nothing(told: Any) -> None:
    made = chain(WeighingModel(figures=lambda *_: told))
    with pytest.raises(PublicCallError, match="no figures on the question alone"):
        made.invoke(ASKED)
    assert made.budget is not None
    assert made.budget.spent().queries == 0
    assert made.check(ASKED).findings is not None
    assert "no-answer" in (made.check(ASKED).findings or {})


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"calibrate": "N/A"}, "a list of public texts"),
        ({"calibrate": []}, "a list of public texts"),
        ({"calibrate": ["a", " "]}, "none that is empty"),
        ({"calibrate": 3}, "a list of public texts"),
        ({"margin": -1.0}, "margin"),
        ({"aliases": {"oak": ["quercus"]}}, "aliases= has no use"),
        ({"read": "text", "calibrate": "public"}, "calibrate= has no use"),
        ({"read": "text", "margin": 1.0}, "margin= has no use"),
    ],
)
def test_terms_that_make_no_sense_are_refused(terms: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        VoteOutputParser(LABELS, **{"read": "likelihood", **terms})


def test_alone_it_is_refused() -> None:
    parser = vote().model_copy(update={"budget": account(queries=1)})
    with pytest.raises(InvalidParameterError, match="in a DPChain"):
        parser.invoke(["oak"] * 9)
    assert parser.budget is not None
    assert parser.budget.spent().queries == 0


def test_stored_answers_know_how_they_were_read() -> None:
    budget = account()
    parsers = [
        exact_vote(LABELS),
        *(vote(calibrate) for calibrate in CALIBRATIONS),
        vote(margin=0.1),
    ]
    for _ in range(2):
        model = WeighingModel(script=lambda _prompt: "oak")
        for parser in parsers:
            chain(model, parser, budget=budget, cache=True).invoke(ASKED)
    assert budget.spent().queries == len(parsers)
    assert model._weighed == []


def test_a_check_and_an_audit_ask_as_the_groups_are_asked() -> None:
    parser = vote(["a tree"])
    model = WeighingModel(figures=favorite)
    made = chain(model, parser)
    report = made.check(ASKED, "It was <1> elm.")
    assert (report.reply, report.reading, report.ok) == ("elm", "answer", True)
    assert report.group_calls == 2 * GROUPS
    assert len(model._weighed) == 3
    model._weighed.clear()
    gone = note("new", "cough of person <99>", ward="1")
    found = snapshot(made, [gone], [ASKED], progress=False)
    assert found.is_sound
    assert found.is_exact
    assert found.group_calls == 2 * GROUPS
    assert len(model._weighed) == 1 + found.group_calls + found.extra_calls


def test_a_prompt_of_several_messages_is_written_out() -> None:
    model = WeighingModel()
    prompt = PromptTemplate.from_template("{context}|{question}|{format_instructions}")
    chain(model, prompt=prompt).invoke(ASKED)
    assert model._weighed[0][0].startswith(f"|{ASKED}|Choose one option")


def test_slots_show_nothing() -> None:
    assert {ABSTAIN, FAILED, Slot("oak")} == {Slot(None), FAILED, Slot("oak")}
