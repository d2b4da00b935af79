"""The answer cache: what was paid for is drawn once, and may be said again.

With `cache=True` the charge of an answer starts a stored release, whose kind is the
question's key. Step 0 is the outcome. Step 1, if there is one, is its wording.

Privacy:
    Unit, relation, sensitivity, noise and event: the mechanism's, whose one draw for
    one charge is stored here. Storing, finding and wording a draw is post-processing:
    no unit, no noise, no event. A draw is stored in the sealed region before anything
    is made of it. Only the one who has charged draws (`release/owner.py`); others who
    ask the same wait for what is stored, for five minutes at most, and then pay for a
    draw of their own. A charge whose draw was lost (a crash, an error, a caller that
    stopped) is not drawn for again: the next one to ask pays anew.

    Where no answer came out, that is stored and given again, too, unless too many calls
    failed: asking for that again is worth its price. Both follow from what was
    released.

    The key is made of public things only: the input, the prompts, the model's name, the
    parameters of the parser and of the group source, a question's filter among them,
    and whether noise is secure. It does not know the records, so an answer may be older
    than the corpus. A model is its class and name: bound arguments, temperature and
    address are left out, so that an answer may have been made with others.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from langchain_dpicl.accounting import event_to_dict
from langchain_dpicl.accounting.template import Template
from langchain_dpicl.budget import PaidCharge, PrivacyBudgetHandler
from langchain_dpicl.chain.prompting import Prompting, Question
from langchain_dpicl.chain.steps import PreparedQuery, Released
from langchain_dpicl.common.outcome import CALLS_FAILED, Outcome, Status
from langchain_dpicl.errors import (
    GroupCallError,
    InvalidParameterError,
    LedgerError,
)
from langchain_dpicl.groups import GroupSource
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.parsers import DPOutputParser
from langchain_dpicl.parsers.words import named
from langchain_dpicl.release.flow import Flow, in_thread
from langchain_dpicl.release.owner import Owner
from langchain_dpicl.release.purchase import Purchase, Waiting
from langchain_dpicl.release.store import Entry, ReleaseStore, damaged, read

FIRST, SECOND = "answer", "answer/then"
"""What makes stored answers: a parser, and its `second` where it is charged alone."""

CLOSED = "null"
"""The last step of a release that is neither given again nor drawn."""


def answer_key(
    question: Question,
    *,
    prompting: Prompting,
    parser: DPOutputParser,
    groups: GroupSource,
    model: Any,
) -> str:
    """Return the key under which a question's answer is stored.

    Questions that differ in white space or Unicode composition alone are the same.

    Raises:
        InvalidParameterError: If the input or the parser holds something that can't be
            told from others, such as a function.
    """
    normalized = " ".join(unicodedata.normalize("NFC", question.text).split())
    same = Question(normalized, question.variables)
    parsers = [parser, *filter(None, [parser.second])]
    public = {
        "question": normalized,
        "variables": question.variables,
        "templates": prompting.templates(same),
        "rewrite": [
            prompting.rewrite_text(one.rewrite_prompt, same) for one in parsers
        ],
        "parser": parser.cache_parameters(normalized),
        "groups": groups.description,
        "model": named(model),
        "is_secure": all(one.random is None or one.random.secure for one in parsers),
    }
    try:
        text = json.dumps(public, sort_keys=True)
    except (TypeError, ValueError):
        text = ""
    if not text:
        raise InvalidParameterError(
            "With cache=True the input must be made of text and numbers, so that one "
            "can be told from another."
        )
    data = text.encode(errors="surrogatepass")
    return hashlib.blake2b(data, digest_size=32).hexdigest()


LONGEST_WAIT_S = 300.0
"""Seconds that a question waits for the draw of another asking, at most."""


@dataclass(frozen=True)
class AnswerStore(ReleaseStore):
    """The releases of one question.

    Args:
        goes_on: Where a charge pays for a second draw: whether an outcome asks for it.
    """

    goes_on: Callable[[Outcome], bool] | None = None

    def entries(self) -> list[Entry]:
        """Return a release that is given again, else those that others draw now."""
        found = self._open()
        pending = [entry for entry in found if not self.is_drawn(entry)]
        gone = {entry.charge for entry in pending if entry.is_abandoned}
        if gone:
            # One that ended after this look has stored its draw before it ended.
            found = self._open()
        given = [entry for entry in found if self.is_drawn(entry) and is_given(entry)]
        return given[:1] or [
            entry
            for entry in found
            if not self.is_drawn(entry) and entry.charge not in gone
        ]

    def _open(self) -> list[Entry]:
        """Return the releases whose charges are not given up."""
        return [entry for entry in super().entries() if CLOSED not in entry.steps]

    def is_drawn(self, entry: Entry) -> bool:
        """Return whether nothing is left to be drawn for an entry's charge."""
        if not (outcomes := _outcomes(entry.steps)):
            return False
        if self.goes_on is None or outcomes[1:]:
            return True
        return not self.goes_on(outcome_of(outcomes[0]))


