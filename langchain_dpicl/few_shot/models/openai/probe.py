"""What a completions server can do, found out with public text alone.

Everything here is asked before any private prompt, and whatever is wrong is said here:
a key, a model, log-probabilities that are not told, a tokenizer that is another one.
Messages name the thing and the way out, and of the server's answer its status only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NoReturn

from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.few_shot.models.openai.replies import (
    Choice,
    by_id,
    choices,
    figures,
    refuse,
    succeeded,
)
from langchain_dpicl.few_shot.models.openai.tokenizers import LocalTokenizer
from langchain_dpicl.few_shot.models.openai.wire import (
    IDS,
    LEAST_ASKED,
    PLAIN,
    PUBLIC_TEXTS,
    TRIES,
    UNSUPPORTED,
    Call,
    Failure,
    Steps,
    Terms,
    detokenize,
    text_of,
    tokenize,
    tokens_of,
)

# How the token that ends a text is written in most models; each one is tried.
COMMON_ENDS = (
    "</s>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<eos>",
)
_NOT_FOUND = 404

_NO_LIST = (403, _NOT_FOUND, 405, 501)
"""Statuses of a server that does not list its models, or not to this key."""


@dataclass(frozen=True)
class Abilities:
    """What a server (of kind `vllm`, or `server` where it does not say so) can do.

    Attributes:
        options: What every request carries.
        lists: Whether it numbers the answers to a list, so that they can be matched.
        by_id: Whether it tells the probabilities of tokens that are named by id.
        fingerprint: Of its tokenizer: public, and the same in every process.
    """

    kind: str
    options: dict[str, Any]
    lists: bool
    by_id: bool
    ends: frozenset[int]
    fingerprint: str


def probe(
    terms: Terms, tokenizer: LocalTokenizer | None, ends: Collection[int] | None
) -> Steps[Abilities]:
    """Find out what a server can do, with the user's tokenizer and end tokens, if any.

    Raises:
        PublicCallError: If the server does not answer, or tells no log-probabilities
            by the tokens' ids.
        InvalidParameterError: If the model is unknown, the tokenizer another one, or a
            tokenizer or end tokens are needed and not given.
    """
    kind, knows = yield from _kind(terms)
    options = {**IDS, **(PLAIN if kind == "vllm" else {})}
    told, lists = yield from _first_answer(terms, options, knows=knows)
    ids = yield from _tokens_of_public_texts(terms, tokenizer, told)
    named = yield from _by_id(terms, options, ids[0])
    if ends is None:
        ends = tokenizer.ends if tokenizer else ()
        ends = ends or (yield from _ends(terms, options))
    # Of what no option of the server's changes.
    shown = json.dumps(ids).encode()
    return Abilities(
        kind=kind,
        options=options,
        lists=lists,
        by_id=named,
        ends=frozenset(ends),
        fingerprint=hashlib.sha256(shown).hexdigest()[:8],
    )


def _kind(terms: Terms) -> Steps[tuple[str, bool]]:
    """Return which server it is, and whether it has the model by its own account."""
    (reply,) = yield [Call("/models")]
    if isinstance(reply, Failure):
        # Only what will be so tomorrow: the name in the records depends on it.
        if reply.status not in _NO_LIST:
            refuse(reply, "which models it has")
        return "server", False
    data = reply.get("data") if isinstance(reply, dict) else None
    models = [one for one in data or [] if isinstance(one, dict)]
    ours = [one for one in models if one.get("id") == terms.model]
    is_vllm = any(one.get("owned_by") == "vllm" for one in ours or models)
    return "vllm" if is_vllm else "server", bool(ours)


def _first_answer(
    terms: Terms, options: dict[str, Any], *, knows: bool
) -> Steps[tuple[list[Choice], bool]]:
    """Ask for one log-probability after each of two texts, in a list if it can be.

    Return the answers, and whether lists can be sent.
    """
    texts = list(PUBLIC_TEXTS)
    more = {**options, "return_token_ids": True}
    (reply,) = yield [terms.completion(texts, 1, **more)]
    if isinstance(reply, Failure):
        if reply.status == _NOT_FOUND:
            _refuse_not_found(reply, terms, knows=knows)
        if reply.status in UNSUPPORTED:
            call = terms.completion(texts, 1)
            body = {k: v for k, v in (call.body or {}).items() if k != "logprobs"}
            (plain,) = yield [Call(call.path, body)]
            if succeeded(plain):
                _refuse_without_figures()
        refuse(reply, "the likeliest token after a public text, with logprobs=1")
    read = choices(reply, len(texts))
    lists = read is not None
    if read is None:
        replies = yield [terms.completion([text], 1, **more) for text in texts]
        alone = [choices(one, 1) for one in replies]
        read = [choice for one in alone for choice in one or ()]
        if None in alone:
            refuse(reply, "completions of two public texts, in a list and one by one")
    told = [choice for choice in read if choice is not None]
    if len(told) < len(texts):
        _refuse_without_figures()
    for choice in told:
        _require_figures(choice)
    return told, lists


def _refuse_not_found(failure: Failure, terms: Terms, *, knows: bool) -> NoReturn:
    if knows:
        raise PublicCallError(
            f"The server has the model, and no completions for it ({failure}). "
            "Next-token probabilities need the /completions endpoint; a model that has "
            "chat completions alone can't be used."
        )
    raise InvalidParameterError(
        f"The server has no model {terms.model!r}, or no /completions endpoint "
        f"({failure}): check model= and base_url= of the model."
    )


def _refuse_without_figures() -> NoReturn:
    raise PublicCallError(
        "The server tells no log-probabilities by the tokens' ids "
        "(logprobs, return_tokens_as_token_ids): use vLLM."
    )


def _require_figures(choice: Choice) -> None:
    read = figures(choice)
    if not read:
        raise PublicCallError(
            "What the server tells as log-probabilities can't be any: not a number, "
            "above 0, or more than 1 in all. Start vLLM with --logprobs-mode "
            "raw_logprobs."
        )
    if by_id(read) is None:
        _refuse_without_figures()


def _tokens_of_public_texts(
    terms: Terms, tokenizer: LocalTokenizer | None, told: list[Choice]
) -> Steps[list[list[int]]]:
    """Return the public texts' tokens, and require that all agree on them."""
    servers = [choice.prompt_ids for choice in told]
    if None in servers:
        raise PublicCallError(
            "The server does not tell a prompt's tokens (return_token_ids), so that "
            "nobody knows its tokenizer: use vLLM."
        )
    if tokenizer is not None:
        ids = [tokenizer.encode(text) for text in PUBLIC_TEXTS]
        if ids != servers:
            raise InvalidParameterError(
                "tokenizer= is not the model's: it cuts up public texts otherwise than "
                "the server does. Load the one of the very model that the server runs."
            )
        return ids
    replies = yield [tokenize(terms, text) for text in PUBLIC_TEXTS]
    asked = [tokens_of(reply) for reply in replies]
    (spelled,) = yield [detokenize(terms, asked[0] or [])]
    if None in asked or text_of(spelled) is None:
        raise InvalidParameterError(
            "The server does not cut up and spell texts (/tokenize and /detokenize, as "
            "vLLM has them beside /v1): pass tokenizer=, the model's own. Without one, "
            "generated tokens would have to be spelled and cut up again, and may "
            "become others."
        )
    if asked != servers:
        raise PublicCallError(
            "The server's /tokenize and its completions cut up a text differently: "
            "pass tokenizer=, the model's own."
        )
    return [found or [] for found in asked]


