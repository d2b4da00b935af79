"""Answers in sentences: one slot a row, public calls, and texts that are no answers."""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from faces import Words, open_for_tests
from hypothesis import given
from langchain_core.documents import Document
from langchain_core.prompt_values import StringPromptValue
from langchain_core.prompts import PromptTemplate
from questions import ASK, ASKED, account, clinic, moved, note, stored, worlds
from scipy.stats import chisquare
from scripted import ScriptedModel
from worlds import without

from langchain_dpicl import DPChain, Relation, SampledGroups, accounting
from langchain_dpicl.accounting import Exponential
from langchain_dpicl.common.replies import Slot
from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.likelihoods import NextTokenLLM
from langchain_dpicl.mechanisms import clipped_token
from langchain_dpicl.mechanisms.random import SeededRandom, use
from langchain_dpicl.operate.audit import snapshot
from langchain_dpicl.parsers import ProseOutputParser
from langchain_dpicl.parsers.prose import Beginning
from langchain_dpicl.sealed import SealedModel

VOCABULARY = ("END", "a", "dry", "cough", "I", "don't", "know.", "rash")
GROUPS = 5
SURE = {"cough": "a dry cough END", "unknown": "I don't know. END"}


def says(sentence: str, place: int) -> list[float]:
    """Return the next word's probabilities after so many words of a sentence."""
    words = sentence.split()
    wanted = words[min(place, len(words) - 1)]
    return [0.93 if word == wanted else 0.01 for word in VOCABULARY]


def likes(text: str, tokens: Sequence[int]) -> Any:
    """Return what a model that knows nothing without records says."""
    return says(SURE["cough" if "of person" in text else "unknown"], len(tokens))


def varied(text: str, tokens: Sequence[int]) -> list[float]:
    """Return probabilities that hardly two prompts share."""
    seed = np.frombuffer(f"{text}{[*tokens]}".encode(), np.uint8).tolist()
    return [float(x) for x in np.random.default_rng(seed).dirichlet(np.ones(8))]


def words(likes: Any = likes) -> Words:
    model = Words(VOCABULARY, likes)
    model.end_tokens = frozenset({0})
    return model


def prose(**terms: Any) -> ProseOutputParser:
    given: dict[str, Any] = {"epsilon": 50.0, "top_k_public": 8, "max_tokens": 6}
    given["temperature"] = 0.25  # What is likely is drawn all but surely.
    return ProseOutputParser(**{**given, **terms})


PROMPT = PromptTemplate.from_template("{context} {question}")


def chain(
    model: Any, documents: Any = None, parser: Any = None, **terms: Any
) -> DPChain:
    groups = stored(documents or clinic(), n_groups=GROUPS, docs_per_group=9)
    given: dict[str, Any] = {"budget": account(), "cache": False, "prompt": PROMPT}
    weighing = NextTokenLLM(model=model) if isinstance(model, Words) else model
    return DPChain(
        groups=groups, model=weighing, parser=parser or prose(), **{**given, **terms}
    )


def record(answer: Any) -> Any:
    return SimpleNamespace(**answer.response_metadata["privacy"])


@pytest.mark.parametrize("way", ASK)
async def test_what_the_groups_say_comes_out_in_sentences(way: str) -> None:
    model = words()
    made = chain(model)
    answer = await ASK[way](made, ASKED)
    assert answer.content == "a dry cough"
    told = record(answer)
    assert told.status == "released"
    assert told.details["tokens"] == 4
    assert told.calls == len(model.asked) + 4  # Top tokens are asked for besides.
    assert told.mechanism == "prose/clipped"
    (event,) = told.events
    assert (event["kind"], event["count"]) == ("exponential", 6)


def test_a_text_that_does_not_tell_is_no_answer() -> None:
    documents = [note(f"p{n}", "fever <1>", ward="3") for n in range(GROUPS)]
    answer = chain(words(), documents).invoke(ASKED)
    assert record(answer).status == "abstained"
    assert answer.content == "No answer: the records do not tell."


def test_a_stop_ends_the_text_as_released_tokens_say() -> None:
    answer = chain(words(), parser=prose(stop="dry")).invoke(ASKED)
    assert (answer.content, record(answer).details["tokens"]) == ("a", 2)
    short = chain(words(), parser=prose(max_tokens=1)).invoke(ASKED)
    assert (short.content, record(short).details["tokens"]) == ("a", 1)


# ---- one slot, one row ---------------------------------------------------------------

Asking = tuple[list[Counter[bytes]], Counter[str]]
"""For each token the rows of the slots, and all prompts with their tokens."""


