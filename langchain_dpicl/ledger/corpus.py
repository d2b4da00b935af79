"""A corpus of people, a cap on what each can lose, and when accounts count for it.

Accounts of one corpus protect the same people, so what they release adds up. The
corpus has a *cap* (epsilon, delta), for all time or within any `window_days` days. A
new account is charged for the first time only while the terms of all accounts that
count, and its own, add up to the cap at most. Otherwise it is not opened either. An
account counts with its whole (epsilon, delta), whatever was charged, from its first
charge until `window_days` after its last possible one: the end of its period, or its
closing. Without a window, or without an end, it counts for all time. An account without
any charge, such as one whose first release was refused, counts for nothing.

Time:
    The *ledger's time* is the database's, and never goes back: the time of an event is
    the later one of what the database says and of the last times in the corpus's books,
    which are read first. Opening an account and its first charge hold the corpus's row
    alone, other charges and a closing hold it shared, so that these events of a corpus
    are in one order as far as they count for each other. A release counts for the time
    of its charge: what is given again later was paid for then.

Theorem:
    Take any `window_days` days of the ledger's time, fixed beforehand. What the
    accounts of the corpus release for charges in them is (epsilon, delta)-
    differentially private for the corpus's unit, with the cap's epsilon and delta,
    against an adversary who asks all accounts concurrently, and chooses each question,
    and when to open which account on which terms, by all answers before. What is
    released for charges before and after is the same in both worlds. The same holds for
    all that some accounts release over their lives, if these accounts are named
    beforehand and each of them is charged in these days. Without a window it holds for
    all accounts together.

Proof:
    *Their terms add up to the cap at most.* Take the accounts that were charged in the
    window up to some moment. Let B be the one among them whose first charge of all came
    last, at time T, and A another one, charged at a time t of the window. B's charge in
    the window is no earlier than T, so T <= t + window. A's last possible charge is at
    E >= t, so T <= E + window: A, which had been charged before T, counted at B's first
    charge. So the sum of the terms of all of these accounts was part of what was
    compared with the cap then. This is so at every moment: which accounts are charged
    in the window is chosen as the run goes, and an account begins here with its first
    charge in the window.

    *Sums of terms bound what is released.* Each account is one interactive mechanism
    that is (epsilon_i, delta_i)-differentially private against adaptive questions: by
    its plan, or by its filter. Charges outside the window, whose releases are the same
    in both worlds, leave less to tell. Such mechanisms, asked concurrently and
    interleaved at will, compose as non-interactive ones do (Vadhan and Wang, 2021, for
    pure, and Lyu, 2022, for approximate differential privacy), so that epsilons and
    deltas add up. The accounts' terms may depend on earlier answers, as long as the sum
    of those begun never passes a bound that is fixed before: the concurrent filter of
    Haney et al. (2023), here with basic composition. The cap is that bound, and the
    ledger refuses the first charge that would pass it, before anything is released.

    The sum says nothing about two corpora that hold the same person. Per-unit accounts
    (epsilon, delta) for each unit count in the same way.

References:
    Vadhan, Wang: Concurrent Composition of Differential Privacy, TCC 2021.
    Lyu: Composition Theorems for Interactive Differential Privacy, NeurIPS 2022.
    Haney, Shoemate, Tian, Vadhan, Vyrros, Xu, Zhang: Concurrent Composition for
    Interactive Differential Privacy with Adaptive Privacy-Loss Parameters, CCS 2023.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from langchain_dpicl.accounting.events import Positive
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    PlanMismatchError,
)
from langchain_dpicl.ledger.terms import (
    DAY,
    NO_LIMIT,
    AccountTerms,
    Delta,
    Name,
    minute,
    next_period,
    span_of,
)
from langchain_dpicl.public import Public

if TYPE_CHECKING:
    from langchain_dpicl.ledger.book import Book


class CorpusTerms(Public):
    """What the operator promises the people of a corpus, whatever accounts there are.

    Raises:
        InvalidParameterError: If a field is out of its range.

    Example:
        >>> CorpusTerms("clinic", "patient", epsilon=24, delta=3e-6).window_days is None
        True
    """

    name: Name
    """Name of the corpus, unique in its ledger."""

    unit_key: str | None
    """The metadata key that names the protected unit in all of its accounts; None where
    each record is a unit of its own."""

    epsilon: Positive
    """The cap on the sum of the accounts' epsilons."""

    delta: Delta
    """The cap on the sum of their deltas."""

    window_days: Annotated[int, Field(ge=1, le=36_525)] | None = None
    """Within how many days the cap holds; None is for all time."""

    def __init__(self, name: str, unit_key: str | None, **terms: Any) -> None:
        super().__init__(name=name, unit_key=unit_key, **terms)  # type: ignore[call-arg]  # hidden from checkers

    @property
    def promise(self) -> str:
        """The cap in words."""
        window = self.window_days
        when = "for all time" if window is None else f"within any {window} days"
        return f"epsilon {self.epsilon:g} and delta {self.delta:g} {when}"

    def require_unit_key(self, account: str, unit_key: str | None) -> None:
        """Refuse a release about another kind of unit than the corpus's."""
        if unit_key != self.unit_key:
            raise PlanMismatchError(
                f"Account {account!r} can't be used for releases about the unit "
                f"{unit_key!r}: corpus {self.name!r} protects {self.unit_key!r}. Ask a "
                "source of groups, or release a table, with that unit_key; or open the "
                "account in another corpus."
            )


