"""Next-token probabilities from a server of vLLM, through langchain-openai's client.

Prompts go out as token ids, one a call. Figures come back by token id: of the tokens
that were asked for, or of the likeliest ones. A token that the server does not report
is not impossible. It is at most as likely as the least likely one reported, and as the
mass that is left: that is the figure it gets. Figures are read as floats of 32 bits
with their rounding, so K of them may add up to a little more than 1.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np
from langchain_openai import OpenAI

from langchain_dpicl.common.parameters import count
from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.few_shot.model import (
    LogProbabilities,
    NextTokenModel,
    TokenPrompt,
    Tokens,
)
from langchain_dpicl.sealed import attempt
from langchain_dpicl.threads import Pool

MOST_CALLS = 32  # HTTP calls in flight at once unless a limit is given.
MOST_BY_ID = 128  # Tokens that one request may ask for by their ids: vLLM's limit.
MASS_TOLERANCE = 1e-3  # By how much probabilities may add up to more than 1.
ROUNDING = 1e-6
"""Least mass that is known to be left, and by how much a logarithm may be above 0."""

PUBLIC_TEXTS = (
    "Write a short sentence about the weather.\nSentence:",
    "  Two spaces, a tab\tand naïve café 北京 🙂 1234567890.",
)
"""What a server is asked to find out what it can do: nothing private."""

_REFUSED, _NO_KEY, _NOT_FOUND = (400, 422), (401, 403), 404
_TRIES = 5
_ID_MARK = "token_id:"  # What vLLM writes before a token's id.
_CHANGES = {"allowed_token_ids", "bad_words", "echo", "logit_bias", "min_tokens"}
_CHANGES |= {"response_format", "stream", "structured_outputs", "use_beam_search"}
"""Arguments that would change which probabilities are told, or how."""

# Against a model's own defaults, which vLLM takes from its files.
_PLAIN = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}


class _Failure(NamedTuple):
    """A call that failed: its status, if there is one, and no word of the server's."""

    status: int | None
    reason: str

    def __str__(self) -> str:
        return self.reason if self.status is None else f"status {self.status}"


Figures = Mapping[int, float]
"""Log-probabilities by token id."""

_Answer = Figures | _Failure | None
"""What came of one prompt's call; None for figures that can't be."""


