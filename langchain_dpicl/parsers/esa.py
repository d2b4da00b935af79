"""Embedding space aggregation: the public candidate nearest to what the groups said."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from langchain_core.embeddings import Embeddings
from pydantic import AfterValidator, Field, SkipValidation
from typing_extensions import override

from langchain_dpicl.accounting import Charge
from langchain_dpicl.budget import Paid
from langchain_dpicl.common import parameters
from langchain_dpicl.common.outcome import (
    CALLS_FAILED,
    NO_LEAD,
    UNREADABLE,
    Outcome,
    Status,
)
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import Slot
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import vectors, voting
from langchain_dpicl.mechanisms.random import use
from langchain_dpicl.parsers.answer_vectors import (
    Vectors,
    answer_vectors,
    usable_row,
)
from langchain_dpicl.parsers.base import DPOutputParser, PublicInput
from langchain_dpicl.parsers.candidates import Candidates
from langchain_dpicl.parsers.lead import noisy_others, verdict
from langchain_dpicl.parsers.reading.mentions import chooses_none
from langchain_dpicl.parsers.reading.refusal import says_nothing
from langchain_dpicl.parsers.reading.text import passage
from langchain_dpicl.parsers.words import named
from langchain_dpicl.release.flow import Flow, aresult, result
from langchain_dpicl.sealed import attempt
from langchain_dpicl.sealed.embedding_calls import aembed

NOTHING = (
    "I don't know.",
    "The records do not say.",
    "This can't be determined from the records.",
)
"""Public ways to say that the records do not tell: together one more candidate."""

Center = Literal["candidates"] | Sequence[float] | None


def _kept(center: Any) -> Any:
    """Return an immutable copy of a vector."""
    is_vector = not isinstance(center, str) and isinstance(center, Iterable)
    return tuple(center) if is_vector else center


class ESAOutputParser(DPOutputParser):
    """Release the public candidate answer that fits the groups' answers best.

    The candidates are the model's own answers to the question alone, or a list you
    give. Use it for answers in free wording: it compares meanings, not words. "The
    records do not tell" is one more candidate; if it fits best, nothing is released. A
    candidate that no group's answer is near comes out in 1 % of questions.

    Privacy:
        Unit and relation: the group source's. Sensitivity, noise and event:
        `mechanisms.vectors`, of rows around a public center, Gaussian(z, q). The
        candidate with the largest cosine to center + sum / m is post-processing of
        public candidates and the noisy sum. So are their `scores` in the record, their
        order, and whether they reach `min_score` or the score that noise alone reaches.
        With `select="vote"` each answer votes for its nearest candidate:
        `mechanisms.voting`, the same event. A slot whose reply can't be read, or whose
        call failed, has a coordinate of its own in the same sum instead of a vector.
        Each answer is embedded by a call of its own; one that can't be embedded, or
        whose vector is zero, not finite or of
        another length, can't be read, and no other is affected. Groups without an
        answer have a call with a made-up text, so that the bill of the embedding
        counts the public number of groups. A single candidate is no choice: nothing is
        asked or charged.

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
        >>> parser.invoke(["Most of them report a dry cough."] * 200)
        'It causes a dry cough.'
    """

    embedding: SkipValidation[Embeddings] = Field(exclude=True)
    """Embeds candidates and answers."""

    n_candidates: int = 8
    """How many public answers to ask for if `candidates` is not given."""

    candidates: Annotated[Sequence[str], AfterValidator(tuple)] | None = None
    """Public candidate answers."""

    center: Annotated[SkipValidation[Center], AfterValidator(_kept)] = None
    """Public center of the ball: None (zero), "candidates" (their mean) or a vector."""

    radius: float = 1.0
    """Radius R of the ball. With center="candidates" a small R divides the noise, as
    long as the answers lie within it; answers outside are moved to its surface. Answers
    for other candidates then count against the best one, which is harder to tell from
    noise; see `min_score`."""

    select: Literal["cosine", "vote"] = "cosine"
    """`vote` is better where most groups agree on a candidate, `cosine` where answers
    lie between the candidates."""

    min_score: float | None = None
    """Least score of a released candidate. A score is the inner product with the noisy
    mean: about the mean cosine with the groups' answers, where a group without an
    answer counts as the center. The score of unrelated texts depends on the embedding:
    try it on public texts. If no candidate reaches `min_score`, nothing is released.
    The ranking has only candidates that reach it. None: the best candidate must be
    nearer than noise alone brings it in 1 % of questions, and the ranking has all
    candidates. With -1 the best candidate comes out, however far away it is, unless
    failed calls or unreadable replies clearly lead it. Needs `select="cosine"`."""

    noise_multiplier: float | None = None
    """z; None leaves it to the budget's plan."""

    @override
    def check(self) -> None:
        """Refuse parameters that make no sense."""
        parameters.positive("radius", self.radius)
        parameters.count(self.n_candidates, "n_candidates", minimum=2)
        if isinstance(self.center, str) and self.center != "candidates":
            raise InvalidParameterError(
                "center must be None, 'candidates' or a vector of numbers."
            )
        if self.relation is Relation.ADD_REMOVE and self.slot_count is None:
            raise InvalidParameterError(
                "Under add/remove the number of candidates is private: give the "
                "public slot_count that calls of the embedding are padded to, and "
                "the sum is divided by."
            )
        if self.min_score is not None and (
            self.select == "vote" or not -1 <= self.min_score <= 1
        ):
            raise InvalidParameterError(
                'min_score goes with select="cosine" and is between -1 and 1.'
            )
        if self.candidates is not None and (
            isinstance(self.candidates, str) or len(self.candidates) < 2  # noqa: PLR2004
        ):
            raise InvalidParameterError("candidates must be a list of at least two.")
        self.charge()

    @property
    @override
    def zero_shot_answers(self) -> int:
        """The number of candidates to ask for; none if they are given."""
        return 0 if self.candidates is not None else self.n_candidates

    @override
    def charge(self, sampling_rate: float = 1.0) -> Charge:
        """Return what one noisy sum, or vote, costs."""
        charge = voting.charge if self.select == "vote" else vectors.charge
        return charge(
            noise_multiplier=self.noise_multiplier,
            sampling_rate=sampling_rate,
            name=f"esa/{self.select}",
        )

    @override
    def prepare(self, public: PublicInput) -> Candidates:
        """Embed the candidates."""
        texts = self._texts(public)
        return self._candidates(
            texts, self.embedding.embed_documents([*texts, *NOTHING])
        )

    @override
    async def aprepare(self, public: PublicInput) -> Candidates:
        """Embed the candidates; see `prepare`."""
        texts = self._texts(public)
        vectors = await aembed(self.embedding, "aembed_documents", [*texts, *NOTHING])
        return self._candidates(texts, vectors)

    @override
    def public_outcome(self, prepared: Candidates) -> Outcome | None:
        """A single candidate is the answer, whatever the groups would say."""
        if len(prepared.texts) > 1:
            return None
        return Outcome(
            Status.FALLBACK,
            prepared.texts[0],
            details={"reason": "there is only one candidate to choose from"},
        )

    @override
    def release(self, slots: Sequence[Slot], **terms: Any) -> Outcome:
        """Embed the answers and release the nearest candidate."""
        return result(self._released(slots, **terms))

    @override
    async def arelease(self, slots: Sequence[Slot], **terms: Any) -> Outcome:
        """Embed the answers and release the nearest candidate; see `release`."""
        return await aresult(self._released(slots, **terms))

    def _released(
        self,
        slots: Sequence[Slot],
        *,
        paid: Paid,
        relation: Relation,
        slot_count: int,
        prepared: Candidates,
    ) -> Flow[Outcome]:
        terms: Any = {"paid": paid.events[0], "relation": relation}
        if self.select == "vote":
            votes = yield from self.votes(slots, slot_count, prepared)
            with use(self.random):
                counts = voting.noisy_counts(votes, **terms).tolist()
            return _voted(counts, voting.sigma(**terms), prepared.texts)
        rows = yield from self.rows(slots, slot_count, prepared)
        with use(self.random):
            noisy = vectors.noisy_sum(rows, **terms, radius=self.radius)
        sigma = vectors.sigma(**terms, radius=self.radius)
        return self._nearest(noisy, sigma, max(slot_count, 1), prepared)

    def votes(
        self, slots: Sequence[Slot], slot_count: int, prepared: Candidates
    ) -> Flow[list[int]]:
        """Hand on calls; return each candidate's votes, and the other bins'. Private.

        The bins are "the records do not tell", unreadable replies and failed calls.
        """
        rows, tallies = yield from self._embedded(slots, slot_count, prepared)
        return [*prepared.votes(rows), *tallies]

    def rows(
        self, slots: Sequence[Slot], slot_count: int, prepared: Candidates
    ) -> Flow[Vectors]:
        """Hand on calls; return each answer as a row around the center. Private.

        Rows have two entries more: replies that can't be read, and failed calls.
        """
        rows, tallies = yield from self._embedded(slots, slot_count, prepared)
        answers = np.array(rows, dtype=np.float64).reshape(-1, prepared.center.size)
        away = np.pad(answers - prepared.center, ((0, 0), (0, len(tallies))))
        # A slot without a vector stands at one more axis, on the ball's surface.
        axes = np.zeros((len(tallies), away.shape[1]))
        axes[:, -len(tallies) :] = self.radius * np.eye(len(tallies))
        return np.concatenate([away, np.repeat(axes, tallies, axis=0)])

    def _embedded(
        self, slots: Sequence[Slot], slot_count: int, prepared: Candidates
    ) -> Flow[tuple[list[Vectors], tuple[int, int]]]:
        """Embed the answers; return them, and how many are unreadable and failed."""
        texts, unknown, unreadable = _answers(slots)
        size = prepared.center.size
        embedded = yield from answer_vectors(self.embedding, texts, slot_count, size)
        rows = [row for row in embedded if row is not None]
        unreadable += len(embedded) - len(rows)
        rows += [prepared.nothing[0]] * unknown
        return rows, (unreadable, sum(slot.failed for slot in slots))

    def _nearest(
        self, noisy: Vectors, sigma: float, slots: int, prepared: Candidates
    ) -> Outcome:
        """Return the candidate that a noisy sum is nearest to. Public."""
        noisy, tallies = noisy[:-2], noisy[-2:]
        counts = (tallies / self.radius).round(1).tolist()
        counted: dict[str, Any] = dict(zip(_TALLIES, counts, strict=True))
        mean = prepared.center + noisy / slots
        scores = prepared.vectors @ mean
        nothing = float((prepared.nothing @ mean).max())
        best, *_ = places = np.argsort(-scores, kind="stable").tolist()
        scored = zip((*prepared.texts, NOTHING[1]), (*scores, nothing), strict=True)
        counted["scores"] = {text: round(float(score), 3) for text, score in scored}
        tie = vectors.lead_over_a_tie(sigma, labels=1)
        first = int(tallies.argmax())
        over = tallies[first] - max(tallies[1 - first], prepared.nearest(noisy))
        if tallies[first] >= vectors.least_sum(sigma, 2) and over >= tie:
            reason = (UNREADABLE, CALLS_FAILED)[first]
            return _fallback(reason, **counted)
        if nothing >= scores[best]:
            # A lead is a difference along a line, with the noise of one entry.
            lead = prepared.lead(slots * mean)
            reason = _TELL if lead * math.sqrt(2) >= tie else NO_LEAD
            return _fallback(reason, **counted)
        if self.min_score is not None:
            places = [place for place in places if scores[place] >= self.min_score]
            is_far = not places
        else:
            # Without any answer, the sum's length in a direction is noise alone.
            least = vectors.least_sum(sigma, len(places))
            is_far = float(prepared.direction(best) @ noisy) < least
        if is_far:
            reason = "no candidate is near enough to what the groups say"
            return _fallback(reason, **counted)
        ranking = tuple(prepared.texts[place] for place in places)
        return Outcome(Status.RELEASED, ranking[0], ranking=ranking, details=counted)

    def _texts(self, public: PublicInput) -> tuple[str, ...]:
        given = self.candidates if self.candidates is not None else public.zero_shot
        texts = tuple(dict.fromkeys(text.strip() for text in given if text.strip()))
        if not texts:
            raise InvalidParameterError(
                "There is no candidate answer: the model gave none to the question "
                "alone. Give candidates=[...]."
            )
        # A candidate that says nothing counts as `NOTHING`; if it is the only one, it
        # is the public answer.
        return tuple(t for t in texts if not says_nothing(t)) or texts[:1]

    def _candidates(
        self, texts: tuple[str, ...], vectors: Sequence[Sequence[float]]
    ) -> Candidates:
        size = len(next(iter(vectors), ()))
        rows = [usable_row(vector, size) for vector in vectors]
        good = [row for row in rows if row is not None]
        if len(good) != len(texts) + len(NOTHING):
            raise InvalidParameterError(
                f"The embedding gave {len(good)} usable vectors for {len(texts)} "
                f"candidates and {len(NOTHING)} sentences: some are zero, not finite "
                "or of another length."
            )
        # Unit length, so that the largest inner product is the largest cosine.
        array = np.array(good)
        array /= np.linalg.norm(array, axis=1, keepdims=True)
        own, nothing = array[: len(texts)], array[len(texts) :]
        return Candidates(texts, own, self._center(own), nothing)

    def _center(self, vectors: Vectors) -> Vectors:
        size = vectors.shape[1]
        if self.center is None:
            return np.zeros(size)
        if isinstance(self.center, str):
            return np.asarray(vectors.mean(axis=0), dtype=np.float64)
        center = np.asarray(self.center, dtype=np.float64)
        if center.shape != (size,) or not np.isfinite(center).all():
            raise InvalidParameterError(
                f"center must be a finite vector of the embedding's length {size}."
            )
        return center

    @override
    def cache_parameters(self, question: str) -> dict[str, Any]:
        """Return every public parameter that an answer depends on."""
        given = None if self.candidates is None else list(self.candidates)
        center = self.center
        if center is not None and not isinstance(center, str):
            center = np.asarray(center, dtype=np.float64).tolist()
        return {
            **super().cache_parameters(question),
            "given": given,
            "center": center,
            "embedding": named(self.embedding),
        }

    @override
    def public_parameters(self) -> dict[str, Any]:
        """Return how candidates are found and compared."""
        return {
            "select": self.select,
            "candidates": "given" if self.candidates is not None else self.n_candidates,
            "radius": self.radius,
            "min_score": self.min_score,
            "center": self.center
            if isinstance(self.center, str)
            else ("zero" if self.center is None else "given"),
        }


