"""Per-unit accounts in a question: who pays, who takes part, and what shows of it.

Every eligible person pays, not the top and not the sampled. Who can't pay is as if not
in the corpus: before the search cuts, and before a slot counts as empty. Nothing that
an asker sees tells that nobody could pay. The twins pay by the wrong rules.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from faces import InvalidParameterError, SampledGroups, VoteOutputParser, chain, record
from faces import payers as payments
from hypothesis import given
from langchain_core.documents import Document
from questions import (
    ASK,
    ASKED,
    UNITS,
    account,
    clinic,
    counted,
    note,
    stored,
    worlds,
)
from scripted import AsyncScriptedModel, ScriptedModel
from worlds import UNIT

LABELS = ["oak", "elm"]
LEAST = 0.7
FIRST = "rash"


def near(document: Document, asked: str = ASKED) -> float:
    """Return a document's cosine to a question."""
    own, other = counted(document.page_content), counted(asked)
    dot = sum(a * b for a, b in zip(own, other, strict=True))
    size = sum(a * a for a in own) * sum(b * b for b in other)
    return dot / size**0.5


def passing(documents: list[Document], asked: str = ASKED) -> set[str]:
    """Return the people whose own best record passes: who is eligible."""
    return {str(d.metadata[UNIT]) for d in documents if near(d, asked) >= LEAST}


def ones(documents: list[Document], paid: set[str]) -> dict[str, int]:
    """Return one payment of these, and none of all others."""
    return {
        str(d.metadata[UNIT]): int(str(d.metadata[UNIT]) in paid) for d in documents
    }


def unit_account(**terms: Any) -> Any:
    return account(**{"scope": "unit", "queries": 1, "epsilon": 1e4, **terms})


def made(documents: list[Document], budget: Any, **terms: Any) -> tuple[Any, Any]:
    """Return a chain over these records, and its model."""
    model = AsyncScriptedModel(script=lambda prompt: "oak")
    groups = stored(documents, n_groups=3, score_threshold=LEAST, **terms)
    # A whole vote of lead: a label of no votes comes out of no noise then.
    parser = VoteOutputParser(labels=LABELS, noise_multiplier=None, min_lead=1)
    return chain(groups, model, parser, budget, cache=False), model


def prompts_of(model: Any) -> Counter[str]:
    """Return the prompts, but for the question alone, and forget them."""
    found = Counter(prompt for prompt in model.prompts if "Records:" in prompt)
    model.prompts.clear()
    return found


def check_as_without(found: Counter[str], expected: Counter[str]) -> None:
    """The prompts are those of a corpus without the people who can't pay."""
    assert found == expected


def check_paid(paid: dict[str, int], expected: dict[str, int]) -> None:
    """Each eligible person has paid once, and nobody else."""
    assert paid == expected


@pytest.mark.promise("all-eligible-pay", "cannot-pay-is-not-there")
@given(world=worlds())
async def test_who_has_nothing_left_is_as_if_not_in_the_corpus(world: Any) -> None:
    """A first question spends some people; a second one is asked without them."""
    documents = world[0]
    budget = unit_account()
    asked, model = made(documents, budget, docs_per_group=1)
    await asked.ainvoke(FIRST)
    spent = passing(documents, FIRST)
    people = list(ones(documents, set()))
    check_paid(payments(budget, people), ones(documents, spent))
    prompts_of(model)
    await asked.ainvoke(ASKED)
    found = prompts_of(model)
    check_paid(payments(budget, people), ones(documents, spent | passing(documents)))
    # The neighbor's groups: nobody who is spent, and people whom nobody asks about.
    rest = [one for one in documents if str(one.metadata[UNIT]) not in spent]
    rest += [note(f"other {n}", "fever", ward="3") for n in range(3)]
    fresh, other = made(rest, unit_account(), docs_per_group=1)
    await fresh.ainvoke(ASKED)
    check_as_without(found, prompts_of(other))


@pytest.mark.promise("cannot-pay-is-not-there")
async def test_who_cannot_pay_takes_nobodys_place() -> None:
    """Those nearest to the question are spent: each slot holds who comes next."""
    nearest = [note(f"a{n}", ASKED, ward="3") for n in range(12)]
    others = [note(f"b{n}", "cough", ward="3") for n in range(12)]
    asked, model = made([*nearest, *others], unit_account(), docs_per_group=1)
    await asked.ainvoke("cough rash rash")
    prompts_of(model)
    await asked.ainvoke(ASKED)
    fresh, other = made(others, unit_account(), docs_per_group=1)
    await fresh.ainvoke(ASKED)
    check_as_without(prompts_of(model), prompts_of(other))


@pytest.mark.promise("all-eligible-pay")
@pytest.mark.parametrize("way", ASK)
async def test_all_who_are_eligible_pay_sampled_or_not(way: str) -> None:
    """The cap of a group, and the sample, decide nothing about who pays."""
    documents = [
        note(f"p{n}", ("cough", "cough rash", "fever")[n % 3], ward="3")
        for n in range(60)
    ]
    groups = stored(
        documents, docs_per_group=1, score_threshold=LEAST, sampling_rate=0.3
    )
    budget = account(scope="unit", epsilon=90)
    parser = VoteOutputParser(labels=LABELS, noise_multiplier=1.0)
    asked = chain(groups, AsyncScriptedModel(), parser, budget, cache=False)
    paid = []
    for number in (1, 2):
        await ASK[way](asked, ASKED)
        found = payments(budget, ones(documents, set()))
        assert {unit for unit, count in found.items() if count} == passing(documents)
        assert len(set(found.values())) == 2
        paid.append(max(found.values()))
        assert budget.spent().queries == number
    assert paid[1] == pytest.approx(2 * paid[0], rel=1e-6)


