"""Membership inference on a chain's answers: can they tell who is in the records?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig

from langchain_dpicl.audit.bounds import (
    Found,
    Interval,
    area_under_curve,
    dp_area,
    dp_true_rate,
    found_at,
)
from langchain_dpicl.audit.probes import ATTACKS, Probe, Rarity, words
from langchain_dpicl.audit.report import AuditReport
from langchain_dpicl.budget import PrivacyBudgetHandler, find_budget
from langchain_dpicl.chain import DPChain
from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import hiding
from langchain_dpicl.common.progress import Advance, progress_bar
from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    GroupCallError,
    InvalidParameterError,
)
from langchain_dpicl.release.flow import Flow, aresult, result
from langchain_dpicl.sealed import unobserved

ALL = tuple(ATTACKS)
"""The names of all attacks."""

FALSE_RATE = 0.01
"""The share of others that may be taken for members."""

_AT_ONCE = 16
"""Probes that the plain chain is asked at once."""

_COLUMNS = (
    *("chain", "attack", "AUC", "AUC from", "AUC to", "AUC allowed"),
    *("TPR at 1 % FPR", "TPR from", "TPR to", "TPR allowed"),
)
_NOTES = (
    (
        "AUC is the probability that a member's score is above another record's; 0.5 "
        "is chance. Its interval is that of DeLong et al. (1988); where all scores are "
        "separated, that of Clopper and Pearson, as for TPR."
    ),
    (
        "Allowed is what the (epsilon, delta) of the charges for one record permits at "
        "most. It holds where members and others are alike but for membership: draw "
        "both at random from the same records."
    ),
    (
        "Each record's questions have an account of their own, in memory. Many "
        "questions about one person would spend more of the budget, up to the claim."
    ),
    (
        "An attack that fails proves nothing: a better one may succeed. The proof is "
        "the account's."
    ),
)


@hiding
def attack(
    chain: DPChain,
    members: Sequence[Document],
    others: Sequence[Document],
    *,
    plain: Runnable[str, Any] | None = None,
    attacks: Sequence[str] = ALL,
    budget: PrivacyBudgetHandler | None = None,
    confidence: float = 0.95,
    progress: bool = True,
) -> AuditReport:
    """Try to tell, by a chain's answers, which records are in its corpus.

    Each record is asked about with the questions of each attack. An attack scores the
    answers, and scores of members and others are compared. A plain RAG chain over the
    same corpus shows what the attacks find without protection.

    Args:
        chain: The private chain; a copy of it is asked, without a cache.
        members: Records that are in its corpus.
        others: Records of other units, which are not, drawn as the members were.
        plain: A chain from a question to a text or message, over the same corpus.
        attacks: Which of `ALL` to make.
        budget: The account whose terms are taken; None: the chain's own. It is neither
            charged nor read: each record and attack has an account in memory.
        confidence: That of the intervals.
        progress: Whether to draw a progress bar on standard error.

    Returns:
        The report. It is not sound where a private answer tells more than its charge
        allows, with the confidence divided among all comparisons.

    Raises:
        NoBudgetError: If there are no terms.
        InvalidParameterError: If an argument can't be used, members and others have a
            text or a unit in common, or the plain chain fails.

    Privacy:
        Nothing is charged, so the report is private, for the operator of the records.
        Both chains' models see the records' texts in questions. No callback, tracer,
        logger or cache does: both chains are asked in the sealed region.

    Example:
        >>> from langchain_dpicl import KSAPTROutputParser, RetrievedGroups
        >>> from langchain_dpicl.demo import clinic
        >>> from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel
        >>> notes = clinic(n_patients=60, notes_per_patient=1)
        >>> chain = DPChain(
        ...     groups=RetrievedGroups.from_documents(
        ...         notes[:40], HashingEmbeddings(), unit_key="patient_id", n_groups=8
        ...     ),
        ...     model=OfflineChatModel(),
        ...     parser=KSAPTROutputParser(),
        ...     budget=PrivacyBudgetHandler(
        ...         epsilon=3, delta=1e-4, queries=5, ledger=":memory:"
        ...     ),
        ... )
        >>> attack(chain, notes[:5], notes[40:45], attacks=["repeat"], progress=False)
        AuditReport(kind='attacks', is_sound=True)
    """
    return result(
        _attacking(
            chain,
            members,
            others,
            plain,
            attacks,
            budget,
            confidence=confidence,
            progress=progress,
        )
    )


@hiding
async def aattack(
    chain: DPChain,
    members: Sequence[Document],
    others: Sequence[Document],
    *,
    plain: Runnable[str, Any] | None = None,
    attacks: Sequence[str] = ALL,
    budget: PrivacyBudgetHandler | None = None,
    confidence: float = 0.95,
    progress: bool = True,
) -> AuditReport:
    """Try to tell which records are in a chain's corpus; see `attack`."""
    return await aresult(
        _attacking(
            chain,
            members,
            others,
            plain,
            attacks,
            budget,
            confidence=confidence,
            progress=progress,
        )
    )


