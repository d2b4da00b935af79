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
from langchain_dpicl.budget.terms import account_of
from langchain_dpicl.common import files, pages
from langchain_dpicl.errors import InvalidParameterError, LedgerError
from langchain_dpicl.ledger import AccountTerms, Ledger, SQLLedger, open_ledger
from langchain_dpicl.ledger.base import AccountState
from langchain_dpicl.ledger.corpus import CorpusState
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
        head: The digest of the last charge: kept elsewhere, it shows later whether the
            journal was rewritten.
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
    sharing: tuple[AccountState, ...]
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
        return f"A unit is all records with the same {self.unit_key!r}."

    @property
    def promised(self) -> tuple[float, float]:
        """What all accounts with this unit key promise together: epsilon and delta."""
        terms = [one.terms for one in self.sharing]
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
                **asdict(self.terms),
                "unit": self.unit,
                "unit_key": self.unit_key,
                "neighbors": texts.NEIGHBORS,
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
                "accounts": [asdict(one.terms) for one in self.sharing],
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
            **asdict(self.corpus.terms),
            "committed": list(self.corpus.committed),
            "accounts": [one.terms.name for one in self.corpus.counted],
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
        if opened is not ledger and isinstance(opened, SQLLedger):
            opened.dispose()


def _gathered(
    ledger: Ledger, account: str, *, facts: dict[str, str], **given: Any
) -> AccountReport:
    state = ledger.state(account)
    if state.terms.purpose:
        facts = {"purpose": state.terms.purpose, **facts}
    charges = ledger.charges(account)
    return AccountReport(
        account=account,
        terms=state.terms,
        unit_key=state.plan.template.get("unit_key") if state.plan else None,
        is_bound=state.plan is not None,
        releases=state.used,
        closed=state.closed,
        spent=_spent(state, ledger),
        damage=_damage(ledger, account),
        head=charges[-1].digest if charges else "",
        curve=curve(state),
        households=households(state),
        corpus=ledger.corpus(name) if (name := state.terms.corpus) else None,
        sharing=_sharing(ledger, state),
        lines=release_lines(ledger, account, charges),
        created=now(),
        facts=facts,
        **given,
    )


def _sharing(ledger: Ledger, own: AccountState) -> tuple[AccountState, ...]:
    """Return the accounts with the same unit key, in a corpus or not."""
    states = map(ledger.state, ledger.accounts())
    key = _unit_of(ledger, own)
    return tuple(
        one
        for one in states
        if one.terms.name == own.terms.name or (key and _unit_of(ledger, one) == key)
    )


def _unit_of(ledger: Ledger, state: AccountState) -> tuple[str | None] | None:
    """Return the unit key; None where neither a release nor a corpus has fixed it."""
    if state.plan is not None:
        return (state.plan.template.get("unit_key"),)
    name = state.terms.corpus
    return (ledger.corpus(name).terms.unit_key,) if name else None


def _spent(state: AccountState, ledger: Ledger) -> float:
    if not state.used:
        return 0.0
    return float(account_of(state.terms, state.terms.queries, ledger).spent_in(state))


def _damage(ledger: Ledger, account: str) -> str:
    """Return what is wrong with the account or the list of accounts; empty if whole."""
    try:
        ledger.verify(account)
        if isinstance(ledger, SQLLedger):
            ledger.verify_accounts()
    except LedgerError as error:
        return str(error)
    return ""
