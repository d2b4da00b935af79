"""What each of some people would lose by a chain's answers to some questions.

The worlds with and without a person differ in one slot. So one more group call gives
this person's loss by this question. It is exact given the answers that were drawn: what
the model says to a prompt is the same in both worlds, and only the noise is averaged
over, and the person's own coin where units are sampled.

A loss is written as an event, and `accounting` adds events up. Of noisy votes (a vote,
ESA) it is a Gaussian whose noise multiplier is the deviation of the paid noise over the
distance by which the person moves the votes. Of every other release the charge itself
stands for the loss, wherever an answer changes. That the noise has the deviation that
was paid is tested with the mechanisms.

Privacy:
    None, and on purpose: an audit looks at the records, and its report is private. The
    account is a copy in memory, the draw charges no unit, and all group calls and all
    reading of answers happen in the sealed region.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from langchain_core.documents import Document
from pydantic import BeforeValidator, Field, PlainSerializer

from langchain_dpicl import accounting
from langchain_dpicl._version import __version__
from langchain_dpicl.accounting import Event, Gaussian, merge
from langchain_dpicl.budget import Paid, PrivacyBudgetHandler, find_budget
from langchain_dpicl.chain import DPChain, prepared_question
from langchain_dpicl.common import file_format, parameters
from langchain_dpicl.common.hidden import hiding
from langchain_dpicl.common.progress import Advance, progress_bar
from langchain_dpicl.common.replies import FAILED, Slot
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import voting
from langchain_dpicl.operate import pages
from langchain_dpicl.operate.worlds import Canaries, Worlds
from langchain_dpicl.parsers import (
    ESAOutputParser,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    VoteOutputParser,
)
from langchain_dpicl.prompting import read_question
from langchain_dpicl.public import Public
from langchain_dpicl.question import PrivateQuestion, Prompts
from langchain_dpicl.release.record import now
from langchain_dpicl.sealed import sealed

Questions = Sequence[str | Mapping[str, Any]]
"""Questions as `DPChain.invoke` takes them."""

PRIVATE = "Private: for the operator of the records alone."
TOLERANCE = 1e-3
"""How much more than the claim is within the rounding of a measurement, relative."""
_MOST_NOISE = 1e6  # An event holds no more; less noise is a larger loss.
_UNWRITTEN = "\0unwritten"  # A group whose records can't be written into a prompt.

# JSON has no infinity.
_Epsilon = Annotated[
    float,
    BeforeValidator(lambda value: math.inf if value == "inf" else value),
    PlainSerializer(lambda v: v if v is None or math.isfinite(v) else "inf"),
]


# ---- what was found ------------------------------------------------------------------


class PersonLoss(Public):
    """What one person loses. Private."""

    person: str = Field(repr=False)
    """The unit id."""

    reached: int = Field(repr=False)
    """In how many askings the person's slot differs."""

    moved: int = Field(repr=False)
    """In how many of them what is released of it differs."""

    epsilon: _Epsilon | None = Field(repr=False)
    """The loss by all questions; None where several slots differ."""

    finding: str | None = Field(repr=False)
    """What is wrong, if anything."""


