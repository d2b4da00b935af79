"""The offline next-token model: n-grams of the prompt and of a public background."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.common.parameters import count
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.few_shot.models.contract import (
    LogProbabilities,
    NextTokenModel,
    TokenPrompt,
    Tokens,
)
from langchain_dpicl.offline.background import builtin_passages, builtin_words
from langchain_dpicl.offline.ngrams import ORDER, Background, fingerprint
from langchain_dpicl.offline.vocabulary import Vocabulary, cut, shown, spell

_VERSION = 1  # Part of the name: counts up when the same data give other probabilities.
_OWN_WORD_SHARE = 0.1  # Share of the exemplars' own words, wherever in them they stand.
_NEAR_WORD_SHARE = 0.5  # Share of the near passages' words, wherever in them they stand
# What a word of the instruction weighs against one that every exemplar holds.
_FRAME_WEIGHT = 0.25
# What a word of the label weighs against one that every exemplar holds.
_LABEL_WEIGHT = 1.0
# What is left of a word's probability once it, or its pair, has been generated.
_AGAIN = 0.1
_SHARPNESS = 2
"""Power of the mixture: n-grams are less sure of what follows than language models."""


class OfflineNextTokenModel(NextTokenModel):
    r"""An n-gram model of the next token: a stand-in, not a language model.

    It goes on with a prompt as its exemplars and a public background do. The lines at
    the prompt's end, which stand before every exemplar too, tell where the exemplars
    are; what is left is the instruction. The next token's probabilities are a mixture,
    by n-grams of up to four tokens, of

    * all of the background;
    * the background's passages that are near to the instruction, to the label and to
      the exemplars, by the words that they share: what a language model knows of a
      subject is imitated by showing it these passages as well;
    * the exemplars.

    The mixture is raised to a power and words that the text has said already are held
    back. Tokens are words, numbers and punctuation marks of a fixed public vocabulary;
    other words of the exemplars are never said. The same prompt has the same
    probabilities in every process.

    Args:
        background: Public texts to take n-grams and words from. They must not be, nor
            be derived from, the private records. None takes the built-in ones: short
            news, questions, descriptions, reviews, notes, with made-up names.
        max_vocabulary: Most tokens: the built-in list of common English words (some
            7,000), and the background's most frequent words beyond.

    Raises:
        InvalidParameterError: If the background holds no text or something else than
            texts, or `max_vocabulary` is too small for the built-in words.

    Privacy:
        Each prompt is answered by itself. Nothing of a prompt is kept after a call:
        the model's attributes, and the caches of the functions that it calls, hold
        what is public. Background and vocabulary shape every answer, so that private
        texts in `background` would be released without any protection.

    Example:
        >>> model = OfflineNextTokenModel()
        >>> text = "Label: sport\nText: Who won?\n\nLabel: sport\nText:"
        >>> (top,) = model.top_tokens([TokenPrompt(text)], 3)
        >>> model.decode(top[:1])
        'Who'
        >>> (logs,) = model.log_probabilities([TokenPrompt(text)], [top])
        >>> bool(logs[0] > -0.5)
        True
    """

    def __init__(
        self,
        background: Iterable[str] | None = None,
        *,
        max_vocabulary: int = 10_000,
    ) -> None:
        words = builtin_words()
        count(max_vocabulary, "max_vocabulary", minimum=len(words) + 1)
        if background is None:
            texts, subjects = builtin_passages()
        else:
            texts = _texts(background)
            subjects = ((),) * len(texts)
        passages = [tuple(cut(text)) for text in texts]
        self._vocabulary = Vocabulary(words, passages, max_vocabulary)
        self._background = Background(self._vocabulary, passages, subjects)
        mark = fingerprint(self._vocabulary, (*passages, *subjects))
        self._name = f"offline-ngram-{_VERSION}-{mark}"
        self._content = np.array(self._vocabulary.content)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r})"

    @property
    def name(self) -> str:
        """The model's name, with a fingerprint of background and vocabulary."""
        return self._name

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens."""
        return len(self._vocabulary)

    @property
    def end_tokens(self) -> frozenset[int]:
        """The one token that ends a text."""
        return frozenset({0})

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text that tokens spell, with spaces and capitals.

        Raises:
            InvalidParameterError: If a token is not in the vocabulary.
        """
        return spell(self._vocabulary.written[token] for token in self._checked(tokens))

    def top_tokens(self, prompts: Sequence[TokenPrompt], k: int) -> list[Tokens]:
        """Return the k likeliest next tokens after each prompt, ties by id.

        Raises:
            InvalidParameterError: If k is below 1, or there are fewer tokens.
        """
        if count(k, "k") > len(self._vocabulary):
            raise InvalidParameterError(
                f"k is {k}, and the vocabulary has {len(self._vocabulary)} tokens."
            )
        found = self.log_probabilities(prompts, [None] * len(prompts))
        return [np.argsort(-row, kind="stable")[:k] for row in found if row is not None]

    def log_probabilities(
        self, prompts: Sequence[TokenPrompt], tokens: Sequence[Tokens | None]
    ) -> list[LogProbabilities | None]:
        """Return how likely given tokens are after each prompt; none is impossible.

        Equal prompts of one call are computed once.

        Raises:
            InvalidParameterError: If a token, asked for or generated, is not in the
                vocabulary, or the two lists differ in length.
        """
        if len(prompts) != len(tokens):
            raise InvalidParameterError("prompts and tokens differ in length.")
        # Kept for this call only: one step's prompts share what was generated, and many
        # groups may be empty.
        steps: dict[tuple[int, ...], _Step] = {}
        answers: dict[tuple[str, tuple[int, ...]], NDArray[np.float64]] = {}
        results: list[LogProbabilities | None] = []
        for prompt, wanted in zip(prompts, tokens, strict=True):
            generated = tuple(self._checked(prompt.generated).tolist())
            if generated not in steps:
                steps[generated] = self._step(generated)
            key = (prompt.text, generated)
            if key not in answers:
                answers[key] = self._answer(prompt.text, steps[generated])
            answer = answers[key]
            if wanted is not None:
                answer = answer[self._checked(wanted)]
            # Rounding can lift a sure token above 1.
            results.append(np.minimum(np.log(answer), 0.0))
        return results

    def _step(self, generated: tuple[int, ...]) -> _Step:
        """Return what the tokens so far say of the next one."""
        context = (self._vocabulary.before_start, *generated)[-ORDER:]
        held = np.ones(len(self._vocabulary))
        said = np.array(sorted(set(generated)), dtype=np.int64)
        held[said[self._content[said]]] = _AGAIN
        for before, token in pairwise(generated):
            if before == generated[-1]:
                held[token] = _AGAIN
        return _Step(context, self._background.after(context), held)

    def _answer(self, text: str, step: _Step) -> NDArray[np.float64]:
        """Return the probability of every token, shape `(n,)`; none is 0."""
        parts = shown(text)
        exemplars = [self._vocabulary.encode(exemplar) for exemplar in parts.exemplars]
        about = self._vocabulary.subject
        subject = dict.fromkeys(about(parts.frame), _FRAME_WEIGHT)
        subject.update(dict.fromkeys(about(parts.label), _LABEL_WEIGHT))
        layers = [
            (self._background.near(subject, exemplars), _NEAR_WORD_SHARE),
            (self._background.places(exemplars), _OWN_WORD_SHARE),
        ]
        mixture = self._background.mixed(step.background, layers, step.context)
        sharp: NDArray[np.float64] = mixture**_SHARPNESS
        sharp *= step.held
        sharp /= sharp.sum()
        return sharp

    def _checked(self, tokens: Sequence[int] | Tokens) -> NDArray[np.int64]:
        found = np.asarray(tokens, dtype=np.int64)
        if found.size and not 0 <= found.min() <= found.max() < len(self._vocabulary):
            raise InvalidParameterError(
                f"Tokens go from 0 to {len(self._vocabulary) - 1}."
            )
        return found


class _Step(NamedTuple):
    """What the tokens so far say of the next one; the same for many prompts."""

    context: tuple[int, ...]
    background: NDArray[np.float64]
    held: NDArray[np.float64]


def _texts(background: Iterable[str]) -> tuple[str, ...]:
    if isinstance(background, str):
        raise InvalidParameterError("background is a list of texts, not one text.")
    texts = tuple(background)
    if not all(isinstance(text, str) for text in texts):
        raise InvalidParameterError("background holds something else than texts.")
    if not any(cut(text) for text in texts):
        raise InvalidParameterError("background holds no text.")
    return texts