@pytest.mark.promise("nobody-could-pay-does-not-show")
@pytest.mark.parametrize("way", ASK)
async def test_nothing_tells_that_nobody_could_pay(way: str) -> None:
    """A spent corpus, and one with nothing to say, look the same from outside."""
    spent, silent = clinic(), clinic(told="fever")
    looks = []
    for documents in (spent, silent):
        budget = unit_account()
        asked, model = made(documents, budget)
        await ASK[way](asked, ASKED)
        before = len(model.prompts)
        answer = await ASK[way](asked, ASKED)
        told = record(answer)
        looks.append(
            (
                len(model.prompts) - before,
                told["status"],
                told["details"]["reason"],
                told["charge"],
                told.get("calls"),
                sorted(told),
                answer.content,
            )
        )
        assert not any("<" in prompt for prompt in model.prompts[before:])
    assert looks[0] == looks[1]
    assert looks[0][:2] == (3, "abstained")


@pytest.mark.promise("balance-outlives-deletion")
def test_a_person_who_comes_back_is_as_spent_as_before() -> None:
    documents, budget = clinic(), unit_account()
    asked, model = made(documents, budget)
    asked.invoke(ASKED)
    for one in documents:
        asked.groups.delete_unit(one.metadata[UNIT]) if one.metadata[
            UNIT
        ] != "p0" else 0
    asked.groups.add_documents(documents[1:])
    prompts_of(model)
    asked.invoke(ASKED)
    assert not any("<" in prompt for prompt in prompts_of(model))


@pytest.mark.promise("all-eligible-pay")
def test_groups_that_cannot_name_who_takes_part_are_refused() -> None:
    """A top n, a secret sample without a search, a parser alone: before any charge."""
    budget, parser = unit_account(), VoteOutputParser(labels=LABELS)
    sampled = SampledGroups.from_documents(
        clinic(), unit_key=UNIT, n_groups=3, sampling_rate=0.5
    )
    for groups in (stored(clinic()), sampled):
        model = ScriptedModel()
        with pytest.raises(InvalidParameterError):
            chain(groups, model, parser, budget).invoke(ASKED)
        assert not any("<" in prompt for prompt in model.prompts)
    with pytest.raises(InvalidParameterError):
        VoteOutputParser(labels=LABELS, budget=budget).invoke(["oak"] * 9)
    assert budget.spent().queries == 0


# ---- twins ---------------------------------------------------------------------------


def corpora(seed: int) -> list[Document]:
    seeded = random.Random(seed)
    return [
        note(unit, " ".join(seeded.choices(("cough", "rash", "fever"), k=2)), number)
        for number, unit in enumerate([*UNITS, *UNITS])
    ]


def best(documents: list[Document], asked: str) -> list[list[Document]]:
    """Return the best passing record of each of three shards."""
    ranked = sorted(documents, key=lambda d: (-near(d, asked), str(d.id)))
    kept = [d for d in ranked if near(d, asked) >= LEAST]
    return [[d for d in kept if hash_of(d) == n][:1] for n in range(3)]


def hash_of(document: Document) -> int:
    return sum(map(ord, str(document.metadata[UNIT]))) % 3


def owners(slots: list[list[Document]]) -> set[str]:
    return {str(one.metadata[UNIT]) for slot in slots for one in slot}


def right(documents: list[Document], coins: dict[str, bool]) -> set[str]:
    return passing(documents)


def top_pays(documents: list[Document], coins: dict[str, bool]) -> set[str]:
    """Who is found pays."""
    return owners(best(documents, ASKED))


def sampled_pays(documents: list[Document], coins: dict[str, bool]) -> set[str]:
    """Who is in the sample pays."""
    return {unit for unit in passing(documents) if coins[unit]}


@pytest.mark.promise("all-eligible-pay", twin=True)
@pytest.mark.parametrize("wrong", [top_pays, sampled_pays])
def test_wrong_payers_are_caught(wrong: Any) -> None:
    def check(rule: Any) -> None:
        for seed in range(50):
            documents = corpora(seed)
            coins = {str(u): random.Random(f"{seed}{u}").random() < 0.5 for u in UNITS}
            paid = rule(documents, coins)
            check_paid(ones(documents, paid), ones(documents, passing(documents)))

    check(right)
    with pytest.raises(AssertionError):
        check(wrong)


@pytest.mark.promise("cannot-pay-is-not-there", twin=True)
def test_dropping_after_the_search_is_caught() -> None:
    """The twin finds the best of everybody, and then leaves out who can't pay."""
    with pytest.raises(AssertionError):
        for seed in range(50):
            documents = corpora(seed)
            spent = passing(documents, FIRST)
            rest = [d for d in documents if str(d.metadata[UNIT]) not in spent]
            found = [
                [d for d in slot if str(d.metadata[UNIT]) not in spent]
                for slot in best(documents, ASKED)
            ]
            check_as_without(
                Counter(str(slot) for slot in found),
                Counter(str(slot) for slot in best(rest, ASKED)),
            )
