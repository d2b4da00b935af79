"""Private voting: one of a public set of labels, given or drafted.

The noise is `mechanisms.voting`. When its winner is an answer is read off the histogram
that it has released, and off public numbers: post-processing, which costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import BasePromptTemplate
from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from typing_extensions import Self, override

from langchain_dpicl.accounting import Charge, Gaussian
from langchain_dpicl.budget import Paid
from langchain_dpicl.common.progress import Advance, no_progress
from langchain_dpicl.common.prompts import (
    CHOICE_INSTRUCTIONS,
    DRAFT_PROMPT,
    NONE_OF_THESE,
    OPTION_INSTRUCTIONS,
)
from langchain_dpicl.common.replies import ABSTAIN, FAILED, Figures, Slot
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import voting
from langchain_dpicl.mechanisms.voting import OTHER_BINS, lead_over_a_tie, least_votes
from langchain_dpicl.parsers.base import Count, DPOutputParser, PublicInput, Reading
from langchain_dpicl.parsers.likelihood import NEUTRAL, Calibrated, mean, risen
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
from langchain_dpicl.sealed import SealedModel, attempt

DRAFT = "draft"
"""The value of `labels` for labels that the model drafts."""

_CALIBRATIONS = ("question", "public")

Labels = tuple[str, ...] | Calibrated
"""A question's labels, before the model has been asked about them alone, and after."""

NONE = "more groups chose none of these than any one option"
"""The reason when the groups themselves say that nothing should be released."""

ONE_OPTION = "there is only one option to choose from"
"""The reason where the model drafted a single label, or candidate."""

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


def _texts(calibrate: Any) -> Any:
    """Return an immutable copy of texts; refuse one text, and empty ones."""
    if isinstance(calibrate, str):
        if calibrate not in _CALIBRATIONS:
            raise ValueError('give "question", "public", or a list of public texts')
        return calibrate
    texts = calibrate if isinstance(calibrate, list | tuple) else ()
    if not texts or not all(isinstance(t, str) and t.strip() for t in texts):
        raise ValueError("give a list of public texts, and none that is empty")
    return tuple(texts)


