"""How much a per-unit account loses that charges the members of a top-k list.

The k best of the corpus are retrieved, of those units that can still pay, and charged.
Each unit pays once at most, and the account says epsilon = 1. But a unit on the list
keeps another one off it, which then has its balance left and is on the next list: from
the first query on, every list differs between two worlds that differ by one unit.

The same question is asked N times. Each answer is one bit, flipped with probability
1 / (1 + e): a mechanism with epsilon = 1. The measured epsilon is the exact one of all
N bits together, at the account's delta.
"""

from __future__ import annotations

import math

import pytest
from support.audit.broken_worlds import ChargesTheTop
from support.audit.exact_losses import Pair, composed, measured_epsilon
from support.audit.small_corpora import Unit, unit_x
from support.audit.two_worlds import Account, Answer, Query, Setting, World
from support.audit.world_pairs import Adversary

from langchain_dpicl.accounting import PurePart

ACCOUNT = Account(epsilon=1.0, delta=1e-6, queries=1)
OTHERS = tuple(Unit(f"y{i}", ((0.9 - 0.02 * i,),)) for i in range(1, 32))
QUERIES = (1, 2, 5, 10, 20, 30)


def bit(answer: Answer) -> Pair:
    """Return the probabilities of a yes and a no; every second unit says yes."""
    [name] = [content[0].split("/")[0] for content in answer.votes] or ["nobody"]
    assert answer.paid is not None
    truth = 1 / (1 + math.exp(-answer.paid.noise.epsilon))
    says_yes = name[-1] in "13579"
    return (truth, 1 - truth) if says_yes else (1 - truth, truth)


def measured(kind: type[World], number: int) -> float:
    """Return the epsilon that `number` queries really cost x."""
    pair = Adversary(OTHERS, unit_x((0.95,)), 0, Setting((ACCOUNT,)), number, kind)
    path = ((Query(0, 0.0, PurePart(1.0)), ()),) * number
    steps = []
    for length in range(1, number + 1):
        one, other = pair.answers(path[:length])
        steps.append(list(zip(bit(one), bit(other), strict=True)))
    return measured_epsilon(composed(steps), ACCOUNT.delta)


def figures() -> list[tuple[int, float, float, float]]:
    """Return rows: queries, claimed epsilon, measured: all eligible pay, top-k pays."""
    return [
        (
            number,
            ACCOUNT.epsilon,
            measured(World, number),
            measured(ChargesTheTop, number),
        )
        for number in QUERIES
    ]


def test_charging_the_top_k_loses_as_much_as_is_asked() -> None:
    table = figures()
    shown = "\n".join(
        f"{number:7} {claimed:7.2f} {sound:12.2f} {broken:12.2f}"
        for number, claimed, sound, broken in table
    )
    for number, claimed, sound, broken in table:
        assert 0.99 < sound <= claimed + 1e-9, shown
        assert broken == pytest.approx(number, abs=0.05), shown
