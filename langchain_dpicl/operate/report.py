"""The report of an account: its public facts, gathered, to show and to keep.

The page is `report.html` beside this file; it says in words what the fields here say
in figures, and what every report says alike.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from langchain_dpicl._version import __version__
from langchain_dpicl.accounting import UNITS, Cost, Event, compose, merge
from langchain_dpicl.budget import charges, plan_of
from langchain_dpicl.budget.pricing import epsilon_spent
from langchain_dpicl.common import files
from langchain_dpicl.common.units import REPORTS_OF
from langchain_dpicl.errors import DPError, InvalidParameterError, LedgerError
from langchain_dpicl.ledger import AccountTerms, Book, CorpusTerms, Ledger, Plan
from langchain_dpicl.ledger.terms import moment
from langchain_dpicl.operate import pages
from langchain_dpicl.operate.charges import ReleaseLine, opened, release_lines
from langchain_dpicl.operate.proofs import PROOFS, Proof
from langchain_dpicl.public import Public
from langchain_dpicl.release.record import now

Path_ = str | os.PathLike[str]

DECADES = range(3, 11)
"""The powers of ten of the curve's deltas: 1e-3 to 1e-10."""
HOUSEHOLD = 5
"""How many people a household has at most."""
_LARGEST_EXPONENT = 700.0
_MOST_BYTES = 1 << 20
_DAMAGED = {"verdict": "can't be read, or was edited"}


# ---- what the operator says ----------------------------------------------------------


def _text(value: Any) -> Any:
    """Return a number, or a list of texts and numbers, as one text."""
    if isinstance(value, list):
        return "; ".join(str(_text(one)) for one in value)
    return str(value) if type(value) in (int, float) else value


def _day(text: str) -> str:
    # `fromisoformat` reads more forms from Python 3.11 on.
    if not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        raise ValueError("a date such as 2027-05-31 is needed")
    return date.fromisoformat(text).isoformat()


Fact = Annotated[str | None, BeforeValidator(_text)]
Day = Annotated[str, AfterValidator(_day)]


class Facts(Public):
    """What only the operator can say; all of it is optional."""

    controller: Fact = Field(None, description="Who is responsible for the records")
    contact: Fact = Field(None, description="How to reach them")
    operator: Fact = Field(
        None, description="Who runs the service and keeps the ledger"
    )
    provider: Fact = Field(
        None, description="Whose models read the records, and under which agreement"
    )
    callers: Fact = Field(None, description="Who may ask")
    people: Fact = Field(
        None, description="Whose records they are, and about how many people"
    )
    records: Fact = Field(
        None, description="What the records are, and where they come from"
    )
    purpose: Fact = Field(None, description="What the answers are for")
    legal_basis: Fact = Field(None, description="On which legal basis")
    unit_check: Fact = Field(
        None, description="How it was checked that one id is one person"
    )
    why_epsilon: Fact = Field(None, description="Why this epsilon and this delta")
    other_releases: Fact = Field(
        None, description="What else is released of the same records"
    )
    minimization: Fact = Field(None, description="Whether less could be collected")
    security: Fact = Field(
        None,
        description="How records, index, salt and ledger are kept; encryption at rest",
    )
    bias: Fact = Field(
        None,
        description="Whose answers get worse by the noise, and what is done about it",
    )
    signed_by: Fact = Field(None, description="Who signs")
    signed_on: Day | None = Field(None, description="When (2026-11-30)")
    valid_until: Day | None = Field(None, description="Until when (2027-05-31)")

    @classmethod
    def read(cls, given: Mapping[str, Any] | Path_ | None) -> Facts:
        """Return the facts of a mapping, or of a file of JSON.

        Raises:
            InvalidParameterError: If a file can't be read, a fact is unknown or no
                text, number, or list of them, or a date is not ISO.
        """
        if isinstance(given, str | os.PathLike):
            path, given = given, _read_json(Path(given))
            if not isinstance(given, dict):
                raise InvalidParameterError(
                    f"{str(path)!r} holds no facts: a JSON object of names and texts."
                )
        given = dict(given or {})
        if unknown := [name for name in given if name not in cls.model_fields]:
            raise InvalidParameterError(
                f"The fact {unknown[0]!r:.60} is unknown. Known are "
                f"{', '.join(cls.model_fields)}."
            )
        return cls(**given)


# ---- what the ledger says ------------------------------------------------------------


class CurvePoint(Public):
    """Epsilon at one delta: of the whole account, and of what is spent."""

    delta: float
    """The failure probability."""

    promised: float | None
    """Of everything that the account will ever release; None without a bound."""

    spent: float | None
    """Of what was released so far; None without a bound."""


