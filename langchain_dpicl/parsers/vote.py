"""Private voting: one of a public set of labels, given or drafted.

The noise is `mechanisms.voting`. When its winner is an answer is read off the histogram
that it has released, and off public numbers: post-processing, which costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, cast

from langchain_core.prompts import BasePromptTemplate
from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from typing_extensions import Self, override

from langchain_dpicl.accounting import Charge, Gaussian
from langchain_dpicl.budget import Paid
from langchain_dpicl.common.prompts import (
    CHOICE_INSTRUCTIONS,
    DRAFT_PROMPT,
    NONE_OF_THESE,
)
from langchain_dpicl.common.replies import Slot
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import voting
from langchain_dpicl.mechanisms.voting import OTHER_BINS, lead_over_a_tie, least_votes
from langchain_dpicl.parsers.base import Count, DPOutputParser, PublicInput, Reading
from langchain_dpicl.parsers.reading import NoChoice, read_choice, read_drafts
from langchain_dpicl.parsers.words import tokenize
from langchain_dpicl.release.record import (
    CALLS_FAILED,
    NO_LEAD,
    NO_OPTION,
    UNREADABLE,
    Outcome,
    Status,
)
from langchain_dpicl.sealed import attempt

DRAFT = "draft"
"""The value of `labels` for labels that the model drafts."""

NONE = "more groups chose none of these than any one option"
"""The reason when the groups themselves say that nothing should be released."""

BINS = ("noisy_none", "noisy_unreadable", "noisy_failed")
"""The bins that are no labels, as a record names them."""


def _no_text(labels: Any) -> Any:
    """Refuse one string, which would be a list of letters."""
    if isinstance(labels, str) and labels != DRAFT:
        raise ValueError('give a list of labels, such as ["yes", "no"], or "draft"')
    return labels


def _kept(labels: Any) -> Any:
    """Return an immutable copy of the labels."""
    return labels if labels == DRAFT else tuple(labels)


class VoteOutputParser(DPOutputParser):
    """Release the label that most groups chose, under noise.

    The labels are public: a list that you give, or with `labels="draft"` the possible
    answers that the model lists from the question alone, before any record is read.
    Each group is asked to choose one of them or "none of these". How a reply is read
    is in `langchain_dpicl.parsers.reading.read_choice`.

    A label comes out if its noisy count is above what noise alone reaches without votes
    (a label that nobody chose comes out in at most 1 % of questions) and leads every
    other bin by `min_lead`. Three bins are no labels: "none of these", replies that
    can't be read, and failed calls. A label with as many votes as one of them comes out
    in at most 5 % of questions. Where no label comes out, the reason is the one of the
    three bins that leads as clearly, or that no answer leads clearly.

    Privacy:
        Unit and relation: the group source's. Sensitivity, noise and event:
        `mechanisms.voting`, Gaussian(z, q). A slot adds 1 to one bin at most, by its
        own text alone: a label, "none of these", an unreadable reply, or a failed call.
        Slots without records are in no bin. Labels are fixed before the charge, from
        public input: a draft sees the question and no record. Which label comes out,
        and whether one does, is post-processing of the noisy histogram.

    Raises:
        InvalidParameterError: If there are fewer than two labels, two that normalize
            to the same words, or one without any word.

    Example:
        >>> from langchain_dpicl.budget import PrivacyBudgetHandler
        >>> parser = VoteOutputParser(
        ...     labels=["yes", "no"],
        ...     budget=PrivacyBudgetHandler(
        ...         epsilon=8, delta=1e-6, queries=1, ledger=":memory:"
        ...     ),
        ... )
        >>> parser.invoke(["Yes.", "yes", "no"] * 30)
        'yes'
    """

    labels: Annotated[
        Sequence[str] | Literal["draft"],
        AfterValidator(_kept),
        BeforeValidator(_no_text),
    ]
    """The public label set, in the order in which ties are broken; or "draft": the
    model lists the possible answers from the question alone."""

    max_labels: Count = 8
    """Most labels of a draft."""

    aliases: Mapping[str, Sequence[str]] = Field(default_factory=dict, repr=False)
    """Further public spellings of a label: {"COPD": ["chronic obstructive ..."]}."""

    min_lead: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Least noisy lead, in groups. For given labels None is 0, so a classifier takes
    the larger count. For drafted labels None is a lead at which one of two labels with
    the same votes comes out in at most 5 % of questions. The lead over "none of these",
    unreadable replies and failed calls is always such a lead at least."""

    noise_multiplier: float | None = None
    """z of the vote; None leaves it to the budget's plan."""

    @model_validator(mode="after")
    def _labels_differ(self) -> Self:
        """Refuse label sets that can't be told apart."""
        if self._drafted:
            return self
        if len(self.labels) < 2:  # noqa: PLR2004 - a choice is among two at least
            raise InvalidParameterError("labels must be a list of at least two labels")
        _require_different(self.labels)
        if unknown := sorted(set(self.aliases) - set(self.labels)):
            raise InvalidParameterError(
                f"aliases has {unknown[0]!r}, which is not a label"
            )
        return self

    @property
    def _drafted(self) -> bool:
        return self.labels == DRAFT

    @override
    def charge(self, sampling_rate: float = 1.0) -> Charge:
        """Return what one vote costs."""
        return voting.charge(
            noise_multiplier=self.noise_multiplier, sampling_rate=sampling_rate
        )

    @override
    def get_format_instructions(self) -> str:
        """Return how a group is asked to choose.

        With `labels="draft"` the labels differ from question to question, and a chain
        writes them in; this text has none.
        """
        return self.instructions(() if self._drafted else tuple(self.labels))

    @override
    def instructions(self, prepared: tuple[str, ...]) -> str:
        """Return how a group is asked to choose among a question's labels."""
        options = "".join(f"- {label}\n" for label in (*prepared, NONE_OF_THESE))
        return CHOICE_INSTRUCTIONS.format(options=options.rstrip())

    @override
    def reads(self, reply: str, prepared: tuple[str, ...]) -> Reading:
        """Return whether a reply chooses an option, none of them, or can't be read."""
        choice = self._choice(reply, prepared)
        if isinstance(choice, int):
            return "answer"
        return "nothing" if choice is NoChoice.NONE else "unreadable"

    @property
    @override
    def draft_prompt(self) -> BasePromptTemplate[Any] | None:
        """The prompt for the possible answers, where the model drafts them."""
        if not self._drafted:
            return None
        return DRAFT_PROMPT.partial(max_labels=str(self.max_labels))

    @override
    def prepare(self, public: PublicInput) -> tuple[str, ...]:
        """Return this question's labels; none where the model drafted none."""
        if not self._drafted:
            return tuple(self.labels)
        if not public.question:
            raise InvalidParameterError(
                'labels="draft" needs a question: use the parser in a DPChain, or give '
                "labels."
            )
        different: dict[tuple[str, ...], str] = {}
        for label in read_drafts(public.draft, self.max_labels):
            if form := tuple(tokenize(label)):
                different.setdefault(form, label)
        return tuple(different.values())

    @override
    def public_outcome(self, prepared: tuple[str, ...]) -> Outcome | None:
        """Without any label there is nothing to vote on, and nothing to pay."""
        if prepared:
            return None
        details = {"reason": NO_OPTION, "labels": []}
        return Outcome(Status.FALLBACK, details=details)

    @override
    def release(
        self,
        slots: Sequence[Slot],
        *,
        paid: Paid,
        relation: Relation,
        slot_count: int,
        prepared: tuple[str, ...],
    ) -> Outcome:
        """Release the noisy votes, and the label that they name."""
        outcome = voted(
            self.counts(slots, prepared),
            prepared,
            paid=paid,
            relation=relation,
            min_lead=self._least_lead,
        )
        if self._drafted:
            outcome.details["labels"] = list(prepared)
        return outcome

    def _least_lead(self, sigma: float) -> float:
        if self.min_lead is None:
            return voting.lead_over_a_tie(sigma) if self._drafted else 0.0
        return self.min_lead

    def counts(self, slots: Sequence[Slot], labels: tuple[str, ...]) -> list[int]:
        """Return the votes of each label, and of the `OTHER_BINS`. Private."""
        none, unreadable, failed = range(len(labels), len(labels) + OTHER_BINS)
        counts = [0] * (len(labels) + OTHER_BINS)
        for slot in slots:
            if slot.failed:
                counts[failed] += 1
            elif slot.text is not None:
                choice = attempt(partial(self._choice, slot.text, labels))
                other = none if choice is NoChoice.NONE else unreadable
                counts[choice if isinstance(choice, int) else other] += 1
        return counts

    def choice(self, text: str | None) -> int | None:
        """Return the index of the given label that an answer chooses, or None.

        Example:
            >>> VoteOutputParser(labels=["positive", "negative"]).choice("Negative!")
            1
        """
        found = self._choice(text or "", tuple(self.labels))
        return found if isinstance(found, int) else None

    def _choice(self, text: str, labels: tuple[str, ...]) -> int | NoChoice:
        return read_choice(text, labels, self.aliases)

    @override
    def public_parameters(self) -> dict[str, Any]:
        """Return the label set and the least lead."""
        drafted = {"max_labels": self.max_labels} if self._drafted else {}
        labels = DRAFT if self._drafted else list(self.labels)
        return {"labels": labels, "min_lead": self.min_lead, **drafted}

    @override
    def cache_parameters(self, question: str) -> dict[str, Any]:
        """Return every public parameter that an answer depends on."""
        aliases = {label: sorted(names) for label, names in self.aliases.items()}
        return {**super().cache_parameters(question), "aliases": aliases}


