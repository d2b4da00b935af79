"""Under per-unit accounts every eligible unit pays, and only payers take part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from groups_fakes import (
    QUESTION,
    SALT,
    Scripted,
    Till,
    WordEmbedding,
    contents,
    corpora,
    eligible_ids,
    note,
    retrieved,
    slots_changed,
    slots_in_and_out,
    units_in,
)
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document

from langchain_dpicl.exceptions import InvalidParameterError, LedgerError
from langchain_dpicl.groups import (
    Collect,
    GroupSource,
    NoisyThreshold,
    SampledGroups,
    shards,
)
from langchain_dpicl.groups.units import keyed_slot
from langchain_dpicl.mechanisms.source import SeededRandom

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_dpicl.groups import RetrievedGroups

SHARD: dict[str, Any] = {"score_threshold": 0.5}
UNIT: dict[str, Any] = {"score_threshold": 0.5, "grouping": "unit"}
CAPPED: dict[str, Any] = {**UNIT, "max_groups": 2}
ALL = [SHARD, UNIT, CAPPED]
NAMES = [f"p{i}" for i in range(8)]

Slots = list[tuple[tuple[str, str], ...]]


class Spread(WordEmbedding):
    """Spreads texts over the sphere, so that no two scores are equal."""

    def embed_query(self, text: str) -> list[float]:
        seed = keyed_slot(SALT, text, 1 << 32)
        return np.random.default_rng(seed).standard_normal(self.size).tolist()


def draw(
    documents: Sequence[Document],
    poor: Any,
    terms: dict[str, Any],
    words: dict[str, int] | None = None,
) -> tuple[Slots, list[str]]:
    """Draw, each unit with its own random word; return the slots and who was asked."""
    groups = retrieved(documents, **terms)
    prepared = groups.prepare(QUESTION)
    till = Till(poor)
    if words is not None:
        found = [unit for unit in eligible_ids(groups, prepared) if unit not in poor]
        groups._random = Scripted([words[unit] for unit in found])
    slots = contents(groups.draw_prepared(prepared, collect=till))
    [asked] = till.asked
    return slots, asked


def charges_the_kept(
    documents: Sequence[Document],
    poor: Any,
    terms: dict[str, Any],
    words: dict[str, int] | None = None,
) -> tuple[Slots, list[str]]:
    """Twin: ranks and caps first, then charges those that made the list."""
    slots, _ = draw(documents, (), terms, words)
    asked = sorted({unit for slot in slots for unit in units_in(slot)})
    paid = [tuple(doc for doc in slot if doc[0] not in poor) for slot in slots]
    return [slot for slot in paid if slot or terms is SHARD], asked


def skips_the_poor_late(
    documents: Sequence[Document],
    poor: Any,
    terms: dict[str, Any],
    words: dict[str, int] | None = None,
) -> tuple[Slots, list[str]]:
    """Twin: charges everybody rightly, but lets who did not pay take a place."""
    slots, _ = charges_the_kept(documents, poor, terms, words)
    return slots, draw(documents, poor, terms, words)[1]


def run(check: Callable[..., None], *, twin: bool = False) -> None:
    words = st.lists(st.integers(0, 2**63), min_size=8, max_size=8, unique=True)
    given(corpora(), st.sets(st.sampled_from(NAMES)), words)(
        settings(
            deadline=None,
            max_examples=300 if twin else 60,
            database=None,
            derandomize=True,
            phases=[Phase.generate] if twin else list(Phase),
            suppress_health_check=list(HealthCheck),
        )(
            lambda case, poor, values: check(
                case, poor, dict(zip(NAMES, values, strict=True))
            )
        )
    )()


def check_asked(drawer: Any, terms: Any) -> Callable[..., None]:
    def check(case: Any, poor: Any, words: Any) -> None:
        documents, rest, gone = case
        _, asked = drawer(documents, poor, terms, words)
        groups = retrieved(documents, score_threshold=0.5, grouping="unit")
        eligible = {
            unit for slot in contents(groups.draw(QUESTION)) for unit in units_in(slot)
        }
        assert asked == sorted(eligible)
        # Nobody's being asked depends on anybody else.
        _, without = drawer(rest, poor, terms, words)
        assert without == [unit for unit in asked if unit != gone]

    return check


def check_poor_change_nothing(drawer: Any, terms: Any) -> Callable[..., None]:
    def check(case: Any, poor: Any, words: Any) -> None:
        documents, rest, gone = case
        slots, _ = drawer(documents, {*poor, gone}, terms, words)
        assert slots == drawer(rest, poor, terms, words)[0]
        solvent = [doc for doc in rest if doc.metadata["unit"] not in poor]
        assert slots == drawer(solvent, (), terms, words)[0]

    return check


def check_payer_changes_one_slot(terms: Any) -> Callable[..., None]:
    def check(case: Any, poor: Any, words: Any) -> None:
        documents, rest, gone = case
        after, _ = draw(documents, poor - {gone}, terms, words)
        before, _ = draw(rest, poor - {gone}, terms, words)
        if terms is SHARD:
            assert slots_changed(before, after) <= 1
            return
        new, lost = slots_in_and_out(before, after)
        assert new <= 1
        assert lost <= (new if terms is CAPPED else 0)

    return check


@pytest.mark.parametrize("terms", ALL)
def test_exactly_the_eligible_units_are_asked_once(terms: Any) -> None:
    run(check_asked(draw, terms))


@pytest.mark.parametrize("terms", ALL)
def test_a_unit_that_cannot_pay_changes_nothing(terms: Any) -> None:
    run(check_poor_change_nothing(draw, terms))


@pytest.mark.parametrize("terms", ALL)
def test_a_unit_that_pays_changes_one_slot(terms: Any) -> None:
    run(check_payer_changes_one_slot(terms))


@pytest.mark.parametrize("terms", [SHARD, CAPPED])
def test_charging_the_kept_asks_too_few(terms: Any) -> None:
    with pytest.raises(AssertionError):
        run(check_asked(charges_the_kept, terms), twin=True)


@pytest.mark.parametrize("twin", [charges_the_kept, skips_the_poor_late])
@pytest.mark.parametrize("terms", [SHARD, CAPPED])
def test_who_takes_a_place_and_does_not_pay_is_seen(terms: Any, twin: Any) -> None:
    with pytest.raises(AssertionError):
        run(check_poor_change_nothing(twin, terms), twin=True)


@pytest.mark.parametrize("terms", [SHARD, CAPPED])
def test_units_left_out_by_a_cap_pay_as_well(terms: Any) -> None:
    documents = [note(f"p{i}", f"rash cough {i}") for i in range(8)]
    slots, asked = draw(documents, (), {**terms, "n_groups": 2, "docs_per_group": 1})
    assert asked == NAMES
    assert sum(map(len, slots)) == 2


@settings(deadline=None, max_examples=60)
@given(
    corpora(),
    st.sampled_from([-1.0, 0.0, 0.4, 0.5, 1.0]),
    st.integers(1, 5),
    st.sampled_from([{}, {"grouping": "unit"}, {"grouping": "unit", "max_groups": 3}]),
    st.booleans(),
)
def test_a_draw_that_everybody_pays_for_is_the_plain_draw(
    case: Any, threshold: Any, n: Any, terms: Any, spread: Any
) -> None:
    embedding = Spread() if spread else WordEmbedding()
    terms = {**terms, "score_threshold": threshold, "docs_per_group": n}
    plain, charged = (
        retrieved(case[0], embedding=embedding, random=SeededRandom(1), **terms)
        for _ in range(2)
    )
    drawn = charged.draw_prepared(charged.prepare(QUESTION), collect=Till())
    assert drawn == plain.draw(QUESTION)


@pytest.mark.parametrize("terms", ALL)
def test_nobody_is_eligible_and_the_ledger_is_asked(terms: Any) -> None:
    documents = [note(i, "sleep") for i in range(6)]
    slots, asked = draw(documents, (), {**terms, "score_threshold": 1.0})
    assert asked == []
    assert not any(slots)


@pytest.mark.parametrize("terms", ALL)
def test_nobody_pays(terms: Any) -> None:
    documents = [note(name, QUESTION) for name in NAMES]
    slots, asked = draw(documents, NAMES, terms)
    assert asked == NAMES
    assert slots == ([()] * 4 if terms is SHARD else [])


def test_a_unit_is_asked_under_its_one_spelling() -> None:
    documents = [note(7, "rash"), note(" 7 ", "cough"), note("7", QUESTION)]
    assert draw(documents, (), {**UNIT, "n_groups": 1})[1] == ["7"]


@pytest.mark.parametrize("terms", ALL)
@pytest.mark.parametrize(
    "answer",
    [
        lambda ids: [True] * (len(ids) - 1),
        lambda ids: [True] * (len(ids) + 1),
        lambda ids: [],
        lambda ids: None,
        lambda ids: True,
        lambda ids: [1] * len(ids),
        lambda ids: ["yes"] * len(ids),
        lambda ids: [None] * len(ids),
        lambda ids: dict.fromkeys(ids, True),
        lambda ids: np.ones((len(ids), 1), bool),
        lambda ids: np.ones(len(ids)),
    ],
)
def test_an_answer_that_is_not_whole_stops_the_draw(terms: Any, answer: Any) -> None:
    # A source that is asked for a word fails the test: nothing may be drawn.
    groups = retrieved(
        [note(f"secret-{i}", QUESTION) for i in range(6)], random=Scripted(), **terms
    )
    with pytest.raises(LedgerError, match="did not answer for each unit") as caught:
        groups.draw_prepared(groups.prepare(QUESTION), collect=answer)
    assert caught.value.__context__ is None
    assert "secret" not in str(caught.value)
    assert "6" not in str(caught.value)


def test_answers_may_be_numpy_or_an_iterator() -> None:
    groups = retrieved([note(i, QUESTION) for i in range(6)], **UNIT)
    prepared = groups.prepare(QUESTION)
    for answer in (
        lambda ids: np.array([unit == "3" for unit in ids]),
        lambda ids: (unit == "3" for unit in ids),
        lambda ids: tuple(unit == "3" for unit in ids),
    ):
        [[only]] = groups.draw_prepared(prepared, collect=answer)
        assert only.metadata["unit"] == 3


@pytest.mark.parametrize("terms", ALL)
def test_a_failing_ledger_stops_the_draw(terms: Any) -> None:
    def down(unit_ids: Sequence[str]) -> list[bool]:
        raise LedgerError("The ledger is down.")

    groups = retrieved([note(i, QUESTION) for i in range(6)], **terms)
    with pytest.raises(LedgerError, match="is down"):
        groups.draw_prepared(groups.prepare(QUESTION), collect=down)


@pytest.mark.parametrize("terms", ALL)
def test_a_draw_sees_one_snapshot(terms: Any) -> None:
    documents = [note(f"p{i}", f"rash {i}") for i in range(6)]
    terms = {**terms, "docs_per_group": 9, "random": SeededRandom(1)}
    expected = retrieved(documents, **terms).draw(QUESTION)
    groups = retrieved(documents, **terms)

    def meanwhile(unit_ids: Sequence[str]) -> list[bool]:
        groups.add_documents([note("new", QUESTION), note("p1", QUESTION)])
        groups.delete_unit("p2")
        return [True] * len(unit_ids)

    drawn = groups.draw_prepared(groups.prepare(QUESTION), collect=meanwhile)
    assert drawn == expected
    assert groups.n_units == 6


def test_threads_find_the_same(monkeypatch: Any) -> None:
    documents = [note(i % 20, f"text {i}") for i in range(80)]

    def drawn(terms: dict[str, Any]) -> Slots:
        terms = {**terms, "score_threshold": 0.0, "n_groups": 7, "embedding": Spread()}
        return draw(documents, {"3", "4", "5"}, {"random": SeededRandom(1), **terms})[0]

    sequential = [drawn(terms) for terms in ALL]
    monkeypatch.setattr(shards, "_PARALLEL_FROM", 0)
    monkeypatch.setattr(shards, "_cores", lambda: 3)
    assert [drawn(terms) for terms in ALL] == sequential


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from([1, 2, 3, 7, 8, 31, 384]),
    st.integers(1, 40),
    st.integers(0, 2**32 - 1),
)
def test_all_searches_compute_the_same_scores(size: Any, n: Any, seed: Any) -> None:
    # Eligibility comes from one FAISS routine, the order in a slot from another.
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((n, size)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    documents = [note(i, "text") for i in range(n)]
    ids = [str(i) for i in range(n)]
    index = shards.ShardIndex.from_vectors(
        vectors, documents, ids, n_shards=1, salt=SALT
    )
    question = rng.standard_normal((1, size)).astype(np.float32)
    question /= np.linalg.norm(question)
    [shard] = index.shards
    scores, rows = shard.index.search(question, n)
    whole = dict(zip(rows[0], scores[0], strict=True))
    hits = shard.hits(question, -1.0)
    assert dict(zip(hits.rows, hits.scores, strict=True)) == whole
    some = np.sort(rng.permutation(n)[: 1 + n // 2])
    scores, rows = shard.scored(question, some)
    assert sorted(rows) == some.tolist()
    assert all(whole[row] == score for row, score in zip(rows, scores, strict=True))


class OldSource(GroupSource):
    """A source from before there were per-unit accounts."""

    relation = None
    n_groups = 1
    n_units = 1
    unit_key = "unit"
    description: dict[str, Any] = {}  # noqa: RUF012  # as short as a source can be

    def prepare(self, question: str) -> str:
        return question

    def draw_prepared(self, prepared: str) -> list[list[Document]]:
        return [[Document(prepared)]]


class NewSource(OldSource):
    charges_units = True

    def draw_prepared(
        self, prepared: str, *, collect: Collect | None = None
    ) -> list[list[Document]]:
        assert collect is not None
        return [[Document(f"{prepared} {collect(['a'])}")]]


async def test_custom_sources_of_the_old_signature_go_on_working() -> None:
    source = OldSource()
    assert source.charges_units is False
    assert source.preliminary is None
    assert contents_of(source.draw("q")) == ["q"]
    assert contents_of(await source.adraw("q")) == ["q"]
    assert contents_of(await source.adraw_prepared("q")) == ["q"]
    with pytest.raises(InvalidParameterError, match="nothing to refine"):
        source.refine("q", grant=None)
    with pytest.raises(InvalidParameterError, match="nothing to refine"):
        await source.arefine("q", grant=None)


async def test_the_async_twin_hands_collect_on() -> None:
    drawn = await NewSource().adraw_prepared("q", collect=Till())
    assert contents_of(drawn) == ["q [True]"]
    groups = retrieved([note(name, QUESTION) for name in NAMES], **UNIT)
    till = Till(NAMES[1:])
    prepared = await groups.aprepare(QUESTION)
    slots = await groups.adraw_prepared(prepared, collect=till)
    assert contents(slots) == [(("p0", QUESTION),)]
    assert till.asked == [NAMES]


def contents_of(slots: list[list[Document]]) -> list[str]:
    return [document.page_content for slot in slots for document in slot]


@pytest.mark.parametrize(
    ("terms", "charges"),
    [
        ({}, False),
        (SHARD, True),
        (UNIT, True),
        (CAPPED, True),
        ({"score_threshold": NoisyThreshold(5)}, True),
    ],
)
def test_a_threshold_is_what_lets_units_be_charged(terms: Any, charges: Any) -> None:
    groups: RetrievedGroups = retrieved([note(i, "rash") for i in range(6)], **terms)
    assert groups.charges_units is charges


def test_sources_that_cannot_charge_units_refuse() -> None:
    documents = [note(i, "rash") for i in range(6)]
    sampled = SampledGroups.from_documents(
        documents, unit_key="unit", n_groups=2, sampling_rate=0.5
    )
    assert sampled.charges_units is False
    till = Till()
    for groups in (retrieved(documents), sampled):
        prepared = groups.prepare(QUESTION)
        with pytest.raises(InvalidParameterError, match="cannot charge units"):
            groups.draw_prepared(prepared, collect=till)
        assert len(groups.draw_prepared(prepared, collect=None)) == groups.n_groups
    assert till.asked == []