@dataclass(frozen=True, repr=False)
class Bought:
    """What pays for a draw, or for two.

    Attributes:
        paid: The charge, with the noise of the (first) draw.
        then: The same charge with the noise of a second draw, if it pays for one.
        entry: The stored release, if there is a cache.
    """

    paid: PaidCharge[Any]
    then: PaidCharge[Any] | None = None
    entry: Entry | None = None

    @classmethod
    def of(cls, paid: PaidCharge[Any], entry: Entry | None = None) -> Bought:
        """Return what a charge of one release, or of two in a bundle, pays for."""
        each = shared(paid)
        return cls(each[0], each[1] if each[1:] else None, entry)

    def kept(self, outcome: Outcome, place: int = 0) -> Outcome:
        """Store what was drawn, and return it.

        Raises:
            LedgerError: If it can't be stored: then it is not released.
            GroupCallError: If the charge is closed.
        """
        if self.entry is None:
            return outcome
        try:
            drawn = json.dumps(asdict(outcome))
        except Exception:  # noqa: BLE001 - whatever it is, it depends on the draw
            drawn = CLOSED
        return outcome_of(self.entry.keep(place, drawn))

    def close(self, place: int = 0) -> None:
        """Give the charge up: nothing is drawn for it any more."""
        if self.entry is not None:
            with suppress(LedgerError):
                self.entry.keep(place, CLOSED)


def shared(paid: PaidCharge[Any]) -> list[PaidCharge[Any]]:
    """Return a charge once for each release that it pays for, with that one's noise."""
    noises = paid.noise if isinstance(paid.noise, tuple) else (paid.noise,)
    return [replace(paid, noise=noise) for noise in noises]


@dataclass(frozen=True, repr=False)
class Answers:
    """The stored answers to one question, and how another one is paid for.

    Attributes:
        purchase: How.
        then: The same for the parser's `second`, where that is charged by itself.
    """

    purchase: Purchase
    then: Answers | None = None

    @classmethod
    def of(
        cls,
        budget: PrivacyBudgetHandler,
        key: str,
        *,
        goes_on: Callable[[Outcome], bool] | None,
    ) -> Answers:
        """Return the answers of an account under a key; see `AnswerStore`.

        Args:
            budget: The account.
            key: The question's key.
            goes_on: Whether an outcome asks for the parser's `second`, if it has one.
        """
        owner = Owner()

        def answers(maker: str, two: Any, then: Answers | None = None) -> Answers:
            store = AnswerStore(budget, key, maker, two)
            way = "asking again"
            purchase = Purchase(
                store, store.is_drawn, "release", way, resume=True, owner=owner
            )
            return cls(purchase, then)

        if goes_on is None or budget.charges_together:
            return answers(FIRST, goes_on)
        return answers(FIRST, goes_on, answers(SECOND, None))

    @property
    def owner(self) -> Owner:
        """The caller, who draws what it charges."""
        return self.purchase.owner

    def found(self) -> Entry | None:
        """Return a stored answer to be given again, else one that is drawn now."""
        then = self.then.purchase.found() if self.then else None
        return then or self.purchase.found()

    def awaited(self) -> Flow[Entry | None]:
        """Hand on a wait for an answer that another asking draws; return a stored one.

        None means that nobody has drawn one, or not in time: this caller has to pay.
        """
        waiting = Waiting(LONGEST_WAIT_S)
        while True:
            entry: Entry | None = yield in_thread(self.found)
            if entry is None or is_complete(entry):
                return entry
            if not (yield from waiting.pauses(entry)):
                self.purchase.given_up.add(entry.charge)

    def begun(
        self,
        template: Template[Any],
        records: Callable[[PaidCharge[Any]], dict[str, Any]],
        **payers: Any,
    ) -> Bought | Entry:
        """Charge a draw and store the header of its release, or find the stored one.

        Args:
            template: What it is charged.
            records: The answer's record but for the outcome, given the charge; as
                `then` that of a second draw for it.
            **payers: See `Purchase.begun`.

        Returns:
            What pays for a draw; or the release of another caller, who has drawn or is
            about to.
        """
        made: list[PaidCharge[Any]] = []

        def terms(paid: PaidCharge[Any]) -> dict[str, Any]:
            made[:] = [paid]
            return records(paid)

        entry = self.purchase.begun(template, terms, **payers)
        return Bought.of(made[0], entry) if entry.belongs_to(self.owner) else entry


