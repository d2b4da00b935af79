"""A corpus of people, a cap on what each can lose, and when accounts count for it.

Accounts of one corpus protect the same people, so what they release adds up. The
corpus has a *cap* (epsilon, delta), for ever or within any `window_days` days. A new
account is charged for the first time only while the terms of all accounts that count,
and its own, add up to the cap at most; where they don't, it is not opened either. An
account counts with its whole (epsilon, delta), whatever was charged, from its first
charge until `window_days` after its last possible one: the end of its period, or its
closing. Without a window, or without an end, it counts for ever. An account without any
charge, such as one whose first release was refused, counts for nothing.

Time:
    The *ledger's time* is the database's, and never goes back: each corpus keeps the
    last time that was seen, and the time of an event is the later one of that and of
    what the database says. Opening, charging and closing an account hold the corpus's
    row, so that these events of a corpus are in one order, and their times with them.
    A release counts for the time of its charge: what `resume=` gives later was paid
    for then.

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
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from fractions import Fraction

from langchain_dpicl.common import parameters
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    LedgerError,
    PlanMismatchError,
)
from langchain_dpicl.ledger.base import (
    AccountState,
    AccountTerms,
    Plan,
    differences,
)
from langchain_dpicl.ledger.charging import require_name
from langchain_dpicl.ledger.periods import next_period, parse_period

_MOST_DAYS = 36_525
_MOST_NAMES = 10
Amount = tuple[Fraction, Fraction]


@dataclass(frozen=True)
class CorpusTerms:
    """What the operator promises the people of a corpus, whatever accounts there are.

    Attributes:
        name: The corpus's name, unique in its ledger.
        unit_key: The metadata key that names the protected unit in all of its accounts;
            None where each record is a unit of its own.
        epsilon: The cap on the sum of the accounts' epsilons.
        delta: The cap on the sum of their deltas.
        window_days: Within how many days the cap holds; None is for ever.

    Raises:
        InvalidParameterError: If one of them is out of its range.
        LedgerError: If the name can't be used.

    Example:
        >>> CorpusTerms("clinic", "patient", epsilon=24, delta=3e-6).window_days is None
        True
    """

    name: str
    unit_key: str | None
    epsilon: float
    delta: float
    window_days: int | None = None

    def __post_init__(self) -> None:
        """Check the terms."""
        require_name(self.name)
        if self.unit_key is not None and not isinstance(self.unit_key, str):
            raise InvalidParameterError("unit_key must be a metadata key, or None.")
        parameters.epsilon(self.epsilon)
        parameters.delta(self.delta)
        days = self.window_days
        if days is not None and parameters.count(days, "days") > _MOST_DAYS:
            raise InvalidParameterError(
                f"window_days must be at most {_MOST_DAYS}; None is for ever."
            )

    def require_same(self, stored: CorpusTerms) -> None:
        """Refuse to use a corpus under other terms than it was created with."""
        if differing := differences(self, stored):
            raise PlanMismatchError(
                f"Corpus {self.name!r} is there with other terms: "
                f"{differing}. What was promised to its people can't be "
                "changed: use the stored terms."
            )

    def require_possible(self, terms: AccountTerms) -> None:
        """Refuse an account that would have no room in the empty corpus.

        Raises:
            BudgetExhaustedError: If it alone is more than the cap.
            InvalidParameterError: If its terms can't be those of a corpus's account.
            LedgerError: Likewise.
        """
        require_name(terms.name)
        require_corpus_terms(terms)
        CorpusState(self, datetime.now(timezone.utc)).require_room(terms)

    def require_unit(self, account: str, plan: Plan) -> None:
        """Refuse a plan for another kind of unit than the corpus's."""
        key = plan.template.get("unit_key")
        if key != self.unit_key:
            raise PlanMismatchError(
                f"Account {account!r} can't be used for releases about the unit "
                f"{key!r}: corpus {self.name!r} protects {self.unit_key!r}. Ask a "
                "source of groups, or release a table, with that unit_key; or open the "
                "account in another corpus."
            )

    @property
    def promise(self) -> str:
        """The cap in words."""
        window = self.window_days
        when = "for ever" if window is None else f"within any {window} days"
        return f"epsilon {self.epsilon:g} and delta {self.delta:g} {when}"