def _require_different(labels: Sequence[str]) -> None:
    forms: dict[tuple[str, ...], str] = {}
    for index, label in enumerate(labels):
        form = tuple(tokenize(label))
        if not form:
            raise InvalidParameterError(
                f"label number {index} of labels has no letter or digit to match on"
            )
        if form in forms:
            raise InvalidParameterError(
                f"labels {forms[form]!r} and {label!r} are the same once case and "
                "punctuation are set aside"
            )
        forms[form] = label


def voted(
    counts: Sequence[int],
    labels: Sequence[str],
    *,
    paid: Paid,
    relation: Relation,
    min_lead: Callable[[float], float] | None = None,
    none: str = NONE,
) -> Outcome:
    """Draw the noise of a vote and return the label that it releases, if it does.

    Args:
        counts: Votes of the labels, then of the bins that are none. Private.
        labels: The public labels.
        paid: The charge.
        relation: How neighboring slots differ.
        min_lead: From the noise's deviation to the least lead over every other label;
            None: 0.
        none: The reason where most chose none of them.
    """
    event = cast("Gaussian", paid.events[0])
    noisy = voting.noisy_counts(counts, event, relation).tolist()
    votes, others = noisy[:-OTHER_BINS], noisy[-OTHER_BINS:]
    sigma = voting.sigma(event, relation)
    lead = 0.0 if min_lead is None else min_lead(sigma)
    winner, confidence, reason = verdict(
        votes, others, sigma=sigma, min_lead=lead, none=none
    )
    details = {
        "noisy_votes": dict(zip(labels, votes, strict=True)),
        **dict(zip(BINS, others, strict=True)),
        "confidence": confidence,
    }
    if winner is None:
        return Outcome(Status.FALLBACK, details={**details, "reason": reason})
    return Outcome(Status.RELEASED, labels[winner], details=details)