def is_complete(entry: Entry) -> bool:
    """Return whether a stored answer can be given."""
    return isinstance(entry.store, AnswerStore) and entry.store.is_drawn(entry)


def outcome_of(stored: str) -> Outcome:
    """Return the outcome that is stored as a step.

    Raises:
        GroupCallError: If the charge is closed.
        LedgerError: If what is stored makes no sense.
    """
    found = read(stored)
    if found is None:
        raise GroupCallError(
            "A draw for this charge has failed: nothing was released for it, and "
            "nothing will be. Ask again, for another charge."
        )
    try:
        return Outcome(
            Status(found["status"]),
            found["text"],
            tuple(found["keywords"]),
            tuple(found["ranking"]),
            dict(found["details"]),
        )
    except (KeyError, TypeError, ValueError):
        pass
    raise damaged()


def wording_of(entry: Entry | None, place: int) -> str | None:
    """Return the stored wording of an outcome that is stored as a step, or None.

    Raises:
        LedgerError: If what is stored makes no sense.
    """
    stored = entry.text(place + 1) if entry else None
    if stored is None:
        return None
    if not isinstance(said := read(stored), str):
        raise damaged()
    return said


def remember(entry: Entry, said: str, place: int) -> None:
    """Store the wording of an outcome, if it can be stored.

    What it words is stored before it, as step `place`.
    """
    with suppress(LedgerError):
        entry.keep(place + 1, json.dumps(said))


def released_before(
    asked: PreparedQuery, entry: Entry, charges: tuple[PaidCharge[Any], ...] = ()
) -> Released:
    """Return a stored release as it is given again; see `record_again`."""
    outcomes = _outcomes(entry.steps)
    if outcomes[1:]:
        first = entry.header.get("record", {}).get("mechanism")
        before = {"mechanism": first, **outcome_of(outcomes[0]).details}
        asked = asked.knowing({"before": before})
    return Released(
        asked,
        outcome_of(outcomes[-1]),
        charges,
        entry=entry,
        place=len(outcomes) - 1,
        is_again=True,
        is_second=entry.store.maker == SECOND or len(outcomes) > 1,
    )


def record_again(released: Released, entry: Entry, status: Status) -> dict[str, Any]:
    """Return the record of a release that another asking has paid for.

    Args:
        released: The release, with what this asking was charged before it was found.
        entry: Where it is stored.
        status: How it came about.
    """
    outcome, charges, budget = released.outcome, released.charges, released.asked.budget
    record = entry.header.get("then" if released.place else "record")
    if not isinstance(record, dict) or not isinstance(record.get("details"), dict):
        raise damaged()
    first = {"status": status.value, "charge": entry.charge}
    again = Status.CACHED if status is Status.RELEASED else status
    return {
        **record,
        "status": again.value,
        "events": [event_to_dict(one) for paid in charges for one in paid.events],
        "charge": charges[-1].sequence if charges else None,
        "account": budget.public_state(),
        "keywords": list(outcome.keywords),
        "ranking": list(outcome.ranking),
        "details": {
            **record["details"],
            **released.asked.details,
            **outcome.details,
            "first": first,
        },
    }


def forget(ledger: Ledger, account: str) -> int:
    """Let no answer that an account has stored be given again; return how many.

    A question that is asked again is charged again. What was drawn stays in the ledger.

    Raises:
        LedgerError: If the ledger can't be used or trusted.
    """
    count = 0
    for release in ledger.releases(account):
        steps, header = release.steps, read(release.header)
        record = header.get("record") if isinstance(header, dict) else None
        if not isinstance(record, dict) or record.get("kind") != "answer":
            continue
        if CLOSED in steps or not _gives(steps):
            continue
        number = len(steps)
        # A wording may be stored meanwhile.
        while ledger.store_step(account, release.charge, number, CLOSED) != CLOSED:
            number += 1
        count += 1
    return count


def _outcomes(steps: Sequence[str]) -> list[str]:
    """Return the outcomes among stored steps: a wording is a text."""
    return [step for step in steps if not step.startswith('"')]


def is_given(entry: Entry) -> bool:
    """Return whether a stored release is given again."""
    return _gives(entry.steps)


def _gives(steps: Sequence[str]) -> bool:
    """Return whether stored steps hold an outcome that is given again.

    Where too many group calls failed, asking again is worth its price.
    """
    if not (outcomes := _outcomes(steps)):
        return False
    return outcome_of(outcomes[-1]).details.get("reason") != CALLS_FAILED