def asked(documents: list[Document], likes: Any = varied, parser: Any = None) -> Asking:
    """Ask once, where the draws are the same whatever the rows are."""
    rows: list[Counter[bytes]] = []
    model = words(likes)
    model.end_tokens = frozenset()  # The texts are as long as they may be.

    def draw(given: Any, public: Any, *_: Any, **terms: Any) -> int:
        assert terms["slots"] == GROUPS
        assert np.allclose(public.sum(), 1)
        rows.append(Counter(row.tobytes() for row in given))
        return 1 + len(rows) % 3

    with mock.patch.object(clipped_token, "clipped_token", draw):
        chain(model, documents, parser).invoke(ASKED)
    return rows, Counter(f"{text}{tokens}" for text, tokens, _ in model.asked)


def check_neighbors(one: Asking, other: Asking) -> None:
    """One row of each token is another, in as many calls."""
    assert len(one[0]) == len(other[0])
    for before, after in zip(one[0], other[0], strict=True):
        assert max(moved(before, after)) <= 1  # type: ignore[arg-type]
    assert one[1].total() == other[1].total()
    assert max(moved(one[1], other[1])) <= len(one[0])


@given(world=worlds())
@pytest.mark.promise("prose-tokens")
def test_one_person_changes_one_row_of_each_token(world: Any) -> None:
    check_neighbors(*(asked(documents) for documents in world[:2]))


class StopsWhereGroupsDisagree(ProseOutputParser):
    """The twin: a private lead ends the text."""

    def release(self, slots: Any, **terms: Any) -> Any:
        odd = sum("<7>" in (slot.text or "") for slot in slots)
        shorter = self.model_copy(update={"max_tokens": self.max_tokens - odd})
        return ProseOutputParser.release(shorter, slots, **terms)


def failing(text: str, tokens: Sequence[int]) -> Any:
    if "<7>" in text:
        raise ValueError(text)
    return varied(text, tokens)


def silent(text: str, tokens: Sequence[int]) -> Any:
    return None if "<7>" in text else varied(text, tokens)


def strange(text: str, tokens: Sequence[int]) -> Any:
    return [math.nan] * 8 if "<7>" in text else varied(text, tokens)


@pytest.mark.parametrize("wrong", [failing, silent, strange])
def test_a_slot_that_fails_abstains_alone(wrong: Any) -> None:
    sound, broken = asked(clinic()), asked(clinic(), wrong)
    check_neighbors(sound, broken)
    assert [rows.total() for rows in broken[0]] == [GROUPS - 1] * 6


@pytest.mark.promise("prose-tokens", twin=True)
def test_twin_a_private_stop_is_caught() -> None:
    parser = StopsWhereGroupsDisagree(epsilon=50.0, top_k_public=8, max_tokens=6)
    found = [
        asked(documents, parser=parser)
        for documents in (clinic(), without(clinic(), "p7"))
    ]
    with pytest.raises(AssertionError):
        check_neighbors(*found)


# ---- law and price -------------------------------------------------------------------


