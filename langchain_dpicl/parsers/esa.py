"""Embedding space aggregation: the public candidate nearest to what the groups said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, SkipValidation, model_validator
from typing_extensions import Self, override

from langchain_dpicl.accounting import Charge
from langchain_dpicl.budget import Paid
from langchain_dpicl.common.parameters import MAX_INTEGER
from langchain_dpicl.common.replies import Slot
from langchain_dpicl.common.units import Relation
from langchain_dpicl.embedding_calls import each_call
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import voting
from langchain_dpicl.parsers.base import DPOutputParser, PublicInput, named
from langchain_dpicl.parsers.reading import NoChoice, read_choice
from langchain_dpicl.parsers.vote import ONE_OPTION, voted
from langchain_dpicl.release.record import Outcome, Status
from langchain_dpicl.sealed import attempt

NOTHING = (
    "I don't know.",
    "The records do not say.",
    "This can't be determined from the records.",
)
"""Public ways to say that the records do not tell: together one more candidate."""

PADDING = "The records show it in several places."
"""A made-up answer, for a group that has said nothing to embed."""

_TELL = 'the answers are nearest to "the records do not tell"'

Vectors = NDArray[np.float64]


@dataclass(frozen=True)
class Candidates:
    """What is public about a question.

    Attributes:
        texts: The K candidates.
        vectors: Embeddings of the candidates, and of the `NOTHING` behind them, each of
            length 1, shape (K + N, D).
    """

    texts: tuple[str, ...]
    vectors: Vectors

    def nearest(self, row: Vectors) -> int:
        """Return which candidate an answer is nearest to; K is "nothing is told".

        Computed for each answer by itself, and not by a matrix product of all: there a
        row's last bits depend on the number of rows and on its place among them, so one
        more answer could flip tied votes of all the others.
        """
        place = int(np.argmax((self.vectors * row).sum(axis=1)))
        return min(place, len(self.texts))


class ESAOutputParser(DPOutputParser):
    """Release the public candidate answer that most groups' answers are nearest to.

    The candidates are the model's own answers to the question alone, or a list you
    give. Use it for answers in free wording: it compares meanings, not words. Each
    answer votes for the candidate with the largest cosine. "The records do not tell" is
    one more candidate; where it leads, nothing is released. A candidate that no group's
    answer is nearest to comes out in at most 1 % of questions. Two candidates may say
    the same in other words, so a close race still has a winner.

    Privacy:
        Unit and relation: the group source's. Sensitivity, noise and event:
        `mechanisms.voting`, Gaussian(z, q). A slot adds 1 to one bin at most, by its
        own text alone: a candidate, "the records do not tell", an unreadable reply, or
        a failed call. Which candidate comes out, and the order of those that do, is
        post-processing of the noisy votes. Each answer is embedded by a call of its
        own, so its vector is a function of that answer, whatever the embedding does
        with the texts of one call; one that can't be embedded, or whose vector is zero,
        not finite or of another length, can't be read, and no other is affected. One
        call is made for each group that was asked, with a made-up text where it gave no
        answer, and none is made again: the bill of the embedding counts the groups,
        which are public. A single candidate is no choice: nothing is asked or charged.

    Raises:
        InvalidParameterError: If a parameter is out of range, or candidates are empty
            or can't be embedded.

    Example:
        >>> from langchain_dpicl.budget import PrivacyBudgetHandler
        >>> from langchain_dpicl.offline import HashingEmbeddings
        >>> parser = ESAOutputParser(
        ...     embedding=HashingEmbeddings(),
        ...     candidates=["It causes a dry cough.", "It causes a skin rash."],
        ...     budget=PrivacyBudgetHandler(
        ...         epsilon=8, delta=1e-6, queries=1, ledger=":memory:"
        ...     ),
        ... )
        >>> parser.invoke(["Most of them report a dry cough."] * 60)
        'It causes a dry cough.'
    """

    embedding: SkipValidation[Embeddings] = Field(exclude=True)
    """Embeds candidates and answers."""

    n_candidates: Annotated[int, Field(strict=True, ge=2, le=MAX_INTEGER)] = 8
    """How many public answers to ask for if `candidates` is not given."""

    candidates: (
        Annotated[Sequence[str], Field(min_length=2), AfterValidator(tuple)] | None
    ) = None
    """Public candidate answers, two at least."""

    noise_multiplier: float | None = None
    """z; None leaves it to the budget's plan."""

    @model_validator(mode="after")
    def _calls_are_public(self) -> Self:
        """Refuse a bill of the embedding that would count private candidates."""
        if self.relation is Relation.ADD_REMOVE and self.slot_count is None:
            raise InvalidParameterError(
                "under add/remove the number of candidates is private: give the "
                "public slot_count that calls of the embedding are padded to"
            )
        return self

    @property
    @override
    def zero_shot_answers(self) -> int:
        """The number of candidates to ask for; none if they are given."""
        return 0 if self.candidates is not None else self.n_candidates

    @override
    def charge(self, sampling_rate: float = 1.0) -> Charge:
        """Return what one vote costs."""
        return voting.charge(
            noise_multiplier=self.noise_multiplier,
            sampling_rate=sampling_rate,
            name="esa/vote",
        )

    @override
    def prepare(self, public: PublicInput) -> Candidates:
        """Embed the candidates."""
        given = self.candidates if self.candidates is not None else public.zero_shot
        every = tuple(dict.fromkeys(text.strip() for text in given if text.strip()))
        if not every:
            raise InvalidParameterError(
                "There is no candidate answer: the model gave none to the question "
                "alone. Give candidates=[...]."
            )
        # One that says nothing counts as `NOTHING`; alone it is the public answer.
        texts = tuple(text for text in every if not _tells_nothing(text)) or every[:1]
        asked = [*texts, *NOTHING]
        (rows,) = each_call(self.embedding, [asked], _unit_rows)
        if len(rows) != len(asked):
            raise InvalidParameterError(
                f"The embedding gave {len(rows)} usable vectors for {len(texts)} "
                f"candidates and {len(NOTHING)} sentences: some are zero, not finite "
                "or of another length."
            )
        return Candidates(texts, np.array(rows))

    @override
    def public_outcome(self, prepared: Candidates) -> Outcome | None:
        """A single candidate is the answer, whatever the groups would say."""
        if len(prepared.texts) > 1:
            return None
        details = {"reason": ONE_OPTION}
        return Outcome(Status.FALLBACK, prepared.texts[0], details=details)

    @override
    def release(
        self,
        slots: Sequence[Slot],
        *,
        paid: Paid,
        relation: Relation,
        slot_count: int,
        prepared: Candidates,
    ) -> Outcome:
        """Embed the answers and release the candidate that most are nearest to."""
        counts, texts = self.counts(slots, prepared, slot_count), prepared.texts
        outcome = voted(counts, texts, paid=paid, relation=relation, none=_TELL)
        if outcome.text is None:
            return outcome
        noisy = outcome.details["noisy_votes"]
        ranked = sorted(texts, key=noisy.__getitem__, reverse=True)
        return replace(outcome, ranking=tuple(ranked))

    def counts(
        self, slots: Sequence[Slot], prepared: Candidates, calls: int = 0
    ) -> list[int]:
        """Return the votes of each candidate, and of the bins behind them. Private.

        Made-up answers fill up to the public number of `calls`.
        """
        replies = [slot.text for slot in slots if slot.text is not None]
        texts = [text for text in replies if text.strip()]
        known = [text for text in texts if not attempt(partial(_tells_nothing, text))]
        asked = [[text] for text in [*known, *[PADDING] * (calls - len(known))]]

        def vote(vectors: Any, _: int) -> int | None:
            (vector,) = vectors
            row = usable_row(vector, prepared.vectors.shape[1])
            return None if row is None else prepared.nearest(row)

        places = each_call(self.embedding, asked, vote, alone=True)[: len(known)]
        votes = [places.count(place) for place in range(len(prepared.texts) + 1)]
        votes[-1] += len(texts) - len(known)
        unreadable = len(replies) - len(texts) + places.count(None)
        return [*votes, unreadable, sum(slot.failed for slot in slots)]

    @override
    def cache_parameters(self, question: str) -> dict[str, Any]:
        """Return every public parameter that an answer depends on."""
        given = None if self.candidates is None else list(self.candidates)
        known = super().cache_parameters(question)
        return {**known, "given": given, "embedding": named(self.embedding)}

    @override
    def public_parameters(self) -> dict[str, Any]:
        """Return how candidates are found."""
        given = self.candidates is not None
        return {"candidates": "given" if given else self.n_candidates}


def usable_row(vector: Any, size: int) -> Vectors | None:
    """Return a vector scaled to norm 1, or None if it can't be used.

    Example:
        >>> usable_row([3.0, 4.0], 2), usable_row([0.0, float("nan")], 2)
        (array([0.6, 0.8]), None)
    """
    try:
        # A copy: a client may fill the same array again at its next call.
        row = np.array(vector, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    if row.shape != (size,) or not np.isfinite(row).all():
        return None
    norm = float(np.linalg.norm(row))
    return row / norm if 0 < norm < np.inf else None


def _unit_rows(vectors: Any, _: int) -> list[Vectors]:
    size = len(next(iter(vectors), ()))
    rows = [usable_row(vector, size) for vector in vectors]
    return [row for row in rows if row is not None]


def _tells_nothing(text: str) -> bool:
    return read_choice(text, ()) is NoChoice.NONE
