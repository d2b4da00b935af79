"""Checking the record of a saved answer or release against the ledger.

The record says which charge of which account paid, what the charge was, and what the
account had spent after it. The ledger says the same, or the record is not its own. What
the ledger stored beside the charge is compared too, field by field
(`release.comparing`). Fields that it did not store are named, and are not confirmed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.documents import Document
from pydantic import ValidationError

from langchain_dpicl.accounting import compose
from langchain_dpicl.budget import Stored, charges, plan_of
from langchain_dpicl.budget.pricing import epsilon_spent
from langchain_dpicl.errors import InvalidParameterError, LedgerError
from langchain_dpicl.ledger import AccountTerms, Ledger, Plan, open_ledger
from langchain_dpicl.release.comparing import StoredRecord, account_says
from langchain_dpicl.release.record import ReleaseRecord
from langchain_dpicl.report.charges import as_json

_PLACES = (
    ("privacy",),
    ("record",),
    ("response_metadata", "privacy"),
    ("kwargs", "response_metadata", "privacy"),
    ("data", "response_metadata", "privacy"),
)
_TERMS = ("epsilon", "delta", "accounting", "scope", "queries")
_SPENT = ("epsilon_spent", "queries_spent")
_ROUNDING = 1e-9
_BESIDE = "what stands beside the record"
_FREE = (
    "the record states that nothing was charged and that no private record had a part "
    "in it, and no ledger can say so"
)


@dataclass(frozen=True)
class Verdict:
    """What was found of a record.

    Attributes:
        is_confirmed: Whether the ledger says what the record says. It never does of a
            record that names no charge.
        account: The account's name; None for a record that names none.
        charge: The number of the charge that paid; None where nothing was charged.
        digest: The ledger's digest of the account's book up to that charge.
        checked: What was found right.
        wrong: What was found wrong; empty for a record that is confirmed.
        not_compared: What the ledger does not store, by the names of the record's
            fields. Nothing is said about these: anybody can have changed them.

    Example:
        >>> Verdict(True, "notes", 1, "", ("the charge is in the ledger",), ()).summary
        'Confirmed: charge 1 of account notes paid for this.'
    """

    is_confirmed: bool
    account: str | None
    charge: int | None
    digest: str
    checked: tuple[str, ...]
    wrong: tuple[str, ...]
    not_compared: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The verdict, in a sentence or two."""
        if not self.is_confirmed:
            return f"Not confirmed: {self.wrong[0]}."
        found = (
            f"Confirmed: charge {self.charge} of account {self.account} paid for this."
        )
        if not self.not_compared:
            return found
        names = ", ".join(self.not_compared)
        return f"{found} Not compared, as the ledger does not store it: {names}."

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON-able values."""
        return {
            "is_confirmed": self.is_confirmed,
            "summary": self.summary,
            "account": self.account,
            "charge": self.charge,
            "digest": self.digest or None,
            "checked": list(self.checked),
            "wrong": list(self.wrong),
            "not_compared": list(self.not_compared),
        }


def verify(answer: Mapping[str, Any], ledger: str | Ledger) -> Verdict:
    """Check the record of an answer or a release against the ledger.

    Args:
        answer: The record; or what holds one: an `AIMessage` as a dictionary, a saved
            file of examples or facts, a service's reply with `privacy`.
        ledger: The ledger, or its URL. One that is not there is not made.

    Returns:
        The verdict. It is about the record and, of a file of facts, the documents. It
        says nothing of an answer's words, or of the texts of examples.

    Raises:
        InvalidParameterError: If there is no record in it, or it has another form.
        LedgerError: If the ledger can't be read.

    Example:
        >>> from langchain_dpicl import PrivacyBudgetHandler, VoteOutputParser
        >>> from langchain_dpicl.release.record import release_record
        >>> budget = PrivacyBudgetHandler(
        ...     epsilon=8, delta=1e-6, queries=20, ledger=":memory:"
        ... )
        >>> with budget.buy(VoteOutputParser(labels=["a", "b"]).charge()) as paid:
        ...     drawn = paid.once(lambda: "a")
        >>> names = ["unit", "unit_key", "relation", "neighbors", "random"]
        >>> record = release_record(
        ...     kind="answer",
        ...     status="released",
        ...     mechanism="voting",
        ...     parameters={},
        ...     events=paid.events,
        ...     charge=paid.charge,
        ...     account=budget.public_state(paid.stored),
        ...     **dict.fromkeys(names),
        ... )
        >>> verify(record, budget.ledger).is_confirmed
        True
        >>> verify({**record, "charge": 2}, budget.ledger).summary
        'Not confirmed: the account has no charge 2.'
    """
    record = _checked(_found(answer))
    opened = open_ledger(ledger, create=False) if isinstance(ledger, str) else ledger
    try:
        beside = None if record is answer else answer
        return _Check(record, opened, beside).verdict()
    finally:
        if opened is not ledger:
            opened.dispose()


class _Check:
    """One record against one ledger."""

    def __init__(
        self,
        record: Mapping[str, Any],
        ledger: Ledger,
        holder: Mapping[str, Any] | None,
    ) -> None:
        self.record, self.ledger, self.holder = record, ledger, holder
        self.right: list[str] = []
        self.wrong: list[str] = []
        self.unknown: tuple[str, ...] = (*record, "random")
        self.digest = ""

    def verdict(self) -> Verdict:
        record = self.record
        account = record["account"]
        name = account["name"] if account else None
        number = record["charge"]
        if "random" in record:
            self.wrong.append("its noise came from a source for tests")
        if number is None:
            number = self._free()
        if number is not None:
            self._charged(name, account or {}, number)
        if number is None and not self.wrong:
            self.wrong.append(_FREE)
        return Verdict(
            not self.wrong,
            name,
            number,
            self.digest,
            tuple(self.right),
            tuple(self.wrong),
            self.unknown,
        )

    def _free(self) -> int | None:
        """Return the charge that a cached answer names; refuse events without one."""
        record = self.record
        if record["events"]:
            self.wrong.append("it has events and names no charge")
        elif (first := self._first()) is not None:
            return first
        elif record["status"] in ("released", "cached"):
            self.wrong.append("it was released and names no charge")
        return None

    def _first(self) -> int | None:
        """Return the charge that paid for what is given again, if one is named."""
        details = self.record.get("details")
        first = details.get("first") if isinstance(details, Mapping) else None
        number = first.get("charge") if isinstance(first, Mapping) else None
        return number if type(number) is int else None

    def _charged(
        self, name: str | None, account: Mapping[str, Any], number: int
    ) -> None:
        if name is None:
            self.wrong.append("it names a charge and no account")
            return
        if name not in self.ledger.accounts():
            self.wrong.append("the ledger has no such account")
            return
        terms = self.ledger.state(name).account
        plan = plan_of(self.ledger, name)
        self._same_terms(terms, account)
        if plan and self.record["unit_key"] != plan.unit_key:
            self.wrong.append("the account protects another unit")
        try:
            self.ledger.verify(name)
            self.right.append("the account's book is whole")
        except LedgerError as error:
            self.wrong.append(f"the ledger is damaged: {error}")
        stored = charges(self.ledger, name)
        for place in {number: None, self._first(): None}:
            if place is not None and not 0 < place <= len(stored):
                self.wrong.append(f"the account has no charge {place}")
                return
        self.digest = stored[number - 1].digest
        self.right.append(f"the ledger holds charge {number}")
        if self.record["charge"] is not None:
            self._same_events(stored[:number])
            self._same_spending(terms, plan, account, stored[number - 1])
        self._same_fields(terms, plan, stored[number - 1])

    def _same_fields(
        self, terms: AccountTerms, plan: Plan | None, charge: Stored
    ) -> None:
        """Compare what the ledger stored beside the charge, and name the rest."""
        record = self.record
        known = account_says(record, terms, plan.unit_key if plan else None)
        if record["charge"] is not None:
            spent = ((n, record["account"].get(n)) for n in _SPENT)
            known["account"] |= {n: v for n, v in spent if isinstance(v, int | float)}
        try:
            stored = StoredRecord.of(record, charge, terms.delta)
        except LedgerError as error:
            self.wrong.append(f"what the ledger stored can't be read: {error}")
            return
        found = stored.compared(record, known)
        other, unknown = found.other, found.not_compared
        if self.holder is not None and "documents" in self.holder:
            texts = stored.compared_documents(record, _documents(self.holder))
            other, unknown = other + texts.other, unknown + texts.not_compared
        elif self.holder is not None:
            unknown += (_BESIDE,)
        self.unknown = unknown
        self.wrong += [f"{name} is not what the ledger stored" for name in other]
        if not other and stored.record:
            self.right.append("the record says what the ledger stored of the release")

    def _same_terms(self, terms: AccountTerms, account: Mapping[str, Any]) -> None:
        differing = [
            name
            for name in _TERMS
            if name in account and account[name] != getattr(terms, name)
        ]
        if differing:
            self.wrong.append(f"the account has another {differing[0]}")
        else:
            self.right.append("the account has the terms that the record states")

    def _same_events(self, charges: Sequence[Stored]) -> None:
        """A question may have been charged more than once: the last charge is named."""
        rest = list(self.record["events"])
        for place, found in enumerate(reversed(charges)):
            events = as_json(found.events)
            if events and rest[-len(events) :] == events:
                del rest[-len(events) :]
            elif not place:
                break
            if not rest:
                self.right.append("the charge is for the events that the record states")
                self._same_cost()
                return
        self.wrong.append("the charge is for other events than the record states")

    def _same_cost(self) -> None:
        stated, delta = self.record["epsilon"], self.record["delta"]
        if stated is None:
            return
        # It brings the parsers; a report needs none of them.
        from langchain_dpicl.released.checking import events_of, pure_epsilon

        events = events_of(self.record)
        cost = compose(events, delta) if delta else pure_epsilon(events)
        if stated < cost and not math.isclose(stated, cost, rel_tol=_ROUNDING):
            self.wrong.append("the events cost more epsilon than the record states")
        else:
            self.right.append("the events cost no more epsilon than the record states")

    def _same_spending(
        self,
        terms: AccountTerms,
        plan: Plan | None,
        account: Mapping[str, Any],
        last: Stored,
    ) -> None:
        stated, uses = (account.get(n) for n in ("epsilon_spent", "queries_spent"))
        if isinstance(uses, int) and uses < last.charge:
            self.wrong.append("the account had more charges than the record states")
        if stated is None:
            return
        if not isinstance(stated, (int, float)) or not math.isfinite(stated):
            self.wrong.append("what it states as spent is no number")
            return
        spent = epsilon_spent(terms, plan, last.charge, last.spent)
        # A later version may know a smaller bound; never a larger one.
        if stated < spent and not math.isclose(stated, spent, rel_tol=_ROUNDING):
            self.wrong.append("the account had spent more than the record states")
        else:
            self.right.append("the account had spent no more than the record states")


def _found(answer: object) -> Mapping[str, Any]:
    """Return the record in an answer."""
    candidates = [answer]
    for place in _PLACES:
        value = answer
        for name in place:
            value = value.get(name) if isinstance(value, Mapping) else None
        candidates.append(value)
    for found in candidates:
        if isinstance(found, Mapping) and {"status", "charge", "events"} <= set(found):
            return found
    raise InvalidParameterError(
        "There is no record of a release in it: save the answer's "
        'response_metadata["privacy"], or the whole answer as a dictionary.'
    )


def _documents(answer: Mapping[str, Any]) -> list[Document]:
    """Return the documents of a saved file of facts."""
    found = answer["documents"]
    try:
        return [Document(one["text"], metadata=one["metadata"]) for one in found]
    except (TypeError, KeyError, ValueError):
        pass
    raise InvalidParameterError("The documents in it have another form than facts.")


def _checked(record: Mapping[str, Any]) -> Mapping[str, Any]:
    fields: list[str] = []
    try:
        ReleaseRecord.model_validate(dict(record))
    except ValidationError as error:
        # Not its message: that holds the values.
        fields = sorted({str(one["loc"][0]) for one in error.errors() if one["loc"]})
    if fields:
        raise InvalidParameterError(
            f"The record has another form than this version reads: {', '.join(fields)}."
        )
    return record
