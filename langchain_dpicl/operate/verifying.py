"""Checking the record of a saved answer or release against the ledger.

The record says which charge of which account paid, what the charge was, and what the
account had spent after it. The ledger says the same, or the record is not its own. What
the ledger stored beside the charge is compared too, field by field
(`release.comparing`). Fields that it did not store are named, and are not confirmed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.documents import Document
from pydantic import ValidationError

from langchain_dpicl.accounting import compose
from langchain_dpicl.budget import Stored, charges, plan_of
from langchain_dpicl.budget.pricing import epsilon_spent
from langchain_dpicl.errors import InvalidParameterError, LedgerError
from langchain_dpicl.ledger import AccountTerms, Ledger, Plan
from langchain_dpicl.operate.charges import as_json, opened
from langchain_dpicl.public import Public
from langchain_dpicl.release.comparing import StoredRecord, account_says
from langchain_dpicl.release.record import ReleaseRecord

Record = Mapping[str, Any]

_HOLDERS = ("privacy", "record", "response_metadata", "kwargs", "data")
_DEEPEST = 4
_TERMS = ("epsilon", "delta", "accounting", "scope", "queries")
_SPENT = ("epsilon_spent", "queries_spent")
_ROUNDING = 1e-9
_BESIDE = "what stands beside the record"
_FREE = (
    "the record states that nothing was charged and that no private record had a part "
    "in it, and no ledger can say so"
)


class Verdict(Public):
    """What was found of a record.

    Example:
        >>> Verdict(
        ...     account="notes", charge=1, checked=("the charge is in the ledger",)
        ... ).summary
        'Confirmed: charge 1 of account notes paid for this.'
    """

    account: str | None = None
    """The account's name; None for a record that names none."""

    charge: int | None = None
    """The number of the charge that paid; None where nothing was charged."""

    digest: str | None = None
    """The ledger's digest of the account's book up to that charge."""

    checked: tuple[str, ...] = ()
    """What was found right."""

    wrong: tuple[str, ...] = ()
    """What was found wrong; empty for a record that is confirmed."""

    not_compared: tuple[str, ...] = ()
    """What the ledger does not store, by the names of the record's fields. Nothing is
    said about these: anybody can have changed them."""

    @property
    def is_confirmed(self) -> bool:
        """Whether the ledger says what the record says.

        It never does of a record that names no charge.
        """
        return not self.wrong

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


def verify(answer: Record, ledger: str | Ledger) -> Verdict:
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
        >>> names = ["unit", "unit_key", "relation", "neighbors"]
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
    record = _record_in(answer)
    with opened(ledger) as book:
        return _Check(record, book, None if record is answer else answer).verdict()