def verdict(
    noisy: Sequence[int],
    others: Sequence[int],
    *,
    sigma: float,
    min_lead: float,
    none: str = NONE,
) -> tuple[int | None, float, str]:
    """Return the label that a noisy vote releases, if it releases one.

    A label comes out if noise alone does not reach its votes, if it leads every other
    label by `min_lead`, and if it leads the three other bins by `min_lead` and by what
    a label reaches out of a tie with one of them in 5 % of questions. One of the three
    is the reason why no label comes out if it is clear in the same way.

    Args:
        noisy: Noisy votes of the labels.
        others: Noisy numbers of the groups that chose none of them, of those whose
            reply could not be read, and of those whose call failed.
        sigma: Standard deviation of the noise of one count.
        min_lead: Least noisy lead over every other label.
        none: The reason where most chose none of them.

    Returns:
        The place of the label that is released, or None; by how many deviations of the
        noise the first bin leads the second one (labels are bins, and so are the three
        others); and why nothing is released, if nothing is.

    Example:
        >>> verdict([40, 3], [9, 0, 2], sigma=4.0, min_lead=11)
        (0, 5.48, '')
        >>> verdict([4, 3], [49, 0, 2], sigma=4.0, min_lead=11)[2]
        'more groups chose none of these than any one option'
    """
    best = max(range(len(noisy)), key=noisy.__getitem__)
    rivals = [*noisy[:best], *noisy[best + 1 :]]
    lead = noisy[best] - max(rivals, default=-math.inf)
    other, second, _ = sorted(range(len(others)), key=others.__getitem__)[::-1]
    ahead = noisy[best] - others[other]
    behind = others[other] - max(others[second], *noisy)
    first = min(lead, ahead) if ahead >= 0 else max(behind, 0.0)
    least = least_votes(sigma, len(noisy))
    tie = lead_over_a_tie(sigma, labels=1)
    winner, reason = None, NO_LEAD
    if noisy[best] >= least and lead >= min_lead and ahead >= max(min_lead, tie):
        winner, reason = best, ""
    elif others[other] >= least and behind >= tie:
        reason = (none, UNREADABLE, CALLS_FAILED)[other]
    confidence = round(first / (sigma * math.sqrt(2)), 2)
    return winner, confidence, reason
