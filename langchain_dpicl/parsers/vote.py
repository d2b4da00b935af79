"""Private voting: one of a public set of labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from statistics import NormalDist
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, PrivateAttr
from typing_extensions import override

from langchain_dpicl import mechanisms
from langchain_dpicl.accounting import EventTemplate
from langchain_dpicl.budget import PaidCharge
from langchain_dpicl.common.outcome import Outcome, Status
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import Slot
from langchain_dpicl.common.validation import checked
from langchain_dpicl.exceptions import InvalidParameterError
from langchain_dpicl.mechanisms import GaussianNoise, PureNoise, sensitivity
from langchain_dpicl.parsers.base import DPOutputParser, PublicAnswer, PublicInput
from langchain_dpicl.parsers.words import tokenize
from langchain_dpicl.sealed import attempt

FAILURE_MARGIN = 3.0
"""Standard deviations by which failed calls must exceed half of all slots."""

_NORMAL = NormalDist()

VoteNoise = GaussianNoise | PureNoise
"""The noise of a vote, by mechanism."""

EMPTY_LEVEL = 0.05
"""How often a vote that nobody has cast may pass for one."""


class VoteOutputParser(DPOutputParser[VoteNoise]):
    """Release the label that most groups chose, under noise.

    An answer votes for a label when, case-folded and without punctuation, it *is* the
    label, or when it contains exactly one of the labels. Anything else abstains.

    Privacy:
        Unit and relation: the group source's. Sensitivity, noise and event:
        `mechanisms.voting`, Gaussian(z, q); with `mechanism="permute_and_flip"`
        `mechanisms.selection`, pure epsilon. A slot adds 1 to one bin at most, by its
        own text alone; failed calls are one bin more of the same histogram. When
        clearly more than half of the slots failed the outcome is a fallback instead of
        the argmax of noise. In a per-unit account it is one too when the noisy
        histogram looks as if nobody had voted: units drop out there unseen.

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

    labels: Annotated[Sequence[str], AfterValidator(tuple)]
    """The public label set, in the order in which ties are broken."""

    noise_multiplier: float | None = None
    """z of the Gaussian mechanism; None leaves it to the budget's plan."""

    mechanism: Literal["gaussian", "permute_and_flip"] = "gaussian"
    """`gaussian` composes well over many queries; `permute_and_flip` is pure DP."""

    epsilon: float | None = None
    """epsilon of one release by permute-and-flip; None leaves it to the plan."""

    _forms: dict[tuple[str, ...], int] = PrivateAttr(default_factory=dict)

    @override
    def check(self) -> None:
        """Refuse label sets that can't be told apart."""
        if len(self.labels) < 2:  # noqa: PLR2004 - a choice is among two at least
            raise InvalidParameterError("labels must be a list of at least two labels.")
        self._forms = {}
        for index, label in enumerate(self.labels):
            form = tuple(tokenize(label))
            if not form:
                raise InvalidParameterError(
                    f"Label number {index} has no letter or digit to match on."
                )
            if form in self._forms:
                raise InvalidParameterError(
                    f"Labels {self.labels[self._forms[form]]!r} and {label!r} are the "
                    "same once case and punctuation are set aside."
                )
            self._forms[form] = index
        if self.mechanism == "gaussian" and self.epsilon is not None:
            raise InvalidParameterError(
                "epsilon belongs to mechanism='permute_and_flip'; for Gaussian voting "
                "set noise_multiplier, or leave both to the budget's plan."
            )
        if self.mechanism != "gaussian" and self.noise_multiplier is not None:
            raise InvalidParameterError(
                "noise_multiplier belongs to mechanism='gaussian'; for "
                "permute_and_flip set epsilon, or leave both to the budget's plan."
            )
        self.event_template()

    @override
    def event_template(self, sampling_rate: float = 1.0) -> EventTemplate[VoteNoise]:
        """Return what one vote is charged."""
        name = f"vote/{self.mechanism}"
        if self.mechanism == "gaussian":
            return checked(
                mechanisms.vote_template,
                name,
                self.noise_multiplier,
                sampling_rate=sampling_rate,
            )
        return checked(
            mechanisms.flip_template, name, self.epsilon, sampling_rate=sampling_rate
        )

    @property
    @override
    def knows_public_answers(self) -> bool:
        """The model may know the label without the records."""
        return True

    @override
    def public_answer(self, public: PublicInput) -> PublicAnswer | None:
        """Return the label that the zero-shot answer votes for, if any."""
        label = self.choice(public.zero_shot[0]) if public.zero_shot else None
        if label is None:
            return None
        return PublicAnswer(self.labels[label], lambda text: self.choice(text) == label)

    @override
    def release(
        self,
        slots: Sequence[Slot],
        *,
        paid: PaidCharge[VoteNoise],
        relation: Relation,
        slot_count: int,
        prepared: Any,
    ) -> Outcome:
        """Count the votes and release the noisy winner."""
        counts = [0] * (len(self.labels) + 1)
        for slot in slots:
            choice = (
                len(self.labels)
                if slot.failed
                else attempt(partial(self.choice, slot.text))
            )
            if choice is not None:
                counts[choice] += 1
        noise = paid.noise
        if isinstance(noise, PureNoise):
            return self._permute_and_flip(counts[:-1], noise)
        noisy = mechanisms.noisy_counts(
            counts,
            noise_multiplier=noise.noise_multiplier,
            relation=relation,
            random=self.random,
        )
        # From here on everything is post-processing of the noisy histogram.
        votes = {
            label: round(float(count), 1)
            for label, count in zip(self.labels, noisy, strict=False)
        }
        sigma = noise.noise_multiplier * sensitivity.vote_l2(relation)
        failed = float(noisy[-1])
        if failed > slot_count / 2 + FAILURE_MARGIN * sigma and failed >= float(
            noisy.max()
        ):
            return Outcome(
                Status.FALLBACK,
                details={"noisy_votes": votes, "reason": "most group calls failed"},
            )
        winner = int(noisy[:-1].argmax())
        if paid.collect is not None and _looks_empty(noisy.tolist(), sigma):
            return Outcome(
                Status.FALLBACK,
                details={"noisy_votes": votes, "reason": "next to nobody voted"},
            )
        return Outcome(
            Status.RELEASED, self.labels[winner], details={"noisy_votes": votes}
        )

    def _permute_and_flip(self, counts: Sequence[int], noise: PureNoise) -> Outcome:
        winner = mechanisms.permute_and_flip(
            counts, epsilon=noise.epsilon, sensitivity=1.0, random=self.random
        )
        return Outcome(Status.RELEASED, self.labels[winner])

    def choice(self, text: str | None) -> int | None:
        """Return the index of the label that an answer votes for, or None.

        Example:
            >>> VoteOutputParser(labels=["positive", "negative"]).choice("Negative!")
            1
        """
        if text is None:
            return None
        words, forms = tuple(tokenize(text)), self._forms
        exact = forms.get(words)
        if exact is not None:
            return exact
        found = [form for form in forms if _contains(words, form)]
        # "not good" also contains "good": the longer label is the one that was meant.
        meant = [
            form
            for form in found
            if not any(
                len(longer) > len(form) and _contains(longer, form) for longer in found
            )
        ]
        return forms[meant[0]] if len(meant) == 1 else None

    @override
    def public_parameters(self) -> dict[str, Any]:
        """Return the label set and the mechanism."""
        return {"labels": list(self.labels), "mechanism": self.mechanism}


def _looks_empty(noisy: Sequence[float], sigma: float) -> bool:
    """Return whether noisy counts are no larger than the noise alone makes them.

    Neither the largest of them, at `EMPTY_LEVEL` for all together, nor their sum is.
    """
    bins = len(noisy)
    largest = sigma * _NORMAL.inv_cdf(1 - EMPTY_LEVEL / bins)
    total = sigma * math.sqrt(bins) * _NORMAL.inv_cdf(1 - EMPTY_LEVEL)
    return max(noisy) < largest and sum(noisy) < total


def _contains(words: tuple[str, ...], form: tuple[str, ...]) -> bool:
    size = len(form)
    return any(words[i : i + size] == form for i in range(len(words) - size + 1))