class AuditReport(Public):
    """What an audit found. It is private: only its verdict shows in its repr."""

    questions: int
    """How many questions were asked."""

    repeats: int
    """How often each."""

    claimed: float
    """Epsilon of what the account charges for them."""

    delta: float
    """The failure probability of all figures."""

    people: Annotated[tuple[PersonLoss, ...], Field(strict=False)]
    """The people: findings first, then the largest losses."""

    is_exact: bool
    """Whether every loss was computed; else the charge stands for some of them."""

    group_calls: int
    """Group calls over the corpus as it is."""

    extra_calls: int
    """Group calls for single people."""

    created: str = Field(default_factory=now)
    """When, in UTC."""

    library: str = __version__
    """The version of this library."""

    python: str = Field(default_factory=platform.python_version)
    """The version of Python."""

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        yield "is_sound", self.is_sound

    def __str__(self) -> str:
        columns = ("person", "questions reached", "answers moved", "epsilon", "finding")
        rows = [tuple(dict(one).values()) for one in self.people]
        notes = (f"* {note}" for note in self.notes)
        parts = (self.title, self.summary, "", pages.table(columns, rows), "", *notes)
        return "\n".join([*parts, "", PRIVATE])

    @property
    def is_sound(self) -> bool:
        """Whether nobody loses more than is charged, or is in several slots."""
        return all(one.finding is None for one in self.people)

    @property
    def measured(self) -> float:
        """The largest epsilon of a person."""
        return max(self._losses)

    @property
    def median(self) -> float:
        """The epsilon of the median person."""
        return statistics.median(self._losses)

    @property
    def title(self) -> str:
        """What was audited."""
        return f"What {len(self.people)} people lose by {self.questions} questions"

    @property
    def summary(self) -> str:
        """What was found, in a sentence."""
        wrong = sum(one.finding is not None for one in self.people)
        found = (
            f"{wrong} of {len(self.people)} people are in several slots, or lose more "
            "than is charged"
            if wrong
            else f"None of {len(self.people)} people loses more than epsilon "
            f"{self.measured:.3f}"
        )
        charged = f"the account charges {self.claimed:.3f} at delta {self.delta:g}"
        return f"{found}; {charged}."

    @property
    def notes(self) -> list[str]:
        """How to read it, and what it doesn't show."""
        exact = (
            "A person's epsilon is exact for the answers that the model gave. Other "
            "answers, questions and people lose other amounts: this is no proof."
        )
        notes = [exact]
        if not self.is_exact:
            notes.append(
                "The law of this parser's release is not computed: where an answer "
                "changes, the charge itself stands for the loss."
            )
        return notes

    @property
    def _losses(self) -> list[float]:
        return [one.epsilon or 0.0 for one in self.people]

    def to_html(self) -> str:
        """Return a page that needs no other file, for a browser or for print.

        Raises:
            InvalidParameterError: If Jinja2 is not installed.
        """
        return pages.rendered("audit.html", report=self, private=PRIVATE)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report, by the path's ending: `.json`, or `.html` for people.

        What was there is replaced. On POSIX systems only the file's owner may read it.

        Raises:
            InvalidParameterError: If the path has another ending, or can't be written.
        """
        if pages.ending(path) == ".html":
            text = self.to_html()
        else:
            text = file_format.dumped(self.model_dump(mode="json"), FILE)
        pages.put(text, path, mode=0o600)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AuditReport:
        """Read a report that `save` wrote as JSON.

        Raises:
            InvalidParameterError: If it is none, or was changed after it was saved.
        """
        return cls.model_validate_json(json.dumps(file_format.read(path, FILE)))


FILE = file_format.Kind(
    "audit",
    "audit that can be trusted",
    "AuditReport.load",
    dict.fromkeys(AuditReport.model_fields, object),
    1 << 26,
    "Load a good copy, or run the audit again.",
)


# ---- measuring -----------------------------------------------------------------------


@hiding
def snapshot(
    chain: DPChain,
    canaries: Canaries,
    questions: Questions,
    *,
    repeats: int = 1,
    delta: float | None = None,
    budget: PrivacyBudgetHandler | None = None,
    progress: bool = True,
) -> AuditReport:
    """Measure what each of some people would lose by the answers to some questions.

    For each question the groups are asked once, and once more for each person whom the
    question reaches. What is measured is held against what the chain's account charges
    for these questions. In a per-unit account everybody else is taken to pay.

    Args:
        chain: The chain, over embedded records or a store that is read out.
        canaries: The people: a number of them, chosen by chance; their unit ids; or
            made-up records with unit ids of their own, which are added to the corpus
            one person at a time.
        questions: The questions.
        repeats: How often each question is asked.
        delta: The failure probability; None: the account's.
        budget: The account whose terms are used; None: the chain's own. It is neither
            charged nor read.
        progress: Whether to draw a progress bar on standard error.

    Returns:
        The report. It is private. `is_sound` is False where a person loses more than
        is charged, or is in more than one slot.

    Raises:
        InvalidParameterError: If an argument can't be used, or a part of the chain
            can't be audited: the message names it, and the way out.
        UnitError: If a canary's id is not in the corpus, or a made-up one is.
        NoBudgetError: If there is no account.
        BudgetExhaustedError: If the account does not pay for so many questions.
        PublicCallError: If the model fails on a question alone.
        GroupCallError: If the sealed region fails.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_dpicl import PrivacyBudgetHandler, RetrievedGroups
        >>> from langchain_dpicl import VoteOutputParser
        >>> from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel
        >>> notes = [
        ...     Document("Lisinopril gave a dry cough.", metadata={"patient": str(i)})
        ...     for i in range(40)
        ... ]
        >>> chain = DPChain(
        ...     groups=RetrievedGroups.from_documents(
        ...         notes, HashingEmbeddings(), unit_key="patient", n_groups=10
        ...     ),
        ...     model=OfflineChatModel(),
        ...     parser=VoteOutputParser(labels=["cough", "rash"]),
        ...     budget=PrivacyBudgetHandler(
        ...         epsilon=1, delta=1e-6, queries=1, ledger=":memory:"
        ...     ),
        ... )
        >>> made_up = Document("Lisinopril gave a rash.", metadata={"patient": "new"})
        >>> report = snapshot(
        ...     chain, [made_up], ["What does lisinopril give?"], progress=False
        ... )
        >>> report.is_sound
        True
    """
    if not isinstance(chain, DPChain):
        raise InvalidParameterError(
            f"A snapshot audits a DPChain, not a {type(chain).__name__}."
        )
    worlds = Worlds(chain.groups, canaries)
    repeats = parameters.count(repeats, "repeats")
    if delta is not None:
        delta = parameters.delta(delta)
    if isinstance(questions, str | Mapping) or not questions:
        raise InvalidParameterError("questions must be a list of at least one.")
    account = find_budget(budget or chain.budget).in_memory()
    audit = _Snapshot(chain, account, worlds)
    total = repeats * len(questions) * (chain.groups.n_groups + len(audit.found))
    with progress_bar("Auditing", total, shown=progress) as done:
        for question in questions:
            for _ in range(repeats):
                audit.ask(question, done)
    return audit.report(len(questions), repeats, delta or account.delta)


@dataclass(repr=False)
class _Found:
    """What was found of one person. Private."""

    reached: int = 0
    moved: int = 0
    events: list[Event] = field(default_factory=list)
    finding: str | None = None


class _Snapshot:
    """One audit under way. Private."""

    def __init__(
        self, chain: DPChain, budget: PrivacyBudgetHandler, worlds: Worlds
    ) -> None:
        self.chain, self.budget, self.worlds = chain, budget, worlds
        self.found = {canary.name: _Found() for canary in worlds.canaries}
        self.events: list[Event] = []
        self.calls = [0, 0]
        self.is_exact = True

    def ask(self, value: Any, done: Advance) -> None:
        """Ask one question."""
        if read_question(value).only is not None:
            raise InvalidParameterError(
                "A snapshot is of one corpus: leave filter out of the questions, and "
                "audit a chain over groups.where(...)."
            )
        asked = prepared_question(self.chain, value)
        if asked.decided() is not None:
            done(asked.groups.n_groups + len(self.found))
            return
        with asked.purchase(self.budget, None).bought() as paid:
            self.events += paid.events
            sealed(lambda: self._measure(asked, paid, done))

    def _measure(self, asked: PrivateQuestion, paid: Paid, done: Advance) -> None:
        index, others = self.worlds.pairs()
        prompts = _Prompts(asked)
        base = prompts.slots(self.worlds.draw(index, asked.embedded))
        answers = dict(
            zip(base, self._answers(prompts, [*base.values()], 0, done), strict=True)
        )
        pairs: list[tuple[str, int, str | None, bool]] = []
        for canary, other, is_in in others:
            slots = prompts.slots(self.worlds.draw(other, asked.embedded))
            differ = [n for n in {*base, *slots} if base.get(n) != slots.get(n)]
            found = self.found[canary.name]
            found.reached += bool(differ)
            if len(differ) > 1 and found.finding is None:
                found.finding = f"{len(differ)} slots differ: {asked.question.text!r}"
            if len(differ) == 1:
                pairs.append((canary.name, differ[0], slots.get(differ[0]), is_in))
            else:
                done(1)
        if paid.collect is not None:
            payers = paid.collect({name for name, *_ in pairs})
            pairs = [pair for pair in pairs if pair[0] in payers]
        come = [text for _, _, text, _ in pairs if text is not None]
        more = iter(self._answers(prompts, come, 1, done))
        for name, number, text, is_in in pairs:
            before = [answers[number]] if number in answers else []
            after = [] if text is None else [next(more)]
            if not after:
                done(1)
            without, within = (after, before) if is_in else (before, after)
            self._lose(self.found[name], asked, paid, without, within)

    def _answers(
        self, prompts: _Prompts, texts: list[str], kind: int, done: Advance
    ) -> list[Slot]:
        known = [prompts.known[text] for text in texts]
        written = [each for each in known if each is not None]
        self.calls[kind] += sum(map(len, written))
        answers = iter(prompts.asked.answers(written, done))
        return [FAILED if each is None else next(answers) for each in known]

    def _lose(
        self,
        found: _Found,
        asked: PrivateQuestion,
        paid: Paid,
        without: list[Slot],
        within: list[Slot],
    ) -> None:
        """Note what a person loses whose slot differs."""
        parser: Any = asked.parser
        kinds = (VoteOutputParser, ESAOutputParser)
        if any(_releases_as(parser, kind) for kind in kinds):
            counts = (
                np.array(parser.counts(slots, asked.prepared))
                for slots in (without, within)
            )
            distance = float(np.linalg.norm(np.subtract(*counts)))
            if distance:
                noise: Any = paid.events[0]
                sigma = voting.sigma(noise, asked.groups.relation)
                z = min(sigma / distance, _MOST_NOISE)
                rate = asked.groups.sampling_rate
                event = Gaussian(noise_multiplier=z, sampling_rate=rate)
                found.events.append(event)
                found.moved += 1
            return
        if [slot.text for slot in without] == [slot.text for slot in within]:
            return
        if isinstance(parser, KSAPTROutputParser | KSAThresholdOutputParser):
            old, new = (
                parser.counts(slots, asked.prepared) for slots in (without, within)
            )
            if old == new:
                return
            most = max(abs(old[word] - new[word]) for word in {*old, *new})
            if most > 1 and found.finding is None:
                found.finding = f"a word's count moves by {most}"
        found.events += paid.events
        found.moved += 1
        self.is_exact = False

    def report(self, questions: int, repeats: int, delta: float) -> AuditReport:
        """Return what was found."""
        claimed = accounting.compose(self.events, delta) if self.events else 0.0
        if delta == self.budget.delta:
            claimed = min(claimed, self.budget.epsilon)
        people = []
        for name, found in self.found.items():
            epsilon: float | None = _composed(merge(found.events), delta)
            if not self.is_exact and epsilon is not None:
                epsilon = min(epsilon, claimed)
            finding = found.finding
            if finding is not None:
                epsilon = None  # What several slots lose together was not asked for.
            elif epsilon is not None and epsilon > claimed * (1 + TOLERANCE):
                finding = "more than is charged"
            people.append(
                PersonLoss(
                    person=name,
                    reached=found.reached,
                    moved=found.moved,
                    epsilon=epsilon,
                    finding=finding,
                )
            )
        people.sort(key=lambda one: (one.finding is None, -(one.epsilon or 0.0)))
        return AuditReport(
            questions=questions,
            repeats=repeats,
            claimed=claimed,
            delta=delta,
            people=tuple(people),
            is_exact=self.is_exact,
            group_calls=self.calls[0],
            extra_calls=self.calls[1],
        )


class _Prompts:
    """From the groups of a draw to their prompts; what was written once is kept."""

    def __init__(self, asked: PrivateQuestion) -> None:
        self.asked = asked
        self._texts: dict[Any, str] = {}
        self.known: dict[str, Prompts | None] = {_UNWRITTEN: None}

    def slots(self, drawn: Sequence[Sequence[Document]]) -> dict[int, str]:
        """Return the prompt of each slot of a draw that holds records."""
        keys = [
            tuple((one.id, one.page_content, repr(one.metadata)) for one in documents)
            for documents in drawn
        ]
        new = {
            key: documents
            for key, documents in zip(keys, drawn, strict=True)
            if documents and key not in self._texts
        }
        made = self.asked.prompts(list(new.values())) if new else []
        for key, prompts in zip(new, made, strict=True):
            text = _UNWRITTEN
            if prompts is not None:
                text = "\0".join(one.to_string() for one in prompts)
            self._texts[key], self.known[text] = text, prompts
        return {number: self._texts[key] for number, key in enumerate(keys) if key}


def _releases_as(parser: object, kind: Any) -> bool:
    """Return whether a parser releases as this kind does: a subclass may not."""
    return isinstance(parser, kind) and type(parser).release is kind.release


@lru_cache(maxsize=1024)
def _composed(events: tuple[Event, ...], delta: float) -> float:
    """Return epsilon of events; Gaussians without a sample are one, exactly."""
    plain = [e for e in events if isinstance(e, Gaussian) and e.sampling_rate == 1]
    rest = [event for event in events if event not in plain]
    square = math.fsum(e.count / (e.noise_multiplier or 1) ** 2 for e in plain)
    if square:
        rest.append(Gaussian(noise_multiplier=min(square**-0.5, _MOST_NOISE)))
    return accounting.compose(rest, delta) if rest else 0.0
