"""The report of an account: its public facts, gathered, to show and to keep."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from langchain_dpicl._version import __version__
from langchain_dpicl.budget import charges as stored_charges
from langchain_dpicl.budget import plan_of
from langchain_dpicl.budget.pricing import epsilon_spent
from langchain_dpicl.common import files, pages
from langchain_dpicl.common.units import REPORTS_OF
from langchain_dpicl.errors import InvalidParameterError, LedgerError
from langchain_dpicl.ledger import (
    AccountTerms,
    Book,
    CorpusState,
    Ledger,
    open_ledger,
)
from langchain_dpicl.ledger.terms import moment
from langchain_dpicl.release.record import now
from langchain_dpicl.report import texts
from langchain_dpicl.report.charges import ReleaseLine, plain, proofs, release_lines
from langchain_dpicl.report.curve import (
    CurvePoint,
    Household,
    certainty,
    curve,
    households,
    svg,
)
from langchain_dpicl.report.given import (
    Seen,
    facts_of,
    found_audits,
    found_erasures,
)
from langchain_dpicl.report.proven import Proof

FORMAT = "langchain-dpicl/account-report"
VERSION = 1
_PROMISES = {
    "plan": "a plan of equal releases, whose noise was fixed before the first",
    "renyi": "a filter that adds up Renyi divergences of one order",
}


@dataclass(frozen=True)
class AccountReport:
    """What an account has promised, spent and released: public facts alone.

    Attributes:
        account: The account's name.
        terms: What the account promises.
        unit_key: The field that names a record's unit; None: each record is one.
        is_bound: Whether a first release has fixed the unit.
        releases: How many charges there are.
        closed: Whether the account pays for nothing any more.
        spent: Epsilon of what was released, at the account's delta. In a per-unit
            account no unit has lost more.
        damage: What is wrong with the ledger; empty where it was found whole.
        head: The digest of the account's last entry: kept elsewhere, it shows later
            whether its book was rewritten.
        curve: Epsilon over delta.
        households: What is promised to several units together.
        corpus: The corpus that the account belongs to, with its cap; None without.
        sharing: All accounts of the ledger with this unit key, this one among them. If
            they are about the same people, what they promise adds up.
        lines: What was released, equal charges in one line.
        facts: What the operator said, by the names of `texts.FACTS`.
        audits: The verdicts of audits.
        erasures: The certificates of erasures.
        created: When the report was made, in UTC.
        library: The version of the library.

    Example:
        >>> from langchain_dpicl import PrivacyBudgetHandler, report
        >>> budget = PrivacyBudgetHandler(
        ...     epsilon=8, delta=1e-6, queries=20, ledger=":memory:", account="notes"
        ... )
        >>> found = report.of(budget.ledger, "notes", facts={"purpose": "research"})
        >>> found
        AccountReport(account='notes', is_whole=True)
        >>> found.to_dict()["spent"]["epsilon"]
        0.0
    """

    account: str
    terms: AccountTerms
    unit_key: str | None
    is_bound: bool
    releases: int
    closed: bool
    spent: float
    damage: str
    head: str
    curve: tuple[CurvePoint, ...]
    households: tuple[Household, ...]
    corpus: CorpusState | None
    sharing: tuple[Book, ...]
    lines: tuple[ReleaseLine, ...]
    facts: Mapping[str, str]
    audits: tuple[Seen, ...]
    erasures: tuple[Seen, ...]
    created: str
    library: str = __version__

    def __repr__(self) -> str:
        return f"AccountReport(account={self.account!r}, is_whole={self.is_whole})"

    @property
    def is_whole(self) -> bool:
        """Whether the ledger was verified, from the terms to the last charge."""
        return not self.damage

    @property
    def left(self) -> float:
        """What is left of epsilon: the difference, not the cost of what may follow."""
        return max(self.terms.epsilon - self.spent, 0.0)

    @property
    def unit(self) -> str:
        """What is protected, in a sentence."""
        if not self.is_bound:
            return "The first release will fix what a unit is."
        if self.unit_key is None:
            return "Each record is a unit of its own."
        if self.is_public_who_reports:
            return f"A unit is what is told by {self.unit_key}."
        return f"A unit is all records with the same {self.unit_key!r}."

    @property
    def is_public_who_reports(self) -> bool:
        """Whether the account protects what reports say, and not that they are made."""
        return (self.unit_key or "").startswith(REPORTS_OF)

    @property
    def against(self) -> str:
        """What is protected against whom, in words."""
        return texts.REPORTS_AGAINST if self.is_public_who_reports else texts.AGAINST

    @property
    def neighbors(self) -> list[str]:
        """What one unit may change, in words."""
        is_public = self.is_public_who_reports
        return texts.REPORTS_NEIGHBORS if is_public else texts.NEIGHBORS

    @property
    def period(self) -> str:
        """When the account pays, in a sentence; empty where it is without an end."""
        if self.terms.period is None:
            return ""
        start, end = (moment(time).date() for time in self.terms.span)
        return (
            f"The account pays for {self.terms.period}: from {start} on, and for "
            f"nothing from {end} on."
        )

    @property
    def promised(self) -> tuple[float, float]:
        """What all accounts with this unit key promise together: epsilon and delta."""
        terms = [book.account for book in self.sharing]
        return math.fsum(t.epsilon for t in terms), math.fsum(t.delta for t in terms)

    @property
    def promise(self) -> str:
        """How the account adds up its releases, in words."""
        return _PROMISES[self.terms.accounting]

    @property
    def proofs(self) -> list[Proof]:
        """The proofs of what was released."""
        return proofs(self.lines)

    @property
    def is_local(self) -> bool:
        """Whether the account has released randomized reports, and nothing else."""
        return {line.kind for line in self.lines} == {"reports"}

    @property
    def actors(self) -> list[dict[str, str]]:
        """Who there is, what they see, and whether the proof needs to trust them."""
        return texts.LOCAL_ACTORS if self.is_local else texts.ACTORS

    @property
    def changes(self) -> list[str]:
        """How records that change are counted, in words."""
        is_unit = self.terms.scope == "unit"
        last = texts.CHANGES_UNIT if is_unit else texts.CHANGES_CORPUS
        return [*texts.CHANGES, last]

    @property
    def checklist(self) -> list[texts.Question]:
        """NIST's hazards as questions, with what is known of this account."""
        kinds = {e.kind for line in self.lines for e in plain(line.events)}
        failing = (
            "Some releases may fail; the delta of each is part of the account's."
            if "failure" in kinds
            else "No release so far had a way to fail outright."
        )
        known = {
            "epsilon": self.terms.epsilon,
            "delta": self.terms.delta,
            "spent": self.spent,
            "sure": f"{certainty(self.terms.epsilon):.2%}",
            "failing": failing,
            "unit": self.unit,
            "threats": (
                texts.LOCAL_THREATS if self.is_local else texts.CENTRAL_THREATS
            ),
        }
        return [
            texts.Question(q.section, q.text, q.answer.format(**known), q.facts)
            for q in texts.NIST
        ]

    @property
    def is_expired(self) -> bool:
        """Whether the date until which it was signed has passed."""
        # Dates of ISO are in the order of their texts.
        until = self.facts.get("valid_until")
        return until is not None and until < self.created[:10]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-able values."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "account": self.account,
            "created": self.created,
            "library": self.library,
            "promise": {
                **self.terms.model_dump(mode="json"),
                "accounting": self.terms.accounting,
                "unit": self.unit,
                "unit_key": self.unit_key,
                "neighbors": self.neighbors,
            },
            "spent": {
                "epsilon": self.spent,
                "left": self.left,
                "releases": self.releases,
                "closed": self.closed,
            },
            "ledger": {
                "is_whole": self.is_whole,
                "damage": self.damage or None,
                "last_digest": self.head or None,
            },
            "corpus": self._corpus(),
            "same_unit": {
                "accounts": [
                    book.account.model_dump(mode="json") for book in self.sharing
                ],
                "epsilon": self.promised[0],
                "delta": self.promised[1],
            },
            "curve": [asdict(point) for point in self.curve],
            "households": [asdict(one) for one in self.households],
            "releases": [line.to_dict() for line in self.lines],
            "mechanisms": [
                {
                    "release": proof.release,
                    "made_by": proof.maker,
                    "proven_in": proof.file,
                    "argument": proof.argument,
                }
                for proof in self.proofs
            ],
            "assumptions": texts.ASSUMPTIONS,
            "actors": self.actors,
            "changes": self.changes,
            "erasures": [dict(seen.fields) for seen in self.erasures],
            "audits": [dict(seen.fields) for seen in self.audits],
            "nist_sp_800_226": [
                {**asdict(q), "operator": {n: self.facts.get(n) for n in q.facts}}
                for q in self.checklist
            ],
            "not_covered": texts.NOT_COVERED,
            "facts": {name: self.facts.get(name) for name in texts.FACTS},
        }

    def _corpus(self) -> dict[str, Any] | None:
        if self.corpus is None:
            return None
        return {
            **self.corpus.terms.model_dump(mode="json"),
            "committed": list(self.corpus.committed),
            "accounts": [book.name for book in self.corpus.counted],
        }

    def to_html(self) -> str:
        """Return a page that needs no other file, for a browser or for print."""
        marked = self.terms.delta, self.terms.epsilon
        return pages.rendered(
            "report/page.html",
            report=self,
            texts=texts,
            drawing=svg(self.curve, *marked),
            sure=certainty,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report, by the path's ending: `.html` or `.json`.

        What was there is replaced.

        Raises:
            InvalidParameterError: If the path has another ending, or can't be written.
        """
        target = Path(path)
        ways: dict[str, Callable[[], str]] = {
            ".html": self.to_html,
            ".json": lambda: json.dumps(self.to_dict(), indent=2, ensure_ascii=False),
        }
        if (made := ways.get(target.suffix)) is None:
            raise InvalidParameterError(
                f"A report is saved as .html or .json, not as {target.suffix!r}."
            )
        text, reason = made(), ""
        try:
            files.put(text.encode(), target, overwrite=True)
        except OSError as error:
            reason = error.strerror or type(error).__name__
        if reason:
            raise InvalidParameterError(
                f"{str(path)!r} can't be written ({reason}): choose another path."
            )


def of(
    ledger: str | Ledger,
    account: str,
    *,
    facts: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    audits: str | os.PathLike[str] | None = None,
    erasures: str | os.PathLike[str] | None = None,
) -> AccountReport:
    """Return the report of an account; nothing is charged or changed.

    Args:
        ledger: The ledger, or its URL. One that is not there is not made.
        account: The account's name.
        facts: What only the operator can say, by the names of `report.texts.FACTS`; or
            a file of them, YAML or JSON.
        audits: A folder of audits that `AuditReport.save` wrote as JSON. Only their
            kind, date and verdict are taken: the rest is private.
        erasures: A folder of certificates of erasures, as JSON.

    Raises:
        LedgerError: If there is no such account, or the ledger can't be read.
        InvalidParameterError: If a file or folder can't be read, or a fact is unknown.

    Privacy:
        Only the account's terms, plan, charges and the headers of its releases are
        read, all of them public. Verifying reads the units' balances to add them up,
        and tells only whether they do.
    """
    opened = open_ledger(ledger, create=False) if isinstance(ledger, str) else ledger
    try:
        return _gathered(
            opened,
            account,
            facts=facts_of(facts),
            audits=found_audits(audits),
            erasures=found_erasures(erasures, account),
        )
    finally:
        if opened is not ledger:
            opened.dispose()


def _gathered(
    ledger: Ledger, account: str, *, facts: dict[str, str], **given: Any
) -> AccountReport:
    book, plan = ledger.state(account), plan_of(ledger, account)
    terms = book.account
    if terms.purpose:
        facts = {"purpose": terms.purpose, **facts}
    return AccountReport(
        account=account,
        terms=terms,
        unit_key=plan.unit_key if plan else None,
        is_bound=plan is not None,
        releases=book.used,
        closed=not book.is_open,
        spent=epsilon_spent(terms, plan, book.used, book.spent),
        damage=_damage(ledger),
        head=book.last,
        curve=curve(book, plan),
        households=households(terms),
        corpus=ledger.corpus(terms.corpus) if terms.corpus else None,
        sharing=_sharing(ledger, terms),
        lines=_lines(ledger, account),
        created=now(),
        facts=facts,
        **given,
    )


def _sharing(ledger: Ledger, terms: AccountTerms) -> tuple[Book, ...]:
    """Return the accounts with the same unit key, in a corpus or not."""
    key = _unit_of(ledger, terms)
    others = map(ledger.state, ledger.accounts())
    return tuple(
        other
        for other in others
        if other.name == terms.name or (key and _unit_of(ledger, other.account) == key)
    )


def _unit_of(ledger: Ledger, terms: AccountTerms) -> tuple[str | None] | None:
    """Return the unit key; None where neither a release nor a corpus has fixed it."""
    if (plan := plan_of(ledger, terms.name)) is not None:
        return (plan.unit_key,)
    return (ledger.corpus(terms.corpus).terms.unit_key,) if terms.corpus else None


def _lines(ledger: Ledger, account: str) -> tuple[ReleaseLine, ...]:
    """Return what the account released; nothing if it is damaged, as the page says."""
    try:
        return release_lines(stored_charges(ledger, account))
    except LedgerError:
        return ()


def _damage(ledger: Ledger) -> str:
    """Return what is wrong with the ledger; empty if it is whole."""
    try:
        ledger.verify()
    except LedgerError as error:
        return str(error)
    return ""
