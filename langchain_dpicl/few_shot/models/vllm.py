"""Next-token probabilities from a server of vLLM, through langchain-openai's client.

Prompts go out as token ids. Figures come back by token id: of the tokens that were
asked for, or of the likeliest ones. A token that the server does not report is not
impossible. It is at most as likely as the least likely one reported, and as the mass
that is left: that is the figure it gets. Figures are read as floats of 32 bits with
their rounding, so K of them may add up to a little more than 1.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np
from langchain_openai import OpenAI

from langchain_dpicl.common.parameters import count
from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.few_shot.models.contract import (
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
    """A call that failed: its status, if there is one, and no word that was said."""

    status: int | None
    reason: str

    def __str__(self) -> str:
        return self.reason if self.status is None else f"status {self.status}"


Figures = Mapping[int, float]
"""Log-probabilities by token id."""


class OpenAICompatibleNextToken(NextTokenModel):
    """A server of vLLM, or one that speaks its protocol, as a next-token model.

    What is asked, as far as the server can do it: exact figures of the public tokens by
    their ids (`logprob_token_ids`), 128 a request; else its K likeliest tokens, and
    bounds for the others. The whole vocabulary is not asked for: a generator needs
    `top_k_public`.

    Args:
        llm: The completions client of `langchain-openai`. Its model, keys, address,
            time-out, retries, `batch_size` (prompts in one HTTP call) and `extra_body`
            are kept; temperature and lengths are this class's own.
        tokenizer: The model's tokenizer, of `transformers` or `tokenizers`, or anything
            with `encode(text)` and `decode(ids)`. It is compared with the server's.
        end_tokens: Ids of the tokens that end a text; None: the tokenizer's.
        max_concurrency: HTTP calls in flight at once.

    Raises:
        InvalidParameterError: If `llm` is no completions client, carries arguments that
            change which probabilities are told, or no end tokens are known.

    Privacy:
        The server sees the prompts. Each prompt has an answer of its own: those of a
        list are matched by the numbers that the server gives them (`index`), which must
        be exactly the prompts'. Where they are not, or one prompt is refused, all of
        the list are asked again one by one. Assumed is that the numbers are true, and
        that a prompt's figures do not depend on the others. The *arithmetic* of a
        server may differ in its last digits with what it computes together, in one list
        or not; vLLM's `VLLM_BATCH_INVARIANT=1` is made to rule that out. Nothing of a
        prompt is kept on this object, and errors hold none of it.

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
        self._batch = count(llm.batch_size, "batch_size of llm")
        self._pool = Pool("dpicl-next-token", count(max_concurrency, "max_concurrency"))
        ids = json.dumps([self._encode(text) for text in PUBLIC_TEXTS]).encode()
        self._name = f"{llm.model_name}#{hashlib.sha256(ids).hexdigest()[:8]}"
        self._by_id: bool | None = None
        self._tells = 0

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
        return str(self._tokenizer.decode([int(token) for token in tokens]))

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
        reply = self._call(list(PUBLIC_TEXTS), 1, return_token_ids=True)
        doing = "the likeliest token after public texts, with logprobs=1"
        choices = _choices(reply, len(PUBLIC_TEXTS))
        if choices is None:
            _refuse(reply, doing)
        for text, choice in zip(PUBLIC_TEXTS, choices, strict=True):
            if _figures(choice) is None:
                raise PublicCallError(
                    "The server tells no log-probabilities by the tokens' ids "
                    "(logprobs, return_tokens_as_token_ids), or impossible ones: use "
                    "vLLM, with --logprobs-mode raw_logprobs."
                )
            if choice.get("prompt_token_ids") != self._encode(text):
                raise InvalidParameterError(
                    "tokenizer= is not the model's, or the server does not tell a "
                    "prompt's tokens (return_token_ids): it cuts up public texts "
                    "otherwise. Load the one of the very model that the server runs."
                )
        wanted = sorted({*self._encode(PUBLIC_TEXTS[0])[:4]})
        (named,) = self._answers([self._encode(PUBLIC_TEXTS[0])], len(wanted), wanted)
        if isinstance(named, _Failure) and named.status not in _REFUSED:
            _refuse(named, "the figures of some tokens")
        self._by_id = isinstance(named, Mapping) and named.keys() >= set(wanted)

    def top_tokens(self, prompts: Sequence[TokenPrompt], k: int) -> list[Tokens]:
        """Return the likeliest next tokens; see `NextTokenModel`."""
        size = self.vocabulary_size
        if size is not None and k > size:
            raise InvalidParameterError(f"There are {size} tokens, fewer than {k}.")
        self.check()
        sent = [self._ids(prompt) for prompt in prompts]
        # vLLM 0.32 tells two figures where somebody else names tokens in the same step.
        for _ in range(_TRIES):
            answers = self._answers(sent, k)
            if all(isinstance(one, Mapping) and len(one) >= k for one in answers):
                break
        top = [_top_tokens(answer, k) for answer in answers]
        self._tells = k
        return top

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
        if len(prompts) != len(tokens):
            raise InvalidParameterError("prompts and tokens must be equally many.")
        alike: dict[tuple[int, ...], list[int]] = {}
        for place, wanted in enumerate(tokens):
            if wanted is None:
                raise InvalidParameterError(
                    "A server is not asked for its whole vocabulary: give "
                    "top_k_public=."
                )
            alike.setdefault(tuple(wanted.tolist()), []).append(place)
        self.check()
        result: list[LogProbabilities | None] = [None] * len(prompts)
        sent = [attempt(partial(self._ids, prompt)) for prompt in prompts]
        for ids, places in alike.items():
            answers = self._figures_of([sent[place] for place in places], ids)
            for place, answer in zip(places, answers, strict=True):
                result[place] = answer
        return result

    def _figures_of(
        self, prompts: Sequence[list[int] | None], ids: tuple[int, ...]
    ) -> list[LogProbabilities | None]:
        """Return the figures of the same tokens after each prompt."""
        if not self._by_id:
            # No more than it is known to tell.
            k = self._tells or len(ids)
            answers = self._answers(prompts, k)
            return [attempt(partial(_bounded, answer, ids, k)) for answer in answers]
        parts = [ids[i : i + MOST_BY_ID] for i in range(0, len(ids), MOST_BY_ID)]
        answers_by_part = [self._answers(prompts, len(part), part) for part in parts]
        return [
            attempt(partial(_exact, answers, ids))
            for answers in zip(*answers_by_part, strict=True)
        ]

    def _answers(
        self,
        prompts: Sequence[list[int] | None],
        logprobs: int,
        named: Sequence[int] = (),
    ) -> list[Figures | _Failure | None]:
        """Ask in lists, and those lists again prompt by prompt that were refused."""
        more = {"logprob_token_ids": list(named)} if named else {}
        result: list[Figures | _Failure | None] = [None] * len(prompts)
        # A public text stands for one that is empty: no other prompt moves by it.
        sent = [prompt or self._encode(PUBLIC_TEXTS[0]) for prompt in prompts]
        places, size = list(range(len(sent))), self._batch
        lists = [places[i : i + size] for i in range(0, len(places), size)]
        while lists:
            replies = self._pool.map(
                [
                    partial(self._call, [sent[i] for i in each], logprobs, **more)
                    for each in lists
                ]
            )
            refused: list[list[int]] = []
            for each, reply in zip(lists, replies, strict=True):
                choices = _choices(reply, len(each))
                if choices is not None:
                    for place, choice in zip(each, choices, strict=True):
                        result[place] = _figures(choice)
                elif len(each) > 1:
                    refused += [[place] for place in each]
                elif isinstance(reply, _Failure):
                    result[each[0]] = reply
            lists = refused
        return [each if prompts[i] else None for i, each in enumerate(result)]

    def _call(self, prompts: Sequence[Any], logprobs: int, **more: Any) -> Any:
        """Return the decoded JSON of an answer, or a `_Failure`."""
        options = {"return_tokens_as_token_ids": True, **_PLAIN, **more}

        def call() -> Any:
            try:
                return self._llm.client.with_raw_response.create(
                    model=self._llm.model_name,
                    prompt=prompts,
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
        return _Failure(None, "no answer") if reply is None else reply

    def _ids(self, prompt: TokenPrompt) -> list[int]:
        return [*self._encode(prompt.text), *prompt.generated]

    def _encode(self, text: str) -> list[int]:
        cut = self._tokenizer.encode(text)
        return [int(token) for token in getattr(cut, "ids", cut)]


def _refuse(reply: Any, doing: str) -> NoReturn:
    """Raise what a failed public call means; `doing` is what was asked."""
    if not isinstance(reply, _Failure):
        raise PublicCallError(f"The server's answer could not be read: {doing}.")
    if reply.status in _NO_KEY:
        raise PublicCallError(
            f"The server refused the key ({reply}): set api_key= of the model."
        )
    if reply.status == _NOT_FOUND:
        raise InvalidParameterError(
            f"The server has no such model, or no /completions endpoint ({reply}): "
            "check model= and base_url= of the model. One that has chat completions "
            "alone can't be used."
        )
    raise PublicCallError(
        f"The server did not answer ({reply}): {doing}. Check that it runs, and "
        "base_url= and timeout= of the model."
    )


def _choices(reply: Any, expected: int) -> list[dict[str, Any]] | None:
    """Return the answers to a list of prompts, out of a reply of any shape.

    All is None if they can't be matched to the prompts: one choice a prompt, numbered
    exactly as the prompts are. A single prompt's single choice needs no number. A place
    is no number: a server may leave out one prompt's choice, or mix them.
    """
    given = reply.get("choices") if isinstance(reply, dict) else None
    if not isinstance(given, list) or len(given) != expected:
        return None
    if not all(isinstance(choice, dict) for choice in given):
        return None
    if expected == 1:
        return given
    by_number = {
        choice["index"]: choice
        for choice in given
        if type(choice.get("index")) is int  # A bool is an int to everybody else.
    }
    if sorted(by_number) != list(range(expected)):
        return None
    return [by_number[number] for number in range(expected)]


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


def _top_tokens(answer: Figures | _Failure | None, k: int) -> Tokens:
    if isinstance(answer, _Failure):
        if answer.status in _REFUSED:
            raise PublicCallError(
                f"The server does not tell the {k} likeliest tokens after a public "
                f"prompt ({answer}). Start vLLM with --max-logprobs {k} or more."
            )
        _refuse(answer, f"the {k} likeliest tokens after a public prompt")
    if answer is None or len(answer) < k:
        raise PublicCallError(
            f"The server told fewer than {k} tokens after a public prompt, or "
            "impossible log-probabilities: not a number, above 0, or more than 1 in "
            "all."
        )
    return np.array(list(_likeliest(answer, k)), np.int64)


def _exact(
    answers: Sequence[Figures | _Failure | None], ids: Sequence[int]
) -> LogProbabilities | None:
    """Return the figures of tokens that were asked for in parts."""
    told: dict[int, float] = {}
    for answer in answers:
        if not isinstance(answer, Mapping):
            return None
        told |= answer
    if not told.keys() >= set(ids):
        return None
    figures = np.array([told[token] for token in ids], np.float64)
    return figures if np.exp(figures).sum() <= 1 + MASS_TOLERANCE else None


def _bounded(
    answer: Figures | _Failure | None, ids: Sequence[int], k: int
) -> LogProbabilities | None:
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