class OpenAICompatibleNextToken(NextTokenModel):
    """A server of vLLM, or one that speaks its protocol, as a next-token model.

    What is asked, as far as the server can do it: exact figures of the public tokens by
    their ids (`logprob_token_ids`), 128 a request; else its K likeliest tokens, and
    bounds for the others. The whole vocabulary is not asked for: a generator needs
    `top_k_public`.

    Args:
        llm: The completions client of `langchain-openai`. Its model, keys, address,
            time-out, retries and `extra_body` are kept; temperature and lengths are
            this class's own.
        tokenizer: The model's tokenizer, of `transformers` or `tokenizers`, or anything
            with `encode(text)` and `decode(ids)`. It is compared with the server's.
        end_tokens: Ids of the tokens that end a text; None: the tokenizer's.
        max_concurrency: HTTP calls in flight at once.

    Raises:
        InvalidParameterError: If `llm` is no completions client, carries arguments that
            change which probabilities are told, or no end tokens are known.

    Privacy:
        The server sees the prompts. Each call has one prompt, so that whatever comes
        back, or does not, is that prompt's. The *arithmetic* of a server may differ in
        its last digits with what it computes together; vLLM's `VLLM_BATCH_INVARIANT=1`
        is made to rule that out. Nothing of a prompt is kept on this object, and errors
        hold none of it.

    Example:
        ```python
        llm = OpenAI(model="my-model", base_url="http://localhost:8000/v1")
        tokenizer = AutoTokenizer.from_pretrained("my-model")
        model = OpenAICompatibleNextToken(llm, tokenizer)
        ```
    """

    def __init__(
        self,
        llm: OpenAI,
        tokenizer: Any,
        *,
        end_tokens: Collection[int] | None = None,
        max_concurrency: int = MOST_CALLS,
    ) -> None:
        if not isinstance(llm, OpenAI):
            raise InvalidParameterError(
                "llm must be a completions client, langchain_openai.OpenAI(...), "
                f"without anything around it, not {type(llm).__name__}: chat "
                "completions don't go on with given tokens."
            )
        self._extra = {**llm.model_kwargs, **(llm.extra_body or {})}
        if llm.seed is not None:
            self._extra["seed"] = llm.seed
        given = {*self._extra, *(["logit_bias"] if llm.logit_bias else [])}
        if refused := sorted(_CHANGES & given):
            raise InvalidParameterError(
                f"llm carries {', '.join(refused)}, which changes the probabilities "
                "that are told: leave it out."
            )
        if not all(callable(getattr(tokenizer, n, None)) for n in ("encode", "decode")):
            raise InvalidParameterError(
                "tokenizer must have encode(text) and decode(ids): pass the model's "
                "own, of transformers or tokenizers."
            )
        if end_tokens is None and getattr(tokenizer, "eos_token_id", None) is None:
            raise InvalidParameterError(
                "This tokenizer does not say which token ends a text: pass "
                "end_tokens=, their ids, or end_tokens=() for texts that end by their "
                "length alone."
            )
        ends = [tokenizer.eos_token_id] if end_tokens is None else end_tokens
        self._ends = frozenset(count(token, "end_tokens", minimum=0) for token in ends)
        self._llm, self._tokenizer = llm, tokenizer
        self._lock = threading.Lock()
        self._pool = Pool("dpicl-next-token", count(max_concurrency, "max_concurrency"))
        ids = json.dumps([self.encode(text) for text in PUBLIC_TEXTS]).encode()
        self._name = f"{llm.model_name}#{hashlib.sha256(ids).hexdigest()[:8]}"
        self._by_id: bool | None = None
        self._most: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model={self._llm.model_name!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} holds connections and a key and can't be pickled: "
            "make one in each process."
        )

    @property
    def name(self) -> str:
        """Model, and a fingerprint of its tokenizer; no address.

        Models that servers give one name, and that have one tokenizer, share it: name
        them differently (vLLM: `--served-model-name`).
        """
        return self._name

    @property
    def vocabulary_size(self) -> int | None:
        """Number of tokens, as the tokenizer says; None where it does not."""
        if hasattr(self._tokenizer, "get_vocab_size"):
            return int(self._tokenizer.get_vocab_size())
        return len(self._tokenizer) if hasattr(self._tokenizer, "__len__") else None

    @property
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end a text."""
        return self._ends

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text that tokens spell."""
        with self._lock:
            return str(self._tokenizer.decode([int(token) for token in tokens]))

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, as a prompt of it is sent."""
        with self._lock:  # Tokenizers do not allow several threads.
            cut = self._tokenizer.encode(text)
        return [int(token) for token in getattr(cut, "ids", cut)]

    def check(self) -> None:
        """Find out with public text what the server can do; later calls cost nothing.

        Everything else does this by itself when it is first used.

        Raises:
            PublicCallError: If the server does not answer, refuses the key, or tells no
                log-probabilities by the tokens' ids.
            InvalidParameterError: If it has no such model, or another tokenizer.
        """
        if self._by_id is not None:
            return
        for text in PUBLIC_TEXTS:
            choice = self._choice(text, 1, return_token_ids=True)
            if isinstance(choice, _Failure):
                _refuse(choice, "the likeliest token after a public text")
            if _figures(choice) is None:
                raise PublicCallError(
                    "The server tells no log-probabilities by the tokens' ids "
                    "(logprobs, return_tokens_as_token_ids), or impossible ones: use "
                    "vLLM, with --logprobs-mode raw_logprobs."
                )
            if choice.get("prompt_token_ids") != self.encode(text):
                raise InvalidParameterError(
                    "tokenizer= is not the model's, or the server does not tell a "
                    "prompt's tokens (return_token_ids): load the tokenizer of the "
                    "very model that the server runs."
                )
        ids = self.encode(PUBLIC_TEXTS[0])
        wanted = sorted({*ids[:4]})
        named = self._ask(ids, len(wanted), wanted)
        if isinstance(named, _Failure) and named.status not in _REFUSED:
            _refuse(named, "the figures of some tokens")
        self._by_id = isinstance(named, Mapping) and named.keys() >= set(wanted)

    def require_room(self, prompts: Sequence[TokenPrompt]) -> None:
        """Refuse public prompts that the server does not take."""
        self.top_tokens(prompts, 1)

    def top_tokens(self, prompts: Sequence[TokenPrompt], k: int) -> list[Tokens]:
        """Return the likeliest next tokens; see `NextTokenModel`."""
        size = self.vocabulary_size
        if size is not None and k > size:
            raise InvalidParameterError(f"There are {size} tokens, fewer than {k}.")
        self.check()
        sent = [self._ids(prompt) for prompt in prompts]
        return self._pool.map([partial(self._top_tokens, ids, k) for ids in sent])

    def log_probabilities(
        self, prompts: Sequence[TokenPrompt], tokens: Sequence[Tokens | None]
    ) -> list[LogProbabilities | None]:
        """Return how likely given tokens are; see `NextTokenModel`.

        Raises:
            PublicCallError: If the server fails when it is first asked, with public
                text, what it can do.
            InvalidParameterError: If the whole vocabulary is asked for. No prompt has
                been sent then.
        """
        asked = [wanted.tolist() for wanted in tokens if wanted is not None]
        if len(asked) < len(tokens):
            raise InvalidParameterError(
                "A server is not asked for its whole vocabulary: give top_k_public=."
            )
        self.check()
        for number in {len(ids) for ids in asked}:
            self._learn_most(number)
        sent = [attempt(partial(self._ids, prompt)) for prompt in prompts]

        def call(
            prompt: list[int] | None, ids: list[int]
        ) -> Callable[[], LogProbabilities | None]:
            return lambda: attempt(lambda: self._log_probabilities(prompt, ids))

        return self._pool.map([call(*each) for each in zip(sent, asked, strict=True)])

    def _learn_most(self, number: int) -> None:
        """Learn from a public text how many likeliest tokens the server gives.

        Of `number` tokens some may be ends, which stand behind the likeliest ones: the
        server may have a limit below them.
        """
        if self._by_id or number in self._most:
            return
        for most in range(number, max(number - len(self._ends), 1) - 1, -1):
            answer = self._ask(self.encode(PUBLIC_TEXTS[0]), most)
            if isinstance(answer, Mapping) and len(answer) >= most:
                self._most[number] = most
                return

    def _log_probabilities(
        self, prompt: list[int] | None, ids: list[int]
    ) -> LogProbabilities | None:
        """Return the figures of some tokens after one prompt; None without any."""
        if not prompt:
            return None
        if not self._by_id:
            most = self._most.get(len(ids), len(ids))
            return _bounded(self._ask(prompt, most), ids, most)
        told: dict[int, float] = {}
        for start in range(0, len(ids), MOST_BY_ID):
            part = ids[start : start + MOST_BY_ID]
            answer = self._ask(prompt, len(part), part)
            if not isinstance(answer, Mapping):
                return None
            told |= answer
        figures = np.array([told[token] for token in ids], np.float64)
        return figures if np.exp(figures).sum() <= 1 + MASS_TOLERANCE else None

    def _top_tokens(self, prompt: list[int], k: int) -> Tokens:
        """Return the likeliest tokens after one public prompt."""
        # vLLM 0.32 tells two figures where somebody else names tokens in the same step.
        for _ in range(_TRIES):
            answer = self._ask(prompt, k)
            if isinstance(answer, _Failure):
                if answer.status in _REFUSED:
                    raise PublicCallError(
                        f"The server does not tell the {k} likeliest tokens after a "
                        f"public prompt ({answer}): start vLLM with --max-logprobs {k} "
                        "or more."
                    )
                _refuse(answer, f"the {k} likeliest tokens after a public prompt")
            if answer is not None and len(answer) >= k:
                return np.array(list(_likeliest(answer, k)), np.int64)
        raise PublicCallError(
            f"The server told fewer than {k} tokens after a public prompt, or figures "
            "that are no log-probabilities."
        )

    def _ask(
        self, prompt: list[int], logprobs: int, named: Sequence[int] = ()
    ) -> _Answer:
        """Ask for the likeliest tokens after one prompt, or for those that are named.

        A server may add others.
        """
        more = {"logprob_token_ids": list(named)} if named else {}
        choice = self._choice(prompt, logprobs, **more)
        return choice if isinstance(choice, _Failure) else _figures(choice)

    def _choice(
        self, prompt: str | list[int], logprobs: int, **more: Any
    ) -> dict[str, Any] | _Failure:
        """Return what the server says of one prompt."""
        options = {"return_tokens_as_token_ids": True, **_PLAIN, **more}

        def call() -> Any:
            try:
                return self._llm.client.with_raw_response.create(
                    model=self._llm.model_name,
                    prompt=[prompt],
                    max_tokens=1,
                    # Or the figures may be those of another distribution.
                    temperature=1,
                    top_p=1,
                    logprobs=logprobs,
                    extra_body={**self._extra, **options},
                ).http_response.json()
            except Exception as error:  # noqa: BLE001 - only its kind is kept
                status = getattr(error, "status_code", None)
                return _Failure(status, type(error).__name__)

        reply = attempt(call)
        if isinstance(reply, _Failure):
            return reply
        choices = reply.get("choices") if isinstance(reply, dict) else None
        if not isinstance(choices, list) or len(choices) != 1:
            return _Failure(None, "unreadable")
        choice = choices[0]
        return choice if isinstance(choice, dict) else _Failure(None, "unreadable")

    def _ids(self, prompt: TokenPrompt) -> list[int]:
        return [*self.encode(prompt.text), *prompt.generated]


def _refuse(failure: _Failure, doing: str) -> NoReturn:
    """Raise what a failed public call means; `doing` is what was asked."""
    if failure.status in _NO_KEY:
        raise PublicCallError(
            f"The server refused the key ({failure}): set api_key= of the model."
        )
    if failure.status == _NOT_FOUND:
        raise InvalidParameterError(
            f"The server has no such model, or no /completions endpoint ({failure}): "
            "check model= and base_url= of the model."
        )
    raise PublicCallError(
        f"The server did not answer ({failure}): {doing}. Check that it runs, and "
        "base_url= and timeout= of the model."
    )


def _figures(choice: Mapping[str, Any]) -> Figures | None:
    """Return a choice's log-probabilities by token id; None if there can't be such.

    Impossible: not a number, above 0, or more than 1 in all.
    """
    told = choice.get("logprobs")
    tops = told.get("top_logprobs") if isinstance(told, dict) else None
    top = tops[0] if isinstance(tops, list) and tops else None
    if not isinstance(top, dict) or not top:
        return None
    mark = len(_ID_MARK)
    if any(key[:mark] != _ID_MARK or not key[mark:].isdecimal() for key in top):
        return None
    if not {type(value) for value in top.values()} <= {int, float}:
        return None
    try:
        values = np.array(list(top.values()), np.float64)
    except OverflowError:
        return None
    if not (values <= ROUNDING).all() or np.exp(values).sum() > 1 + MASS_TOLERANCE:
        return None
    ids = [int(key[mark:]) for key in top]
    return dict(zip(ids, np.minimum(values, 0.0).tolist(), strict=True))


def _likeliest(figures: Figures, k: int) -> dict[int, float]:
    """Return the k likeliest tokens, likeliest first, ties by id.

    A server adds the token that it drew to the k likeliest ones. That one is left out:
    it is chance, and as the least of the report it would be no bound for the others.

    Example:
        >>> _likeliest({7: -9.0, 4: -1.0, 2: -1.0}, 2)
        {2: -1.0, 4: -1.0}
    """
    ordered = sorted(figures.items(), key=lambda item: (-item[1], item[0]))
    return dict(ordered[:k])


def _bounded(answer: _Answer, ids: Sequence[int], k: int) -> LogProbabilities | None:
    """Return figures of the K likeliest tokens, and a bound for those without one.

    Example:
        >>> told = {1: math.log(0.5), 2: math.log(0.25)}
        >>> np.exp(_bounded(told, [1, 7], 2)).round(2).tolist()
        [0.5, 0.25]
    """
    if not isinstance(answer, Mapping) or len(answer) < k:
        return None
    top = _likeliest(answer, k)
    left = max(1.0 - math.fsum(map(math.exp, top.values())), ROUNDING)
    missing = min(*top.values(), math.log(left))
    return np.array([top.get(token, missing) for token in ids], np.float64)