def _by_id(terms: Terms, options: dict[str, Any], ids: list[int]) -> Steps[bool]:
    """Return whether the server tells the figures of tokens that are named by id."""
    wanted = sorted({0, 1, *ids[:4]})
    choice = None
    for _ in range(TRIES):
        call = terms.completion(
            [PUBLIC_TEXTS[0]], len(wanted), logprob_token_ids=wanted, **options
        )
        (reply,) = yield [call]
        if isinstance(reply, Failure) and reply.status not in UNSUPPORTED:
            refuse(reply, "an option, with a public text")
        read = choices(reply, 1)
        choice = read[0] if read else None
        if choice is None or len(choice.top) >= LEAST_ASKED:
            break
    return choice is not None and set(wanted) <= set(by_id(choice.top) or {})


def _ends(terms: Terms, options: dict[str, Any]) -> Steps[frozenset[int]]:
    """Return the tokens after which the server says that a text has ended."""
    replies = yield [tokenize(terms, text, special=False) for text in COMMON_ENDS]
    found = [tokens_of(reply) or [] for reply in replies]
    tried = sorted({ids[0] for ids in found if len(ids) == 1})
    known = {**options, "max_tokens": 2}
    replies = yield [
        terms.completion([PUBLIC_TEXTS[0]], 1, **known, allowed_token_ids=[token])
        for token in tried
    ]
    ends = set()
    for token, reply in zip(tried, replies, strict=True):
        read = choices(reply, 1)
        if read and read[0] and read[0].ended and read[0].tokens == 1:
            ends.add(token)
    if not ends:
        raise InvalidParameterError(
            "The server does not say which token ends a text: pass end_tokens=, their "
            "ids, or end_tokens=() for texts that end by their length alone."
        )
    return frozenset(ends)