@dataclass(repr=False)
class _Private:
    """The private chain, asked about one record at a time."""

    chain: DPChain
    terms: PrivacyBudgetHandler
    spent: float = 0.0
    """The most that the questions about one record were charged: an epsilon."""

    def ask(self, probes: Sequence[Probe], advance: Advance) -> Flow[list[float]]:
        scores = []
        for probe in probes:
            account = self.terms.in_memory()
            copy = self.chain.model_copy(update={"budget": account, "cache": False})
            said = []
            for question in probe.questions:
                try:
                    message = yield unobserved(
                        partial(copy.invoke, question),
                        partial(copy.ainvoke, question),
                    )
                except BudgetExhaustedError:
                    break
                said.append(str(message.text))
            self.spent = max(self.spent, account.spent().epsilon)
            scores.append(probe.score(said or [""]))
            advance(1)
        return scores


@dataclass(repr=False)
class _Plain:
    """The plain chain, asked about many records at once."""

    chain: Runnable[str, Any]

    def ask(self, probes: Sequence[Probe], advance: Advance) -> Flow[list[float]]:
        scores: list[float] = []
        config = RunnableConfig(max_concurrency=_AT_ONCE)
        for start in range(0, len(probes), _AT_ONCE):
            some = probes[start : start + _AT_ONCE]
            asked = [question for probe in some for question in probe.questions]
            try:
                answers = yield unobserved(
                    partial(self.chain.batch, asked, config),
                    partial(self.chain.abatch, asked, config),
                )
            except GroupCallError:
                answers = None
            if answers is None:
                # Not its error: that may hold records.
                raise InvalidParameterError(
                    "The plain chain failed on a question about a record. Ask it one "
                    "by itself, to see why."
                )
            said = iter([one if isinstance(one, str) else one.text for one in answers])
            scores += [
                probe.score([next(said) for _ in probe.questions]) for probe in some
            ]
            advance(len(some))
        return scores


class _Row(NamedTuple):
    """One attack on one chain."""

    chain: str
    attack: str
    area: Interval
    found: Found
    allowed_area: float | None = None
    allowed_rate: float | None = None

    @property
    def cells(self) -> tuple[str | float | None, ...]:
        rate = self.found.true_rate
        return (
            *(self.chain, self.attack, *self.area, self.allowed_area),
            *(*rate, self.allowed_rate),
        )


def _attacking(
    chain: DPChain,
    members: Sequence[Document],
    others: Sequence[Document],
    plain: Runnable[str, Any] | None,
    attacks: Sequence[str],
    budget: PrivacyBudgetHandler | None,
    *,
    confidence: float,
    progress: bool,
) -> Flow[AuditReport]:
    level = parameters.delta(confidence, "confidence")
    terms = find_budget(budget or chain.budget)
    _check(chain, members, others, plain, attacks)
    rarity = Rarity(one.page_content for one in (*members, *others))
    # The verdict takes three one-sided limits of each attack.
    strict = 1 - (1 - level) * 2 / (3 * len(attacks))
    rows: list[_Row] = []
    too_much: list[str] = []
    total = (len(members) + len(others)) * len(attacks) * (1 + (plain is not None))
    with progress_bar("Attacking", total, shown=progress) as advance:
        for name in attacks:
            sides = [
                [ATTACKS[name](one.page_content, rarity) for one in side]
                for side in (members, others)
            ]
            if plain is not None:
                inside = yield from _Plain(plain).ask(sides[0], advance)
                outside = yield from _Plain(plain).ask(sides[1], advance)
                rows.append(_row("plain", name, inside, outside, level))
            private = _Private(chain, terms)
            inside = yield from private.ask(sides[0], advance)
            outside = yield from private.ask(sides[1], advance)
            allowed = private.spent, terms.delta
            rows.append(_row("private", name, inside, outside, level, allowed))
            if _exceeds(_row("private", name, inside, outside, strict, allowed)):
                too_much.append(name)
    sizes = {"members": len(members), "others": len(others), "confidence": level}
    return _report(rows, too_much, terms, sizes)


