"""From the answers of both worlds to the laws of what is released, by the real release.

The parser's own `release` is run, with a source of randomness that gives one word again
and again. So the noise's scale, the counts, the test and its threshold are those of the
code, and not of a formula about it.

* *Noisy sums* (votes, ESA): the word for no noise shows the sum, the word for six
  deviations shows the deviation. The loss is that of two Gaussians.
* *Words* (KSA-PTR, threshold): an item comes out from some word on. Bisection over all
  2^64 words finds where, and so its probability. Where items come out with noisy
  counts, the loss of the counts is that of two Gaussians, of which less is shown.
* *A range of k*: the trials' exponents are read off.

What can't be seen in this way is taken from the proofs: words are uniform, and
coordinates have words of their own.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.audit.driven import Scripted, driven
from langchain_dpicl.audit.losses import Loss, finite_loss, gaussian_loss
from langchain_dpicl.budget import PaidCharge
from langchain_dpicl.common.outcome import Outcome
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import Slot
from langchain_dpicl.errors import GroupCallError, InvalidParameterError
from langchain_dpicl.mechanisms import (
    GaussianNoise,
    PTRNoise,
    ThresholdNoise,
)
from langchain_dpicl.mechanisms.sensitivity import keyword_l2, noise_scale
from langchain_dpicl.parsers import (
    DPOutputParser,
    ESAOutputParser,
    KSAJointOutputParser,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    VoteOutputParser,
)
from langchain_dpicl.parsers.noisy_sum import NoisySumOutputParser
from langchain_dpicl.release.flow import result

KNOWN = (
    VoteOutputParser,
    ESAOutputParser,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    KSAJointOutputParser,
)
_WORDS = 1 << 64
_HALF = 1 << 63
_EDGE = 8  # The outermost words lie beyond 8.9 deviations, where bits never end.
_DEVIATIONS = 6
_FAR = int(math.erf(_DEVIATIONS / math.sqrt(2)) * 2.0**63)
_NEVER = (0.0, 1.0)
_MOST_WORDS = 12
_MOST_CHOICES = 100
_NEAR = 1e-6


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
    def all_without(self) -> list[Slot]:
        """All slots without the person."""
        return [*self.common, *self.without]

    @cached_property
    def all_within(self) -> list[Slot]:
        """All slots with the person."""
        return [*self.common, *self.within]


class Laws:
    """The laws of one parser's releases.

    Args:
        parser: The parser.
        relation: How neighboring slots differ.
        slot_count: The public number of groups.
        rate: The rate at which units are sampled.

    Raises:
        InvalidParameterError: If nothing is known of the parser.
    """

    def __init__(
        self, parser: DPOutputParser, relation: Relation, slot_count: int, rate: float
    ) -> None:
        if not isinstance(parser, KNOWN):
            raise InvalidParameterError(
                f"A snapshot knows the laws of {', '.join(k.__name__ for k in KNOWN)}, "
                f"not of {type(parser).__name__}: audit a chain with one of them."
            )
        self._random = Scripted()
        self._memo: dict[Any, Any] = {}
        self._parser: Any = driven(parser, self._random, self._memo)
        self._relation, self._slots, self._rate = relation, slot_count, rate
        self._terms: dict[str, Any] = {}
        self._noise: Any = None
        # Where items have come out before, by what the noise was.
        self._switches: dict[Any, list[int]] = {}

    def ask(self, paid: PaidCharge[Any], prepared: Any) -> None:
        """Take up another question."""
        self._memo.clear()
        self._noise = paid.noise
        self._terms = {"paid": paid, "relation": self._relation, "prepared": prepared}

    def losses(self, pairs: Sequence[Pair]) -> list[list[Loss] | None]:
        """Return what each pair of worlds loses; None where it is not computed.

        Raises:
            GroupCallError: If the release is no sum, or its noise depends on answers.
        """
        noise = self._noise
        if isinstance(noise, GaussianNoise) and isinstance(
            self._parser, NoisySumOutputParser
        ):
            return list(self._sums(pairs))
        law: Callable[[Sequence[Slot]], Mapping[Hashable, float]]
        if isinstance(noise, ThresholdNoise):
            return [self._words(pair) for pair in pairs]
        if isinstance(noise, PTRNoise):
            first, last = (k,) * 2 if isinstance(k := self._parser.k, int) else k
            if last - first >= _MOST_CHOICES:
                return [None for _ in pairs]
            law = self._set
        else:
            return [None for _ in pairs]
        return [
            finite_loss(law(one.all_without), law(one.all_within), self._rate)
            for one in pairs
        ]

    # -- noisy sums --------------------------------------------------------------------

    def _sums(self, pairs: Sequence[Pair]) -> list[list[Loss]]:
        """Return the loss of each pair; the largest is checked on all slots."""
        if not pairs:
            return []
        nothing = self._sum([], 0)
        sigma = (self._sum([], _FAR) - nothing) / _DEVIATIONS
        moved = [self._sum(one.within, 0) - self._sum(one.without, 0) for one in pairs]
        distances = [float(np.linalg.norm(by / sigma)) for by in moved]
        place = int(np.argmax(distances))
        own = self._sum(pairs[place].all_within, 0)
        whole = own - self._sum(pairs[place].all_without, 0)
        real = (self._sum(pairs[place].all_within, _FAR) - own) / _DEVIATIONS
        scale = float(np.abs(sigma).max())
        if max(np.abs(whole - moved[place]).max(), np.abs(real - sigma).max()) > (
            _NEAR * scale
        ):
            raise GroupCallError(
                f"{type(self._parser).__name__} releases no sum over slots with noise "
                "of one scale: a snapshot can't tell its law."
            )
        return [gaussian_loss(distance, self._rate) for distance in distances]

    def _sum(self, slots: Sequence[Slot], word: int) -> NDArray[np.float64]:
        self._random.word = word
        # Nobody counts the calls of an audit.
        noisy = self._parser.noisy(slots, slot_count=0, **self._terms)
        return np.array(result(noisy), np.float64)

    # -- words -------------------------------------------------------------------------

    def _words(self, pair: Pair) -> list[Loss] | None:
        """Return the loss of words that come out each by itself."""
        laws = [self._released(slots) for slots in (pair.all_without, pair.all_within)]
        differing = [
            (dict(zip("10", without, strict=True)), dict(zip("10", own, strict=True)))
            for word in sorted({*laws[0], *laws[1]})
            if (without := laws[0].get(word, _NEVER))
            != (own := laws[1].get(word, _NEVER))
        ]
        # A word of both worlds shows its noisy count, which one slot moves by 1.
        new = [(a, b) for a, b in differing if not (a.get("1") and b.get("1"))]
        shown, differing = len(differing) - len(new), new
        sensitivity = keyword_l2(self._relation, self._parser.items_per_answer)
        distance = math.sqrt(shown) / noise_scale(
            self._noise.noise_multiplier, sensitivity
        )
        counted = gaussian_loss(distance, self._rate)
        if self._rate == 1:
            words = [loss for pair in differing for loss in finite_loss(*pair, 1.0)]
            return [*counted, *words]
        if len(differing) > _MOST_WORDS:
            return None
        # In a sample or not, all words of one person switch together.
        joint: list[dict[Hashable, float]] = [{(): 1.0}, {(): 1.0}]
        for chances in differing:
            for side, law in enumerate(chances):
                joint[side] = {
                    (before, bit): mass * own
                    for before, mass in joint[side].items()
                    for bit, own in law.items()
                }
        return [*counted, *finite_loss(joint[0], joint[1], self._rate)]

    def _set(self, slots: Sequence[Slot]) -> dict[Hashable, float]:
        """Return the law of a set that comes out as a whole, for a k that is chosen."""
        if self._noise.selection_epsilon is None:
            return self._one_set(slots, 1.0)
        law: dict[Hashable, float] = {}
        for place, chance in enumerate(self._chosen(slots)):
            self._random.place = place
            law.update(self._one_set(slots, chance, place))
        return law

    def _one_set(
        self, slots: Sequence[Slot], chance: float, place: int = 0
    ) -> dict[Hashable, float]:
        # One bit decides, so that all words of the set have one probability.
        passes, fails = max(self._released(slots).values(), default=_NEVER)
        # The whole outcome in each case, with the order of the words.
        told, silent = (
            (place, repr(self._release(slots, self._word(rank))))
            for rank in (_WORDS - _EDGE, _EDGE)
        )
        law: dict[Hashable, float] = {silent: chance * fails}
        return law | ({told: chance * passes} if passes else {})

    def _released(self, slots: Sequence[Slot]) -> dict[str, tuple[float, float]]:
        """Return the probabilities that each word comes out, and that it doesn't."""
        # Most people have one of the two worlds in common.
        key = (
            self._random.place,
            frozenset(Counter(slot.text for slot in slots).items()),
        )
        if key not in self._memo:
            self._memo[key] = self._driven(slots)
        found: dict[str, tuple[float, float]] = self._memo[key]
        return found

    def _driven(self, slots: Sequence[Slot]) -> dict[str, tuple[float, float]]:
        seen: dict[int, frozenset[str]] = {}

        def at(rank: int) -> frozenset[str]:
            if rank not in seen:
                outcome = self._release(slots, self._word(rank))
                seen[rank] = frozenset(outcome.keywords)
            return seen[rank]

        known = self._switches.setdefault(self._noise, [])
        found = {}
        for word in sorted(at(_WORDS - _EDGE)):
            least = _least(lambda rank, word=word: word in at(rank), known)  # type: ignore[misc]  # bound now
            if least not in known:
                known.insert(bisect_left(known, least), least)
            found[word] = (_WORDS - least) / _WORDS, least / _WORDS
        return found

    def _word(self, rank: int) -> int:
        """Return the words in the order in which more and more comes out."""
        # From the least noise to the most: by the sign, then by the size.
        return rank - _HALF if rank >= _HALF else _WORDS - 1 - rank

    def _release(self, slots: Sequence[Slot], word: int) -> Outcome:
        self._random.word = word
        self._random.exponents.clear()
        outcome: Outcome = self._parser.release(
            slots, slot_count=self._slots, **self._terms
        )
        return outcome

    # -- trials ------------------------------------------------------------------------

    def _trials(self, slots: Sequence[Slot]) -> list[float]:
        """Return for each candidate the exponent of its trial."""
        found: list[float] = []
        while not found or len(found) < self._random.candidates:
            self._random.place = len(found)
            self._release(slots, 0)
            found.append(float(self._random.exponents[0]))
        return found

    def _chosen(self, slots: Sequence[Slot]) -> list[float]:
        """Return the probabilities of an exponential mechanism by rejection."""
        weights = [math.exp(-exponent) for exponent in self._trials(slots)]
        return [weight / math.fsum(weights) for weight in weights]


def _least(is_out: Callable[[int], bool], known: Sequence[int]) -> int:
    """Return the least rank at which an item comes out: known ones are tried first."""
    place = bisect_left(known, True, key=is_out)
    low = known[place - 1] if place else _EDGE - 1
    high = known[place] if place < len(known) else _WORDS - _EDGE
    if high - 1 > low and not is_out(high - 1):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_out(middle) else (middle, high)
    return high
