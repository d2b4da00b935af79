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
    and whether noise is seeded. It does not know the records, so an answer may be older
    than the corpus. A model is its class and name: bound arguments, temperature and
    address are left out, so that an answer may have been made with others.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from langchain_dpicl.accounting import Charge
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
from langchain_dpicl.mechanisms.random import current
from langchain_dpicl.parsers import DPOutputParser
from langchain_dpicl.parsers.words import named
from langchain_dpicl.release.flow import Flow, in_thread
from langchain_dpicl.release.owner import Owner
from langchain_dpicl.release.purchase import Purchase, Waiting
from langchain_dpicl.release.store import Entry, ReleaseStore, damaged, read

MAKER = "answer"
"""What makes stored answers: a parser."""

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
    public = {
        "question": normalized,
        "variables": question.variables,
        "templates": prompting.templates(same),
        "rewrite": prompting.rewrite_text(parser.rewrite_prompt, same),
        "parser": parser.cache_parameters(normalized),
        "groups": groups.description,
        "model": named(model),
        "is_seeded": (parser.random or current()).is_seeded,
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
    """The releases of one question."""

    def entries(self) -> list[Entry]:
        """Return a release that is given again, else those that others draw now."""
        found = self._open()
        pending = [entry for entry in found if not is_drawn(entry)]
        gone = {entry.charge for entry in pending if entry.is_abandoned}
        if gone:
            # One that ended after this look has stored its draw before it ended.
            found = self._open()
        given = [entry for entry in found if is_given(entry)]
        return given[:1] or [
            entry for entry in found if not is_drawn(entry) and entry.charge not in gone
        ]

    def _open(self) -> list[Entry]:
        """Return the releases whose charges are not given up."""
        return [entry for entry in super().entries() if CLOSED not in entry.steps]


@dataclass(frozen=True, repr=False)
class Bought:
    """What pays for a draw.

    Attributes:
        paid: The charge, with the events of the draw.
        entry: The stored release, if there is a cache.
    """

    paid: PaidCharge
    entry: Entry | None = None

    def kept(self, outcome: Outcome) -> Outcome:
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
        return outcome_of(self.entry.keep(0, drawn))

    def close(self) -> None:
        """Give the charge up: nothing is drawn for it any more."""
        if self.entry is not None:
            with suppress(LedgerError):
                self.entry.keep(0, CLOSED)


@dataclass(frozen=True, repr=False)
class Answers:
    """The stored answers to one question, and how another one is paid for.

    Attributes:
        purchase: How.
    """

    purchase: Purchase

    @classmethod
    def of(cls, budget: PrivacyBudgetHandler, key: str) -> Answers:
        """Return the answers of an account under a question's key."""
        store = AnswerStore(budget, key, MAKER)
        way = "asking again"
        return cls(Purchase(store, is_drawn, "release", way, resume=True))

    @property
    def owner(self) -> Owner:
        """The caller, who draws what it charges."""
        return self.purchase.owner

    def found(self) -> Entry | None:
        """Return a stored answer to be given again, else one that is drawn now."""
        return self.purchase.found()

    def awaited(self) -> Flow[Entry | None]:
        """Hand on a wait for an answer that another asking draws; return a stored one.

        None means that nobody has drawn one, or not in time: this caller has to pay.
        """
        waiting = Waiting(LONGEST_WAIT_S)
        while True:
            entry: Entry | None = yield in_thread(self.found)
            if entry is None or is_drawn(entry):
                return entry
            if not (yield from waiting.pauses(entry)):
                self.purchase.given_up.add(entry.charge)

    def begun(
        self,
        charge: Charge,
        records: Callable[[PaidCharge], dict[str, Any]],
        **payers: Any,
    ) -> Bought | Entry:
        """Charge a draw and store the header of its release, or find the stored one.

        Args:
            charge: What it is charged.
            records: The answer's record but for the outcome, given the charge.
            **payers: See `Purchase.begun`.

        Returns:
            What pays for a draw; or the release of another caller, who has drawn or is
            about to.
        """
        made: list[PaidCharge] = []

        def terms(paid: PaidCharge) -> dict[str, Any]:
            made[:] = [paid]
            return records(paid)

        entry = self.purchase.begun(charge, terms, **payers)
        return Bought(made[0], entry) if entry.belongs_to(self.owner) else entry


def is_drawn(entry: Entry) -> bool:
    """Return whether nothing is left to be drawn for an entry's charge."""
    return bool(entry.steps)


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


def wording_of(entry: Entry | None) -> str | None:
    """Return the stored wording of a stored outcome, or None.

    Raises:
        LedgerError: If what is stored makes no sense.
    """
    stored = entry.text(1) if entry else None
    if stored is None:
        return None
    if not isinstance(said := read(stored), str):
        raise damaged()
    return said


def remember(entry: Entry, said: str) -> None:
    """Store the wording of an outcome, which is stored before it, if it can be."""
    with suppress(LedgerError):
        entry.keep(1, json.dumps(said))


def released_before(asked: PreparedQuery, entry: Entry) -> Released:
    """Return a stored release as it is given again; see `record_again`."""
    outcome = outcome_of(entry.steps[0])
    return Released(asked, outcome, entry=entry, is_again=True)


def record_again(released: Released, entry: Entry, status: Status) -> dict[str, Any]:
    """Return the record of a release that another asking has paid for.

    Args:
        released: The release, with what this asking was charged before it was found.
        entry: Where it is stored.
        status: How it came about.
    """
    outcome, charges, budget = released.outcome, released.charges, released.asked.budget
    record = entry.header.get("record")
    if not isinstance(record, dict) or not isinstance(record.get("details"), dict):
        raise damaged()
    first = {"status": status.value, "charge": entry.charge}
    again = Status.CACHED if status is Status.RELEASED else status
    return {
        **record,
        "status": again.value,
        "events": [
            event.model_dump(mode="json") for paid in charges for event in paid.events
        ],
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


def is_given(entry: Entry) -> bool:
    """Return whether a stored release is given again."""
    return _gives(entry.steps)


def _gives(steps: Sequence[str]) -> bool:
    """Return whether stored steps hold an outcome that is given again.

    Where too many group calls failed, asking again is worth its price.
    """
    return bool(steps) and outcome_of(steps[0]).details.get("reason") != CALLS_FAILED