def _check(
    chain: DPChain,
    members: Sequence[Document],
    others: Sequence[Document],
    plain: object,
    attacks: Sequence[str],
) -> None:
    if not attacks or not set(attacks) <= set(ALL):
        raise InvalidParameterError(f"Choose attacks= among {', '.join(ALL)}.")
    for name, side in (("members", members), ("others", others)):
        if len(side) < 2:  # noqa: PLR2004 - a variance needs two
            raise InvalidParameterError(f"Give two or more records as {name}.")
        if not all(
            isinstance(one, Document) and words(one.page_content) for one in side
        ):
            raise InvalidParameterError(
                f"{name} must be Documents with text, all of them."
            )
    if plain is not None and not isinstance(plain, Runnable):
        raise InvalidParameterError(
            f"plain must be a chain, not {type(plain).__name__}: a function becomes "
            "one by RunnableLambda."
        )
    key = chain.groups.unit_key
    texts, units = (
        [{read(one) for one in side} - {None} for side in (members, others)]
        for read in (_text, partial(_unit, key))
    )
    for what, (inside, outside) in (("a text", texts), ("a unit", units)):
        if inside & outside:
            raise InvalidParameterError(
                f"Members and others have {what} in common. Take as others only "
                "records of units that have none in the corpus."
            )


def _text(one: Document) -> str:
    return one.page_content


def _unit(key: str, one: Document) -> str | None:
    return canonical_unit_id(one.metadata.get(key))


def _row(
    chain: str,
    name: str,
    inside: Sequence[float],
    outside: Sequence[float],
    level: float,
    allowed: tuple[float, float] | None = None,
) -> _Row:
    found = found_at(inside, outside, FALSE_RATE, level)
    row = _Row(chain, name, area_under_curve(inside, outside, level), found)
    if allowed is None:
        return row
    # The threshold's true rate among others may be higher than the share seen.
    rate = dp_true_rate(found.false_rate.high, *allowed)
    return row._replace(allowed_area=dp_area(*allowed), allowed_rate=rate)


def _exceeds(row: _Row) -> bool:
    area, rate = row.allowed_area or 1.0, row.allowed_rate or 1.0
    return row.area.low > area or row.found.true_rate.low > rate


def _report(
    rows: Sequence[_Row],
    too_much: Sequence[str],
    terms: PrivacyBudgetHandler,
    sizes: Mapping[str, float],
) -> AuditReport:
    best = {
        chain: max(row.area.value for row in rows if row.chain == chain)
        for chain in dict.fromkeys(row.chain for row in rows)
    }
    words_of = {"plain": "the plain chain", "private": "the private one"}
    told = " and ".join(
        f"an AUC of {area:.2f} on {words_of[chain]}" for chain, area in best.items()
    )
    verdict = (
        f"More than the charge allows: {', '.join(too_much)}."
        if too_much
        else "No private answer tells more than its charge allows."
    )
    return AuditReport(
        kind="attacks",
        title="Membership inference attacks on a chain's answers",
        summary=f"The best attack reaches {told}. {verdict}",
        is_sound=not too_much,
        claimed={
            "epsilon": terms.epsilon,
            "delta": terms.delta,
            "AUC": dp_area(terms.epsilon, terms.delta),
            "TPR at 1 % FPR": dp_true_rate(FALSE_RATE, terms.epsilon, terms.delta),
        },
        measured={f"AUC, {chain}": area for chain, area in best.items()},
        columns=_COLUMNS,
        rows=tuple(row.cells for row in rows),
        notes=_NOTES,
        parameters=sizes,
    )