class _Check:
    """One record against one ledger, and what stands beside the record."""

    def __init__(self, record: Record, ledger: Ledger, beside: Record | None) -> None:
        self.record, self.ledger, self.beside = record, ledger, beside
        self.account: Record = record["account"] or {}
        self.right: list[str] = []
        self.wrong: list[str] = []
        self.unknown: tuple[str, ...] = (*record, "random")
        self.digest: str | None = None

    def verdict(self) -> Verdict:
        record = self.record
        if "random" in record:
            self.wrong.append("its noise came from a source for tests")
        number = record["charge"]
        if number is None:
            if record["events"]:
                self.wrong.append("it has events and names no charge")
            elif (number := _first(record)) is None and not self.wrong:
                is_released = record["status"] in ("released", "cached")
                no_charge = "it was released and names no charge"
                self.wrong.append(no_charge if is_released else _FREE)
        if number is not None:
            self._charged(number)
        return Verdict(
            account=self.account.get("name"),
            charge=number,
            digest=self.digest,
            checked=tuple(self.right),
            wrong=tuple(self.wrong),
            not_compared=self.unknown,
        )

    def _say(self, is_right: bool, right: str, wrong: str) -> None:  # noqa: FBT001  # the finding
        (self.right if is_right else self.wrong).append(right if is_right else wrong)

    def _charged(self, number: int) -> None:
        name = self.account.get("name")
        if name is None:
            self.wrong.append("it names a charge and no account")
            return
        if name not in self.ledger.accounts():
            self.wrong.append("the ledger has no such account")
            return
        terms = self.ledger.state(name).account
        plan = plan_of(self.ledger, name)
        other = [n for n in _TERMS if self.account.get(n, v := getattr(terms, n)) != v]
        self._say(
            not other,
            "the account has the terms that the record states",
            f"the account has another {''.join(other[:1])}",
        )
        if plan and self.record["unit_key"] != plan.unit_key:
            self.wrong.append("the account protects another unit")
        try:
            self.ledger.verify(name)
            self.right.append("the account's book is whole")
        except LedgerError as error:
            self.wrong.append(f"the ledger is damaged: {error}")
        stored = charges(self.ledger, name)
        for place in (number, _first(self.record) or number):
            if not 0 < place <= len(stored):
                self.wrong.append(f"the account has no charge {place}")
                return
        charge = stored[number - 1]
        self.digest = charge.digest
        self.right.append(f"the ledger holds charge {number}")
        if self.record["charge"] is not None:
            self._same_events(stored[:number])
            self._same_spending(
                epsilon_spent(terms, plan, number, charge.spent), number
            )
        self._same_fields(terms, plan, charge)

    def _same_events(self, stored: Sequence[Stored]) -> None:
        """A question may have been charged more than once: the last charge is named."""
        rest = list(self.record["events"])
        for place, charge in enumerate(reversed(stored)):
            events = as_json(charge.events)
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
        self._say(
            _covers(stated, compose(events, delta) if delta else pure_epsilon(events)),
            "the events cost no more epsilon than the record states",
            "the events cost more epsilon than the record states",
        )

    def _same_spending(self, spent: float, number: int) -> None:
        """A later version may know a smaller bound; never a larger one."""
        stated, uses = (self.account.get(name) for name in _SPENT)
        if isinstance(uses, int) and uses < number:
            self.wrong.append("the account had more charges than the record states")
        if stated is None:
            return
        if not isinstance(stated, int | float) or not math.isfinite(stated):
            self.wrong.append("what it states as spent is no number")
            return
        self._say(
            _covers(stated, spent),
            "the account had spent no more than the record states",
            "the account had spent more than the record states",
        )

    def _same_fields(
        self, terms: AccountTerms, plan: Plan | None, charge: Stored
    ) -> None:
        """Compare what the ledger stored beside the charge, and name the rest."""
        record = self.record
        known = account_says(record, terms, plan.unit_key if plan else None)
        if record["charge"] is not None:
            spent = ((name, self.account.get(name)) for name in _SPENT)
            known["account"] |= {n: v for n, v in spent if isinstance(v, int | float)}
        try:
            stored = StoredRecord.of(record, charge, terms.delta)
        except LedgerError as error:
            self.wrong.append(f"what the ledger stored can't be read: {error}")
            return
        found = stored.compared(record, known)
        other, unknown = found.other, found.not_compared
        if self.beside is not None and "documents" in self.beside:
            texts = stored.compared_documents(record, _documents(self.beside))
            other, unknown = other + texts.other, unknown + texts.not_compared
        elif self.beside is not None and "counts" in self.beside and stored.drawn:
            drawn = {name: self.beside.get(name) for name in stored.drawn}
            other += tuple(n for n, v in stored.drawn.items() if drawn[n] != v)
        elif self.beside is not None:
            unknown += (_BESIDE,)
        self.unknown = unknown
        self.wrong += [f"{name} is not what the ledger stored" for name in other]
        if not other and stored.record:
            self.right.append("the record says what the ledger stored of the release")


def _covers(stated: float, cost: float) -> bool:
    return stated >= cost or math.isclose(stated, cost, rel_tol=_ROUNDING)


def _first(record: Record) -> int | None:
    """Return the charge that paid for what is given again, if one is named."""
    details = record.get("details")
    first = details.get("first") if isinstance(details, Mapping) else None
    number = first.get("charge") if isinstance(first, Mapping) else None
    return number if type(number) is int else None


def _record_in(answer: object) -> Record:
    """Return the record in an answer, checked."""
    level: list[Any] = [answer]
    for _ in range(_DEEPEST):
        level = [value for value in level if isinstance(value, Mapping)]
        for found in level:
            if {"status", "charge", "events"} <= found.keys():
                return _checked(found)
        level = [found[name] for found in level for name in _HOLDERS if name in found]
    raise InvalidParameterError(
        "There is no record of a release in it: save the answer's "
        'response_metadata["privacy"], or the whole answer as a dictionary.'
    )


def _checked(record: Record) -> Record:
    try:
        ReleaseRecord.model_validate(dict(record))
    except ValidationError as error:
        # Not its message: that holds the values.
        fields = sorted({str(one["loc"][0]) for one in error.errors() if one["loc"]})
    else:
        return record
    raise InvalidParameterError(
        f"The record has another form than this version reads: {', '.join(fields)}."
    )


def _documents(answer: Record) -> list[Document]:
    """Return the documents of a saved file of facts."""
    found = answer["documents"]
    try:
        return [Document(one["text"], metadata=one["metadata"]) for one in found]
    except (TypeError, KeyError, ValueError):
        pass
    raise InvalidParameterError("The documents in it have another form than facts.")
