"""From prompts to figures: what a server is asked, and asked again.

One prompt never decides over another. A list that is refused, or whose answers can't be
matched to its prompts, is asked prompt by prompt. Some answers come back mutilated:
vLLM 0.32's first engine tells two figures instead of K wherever a request *of anybody*
that names tokens by id is computed in the same step. Such an answer is recognized by
its length and asked for again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.few_shot.models.contract import (
    LogProbabilities,
    TokenPrompt,
    Tokens,
)
from langchain_dpicl.few_shot.models.openai.probe import Abilities
from langchain_dpicl.few_shot.models.openai.replies import (
    Choice,
    bound,
    by_id,
    choices,
    figures,
    filled,
    is_possible,
    likeliest,
    refuse,
)
from langchain_dpicl.few_shot.models.openai.tokenizers import LocalTokenizer
from langchain_dpicl.few_shot.models.openai.wire import (
    LEAST_ASKED,
    PUBLIC_TEXTS,
    TRIES,
    UNSUPPORTED,
    Failure,
    Steps,
    Terms,
    tokenize,
    tokens_of,
)
from langchain_dpicl.sealed import attempt

MOST_BY_ID = 128  # Tokens that one request may ask for by their ids: vLLM's limit.
Prompt = str | list[int] | None
"""A prompt as it is sent; None where it could not be cut up."""


@dataclass(frozen=True, repr=False)
class _Asked:
    """What is asked after one prompt: so many figures.

    `named` are tokens that are named by id, empty for the likeliest ones.
    """

    prompt: Prompt
    logprobs: int
    named: tuple[int, ...] = ()

    @property
    def terms(self) -> tuple[Any, ...]:
        """What prompts of one list have in common."""
        return type(self.prompt), self.logprobs, self.named


@dataclass(frozen=True, repr=False)
class Questions:
    """What can be asked of a server that has been probed, `batch` prompts a request.

    Tokens are named `by_id`; where they are not, the server is asked for its `top`
    likeliest ones.
    """

    terms: Terms
    can: Abilities
    tokenizer: LocalTokenizer | None
    batch: int
    by_id: bool
    top: int

    def likeliest(self, prompts: Sequence[TokenPrompt], k: int) -> Steps[list[Tokens]]:
        """Return the k likeliest tokens after each public prompt."""
        self.require_size(k)
        wanted = self.asked_for(k)
        sent = yield from self._sent(prompts)
        asked = [_Asked(prompt, wanted) for prompt in sent]
        answers = yield from self._answers(asked)
        return [self._top_tokens(answer, wanted)[:k] for answer in answers]

    def confirm(self, k: int) -> Steps[None]:
        """Require that the server tells k tokens, asking with public text."""
        asked = [_Asked(PUBLIC_TEXTS[0], k)]
        (answer,) = yield from self._answers(asked)
        if isinstance(answer, Failure) and answer.status in UNSUPPORTED:
            raise PublicCallError(
                f"The server does not tell the {k} likeliest tokens ({answer}). Start "
                f"vLLM with --max-logprobs {k} or more."
            )
        self._top_tokens(answer, k)

    def require_size(self, k: int) -> None:
        """Require that there are k tokens."""
        size = self._size
        if size is not None and k > size:
            raise InvalidParameterError(f"There are {size} tokens, fewer than {k}.")

    def asked_for(self, k: int) -> int:
        """Return how many tokens the server is asked for where k are wanted."""
        least = max(k, LEAST_ASKED, self.top)
        # vLLM 0.32 ends if it is asked for more than there are.
        return min(least, self._size or least)

    @property
    def _size(self) -> int | None:
        return None if self.tokenizer is None else self.tokenizer.size

    def figures(
        self,
        prompts: Sequence[TokenPrompt],
        tokens: Sequence[Tokens],
        told: int,
    ) -> Steps[list[LogProbabilities | None]]:
        """Return the log-probabilities of given tokens after each prompt.

        `told` is how many of the likeliest tokens the server is known to tell.
        """
        sent = yield from self._sent(prompts)
        asked: list[_Asked] = []
        owners: list[int] = []
        for place, (prompt, wanted) in enumerate(zip(sent, tokens, strict=True)):
            for question in self._questions(prompt, wanted, told):
                asked.append(question)
                owners.append(place)
        answers = yield from self._answers(asked)
        parts: list[list[LogProbabilities | None]] = [[] for _ in prompts]
        for owner, question, answer in zip(owners, asked, answers, strict=True):
            wanted = tokens[owner]
            parts[owner].append(
                attempt(lambda: self._read(answer, question, wanted))  # noqa: B023
            )
        return [_joined(part) for part in parts]

    def _questions(self, prompt: Prompt, wanted: Tokens, told: int) -> list[_Asked]:
        if not self.by_id:
            return [_Asked(prompt, told)]
        ids = tuple(wanted.tolist())
        parts = [ids[i : i + MOST_BY_ID] for i in range(0, len(ids), MOST_BY_ID)]
        return [_Asked(prompt, len(part), named=part) for part in parts]

    def _read(
        self, answer: Choice | Failure | None, asked: _Asked, wanted: Tokens
    ) -> LogProbabilities | None:
        if not isinstance(answer, Choice):
            return None
        if not asked.named:
            top = self._reported(answer, asked.logprobs)
            return None if top is None else filled(top, wanted, bound(top))
        named = by_id(figures(answer) or {})
        if named is None or not named.keys() >= set(asked.named):
            return None
        return np.array([named[token] for token in asked.named], np.float64)

    def _reported(self, answer: Choice, k: int) -> dict[int, float] | None:
        """Return the figures of the k likeliest tokens, likeliest first."""
        ids = by_id(figures(answer) or {})
        return None if ids is None or len(ids) < k else likeliest(ids, k)

    def _top_tokens(self, answer: Choice | Failure | None, k: int) -> Tokens:
        if isinstance(answer, Failure):
            refuse(answer, f"the {k} likeliest tokens after a public prompt")
        if answer is None or figures(answer) is None:
            raise PublicCallError(
                "The server told no log-probabilities after a public prompt, or "
                "impossible ones: not a number, above 0, or more than 1 in all."
            )
        top = self._reported(answer, k)
        if top is None:
            raise PublicCallError(
                f"The server told fewer than {k} tokens after a public prompt, or did "
                "not name them by their ids."
            )
        return np.array(list(top), np.int64)

    def _sent(self, prompts: Sequence[TokenPrompt]) -> Steps[list[Prompt]]:
        """Return prompts as they are sent: tokens, where tokens were generated."""
        if self.tokenizer is not None:
            encode = self.tokenizer.encode
            return [
                attempt(lambda: [*encode(prompt.text), *prompt.generated])  # noqa: B023
                for prompt in prompts
            ]
        sent: list[Prompt] = [prompt.text for prompt in prompts]
        grown = [place for place, prompt in enumerate(prompts) if prompt.generated]
        if grown:
            calls = [tokenize(self.terms, prompts[place].text) for place in grown]
            replies = yield calls
            for place, reply in zip(grown, replies, strict=True):
                ids = tokens_of(reply)
                sent[place] = ids and [*ids, *prompts[place].generated]
        return sent

    def _answers(self, asked: Sequence[_Asked]) -> Steps[list[Choice | Failure | None]]:
        """Ask all questions, and the mutilated answers again."""
        found: list[Choice | Failure | None] = [None] * len(asked)
        left = [place for place, one in enumerate(asked) if one.prompt is not None]
        for _ in range(TRIES):
            if not left:
                break
            answers = yield from self._once([asked[place] for place in left])
            for place, answer in zip(left, answers, strict=True):
                found[place] = answer
            left = [
                place for place in left if _is_mutilated(found[place], asked[place])
            ]
        return found

    def _once(self, asked: Sequence[_Asked]) -> Steps[list[Choice | Failure | None]]:
        """Ask in lists, and those lists again prompt by prompt that were refused."""
        alike: dict[tuple[Any, ...], list[int]] = {}
        for place, one in enumerate(asked):
            alike.setdefault(one.terms, []).append(place)
        lists = [
            places[start : start + self.batch]
            for places in alike.values()
            for start in range(0, len(places), self.batch)
        ]
        found: list[Choice | Failure | None] = [None] * len(asked)
        while lists:
            replies = yield [self._call([asked[i] for i in places]) for places in lists]
            refused: list[list[int]] = []
            for places, reply in zip(lists, replies, strict=True):
                read = choices(reply, len(places))
                if read is not None:
                    for place, choice in zip(places, read, strict=True):
                        found[place] = choice
                elif len(places) > 1:
                    refused += [[place] for place in places]
                elif isinstance(reply, Failure):
                    found[places[0]] = reply
            lists = refused
        return found

    def _call(self, asked: Sequence[_Asked]) -> Any:
        options = dict(self.can.options)
        if asked[0].named:
            options["logprob_token_ids"] = list(asked[0].named)
        prompts = [one.prompt for one in asked]
        return self.terms.completion(prompts, asked[0].logprobs, **options)


def _is_mutilated(answer: Choice | Failure | None, asked: _Asked) -> bool:
    return isinstance(answer, Choice) and len(answer.top) < asked.logprobs


def _joined(parts: Sequence[LogProbabilities | None]) -> LogProbabilities | None:
    found = [part for part in parts if part is not None]
    if not found or len(found) < len(parts):
        return None
    joined = np.concatenate(found)
    return joined if is_possible(joined) or len(found) == 1 else None
