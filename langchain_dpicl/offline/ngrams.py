"""Weighted n-gram statistics of public passages, for the offline next-token model.

Every place of every passage stands in one array, sorted by the tokens before it, so
that the places after a context of any length are one slice: counting is one pass over
that slice, and nothing has to be kept between calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.offline.vocabulary import Vocabulary
from langchain_dpicl.offline.words import stem

ORDER = 3  # How many tokens before a place matter: n-grams are of up to four tokens.
_SEEN = 0.95  # Share of the passages' own words; the rest is the same for every token.
_NEAR = 64  # At most so many passages are near to a prompt's subject.
# A near passage scores at least this share of the nearest one's score.
_LEAST_NEAR = 0.5
# What a word on a passage's subject weighs against one of the passage's own.
_SUBJECT_WEIGHT = 3.0
_LEAST_RARITY = 0.69  # Roots that half of the passages hold, or more, are not compared.
_NOTHING = 1e-9  # Below this score a passage has nothing in common with a prompt.


class Places(NamedTuple):
    """Places of some texts: what stands there, after what, and what each weighs."""

    codes: NDArray[np.int64]  # The tokens before a place, nearest first, as one number.
    tokens: NDArray[np.int64]
    weights: NDArray[np.float64]


class Background:
    """How public passages go on after a context, and which ones are near to a prompt.

    For each passage, given as tokens, `subjects` has words that say what it is about.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        passages: Sequence[Sequence[str]],
        subjects: Sequence[Sequence[str]],
    ) -> None:
        self._vocabulary = vocabulary
        self._base = len(vocabulary) + 2
        texts = [vocabulary.encode_tokens(passage) for passage in passages]
        codes, self._tokens, owners = self._laid_out(texts)
        self._codes = codes
        self._ends = np.searchsorted(owners, np.arange(len(texts) + 1))
        order = np.argsort(codes, kind="stable")
        self._sorted, self._next = codes[order], self._tokens[order]
        counts = np.bincount(self._tokens, minlength=len(vocabulary)).astype(np.float64)
        self._words = np.full(len(vocabulary), (1.0 - _SEEN) / len(vocabulary))
        self._words += _SEEN * counts / counts.sum()
        self._roots = _Roots(vocabulary)
        self._index(texts, subjects)

    def _index(
        self, texts: Sequence[Sequence[int]], subjects: Sequence[Sequence[str]]
    ) -> None:
        """Note which roots occur in which passages, and how much they tell."""
        own = [self._roots.of_tokens(text) for text in texts]
        told = [self._roots.of_words(subject) for subject in subjects]
        tells = _pairs(told)
        pairs = np.union1d(_pairs(own), tells)
        held = np.bincount(pairs // len(texts), minlength=len(self._roots))
        rarity = np.log((1.0 + len(texts)) / (1.0 + held))
        # What most passages hold tells nothing, and would take most of the time.
        pairs = pairs[rarity[pairs // len(texts)] > _LEAST_RARITY]
        roots, self._holders = np.divmod(pairs, len(texts))
        self._held = np.searchsorted(roots, np.arange(len(self._roots) + 1))
        heft = np.where(np.isin(pairs, tells), _SUBJECT_WEIGHT, 1.0) * rarity[roots]
        norms = np.sqrt(np.bincount(self._holders, heft**2, minlength=len(texts)) + 1.0)
        self._heft = heft / norms[self._holders]

    def near(
        self, subject: Mapping[int, float], texts: Sequence[Sequence[int]]
    ) -> Places:
        """Return the places of the passages that are near to a prompt's subject.

        The subject is tokens with weights; `texts` are of the kind that is looked for.
        """
        asked: dict[int, float] = {}
        for token, weight in subject.items():
            for root in self._roots.of_tokens([token]):
                asked[root] = asked.get(root, 0.0) + weight
        for text in texts:
            for root in self._roots.of_tokens(text):
                asked[root] = asked.get(root, 0.0) + 1.0 / len(texts)
        roots = np.fromiter(asked, dtype=np.int64, count=len(asked))
        weights = np.fromiter(asked.values(), dtype=np.float64, count=len(asked))
        lows, highs = self._held[roots], self._held[roots + 1]
        at = _ranges(lows, highs)
        scores = np.bincount(
            self._holders[at],
            self._heft[at] * np.repeat(weights, highs - lows),
            minlength=len(self._ends) - 1,
        )
        best = scores.max(initial=0.0)
        chosen = np.flatnonzero(scores >= max(_LEAST_NEAR * best, _NOTHING))
        chosen = chosen[np.argsort(-scores[chosen], kind="stable")[:_NEAR]]
        lows, highs = self._ends[chosen], self._ends[chosen + 1]
        at = _ranges(lows, highs)
        shares = np.repeat((scores[chosen] / (best or 1.0)) ** 2, highs - lows)
        return Places(self._codes[at], self._tokens[at], shares)

    def after(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Return the probability of every token after a context, shape `(n,)`.

        A context begins with `before_start` where the text starts. Orders are
        interpolated as Witten and Bell do: the weight of an order is n / (n + d) for n
        places after the context and d different tokens there.
        """
        result = self._words
        for length in range(1, min(ORDER, len(context)) + 1):
            low, high = np.searchsorted(self._sorted, self._span(context[-length:]))
            if low == high:
                break
            counts = np.bincount(self._next[low:high], minlength=len(result))
            share = (high - low) / (high - low + np.count_nonzero(counts))
            result = (1.0 - share) * result + share / (high - low) * counts
        return result

    def places(self, texts: Sequence[Sequence[int]]) -> Places:
        """Return the places of texts given as tokens; each weighs 1."""
        codes, tokens, _ = self._laid_out(texts)
        return Places(codes, tokens, np.ones(len(tokens)))

    def mixed(
        self,
        below: NDArray[np.float64],
        layers: Sequence[tuple[Places, float]],
        context: Sequence[int],
    ) -> NDArray[np.float64]:
        """Return probabilities, from `below` on, that places of texts are mixed into.

        An order weighs n / (n + 1), for n the places after the same tokens, by weight.
        A layer is places, and the share of their words wherever in the texts they
        stand; a later one lies over the earlier ones.
        """
        shares, found = [], []
        for places, word_share in layers:
            for length in range(min(ORDER, len(context)) + 1):
                tokens, weights = places.tokens, places.weights
                if length:
                    low, high = self._span(context[-length:])
                    here = np.flatnonzero((places.codes >= low) & (places.codes < high))
                    tokens, weights = tokens[here], weights[here]
                total = float(weights.sum())
                if total <= 0.0:
                    break
                share = total / (total + 1.0) if length else word_share
                shares.append(share)
                found.append((tokens, weights * (share / total)))
        left = 1.0
        for at in reversed(range(len(shares))):
            found[at] = (found[at][0], found[at][1] * left)
            left *= 1.0 - shares[at]
        if not found:
            return below
        tokens, weights = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return left * below + np.bincount(tokens, weights, minlength=len(below))

    def _span(self, context: Sequence[int]) -> tuple[int, int]:
        """Return the first code that begins with a context, and the first beyond."""
        code = 0
        for token in reversed(context):
            code = code * self._base + token
        span = self._base ** (ORDER - len(context))
        return code * span, (code + 1) * span

    def _laid_out(
        self, texts: Sequence[Sequence[int]]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the known places of texts: code, token, number of the text."""
        start = [self._vocabulary.before_start] * ORDER
        flat = [token for text in texts for token in (*start, *text, 0)]
        tokens = np.array(flat, dtype=np.int64)
        lengths = [len(text) + ORDER + 1 for text in texts]
        owners = np.repeat(np.arange(len(texts)), lengths)
        codes = np.zeros(len(tokens), dtype=np.int64)
        for back in range(1, ORDER + 1):
            codes[back:] = codes[back:] * self._base + tokens[:-back]
        known = tokens < len(self._vocabulary)
        return codes[known], tokens[known], owners[known]


def _pairs(roots: Sequence[Iterable[int]]) -> NDArray[np.int64]:
    """Return each text's roots as numbers: root times texts, plus the text's."""
    found = [root * len(roots) + at for at, held in enumerate(roots) for root in held]
    return np.array(found, dtype=np.int64)


def _ranges(lows: NDArray[np.int64], highs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers of several ranges, one range after the other."""
    lengths = highs - lows
    skipped = np.cumsum(lengths) - lengths
    first: NDArray[np.int64] = np.repeat(lows - skipped, lengths)
    return first + np.arange(len(first))


class _Roots:
    """Numbers of what texts are compared by: the stems of the vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        roots: dict[str, int] = {}
        self._of_token = [
            roots.setdefault(stem(word), len(roots)) for word in vocabulary.words
        ]
        self._roots = roots

    def __len__(self) -> int:
        return len(self._roots)

    def of_tokens(self, tokens: Iterable[int]) -> set[int]:
        known = len(self._of_token)
        return {self._of_token[token] for token in tokens if token < known}

    def of_words(self, words: Iterable[str]) -> set[int]:
        found = (self._roots.get(stem(word.casefold())) for word in words)
        return {root for root in found if root is not None}


def fingerprint(vocabulary: Vocabulary, passages: Iterable[Sequence[str]]) -> str:
    """Return a name of twelve characters for a vocabulary and passages."""
    digest = blake2b(digest_size=6)
    for group in (vocabulary.words, vocabulary.written, *passages):
        digest.update("\0".join((*group, "\1")).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
