"""How one unit more or less may change slots: checks for sources and twins."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from support.groups_fakes import (
    corpora,
    shared_units,
    slots_changed,
)

M = 4

Slots = list[tuple[tuple[str, str], ...]]


def run(check: Callable[..., None], *, examples: int = 120, twin: bool = False) -> None:
    """Run a property; a twin's failure needs no shrinking and no database."""
    words = st.lists(st.integers(0, 2**63), min_size=8, max_size=8, unique=True).map(
        lambda values: {f"p{i}": value for i, value in enumerate(values)}
    )
    phases = [Phase.generate] if twin else list(Phase)
    given(corpora(), words)(
        settings(
            deadline=None,
            max_examples=3 * examples if twin else examples,
            database=None,
            derandomize=True,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        )(check)
    )()


def check_disjoint(drawer: Any) -> Callable[..., None]:
    def check(case: Any, words: dict[str, int]) -> None:
        assert not shared_units(drawer(case[0], words))

    return check


def check_one_place(drawer: Any) -> Callable[..., None]:
    def check(case: Any, words: dict[str, int]) -> None:
        documents, rest, _ = case
        assert slots_changed(drawer(documents, words), drawer(rest, words)) <= 1

    return check


def check_insertion_order(drawer: Any) -> Callable[..., None]:
    def check(case: Any, words: dict[str, int]) -> None:
        documents = case[0]
        listed = drawer(documents, words)
        shuffled = list(documents)
        random.Random(1).shuffle(shuffled)
        assert drawer(shuffled, words) == listed
        assert drawer(documents[::-1], words) == listed

    return check
