"""Allowances: how much of an account one caller may spend.

Privacy:
    An allowance protects nobody. Callers may talk to each other, and a cached answer
    reaches a caller who did not pay for it; so each charge is charged to the account in
    full, and the account's (epsilon, delta) is the guarantee for all callers. An
    allowance keeps one caller from spending what the others need. What it refuses
    depends on charges alone, which depend on no record: a refusal is public.
"""

from __future__ import annotations

from dataclasses import dataclass

from langchain_dpicl.common import parameters
from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import AllowanceExhaustedError, InvalidParameterError
from langchain_dpicl.ledger.base import NAME_LIMIT


@dataclass(frozen=True)
class Allowance:
    """How much of an account a caller may spend.

    The epsilon of a caller is that of the caller's own charges, composed as if there
    were no others, at the account's full delta: under a plan so many of its uses, under
    a filter the sum of their losses. The epsilons of several callers do not add up to
    the account's, for composed epsilon grows more slowly than a sum.

    Attributes:
        caller: The caller's name. The ledger keeps it beside the caller's charges, and
            errors name it: use a pseudonym where operators must not know people.
        epsilon: The most that the caller's charges may compose to. As much as the
            account's or more is no limit beside the account's own.

    Raises:
        InvalidParameterError: If the name can't be kept, or epsilon is not positive and
            finite.

    Example:
        >>> Allowance("alice", 1.0)
        Allowance(caller='alice', epsilon=1.0)
    """

    caller: str
    epsilon: float

    def __post_init__(self) -> None:
        """Check the allowance."""
        # One spelling, as of units: no caller has two allowances by an accent.
        name = canonical_unit_id(self.caller) if isinstance(self.caller, str) else None
        if name is None or not name.isprintable() or len(name) > NAME_LIMIT:
            raise InvalidParameterError(
                "A caller's name must be a printable string of 1 to "
                f"{NAME_LIMIT} characters."
            )
        epsilon = parameters.epsilon(self.epsilon)
        object.__setattr__(self, "caller", name)
        object.__setattr__(self, "epsilon", float(epsilon))


@dataclass(frozen=True)
class CallerLimit:
    """An allowance in steps of an account's limit, as the ledger holds a caller to it.

    Attributes:
        allowance: The allowance.
        most: The most that the losses of the caller's charges may add up to.
    """

    allowance: Allowance
    most: int

    def after(self, account: str, spent: int, loss: int) -> int:
        """Return what the caller has spent after one more charge.

        Args:
            account: The account that would be charged.
            spent: What the caller has spent of it before.
            loss: The loss of the charge.

        Raises:
            AllowanceExhaustedError: If that is more than the caller may spend.

        Example:
            >>> CallerLimit(Allowance("alice", 1.0), most=2).after("notes", 1, 1)
            2
        """
        if spent + loss <= self.most:
            return spent + loss
        caller, epsilon = self.allowance.caller, self.allowance.epsilon
        what = (
            "This one release costs more than the whole allowance"
            if loss > self.most
            else "Not enough is left of the allowance"
        )
        raise AllowanceExhaustedError(
            f"{what} of caller {caller!r} in account {account!r} (epsilon "
            f"{epsilon:g}); nothing was asked of the model and nothing was charged. "
            "The operator can give the caller a larger Allowance; answers that are "
            "cached stay free."
        )
