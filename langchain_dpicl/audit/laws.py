"""From the answers of both worlds to the laws of what is released of them.

The parser reads the answers, by its own code. What the mechanism makes of that is taken
from the mechanism's own functions, which its tests hold against its draws:

* *Noisy sums* (votes, ESA): how far one person moves the sum, in deviations of the
  noise. The loss is that of two Gaussians.
* *Words* (KSA-PTR, threshold): the probability that a set passes, or that a word does.
  Where words come out with noisy counts, the loss of the counts is that of two
  Gaussians, of which less is shown.
* *A range of k*: the probability of each k.

A parser whose release is not one of these has no law here: the charge stands for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from langchain_dpicl.audit.losses import Loss, finite_loss, gaussian_loss
from langchain_dpicl.budget import Paid
from langchain_dpicl.common.replies import Slot
from langchain_dpicl.common.units import Relation
from langchain_dpicl.mechanisms import keyword_ptr, keyword_threshold, voting
from langchain_dpicl.parsers import (
    DPOutputParser,
    ESAOutputParser,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    VoteOutputParser,
)

_MOST_WORDS = 12
_MOST_CHOICES = 100


@dataclass(frozen=True, repr=False)
class Pair:
    """The slots of two worlds. Private.

    Attributes:
        common: Those that both have.
        without: Those without the person alone.
        within: Those with the person alone.
    """

    common: Sequence[Slot]
    without: Sequence[Slot]
    within: Sequence[Slot]

    @cached_property
    def worlds(self) -> tuple[list[Slot], list[Slot]]:
        """All slots without the person, and all slots with the person."""
        return [*self.common, *self.without], [*self.common, *self.within]


class Laws:
    """The laws of one parser's releases.

    Args:
        parser: The parser.
        relation: How neighboring slots differ.
        rate: The rate at which units are sampled.
    """

    def __init__(self, parser: DPOutputParser, relation: Relation, rate: float) -> None:
        self._parser: Any = parser
        self._relation, self._rate = relation, rate
        self._law = self._known(parser)
        self._paid: Any = ()
        self._prepared: Any = None
        self._counts: dict[str | None, Counter[str]] = {}

    def ask(self, paid: Paid, prepared: Any) -> None:
        """Take up another question."""
        self._paid, self._prepared = paid.events, prepared
        self._counts.clear()

    def losses(self, pairs: Sequence[Pair]) -> list[list[Loss] | None]:
        """Return what each pair of worlds loses; None where no law is known."""
        return [self._law(pair) if self._law else None for pair in pairs]

    def _known(
        self, parser: DPOutputParser
    ) -> Callable[[Pair], list[Loss] | None] | None:
        laws: dict[Any, Callable[[Pair], list[Loss] | None]] = {
            VoteOutputParser: self._votes,
            ESAOutputParser: self._votes,
            KSAPTROutputParser: self._set,
            KSAThresholdOutputParser: self._words,
        }
        for kind, law in laws.items():
            # What a subclass releases in another way has another law.
            if isinstance(parser, kind) and type(parser).release is kind.release:
                return law
        return None

    # -- noisy votes -------------------------------------------------------------------

    def _votes(self, pair: Pair) -> list[Loss]:
        without, within = (
            np.array(self._parser.counts(slots, self._prepared))
            for slots in (pair.without, pair.within)
        )
        moved = float(np.linalg.norm(within - without))
        sigma = voting.sigma(self._paid[0], self._relation)
        return gaussian_loss(moved / sigma, self._rate)

    # -- words -------------------------------------------------------------------------

    def _count(self, slots: Sequence[Slot], *terms: Any) -> Counter[str]:
        """Return in how many slots each word is; every answer is read once."""
        total: Counter[str] = Counter()
        for slot in slots:
            if slot.text not in self._counts:
                counts = self._parser.counts([slot], self._prepared, *terms)
                self._counts[slot.text] = counts
            total.update(self._counts[slot.text])
        return total

    def _words(self, pair: Pair) -> list[Loss] | None:
        """Return the loss of words that come out each by itself."""
        items, relation = self._parser.items_per_answer, self._relation
        without, within = (self._count(slots, items) for slots in pair.worlds)
        # A word of both worlds shows its noisy count.
        moved = [within[word] - without[word] for word in {*without} & {*within}]
        new = sorted({*without} ^ {*within})
        terms: dict[str, Any] = {"relation": relation, "items_per_answer": items}
        sigma = keyword_threshold.sigma(self._paid, **terms)
        counted = gaussian_loss(math.hypot(*moved) / sigma, self._rate)
        if len(new) > _MOST_WORDS:
            return None
        # In a sample or not, all words of one person switch together.
        laws: list[dict[Hashable, float]] = []
        for counts in (without, within):
            law: dict[Hashable, float] = {(): 1.0}
            for word in new:
                passes = keyword_threshold.pass_rate(counts[word], self._paid, **terms)
                law = {
                    (before, is_out): mass * (passes if is_out else 1 - passes)
                    for before, mass in law.items()
                    for is_out in ((True, False) if passes else (False,))
                }
            laws.append(law)
        return [*counted, *finite_loss(laws[0], laws[1], self._rate)]

    def _set(self, pair: Pair) -> list[Loss] | None:
        """Return the loss of a set that comes out whole, and of the choice of k."""
        first, last = (k,) * 2 if isinstance(k := self._parser.k, int) else k
        if last - first >= _MOST_CHOICES:
            return None
        laws: list[dict[Hashable, float]] = []
        for slots in pair.worlds:
            law: dict[Hashable, float] = {}
            counts, chances = self._count(slots), {first: 1.0}
            if first < last:
                chances = keyword_ptr.choice_law(
                    counts, (first, last), self._paid[0], self._relation
                )
            for k, chance in chances.items():
                words, passes = self._test(counts, k)
                law[k, None] = chance * (1 - passes)
                law |= {(k, words): chance * passes} if passes else {}
            laws.append(law)
        return finite_loss(laws[0], laws[1], self._rate)

    def _test(self, counts: Counter[str], k: int) -> tuple[tuple[str, ...], float]:
        """Return the k most frequent words, and how often they come out."""
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        heights = [counts[word] for word in ranked] + [0] * (k + 1)
        gap = heights[k - 1] - heights[k]
        test = self._paid[-2:]
        passes = keyword_ptr.pass_rate(gap, test, self._relation)
        return tuple(sorted(ranked[:k])), passes if heights[k - 1] else 0.0