def test_a_token_has_the_law_of_the_sum_over_groups() -> None:
    """By the definition, with plain floats; twice the groups are another law."""
    parser = prose(max_tokens=1, epsilon=1.2, temperature=1.0)
    sealed = SealedModel(NextTokenLLM(model=words(varied)))
    texts = ["one", "two", "three"]
    public = np.array(varied("public", ()))
    begun: Beginning = parser.ask_alone(sealed, StringPromptValue(text="public"), None)
    order = begun.vocabulary.tokens
    paid: Any = SimpleNamespace(events=(Exponential(epsilon=1.2),))

    def law(slots: int) -> Any:
        clip, total = 1.2 * GROUPS / 4, np.zeros(len(order))
        base = public[order]
        for text in texts:
            raw = np.log(np.array(varied(text, ()))[order]) - np.log(base)
            raw -= np.sort(raw)[(len(raw) - 1) // 2]
            total += np.clip(raw, -clip, clip)
        weights = base * np.exp(total / slots)
        return weights / weights.sum()

    counts, runs = Counter[str](), 1500
    with use(SeededRandom(5)):
        for _ in range(runs):
            outcome = parser.release(
                [Slot(text) for text in texts],
                paid=paid,
                relation=Relation.REPLACE,
                slot_count=GROUPS,
                prepared=begun,
            )
            counts[outcome.text or ""] += 1
    seen = [counts[VOCABULARY[token]] for token in order]
    assert sum(seen) == runs
    assert chisquare(seen, law(GROUPS) * runs).pvalue > 1e-3
    assert chisquare(seen, law(2 * GROUPS) * runs).pvalue < 1e-6


@pytest.mark.parametrize(
    ("groups", "ratio", "answers"),
    [(100, 1, 25), (100, 2, 6), (100, 3, 2), (200, 2, 25), (200, 3, 11)],
)
def test_the_price_is_what_the_page_says(groups: int, ratio: int, answers: int) -> None:
    """So many answers of 60 tokens fit into epsilon 4, and one more does not."""
    costs = [
        accounting.compose(
            [Exponential(epsilon=4 * ratio / groups, count=60 * n)], 1e-6
        )
        for n in (answers, answers + 1)
    ]
    assert costs[0] <= 4 < costs[1]
    # Of zero-concentrated privacy, whose rho is 2 C^2 / (m^2 t^2) a token.
    rho = 60 * answers * 2 * ratio**2 / groups**2
    assert costs[0] <= rho + 2 * math.sqrt(rho * math.log(1e6))


# ---- around a chain ------------------------------------------------------------------


def test_what_can_not_work_is_refused_before_a_charge() -> None:
    with pytest.raises(InvalidParameterError, match="NextTokenLLM"):
        chain(ScriptedModel())
    sampled = SampledGroups.from_documents(
        clinic(), unit_key="patient", n_groups=GROUPS, sampling_rate=0.5
    )
    with pytest.raises(InvalidParameterError, match="groups of all units"):
        chain(words()).model_copy(update={"groups": sampled})
    with pytest.raises(InvalidParameterError, match="in a DPChain"):
        prose(budget=account()).invoke(["a dry cough"])
    for terms in ({"max_tokens": 0}, {"stop": ""}, {"temperature": 0.0}):
        with pytest.raises(InvalidParameterError):
            prose(**terms)
    made = chain(words(lambda *_: None))
    with pytest.raises(PublicCallError):
        made.invoke(ASKED)
    assert made.budget is not None
    assert made.budget.spent().queries == 0


@pytest.mark.parametrize("answered", [1, 2])
@pytest.mark.parametrize("error", [ConnectionError, InvalidParameterError])
def test_a_model_that_fails_in_the_midst_loses_nothing_that_is_paid(
    answered: int, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, asked = words(), iter(range(9))
    original = model.top_tokens

    def failing(*given: Any) -> Any:
        if next(asked) >= answered:
            raise error("the server is gone, or the text too long")
        return original(*given)

    monkeypatch.setattr(model, "top_tokens", failing)
    answer = chain(model).invoke(ASKED)
    assert answer.content == " ".join(["a", "dry"][:answered])
    assert record(answer).details["is_cut"]


def test_a_plan_sets_the_range_of_a_token_and_answers_are_stored() -> None:
    budget = account(epsilon=4.0, queries=2)
    made = chain(words(), parser=prose(epsilon=None), budget=budget, cache=True)
    first = record(made.invoke(ASKED))
    assert record(made.invoke(ASKED)).status in ("cached", first.status)
    assert budget.spent().queries == 1
    (event,) = first.events
    spent = accounting.compose([Exponential(epsilon=event["epsilon"], count=12)], 1e-6)
    assert 3.9 < spent <= 4


def test_a_check_and_an_audit_know_it() -> None:
    made = chain(words())
    report = made.check(ASKED, "a cough of person <1>")
    assert (report.reply, report.ok) == (" a dry cough", True)
    assert report.group_calls == 6 * GROUPS
    gone = note("new", "fever <99>", ward="1")
    found = snapshot(made, [gone], [ASKED], progress=False)
    assert found.is_sound
    assert not found.is_exact


@contextmanager
def watched(caplog: Any) -> Iterator[list[Any]]:
    seen: list[Any] = []
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        yield seen
        texts = [each.message for each in caplog.records]
        texts += [str(each.message) for each in told]
        # Prompts with a person's record; other loggers write of objects: <...>.
        seen += [text for text in texts if text.startswith("asked: ") and "<" in text]


def test_nobody_sees_a_prompt(caplog: pytest.LogCaptureFixture) -> None:
    def telling(text: str, tokens: Sequence[int]) -> Any:
        logging.getLogger("leaky").error("asked: %s", text)
        warnings.warn(f"asked: {text}", stacklevel=1)
        return likes(text, tokens)

    with watched(caplog) as seen:
        chain(words(telling)).invoke(ASKED)
    assert seen == []
    with watched(caplog) as seen, open_for_tests():
        chain(words(telling)).invoke(ASKED)
    assert len(seen) > 2 * GROUPS