class Household(Public):
    """What the account promises for several units together."""

    people: int
    """How many units."""

    epsilon: float
    """`people` times the account's epsilon."""

    delta: float | None
    """The failure probability at that epsilon; None where it is no bound."""


class Cap(Public):
    """The cap on all accounts of a corpus, and what counts for it now."""

    terms: CorpusTerms
    """What was promised to the people of the corpus."""

    epsilon: float
    """Committed now, by the accounts that count."""

    delta: float
    """Committed now."""

    accounts: tuple[str, ...]
    """The accounts that count."""


class AccountReport(Public):
    """What an account has promised, spent and released: public facts alone.

    Example:
        >>> from langchain_dpicl import PrivacyBudgetHandler
        >>> budget = PrivacyBudgetHandler(
        ...     epsilon=8, delta=1e-6, queries=20, ledger=":memory:", account="notes"
        ... )
        >>> report = account_report(budget.ledger, "notes", facts={"people": 60})
        >>> report, report.spent, report.facts.people
        (AccountReport(account='notes', is_whole=True), 0.0, '60')
    """

    format: Literal["langchain-dpicl/account-report"] = "langchain-dpicl/account-report"
    version: Literal[2] = 2

    account: str
    """The account's name."""

    promise: AccountTerms
    """What the account promises."""

    unit_key: str | None
    """The field that names a record's unit; None: each record is one."""

    is_bound: bool
    """Whether a first release has fixed the unit."""

    releases: int
    """How many charges there are."""

    closed: bool
    """Whether the account pays for nothing any more."""

    spent: float
    """Epsilon of what was released, at the account's delta. In a per-unit account no
    unit has lost more."""

    left: float
    """What is left of epsilon: the difference, not the cost of what may follow."""

    damage: str
    """What is wrong with the ledger; empty where it was found whole."""

    head: str
    """The digest of the account's last entry: kept elsewhere, it shows later whether
    its book was rewritten."""

    curve: tuple[CurvePoint, ...]
    """Epsilon over delta."""

    households: tuple[Household, ...]
    """What is promised to several units together."""

    corpus: Cap | None
    """The corpus that the account belongs to."""

    same_unit: tuple[AccountTerms, ...]
    """All accounts of the ledger with this unit key, this one among them. If they are
    about the same people, what they promise adds up."""

    lines: tuple[ReleaseLine, ...]
    """What was released, equal charges in one line."""

    facts: Facts
    """What the operator said."""

    audits: tuple[dict[str, str], ...]
    """Date and verdict of audits."""

    erasures: tuple[dict[str, str], ...]
    """Dates of certificates of erasures."""

    created: str = Field(default_factory=now)
    """When the report was made, in UTC."""

    library: str = __version__
    """The version of the library."""

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        yield from (("account", self.account), ("is_whole", self.is_whole))

    @property
    def is_whole(self) -> bool:
        """Whether the ledger was verified, from the terms to the last charge."""
        return not self.damage

    @property
    def is_expired(self) -> bool:
        """Whether the date until which it was signed has passed."""
        # ISO's dates are in the order of their texts.
        return (self.facts.valid_until or self.created) < self.created[:10]

    @property
    def is_public_who_reports(self) -> bool:
        """Whether the account protects what reports say, and not that they are made."""
        return (self.unit_key or "").startswith(REPORTS_OF)

    @property
    def is_local(self) -> bool:
        """Whether the account has released randomized reports, and nothing else."""
        return {line.kind for line in self.lines} == {"reports"}

    @property
    def may_fail(self) -> bool:
        """Whether a release had a probability to fail outright."""
        return any("failure" in line.event_kinds for line in self.lines)

    @property
    def days(self) -> tuple[date, date] | None:
        """The first day on which the account pays, and the first one after."""
        if self.promise.period is None:
            return None
        start, end = (moment(time).date() for time in self.promise.span)
        return start, end

    @property
    def promised(self) -> tuple[float, float]:
        """What all accounts with this unit key promise together: epsilon and delta."""
        terms = self.same_unit
        return math.fsum(t.epsilon for t in terms), math.fsum(t.delta for t in terms)

    @property
    def proofs(self) -> list[Proof]:
        """The proofs of what was released, each once, in the table's order."""
        needed = {proof for line in self.lines for proof in line.proofs}
        return [proof for proof in PROOFS if proof in needed]

    def to_html(self) -> str:
        """Return a page that needs no other file, for a browser or for print.

        Raises:
            InvalidParameterError: If Jinja2 is not installed.
        """
        described = {n: f.description for n, f in Facts.model_fields.items()}
        return pages.rendered(
            "report.html", report=self, described=described, sure=certainty
        )

    def save(self, path: Path_) -> None:
        """Write the report, by the path's ending: `.html` or `.json`.

        What was there is replaced.

        Raises:
            InvalidParameterError: If the path has another ending, or can't be written.
        """
        is_page = pages.ending(path) == ".html"
        pages.put(self.to_html() if is_page else self.model_dump_json(indent=2), path)


