"""Next-token probabilities from a server of vLLM."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NoReturn

from langchain_openai import OpenAI

from langchain_dpicl.common.parameters import count
from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.few_shot.models.contract import (
    LogProbabilities,
    NextTokenModel,
    TokenPrompt,
    Tokens,
)
from langchain_dpicl.few_shot.models.openai.probe import Abilities, probe
from langchain_dpicl.few_shot.models.openai.questions import Questions
from langchain_dpicl.few_shot.models.openai.tokenizers import LocalTokenizer
from langchain_dpicl.few_shot.models.openai.wire import (
    MOST_CALLS,
    Steps,
    Terms,
    Wire,
    detokenize,
    text_of,
)
from langchain_dpicl.release.flow import aresult, result

OWN_OPTIONS = frozenset(
    {
        "allowed_token_ids",
        "bad_words",
        "echo",
        "logit_bias",
        "logprob_token_ids",
        "min_tokens",
        "response_format",
        "stream",
        "structured_outputs",
        "use_beam_search",
    }
)
"""Arguments that would change which probabilities are told, or how."""


class OpenAICompatibleNextToken(NextTokenModel):
    """A server of vLLM, or one that speaks its protocol, as a next-token model.

    Args:
        llm: The completions client of `langchain-openai`. Its model, keys, address,
            time-out, retries, `batch_size` (prompts in one HTTP call) and `extra_body`
            are kept; temperature and lengths are this class's own.
        tokenizer: The model's tokenizer, of `transformers` or `tokenizers`, or anything
            with `encode(text)` and `decode(ids)`. vLLM needs none, and is faster with
            one: else each prompt is cut up by a call of its own.
        end_tokens: Ids of the tokens that end a text; None: the tokenizer's, or those
            of the usual ones after which the server says that a text has ended.
        max_concurrency: HTTP calls in flight at once (default 32).
        by_id: Whether tokens are asked for by their ids (`logprob_token_ids`); None:
            where the server can. See "What is asked" below.
        top_logprobs: How many of the likeliest tokens a server is asked for that does
            not tell figures by id; None: as many as public tokens were asked for.
            More give tighter bounds.

    Prompts go out as token ids, so that generated tokens stay the tokens that they
    are; where the server cuts texts up itself, prompts without generated tokens go out
    as text.

    What is asked: the first of these that the server can do.

    1. `logprob_token_ids`: exact figures for each of the tokens, 128 a request.
    2. The K likeliest tokens. A public token that is not among them gets the largest
       probability that it can have: at most that of the least likely one reported,
       and at most the mass that is left.

    The whole vocabulary is not asked for: a generator needs `top_k_public`.

    Privacy:
        The server sees the prompts. Each prompt has an answer of its own: those of a
        list are matched by the numbers that the server gives them (`index`), which must
        be exactly the prompts'. Where they are not, or one prompt is refused, all of
        the list are asked again one by one; a server that numbers none gets no lists.
        Assumed is that the numbers are true, and that a prompt's figures do not depend
        on the others. The *arithmetic* of a server may differ in its last digits with
        what it computes together, in one list or not; vLLM's `VLLM_BATCH_INVARIANT=1`
        is made to rule that out. Nothing of a prompt is kept on this object, and errors
        hold none of it.

    Raises:
        InvalidParameterError: If `llm` is no completions client, or carries arguments
            that change which probabilities are told.

    Example:
        >>> from langchain_openai import OpenAI
        >>> llm = OpenAI(
        ...     model="my-model",
        ...     base_url="http://localhost:8000/v1",
        ...     api_key="key",
        ...     batch_size=40,
        ... )
        >>> OpenAICompatibleNextToken(llm)
        OpenAICompatibleNextToken(model='my-model')
    """

    def __init__(
        self,
        llm: OpenAI,
        *,
        tokenizer: Any = None,
        end_tokens: Collection[int] | None = None,
        max_concurrency: int | None = None,
        by_id: bool | None = None,
        top_logprobs: int | None = None,
    ) -> None:
        if not isinstance(llm, OpenAI):
            raise InvalidParameterError(
                "llm must be a completions client, langchain_openai.OpenAI(...), "
                f"without anything around it, not {type(llm).__name__}: chat "
                "completions don't go on with given tokens."
            )
        extra = {**llm.model_kwargs, **(llm.extra_body or {})}
        if llm.seed is not None:
            extra["seed"] = llm.seed
        refused = sorted(OWN_OPTIONS & set(extra))
        if llm.logit_bias or refused:
            names = ", ".join(refused) or "logit_bias"
            raise InvalidParameterError(
                f"llm carries {names}, which changes the probabilities that are told: "
                "leave it out."
            )
        most = MOST_CALLS if max_concurrency is None else max_concurrency
        self._wire = Wire(llm, count(most, "max_concurrency"))
        self._terms = Terms(llm.model_name, extra)
        self._batch = count(llm.batch_size, "batch_size of llm")
        self._tokenizer = None if tokenizer is None else LocalTokenizer.of(tokenizer)
        self._ends: frozenset[int] | None = None
        if end_tokens is not None:
            ends = (count(token, "end_tokens", minimum=0) for token in end_tokens)
            self._ends = frozenset(ends)
        self._wants_by_id = by_id
        self._top = None
        if top_logprobs is not None:
            self._top = count(top_logprobs, "top_logprobs")
        self._abilities: Abilities | None = None
        self._confirmed = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model={self._terms.model!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} holds connections and a key and can't be pickled: "
            "make one in each process."
        )

    def check(self, k: int | None = None) -> None:
        """Find out with public text what the server can do; later calls cost nothing.

        Everything else does this by itself when it is first used. `k` is how many
        likely tokens the server is to tell.

        Raises:
            PublicCallError: If the server does not answer, refuses the key, or tells no
                log-probabilities by the tokens' ids, or fewer than k.
            InvalidParameterError: If the model is unknown, the tokenizer another one,
                or one or end tokens are needed and not given.
        """
        result(self._wire.flow(self._checked(k)))

    async def acheck(self, k: int | None = None) -> None:
        """Find out what the server can do; see `check`."""
        await aresult(self._wire.flow(self._checked(k)))

    @property
    def name(self) -> str:
        """Kind of server, model, and a fingerprint of its tokenizer; no address.

        Models that servers give one name, and that have one tokenizer, share it: name
        them differently (vLLM: `--served-model-name`).
        """
        found = self._known()
        return f"{found.kind}:{self._terms.model}#{found.fingerprint}"

    @property
    def vocabulary_size(self) -> int | None:
        """Number of tokens, as the tokenizer says; None without one."""
        return None if self._tokenizer is None else self._tokenizer.size

    @property
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end a text."""
        return self._known().ends

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text that tokens spell, asking the server without a tokenizer.

        Raises:
            PublicCallError: If the server does not spell them.
        """
        ids = [int(token) for token in tokens]
        if self._tokenizer is not None:
            return self._tokenizer.decode(ids)
        return result(self._wire.flow(self._spelled(ids))) if ids else ""

    def top_tokens(self, prompts: Sequence[TokenPrompt], k: int) -> list[Tokens]:
        """Return the likeliest next tokens; see `NextTokenModel`."""
        return result(self._wire.flow(self._likeliest(prompts, k)))

    async def atop_tokens(self, prompts: Sequence[TokenPrompt], k: int) -> list[Tokens]:
        """Return the likeliest next tokens; see `NextTokenModel`."""
        return await aresult(self._wire.flow(self._likeliest(prompts, k)))

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
        return result(self._wire.flow(self._figures(prompts, tokens)))

    async def alog_probabilities(
        self, prompts: Sequence[TokenPrompt], tokens: Sequence[Tokens | None]
    ) -> list[LogProbabilities | None]:
        """Return how likely given tokens are; see `log_probabilities`."""
        return await aresult(self._wire.flow(self._figures(prompts, tokens)))

    def _known(self) -> Abilities:
        if self._abilities is None:
            self.check()
        found = self._abilities
        if found is None:
            raise PublicCallError("The server did not say what it can do.")
        return found

    def _checked(self, k: int | None = None) -> Steps[None]:
        """Ask what is not known yet of what the server can do."""
        if self._abilities is None:
            self._abilities = yield from probe(self._terms, self._tokenizer, self._ends)
        if self._wants_by_id and not self._abilities.by_id:
            raise InvalidParameterError(
                "by_id=True, and the server does not tell the log-probabilities of "
                "tokens that are named by id (logprob_token_ids; vLLM does)."
            )
        if k is not None:
            questions = self._questions(self._abilities)
            questions.require_size(count(k, "k"))
            wanted = questions.asked_for(k)
            if wanted > self._confirmed:
                yield from questions.confirm(wanted)
                self._confirmed = wanted

    def _questions(self, can: Abilities) -> Questions:
        named = can.by_id if self._wants_by_id is None else self._wants_by_id
        batch = self._batch if can.lists else 1
        return Questions(
            self._terms, can, self._tokenizer, batch, named, self._top or 0
        )

    def _likeliest(self, prompts: Sequence[TokenPrompt], k: int) -> Steps[list[Tokens]]:
        yield from self._checked(k)
        return (yield from self._questions(self._known()).likeliest(prompts, k))

    def _figures(
        self, prompts: Sequence[TokenPrompt], tokens: Sequence[Tokens | None]
    ) -> Steps[list[LogProbabilities | None]]:
        if len(prompts) != len(tokens):
            raise InvalidParameterError("prompts and tokens must be equally many.")
        named = [wanted for wanted in tokens if wanted is not None]
        if len(named) < len(tokens):
            raise InvalidParameterError(
                "A server is not asked for its whole vocabulary: give top_k_public=."
            )
        yield from self._checked()
        questions = self._questions(self._known())
        if named and not questions.by_id and not self._confirmed:
            yield from self._checked(max(map(len, named)))
        return (yield from questions.figures(prompts, named, self._confirmed))

    def _spelled(self, ids: list[int]) -> Steps[str]:
        yield from self._checked()
        (reply,) = yield [detokenize(self._terms, ids)]
        text = text_of(reply)
        if text is None:
            raise PublicCallError("The server did not spell tokens (/detokenize).")
        return text
