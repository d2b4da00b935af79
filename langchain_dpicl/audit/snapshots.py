"""What each of some people would lose by a chain's answers to some questions.

The worlds with and without a person differ in one slot. So one more group call gives
this person's loss by this question. It is exact given the answers that were drawn: what
the model says to a prompt is the same in both worlds, and only the noise is averaged
over, and the person's own coin where units are sampled.

Privacy:
    None, and on purpose: an audit looks at the records, and its report is private. The
    account is a copy in memory, the draw charges no unit, and all group calls and all
    reading of answers happen in the sealed region.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_dpicl import accounting
from langchain_dpicl.accounting import Event
from langchain_dpicl.audit.laws import Laws, Pair
from langchain_dpicl.audit.losses import Loss, epsilon_of
from langchain_dpicl.audit.prompts import UNWRITTEN, Place, Places, Prompts
from langchain_dpicl.audit.report import AuditReport
from langchain_dpicl.audit.worlds import Canaries, Worlds, chosen, forkable_index
from langchain_dpicl.budget import Paid, PrivacyBudgetHandler, find_budget
from langchain_dpicl.chain import DPChain, prepared_question
from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import hiding
from langchain_dpicl.common.pages import Cell
from langchain_dpicl.common.progress import Advance, progress_bar
from langchain_dpicl.common.replies import FAILED, Slot
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.prompting import read_question
from langchain_dpicl.question import PrivateQuestion
from langchain_dpicl.sealed import sealed

Questions = Sequence[str | Mapping[str, Any]]
"""Questions as `DPChain.invoke` takes them."""

TOLERANCE = 1e-3
"""How much more than the claim is within the rounding of a measurement, relative."""

COLUMNS = ("person", "questions reached", "answers moved", "epsilon", "finding")


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
    _require_auditable(chain)
    repeats = parameters.count(repeats, "repeats")
    if delta is not None:
        delta = parameters.delta(delta)
    if isinstance(questions, str | Mapping) or not questions:
        raise InvalidParameterError("questions must be a list of at least one.")
    account = find_budget(budget or chain.budget).in_memory()
    groups = chain.groups
    people = chosen(groups, canaries)
    laws = Laws(chain.parser, groups.relation, groups.sampling_rate)
    found = {canary.name: Found() for canary in people}
    audit = Snapshot(chain, account, Worlds(groups, people), laws, found)
    total = repeats * len(questions) * (groups.n_groups + len(people))
    with progress_bar("Auditing", total, shown=progress) as done:
        for question in questions:
            for _ in range(repeats):
                audit.ask(question, done)
    return audit.report(len(questions), repeats, delta)


@dataclass(repr=False)
class Found:
    """What was found of one person. Private.

    Attributes:
        reached: In how many askings the person's slot differs.
        losses: Those that were computed.
        charged: What was charged where no loss could be computed.
        moved: In how many askings there is a loss, or was a charge instead.
        finding: What no loss can stand for, if anything.
    """

    reached: int = 0
    losses: list[Loss] = field(default_factory=list)
    charged: list[Event] = field(default_factory=list)
    moved: int = 0
    finding: str | None = None

    def epsilon(self, delta: float, most: float, *, upper: bool) -> float:
        """Return the measured epsilon; `most` is that of all charges."""
        own = epsilon_of(self.losses, delta, upper=upper)
        if not self.charged or not upper:
            return own
        # No law, no figure: what was charged for these releases is the bound.
        bound = min(own + accounting.compose(self.charged, delta), most)
        return max(own, bound)


@dataclass(repr=False)
class Snapshot:
    """One audit under way. Private.

    Attributes:
        chain: The chain.
        budget: An account in memory.
        worlds: The people, and the corpora.
        laws: The laws of the parser's releases.
        found: What was found, by person.
        events: What was charged.
        calls: Group calls: in the corpus as it is, and for people.
    """

    chain: DPChain
    budget: PrivacyBudgetHandler
    worlds: Worlds
    laws: Laws
    found: dict[str, Found]
    events: list[Event] = field(default_factory=list)
    calls: list[int] = field(default_factory=lambda: [0, 0])

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
            self.laws.ask(paid, asked.prepared)
            sealed(lambda: self._measure(asked, paid, done))

    def _measure(self, asked: PrivateQuestion, paid: Paid, done: Advance) -> None:
        index, others = self.worlds.pairs()
        prompts = Prompts(asked)
        base = prompts.places(self.worlds.draw(index, asked.embedded))
        answers = self._answers(asked, prompts, [*base.elements()], 0, done)
        said: dict[Place, list[Slot]] = {}
        for place, slot in zip(base.elements(), answers, strict=True):
            said.setdefault(place, []).append(slot)
        differing: list[tuple[str, Places, Places, bool]] = []
        for canary, other, is_in in others:
            places = prompts.places(self.worlds.draw(other, asked.embedded))
            gone, come = base - places, places - base
            found = self.found[canary.name]
            if not gone and not come:
                done(1)
                continue
            found.reached += 1
            if wrong := self._wrong(gone, come):
                found.finding = found.finding or f"{wrong}: {asked.question.text!r}"
                done(1)
            else:
                differing.append((canary.name, gone, come, is_in))
        if paid.collect is not None:
            payers = paid.collect({name for name, *_ in differing})
            differing = [pair for pair in differing if pair[0] in payers]
        extra = [place for _, _, come, _ in differing for place in come.elements()]
        more = iter(self._answers(asked, prompts, extra, 1, done))
        pairs = []
        for _, gone, come, is_in in differing:
            left = {place: list(slots) for place, slots in said.items()}
            old = [left[place].pop() for place in gone.elements()]
            new = [next(more) for _ in come.elements()]
            if not new:
                done(1)
            common = [slot for slots in left.values() for slot in slots]
            pairs.append(Pair(common, new, old) if is_in else Pair(common, old, new))
        losses = self.laws.losses(pairs)
        for (name, *_), pair, loss in zip(differing, pairs, losses, strict=True):
            found = self.found[name]
            if loss is None and [slot.text for slot in pair.without] != [
                slot.text for slot in pair.within
            ]:
                found.charged += paid.events
                found.moved += 1
            found.losses += loss or ()
            found.moved += bool(loss)

    def _answers(
        self,
        asked: PrivateQuestion,
        prompts: Prompts,
        places: Sequence[Place],
        kind: int,
        done: Advance,
    ) -> list[Slot]:
        known = [prompts.known[text] for _, text in places]
        self.calls[kind] += sum(prompt is not None for prompt in known)
        answers = asked.model.ask(known, done)
        return [
            FAILED if text == UNWRITTEN else answer
            for (_, text), answer in zip(places, answers, strict=True)
        ]

    def _wrong(self, gone: Places, come: Places) -> str | None:
        """Return what is wrong with how two worlds' slots differ, if anything is."""
        places = {place for place, _ in (*gone, *come)}
        count = max(gone.total(), come.total(), len(places))
        if count > 1:
            return f"{count} slots differ"
        return None

    def report(self, questions: int, repeats: int, delta: float | None) -> AuditReport:
        """Return what was found."""
        at = self.budget.delta if delta is None else delta
        charged = accounting.compose(self.events, at) if self.events else 0.0
        if at == self.budget.delta:
            charged = min(charged, self.budget.epsilon)
        rows: list[tuple[Cell, ...]] = []
        for name, found in self.found.items():
            epsilon: float | None = found.epsilon(at, charged, upper=True)
            finding = found.finding
            if finding is not None:
                epsilon = None  # What several slots lose together was not asked for.
            elif found.epsilon(at, charged, upper=False) > charged * (1 + TOLERANCE):
                finding = "more than is charged"
            rows.append((name, found.reached, found.moved, epsilon, finding))
        rows.sort(key=lambda row: (row[4] is None, -float(row[3] or 0)))
        losses = [float(row[3] or 0) for row in rows]
        wrong = sum(row[4] is not None for row in rows)
        said = f"None of {len(rows)} people loses more than epsilon {max(losses):.3f}"
        if wrong:
            said = (
                f"{wrong} of {len(rows)} people are in several slots, or lose more "
                "than is charged"
            )
        return AuditReport(
            kind="snapshot",
            title=f"What {len(rows)} people lose by {questions} questions",
            summary=f"{said}; the account charges {charged:.3f} at delta {at:g}.",
            is_sound=not wrong,
            claimed={"epsilon": charged, "delta": at},
            measured={
                "epsilon": max(losses),
                "epsilon of the median person": statistics.median(losses),
            },
            columns=COLUMNS,
            rows=rows,
            notes=_notes(is_bound=any(found.charged for found in self.found.values())),
            parameters={
                "canaries": len(rows),
                "questions": questions,
                "repeats": repeats,
                "group_calls": self.calls[0],
                "extra_calls": self.calls[1],
            },
        )


def _require_auditable(chain: Any) -> None:
    """Refuse a chain that releases more than its parser's one release."""
    if not isinstance(chain, DPChain):
        raise InvalidParameterError(
            f"A snapshot audits a DPChain, not a {type(chain).__name__}."
        )
    forkable_index(chain.groups)


def _notes(*, is_bound: bool) -> list[str]:
    given = (
        "A person's epsilon is exact for the answers that the model gave. Other "
        "answers, questions and people lose other amounts: this is no proof."
    )
    notes = [given]
    if is_bound:
        notes.append(
            "The law of this parser's release is not computed: where an answer "
            "changes, the charge itself stands for the loss."
        )
    return notes