def account_report(
    ledger: str | Ledger,
    account: str,
    *,
    facts: Mapping[str, Any] | Path_ | None = None,
    audits: Path_ | None = None,
    erasures: Path_ | None = None,
) -> AccountReport:
    """Return the report of an account; nothing is charged or changed.

    Args:
        ledger: The ledger, or its URL. One that is not there is not made.
        account: The account's name.
        facts: What only the operator can say, by the names of `Facts`; or a file of
            them, in JSON.
        audits: A folder of audits that `AuditReport.save` wrote as JSON. Only their
            date and verdict are taken: the rest is private.
        erasures: A folder of certificates of erasures, as JSON.

    Raises:
        LedgerError: If there is no such account, or the ledger can't be read.
        InvalidParameterError: If a file or folder can't be read, or a fact is unknown.

    Privacy:
        Only the account's terms, plan, charges and the headers of its releases are
        read, all of them public. Verifying reads the units' balances to add them up,
        and tells only whether they do.
    """
    with opened(ledger) as source:
        book, plan = source.state(account), plan_of(source, account)
        terms = book.account
        said = Facts.read(facts)
        if said.purpose is None:
            said = said.model_copy(update={"purpose": terms.purpose})
        spent = epsilon_spent(terms, plan, book.used, book.spent)
        return AccountReport(
            account=account,
            promise=terms,
            unit_key=plan.unit_key if plan else None,
            is_bound=plan is not None,
            releases=book.used,
            closed=not book.is_open,
            spent=spent,
            left=max(terms.epsilon - spent, 0.0),
            damage=_damage(source),
            head=book.last,
            curve=curve(book, plan),
            households=households(terms),
            corpus=_cap(source, terms.corpus),
            same_unit=_same_unit(source, terms),
            lines=_lines(source, account),
            facts=said,
            audits=_audits(audits),
            erasures=_erasures(erasures, account),
        )


def curve(book: Book, plan: Plan | None) -> tuple[CurvePoint, ...]:
    """Return epsilon over delta, large deltas first; nothing before a release.

    Under a filter what is spent is a report, and what is promised is the filter's
    limit: a bound on the sum of the losses, whatever delta they are stated at.

    Example:
        >>> from langchain_dpicl.accounting import Charge, Gaussian, noise_multiplier
        >>> z = noise_multiplier(2.0, 1e-6, uses=5)
        >>> events = (Gaussian(noise_multiplier=z),)
        >>> plan = Plan(charge=Charge(name="vote", parts=events), events=events)
        >>> terms = AccountTerms(name="notes", epsilon=2, delta=1e-6, queries=5)
        >>> points = curve(Ledger(":memory:").open(terms), plan)
        >>> [round(p.promised, 1) for p in points if p.delta in (1e-3, 1e-6, 1e-9)]
        [1.2, 2.0, 2.6]
    """
    if plan is None:
        return ()
    terms, spent = book.account, book.spent
    epsilon: tuple[Callable[[float], float], ...]
    if (limit := terms.filter) is None:
        most = terms.queries or 1
        uses = (most, min(book.used, most))
        epsilon = tuple(partial(_composed, plan.events, count) for count in uses)
    else:
        lost = Cost(min(spent.loss, UNITS), min(spent.failure, UNITS))
        costs = (Cost(UNITS, UNITS), lost)
        epsilon = tuple(partial(limit.epsilon_spent, cost) for cost in costs)
    points = []
    for delta in (10.0**-power for power in DECADES):
        promised, used = (
            e if math.isfinite(e := at(delta)) else None for at in epsilon
        )
        if (promised, used) != (None, None):
            points.append(CurvePoint(delta=delta, promised=promised, spent=used))
    return tuple(points)


def _composed(events: tuple[Event, ...], uses: int, delta: float) -> float:
    return compose(merge(events, uses), delta) if uses else 0.0