_TELL = 'the answers are nearest to "the records do not tell"'
_TALLIES = ("noisy_unreadable", "noisy_failed")


def _voted(noisy: list[int], sigma: float, texts: tuple[str, ...]) -> Outcome:
    """Return what noisy votes for candidates say.

    Two candidates may say the same in other words, so a close race still has a winner.
    """
    votes, others = noisy[: len(texts)], noisy[len(texts) :]
    result = verdict(votes, others, sigma=sigma, min_lead=0, none=_TELL)
    details = {**noisy_others(others), "confidence": result.confidence}
    if result.winner is None:
        return _fallback(result.reason, **details)
    return Outcome(Status.RELEASED, texts[result.winner], details=details)


def _fallback(reason: str, **details: Any) -> Outcome:
    return Outcome(Status.FALLBACK, details={**details, "reason": reason})


def _answers(slots: Sequence[Slot]) -> tuple[list[str], int, int]:
    """Return the answers, how many replies say "I don't know", and how many nothing.

    The former count as the public `NOTHING`, whatever their wording.
    """
    replies = [slot.text for slot in slots if slot.text is not None]
    texts = [text for text in replies if text.strip()]
    known = [text for text in texts if not attempt(partial(_tells_nothing, text))]
    return known, len(texts) - len(known), len(replies) - len(texts)


def _tells_nothing(text: str) -> bool:
    return says_nothing(text) or chooses_none(passage(text))