@dataclass(frozen=True)
class CorpusState:
    """A corpus as the ledger holds it.

    Attributes:
        terms: What was promised.
        at: The ledger's time.
        accounts: Its accounts, in the order of their opening.
    """

    terms: CorpusTerms
    at: datetime
    accounts: tuple[AccountState, ...] = ()

    @property
    def counted(self) -> tuple[AccountState, ...]:
        """The accounts that count now: each from its first charge on."""
        return tuple(one for one in self.accounts if self._counts(one))

    @property
    def committed(self) -> tuple[float, float]:
        """The epsilon and delta of the accounts that count now, summed."""
        epsilon, delta = _sum(one.terms for one in self.counted)
        return float(epsilon), float(delta)

    def counts_until(self, account: AccountState) -> datetime | None:
        """Return the last moment at which an account counts; None is for ever."""
        end, window = _last_charge(account), self.terms.window_days
        if end is None or window is None:
            return None
        return end + timedelta(days=window)

    def require_opening(self, terms: AccountTerms) -> None:
        """Refuse to open an account that could not be charged.

        Raises:
            BudgetExhaustedError: If the cap has no room for it, or its period is over.
        """
        if terms.span is not None and terms.span.end <= self.at:
            raise BudgetExhaustedError(
                f"Account {terms.name!r} can't be opened: its period {terms.period} is "
                f"over, for the ledger's time is {_minute(self.at)}."
            )
        self.require_room(terms)

    def require_room(self, terms: AccountTerms) -> None:
        """Refuse an account that the cap has no room for.

        Raises:
            BudgetExhaustedError: If its terms and those that count pass the cap.
        """
        held = {one.terms.name: self.counts_until(one) for one in self.counted}
        if self._fits(terms, held):
            return
        ends = sorted({end for end in held.values() if end is not None})
        room = (
            end
            for end in ends
            if self._fits(terms, [n for n, u in held.items() if u is None or u > end])
        )
        first = next(room, None)
        names = ", ".join(repr(name) for name in list(held)[:_MOST_NAMES])
        more = len(held) - _MOST_NAMES
        epsilon, delta = self.committed
        raise BudgetExhaustedError(
            f"Account {terms.name!r} (epsilon {terms.epsilon:g}, delta "
            f"{terms.delta:g}) has no room: corpus {self.terms.name!r} has a cap of "
            f"{self.terms.promise}, and {len(held)} accounts ({names}"
            f"{f' and {more} more' if more > 0 else ''}) have committed epsilon "
            f"{epsilon:g} and delta {delta:g} of it. "
            + (
                "There will never be room, for they count for ever."
                if first is None and self._fits(terms, ())
                else "It alone is more than the cap."
                if first is None
                else f"There is room after {_minute(first)}."
            )
        )

    def require_room_for_first(self, account: AccountState) -> None:
        """Refuse an account's first charge, at the very time that the charge will have.

        Raises:
            BudgetExhaustedError: If the cap has no room for the account then.
        """
        replace(self, at=account.at or self.at).require_room(account.terms)

    def _counts(self, account: AccountState) -> bool:
        until = self.counts_until(account)
        return account.used > 0 and (until is None or self.at <= until)

    def _fits(self, terms: AccountTerms, held: Iterable[str]) -> bool:
        names = set(held)
        others = (one.terms for one in self.accounts if one.terms.name in names)
        epsilon, delta = _sum([terms, *others])
        cap = _exact(self.terms.epsilon), _exact(self.terms.delta)
        return epsilon <= cap[0] and delta <= cap[1]


def renewed(terms: AccountTerms, at: datetime | None) -> AccountTerms:
    """Return the terms of the account that follows: the next period that is not over.

    Raises:
        InvalidParameterError: If the account has no corpus or no period.

    Example:
        >>> from datetime import timezone
        >>> old = AccountTerms(
        ...     "clinic/2026-11", 8.0, 1e-6, 20, corpus="clinic", period="2026-11"
        ... )
        >>> renewed(old, datetime(2026, 11, 30, tzinfo=timezone.utc)).name
        'clinic/2026-12'
    """
    if terms.corpus is None or terms.period is None or at is None:
        raise InvalidParameterError(
            f"Account {terms.name!r} has no period, so that none follows it. Open one "
            "with corpus= and period=."
        )
    period = next_period(terms.period)
    while parse_period(period).end <= at:
        period = next_period(period)
    name = (
        terms.name.replace(terms.period, period)
        if terms.period in terms.name
        else f"{terms.name}/{period}"
    )
    return replace(terms, name=name, period=period)


def require_corpus_terms(terms: AccountTerms) -> AccountTerms:
    """Refuse a period without a corpus, whose time decides, and a blank purpose.

    Raises:
        LedgerError: If there is one.
        InvalidParameterError: If the period can't be read.
    """
    if terms.corpus is None and terms.period is not None:
        raise LedgerError(
            f"Account {terms.name!r} has a period and no corpus. Name the corpus, by "
            "whose time the period begins and ends."
        )
    purpose = terms.purpose
    if purpose is not None and not (isinstance(purpose, str) and purpose.isprintable()):
        raise LedgerError("An account's purpose must be a printable string.")
    if terms.corpus is not None:
        parameters.epsilon(terms.epsilon)
        parameters.delta(terms.delta)
    return replace(terms, period=None if terms.span is None else terms.span.text)


def unknown_corpus(name: str) -> LedgerError:
    """Return the error for a corpus that the ledger does not hold."""
    return LedgerError(
        f"The ledger holds no corpus {name!r}. Is the name right ('dpicl ledger "
        "corpora' shows them)? corpus=CorpusTerms(...) creates one with its cap."
    )


def _last_charge(account: AccountState) -> datetime | None:
    """Return when an account can't be charged any more; None is never."""
    span, closed_at = account.terms.span, account.closed_at
    if span is None or closed_at is None:
        return closed_at if span is None else span.end
    return min(span.end, closed_at)


def _sum(terms: Iterable[AccountTerms]) -> Amount:
    """Add up as people do, in decimals: three times 0.1 is 0.3."""
    held = list(terms)
    epsilon = sum((_exact(one.epsilon) for one in held), Fraction())
    return epsilon, sum((_exact(one.delta) for one in held), Fraction())


def _exact(number: float) -> Fraction:
    return Fraction(repr(float(number)))


def _minute(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