def households(terms: AccountTerms) -> tuple[Household, ...]:
    """Return what the account promises for 1 to `HOUSEHOLD` units together.

    The promise for n units is (n epsilon, delta (e^(n epsilon) - 1) / (e^epsilon - 1)),
    by walking from one corpus to the other unit by unit.

    Example:
        >>> terms = AccountTerms(name="a", epsilon=1, delta=1e-6, queries=9)
        >>> [(h.epsilon, round(h.delta * 1e6, 1)) for h in households(terms)][:2]
        [(1.0, 1.0), (2.0, 3.7)]
        >>> households(terms.model_copy(update={"epsilon": 8.0}))[2].delta is None
        True
    """
    found = []
    for people in range(1, HOUSEHOLD + 1):
        total = math.inf
        if (people - 1) * terms.epsilon <= _LARGEST_EXPONENT:
            steps = (math.exp(step * terms.epsilon) for step in range(people))
            total = terms.delta * math.fsum(steps)
        epsilon, delta = people * terms.epsilon, total if total < 1 else None
        found.append(Household(people=people, epsilon=epsilon, delta=delta))
    return tuple(found)


def certainty(epsilon: float) -> float:
    """Return how sure somebody can get who was 50 % sure, but for delta.

    Example:
        >>> round(certainty(1.0), 3)
        0.731
    """
    return 1 / (1 + math.exp(-epsilon))


def _cap(ledger: Ledger, corpus: str | None) -> Cap | None:
    if corpus is None:
        return None
    state = ledger.corpus(corpus)
    epsilon, delta = state.committed
    names = tuple(book.name for book in state.counted)
    return Cap(terms=state.terms, epsilon=epsilon, delta=delta, accounts=names)


def _same_unit(ledger: Ledger, terms: AccountTerms) -> tuple[AccountTerms, ...]:
    """Return the accounts with the same unit key, in a corpus or not."""
    key = _unit_of(ledger, terms)
    others = (ledger.state(name).account for name in ledger.accounts())
    return tuple(
        other
        for other in others
        if other.name == terms.name or (key and _unit_of(ledger, other) == key)
    )


def _unit_of(ledger: Ledger, terms: AccountTerms) -> tuple[str | None] | None:
    """Return the unit key; None where neither a release nor a corpus has fixed it."""
    if (plan := plan_of(ledger, terms.name)) is not None:
        return (plan.unit_key,)
    return (ledger.corpus(terms.corpus).terms.unit_key,) if terms.corpus else None


def _lines(ledger: Ledger, account: str) -> tuple[ReleaseLine, ...]:
    """Return what the account released; nothing if it is damaged, as the page says."""
    try:
        return release_lines(charges(ledger, account))
    except LedgerError:
        return ()


def _damage(ledger: Ledger) -> str:
    """Return what is wrong with the ledger; empty if it is whole."""
    try:
        ledger.verify()
    except LedgerError as error:
        return str(error)
    return ""


# ---- what is given beside the ledger -------------------------------------------------


def _audits(folder: Path_ | None) -> tuple[dict[str, str], ...]:
    """Return the verdicts of a folder's audits, oldest first."""
    found = []
    for path in _listed(folder):
        # It brings the parsers; a report without audits needs none of them.
        from langchain_dpicl.operate.audit import AuditReport

        try:
            audit = AuditReport.load(path)
        except DPError:
            # Not its name, in which people may have written an id.
            found.append({"made": "", "library": "", **_DAMAGED})
            continue
        verdict = f"{'within' if audit.is_sound else 'exceeds'} the claim"
        made, library = audit.created[:40], audit.library[:40]
        found.append({"made": made, "library": library, "verdict": verdict})
    return tuple(sorted(found, key=lambda row: row["made"]))


def _erasures(folder: Path_ | None, account: str) -> tuple[dict[str, str], ...]:
    """Return the certificates of a folder, oldest first, without saying of whom.

    How many records were erased is about the person, and is not shown.
    """
    found = []
    for path in _listed(folder):
        from langchain_dpicl.operate.erasure import ErasureCertificate

        try:
            certificate = ErasureCertificate.load(path)
        except DPError:
            found.append({"made": "", "names this account": "", **_DAMAGED})
            continue
        named = any(one.get("account") == account for one in certificate.accounts)
        row = {"made": certificate.erased_at[:40]}
        row |= {"names this account": "yes" if named else "no", "verdict": "intact"}
        found.append(row)
    return tuple(sorted(found, key=lambda row: row["made"]))


def _listed(folder: Path_ | None) -> Iterator[Path]:
    if folder is None:
        return
    if not Path(folder).is_dir():
        raise InvalidParameterError(
            f"{str(folder)!r} is no folder: name one that holds JSON files."
        )
    yield from sorted(Path(folder).glob("*.json"))


def _read_json(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return files.strict_json(file.read(_MOST_BYTES).decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return None