@dataclass(frozen=True)
class CorpusState:
    """A corpus as the ledger holds it."""

    terms: CorpusTerms
    """What was promised."""

    at: int
    """The ledger's time, in microseconds."""

    accounts: tuple[Book, ...] = ()
    """Its accounts, in the order of their opening."""

    @property
    def counted(self) -> tuple[Book, ...]:
        """The accounts that count now: each from its first charge on."""
        return tuple(book for book in self.accounts if self._counts(book))

    @property
    def committed(self) -> tuple[float, float]:
        """The epsilon and delta of the accounts that count now, summed."""
        epsilon, delta = _sum(book.account for book in self.counted)
        return float(epsilon), float(delta)

    def counts_until(self, book: Book) -> int | None:
        """Return the last moment at which an account counts; None is for all time."""
        end = min(book.account.span[1], book.closed_at or NO_LIMIT)
        window = self.terms.window_days
        return None if end == NO_LIMIT or window is None else end + window * DAY

    def require_opening(self, terms: AccountTerms) -> None:
        """Refuse to open an account that could not be charged."""
        if terms.span[1] <= self.at:
            raise BudgetExhaustedError(
                f"Account {terms.name!r} can't be opened: its period {terms.period} is "
                f"over, for the ledger's time is {minute(self.at)}."
            )
        self.require_room(terms)

    def require_room(self, terms: AccountTerms) -> None:
        """Refuse an account that the cap has no room for."""
        counted, cap = self.counted, self.terms
        epsilon, delta = _sum([terms, *(book.account for book in counted)])
        if epsilon <= _exact(cap.epsilon) and delta <= _exact(cap.delta):
            return
        taken = "epsilon {:g} and delta {:g}".format(*self.committed)
        raise BudgetExhaustedError(
            f"Account {terms.name!r} (epsilon {terms.epsilon:g}, delta "
            f"{terms.delta:g}) has no room: corpus {cap.name!r} has a cap of "
            f"{cap.promise}, and {len(counted)} accounts have committed {taken} of it. "
            "'dpicl ledger list --corpora' shows which, and until when each counts."
        )

    def _counts(self, book: Book) -> bool:
        until = self.counts_until(book)
        return book.used > 0 and (until is None or self.at <= until)


def renewed(terms: AccountTerms, at: int) -> AccountTerms:
    """Return the terms of the account that follows: the next period that is not over.

    Args:
        terms: Those of an account with a period.
        at: The ledger's time, in microseconds.

    Example:
        >>> old = AccountTerms(
        ...     name="clinic/2026-11",
        ...     epsilon=8,
        ...     delta=1e-6,
        ...     queries=20,
        ...     corpus="clinic",
        ...     period="2026-11",
        ... )
        >>> renewed(old, at=0).name
        'clinic/2026-12'
    """
    if terms.period is None:
        raise InvalidParameterError(
            f"Account {terms.name!r} has no period, so that none follows it. Open one "
            "with corpus= and period=."
        )
    period = next_period(terms.period)
    while span_of(period)[1] <= at:
        period = next_period(period)
    name = terms.name.replace(terms.period, period)
    if terms.period not in terms.name:
        name += f"/{period}"
    return terms.model_copy(update={"name": name, "period": period})


def _sum(terms: Iterable[AccountTerms]) -> tuple[Fraction, Fraction]:
    """Add up as people do, in decimals: three times 0.1 is 0.3."""
    held = list(terms)
    epsilon = sum((_exact(account.epsilon) for account in held), Fraction())
    return epsilon, sum((_exact(account.delta) for account in held), Fraction())


def _exact(number: float) -> Fraction:
    return Fraction(repr(float(number)))