class VoteOutputParser(DPOutputParser):
    """Release the label that most groups chose, under noise.

    The labels are public: a list that you give, or with `labels="draft"` the possible
    answers that the model lists from the question alone, before any record is read.
    Each group is asked to choose one of them or "none of these". How a reply is read
    is in `langchain_dpicl.parsers.reading.read_choice`.

    With `read="likelihood"` nothing is read. The model gives the log-likelihood of each
    label (`langchain_dpicl.likelihoods`), and a group's vote is the label whose share
    rises most above public figures; see `calibrate`. It works in a `DPChain` alone.

    A label comes out if its noisy count is above what noise alone reaches without votes
    (a label that nobody chose comes out in at most 1 % of questions) and leads every
    other bin by `min_lead`. Three bins are no labels: "none of these", replies that
    can't be read, and failed calls. A label with as many votes as one of them comes out
    in at most 5 % of questions. Where no label comes out, the reason is the one of the
    three bins that leads as clearly, or that no answer leads clearly.

    Privacy:
        Unit and relation: the group source's. Sensitivity, noise and event:
        `mechanisms.voting`, Gaussian(z, q). A slot adds 1 to one bin at most, by its
        own text or its own figures alone: a label, "none of these", an unreadable
        reply, or a failed call. What figures are compared with is public, or the
        slot's own; no mean or scale is taken over slots.
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

    if not TYPE_CHECKING:  # A type checker knows the fields by their names.

        def __init__(self, *labels: Any, **values: Any) -> None:
            """Make a parser of the labels, named or not, and the other fields."""
            if labels:
                (values["labels"],) = labels
            super().__init__(**values)

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

    read: Literal["text", "likelihood"] = "text"
    """What a vote is: what the model says, or which label its figures favor."""

    calibrate: Annotated[
        Literal["question", "public"] | Sequence[str], BeforeValidator(_texts)
    ] = "question"
    """For likelihoods: what the public figures are. "question": the question without
    records, one public call. A list of *public* texts: the mean of the group's own
    figures with each text in place of the question, one more call a group and text.
    "public": such a list of neutral texts, see `parsers.likelihood.NEUTRAL`."""

    margin: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """For likelihoods: the least gain of a vote, as a difference of logarithms: at 0.7
    a label's share must double. A group without such a label counts as "none of
    these"; at 0 there is none, and a group whose figures tie takes the first label."""

    @model_validator(mode="after")
    def _reads_one_way(self) -> Self:
        """Refuse options that the way of reading has no use for."""
        if self.reads_figures:
            useless = {"aliases": bool(self.aliases)}
        else:
            calibrated = self.calibrate != _CALIBRATIONS[0]
            useless = {"calibrate": calibrated, "margin": self.margin > 0}
        for name, is_given in useless.items():
            if is_given:
                raise InvalidParameterError(
                    f"{name}= has no use with read={self.read!r}: leave it out"
                )
        return self

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
        last = () if self.reads_figures else (NONE_OF_THESE,)
        options = "".join(f"- {label}\n" for label in (*prepared, *last))
        text = OPTION_INSTRUCTIONS if self.reads_figures else CHOICE_INSTRUCTIONS
        return text.format(options=options.rstrip())

    @override
    def reads(self, reply: str, prepared: Labels) -> Reading:
        """Return whether a reply chooses an option, none of them, or can't be read."""
        choice = self._choice(reply, _texts_of(prepared))
        if isinstance(choice, int):
            return "answer"
        return "nothing" if choice is NoChoice.NONE else "unreadable"

    @property
    @override
    def reads_figures(self) -> bool:
        """Whether votes are read by likelihood."""
        return self.read == "likelihood"

    @property
    @override
    def calibration_texts(self) -> tuple[str, ...]:
        """The public texts of `calibrate`, if there are any."""
        if not self.reads_figures or self.calibrate == "question":
            return ()
        return NEUTRAL if self.calibrate == "public" else tuple(self.calibrate)

    @override
    def check_model(self, model: SealedModel) -> None:
        """Refuse a model without likelihoods, where these are read."""
        told = getattr(model.model, "log_likelihoods", None)
        if self.reads_figures and not callable(told):
            raise InvalidParameterError(
                f"{type(model.model).__name__} has no log_likelihoods(prompts, "
                'continuations), which read="likelihood" asks. Pass a model that has '
                "it: langchain_dpicl.likelihoods makes them of next-token models and "
                'of chat models that tell top_logprobs. Or leave read= at "text".'
            )

    @override
    def ask_alone(
        self, model: SealedModel, prompt: PromptValue, prepared: tuple[str, ...]
    ) -> Labels:
        """Return the labels with the model's figures for them without records."""
        if not self.reads_figures:
            return prepared
        return Calibrated(prepared, model.score_alone(prompt, prepared))

    @override
    def ask(
        self,
        model: SealedModel,
        prompts: Sequence[Sequence[PromptValue]],
        prepared: Any,
        done: Advance = no_progress,
    ) -> list[Slot]:
        """Have each group answer, or choose by its figures."""
        if not self.reads_figures:
            return super().ask(model, prompts, prepared, done)
        told = model.score(prompts, prepared.texts, done)
        return [self._chosen(rows, prepared) for rows in told]

    def _chosen(self, rows: Sequence[Figures | None], known: Calibrated) -> Slot:
        """Return the slot of a group's figures: the question's, then each text's."""
        told = [row for row in rows if row is not None]
        if len(told) < len(rows):
            return FAILED
        if not all(told):
            return ABSTAIN
        figures, *others = told
        public = mean(others) if others else known.figures
        place = risen(figures, public, self.margin)
        return Slot(NONE_OF_THESE if place is None else known.texts[place])

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
        if self.reads_figures and not public.question:
            raise InvalidParameterError(
                'read="likelihood" asks the model for figures, which texts have not: '
                'use the parser in a DPChain, or leave read= at "text".'
            )
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
    def public_outcome(self, prepared: Labels) -> Outcome | None:
        """Without any label there is nothing to vote on, and nothing to pay.

        Nor has a single one to be chosen by its likelihood.
        """
        labels = _texts_of(prepared)
        if len(labels) >= (2 if self.reads_figures else 1):
            return None
        details = {
            "reason": ONE_OPTION if labels else NO_OPTION,
            "labels": list(labels),
        }
        return Outcome(Status.FALLBACK, next(iter(labels), None), details=details)

    @override
    def release(
        self,
        slots: Sequence[Slot],
        *,
        paid: Paid,
        relation: Relation,
        slot_count: int,
        prepared: Labels,
    ) -> Outcome:
        """Release the noisy votes, and the label that they name."""
        labels = _texts_of(prepared)
        outcome = voted(
            self.counts(slots, labels),
            labels,
            paid=paid,
            relation=relation,
            min_lead=self._least_lead,
        )
        if self._drafted:
            outcome.details["labels"] = list(labels)
        return outcome

    def _least_lead(self, sigma: float) -> float:
        if self.min_lead is None:
            return voting.lead_over_a_tie(sigma) if self._drafted else 0.0
        return self.min_lead

    def counts(self, slots: Sequence[Slot], prepared: Labels) -> list[int]:
        """Return the votes of each label, and of the `OTHER_BINS`. Private."""
        labels = _texts_of(prepared)
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
        found = read_choice(text or "", tuple(self.labels), self.aliases)
        return found if isinstance(found, int) else None

    def _choice(self, text: str, labels: tuple[str, ...]) -> int | NoChoice:
        if not self.reads_figures:
            return read_choice(text, labels, self.aliases)
        if text in labels:
            return labels.index(text)
        return NoChoice.NONE if text == NONE_OF_THESE else NoChoice.UNREADABLE

    @override
    def public_parameters(self) -> dict[str, Any]:
        """Return the label set, the least lead, and how likelihoods are read."""
        more: dict[str, Any] = {"max_labels": self.max_labels} if self._drafted else {}
        if self.reads_figures:
            calibrate = list(self.calibration_texts) or self.calibrate
            more |= {"read": self.read, "calibrate": calibrate, "margin": self.margin}
        labels = DRAFT if self._drafted else list(self.labels)
        return {"labels": labels, "min_lead": self.min_lead, **more}

    @override
    def cache_parameters(self, question: str) -> dict[str, Any]:
        """Return every public parameter that an answer depends on."""
        aliases = {label: sorted(names) for label, names in self.aliases.items()}
        return {**super().cache_parameters(question), "aliases": aliases}


def _texts_of(prepared: Labels) -> tuple[str, ...]:
    return prepared.texts if isinstance(prepared, Calibrated) else prepared


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

    The counts are private: votes of the labels, then of the bins that are none.
    `min_lead` gives the least lead over every other label, from the noise's deviation;
    None: 0. `none` is the reason where most chose none of the labels.
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

    `others` are the noisy numbers of the groups that chose none of them, of those whose
    reply could not be read, and of those whose call failed; `sigma` is the standard
    deviation of the noise of one count.

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
