"""How much of an account is spent or left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from typing_extensions import Self


class BudgetState(float):
    """An amount of epsilon, which also says at which delta and for how many queries.

    It *is* the epsilon: compare it, format it, add it up as a number.

    Attributes:
        delta: The total failure probability at which this epsilon is stated.
        queries: The number of queries it stands for; None where that is not fixed.

    Example:
        >>> state = BudgetState(1.5, delta=1e-6, queries=2)
        >>> state < 8, state.epsilon, state.queries
        (True, 1.5, 2)
    """

    delta: float
    queries: int | None

    def __new__(cls, epsilon: float, *, delta: float, queries: int | None) -> Self:
        """Make the amount."""
        self = super().__new__(cls, epsilon)
        self.delta = delta
        self.queries = queries
        return self

    def __reduce__(self) -> tuple[Callable[..., BudgetState], tuple[Any, ...]]:
        return (_budget_state, (float(self), self.delta, self.queries))

    @property
    def epsilon(self) -> float:
        """The amount as a plain float."""
        return float(self)

    def __repr__(self) -> str:
        return (
            f"BudgetState(epsilon={float(self):.6g}, delta={self.delta:g}, "
            f"queries={self.queries})"
        )


def _budget_state(epsilon: float, delta: float, queries: int | None) -> BudgetState:
    return BudgetState(epsilon, delta=delta, queries=queries)
