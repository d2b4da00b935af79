"""What a completions server can do, found out with public text alone.

Everything here is asked before any private prompt, and whatever is wrong is said here:
a key, a model, log-probabilities that are not told, a tokenizer that is another one.
Messages name the thing and the way out, and of the server's answer its status only.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NoReturn

from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.few_shot.models.openai.replies import (
    ID_MARK,
    MASS_TOLERANCE,
    Choice,
    by_id,
    choices,
    figures,
    refuse,
    succeeded,
)
from langchain_dpicl.few_shot.models.openai.tokenizers import LocalTokenizer, Spellings
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
    """What a server (of kind `vllm`, `openai` or `server`) can do.

    Attributes:
        options: What every request carries.
        lists: Whether it numbers the answers to a list, so that they can be matched.
        by_id: Whether it tells the probabilities of tokens that are named by id.
        restricted: Whether it tells those among allowed tokens.
        whole: Whether it tells those of its whole vocabulary.
        tokenizes: Whether it cuts up and spells texts by itself.
        spellings: Which token a text means, where it tells texts and not ids.
        fingerprint: Of its tokenizer: public, and the same in every process.
    """

    kind: str
    options: dict[str, Any]
    lists: bool
    by_id: bool
    restricted: bool
    whole: bool
    tokenizes: bool
    vocabulary_size: int | None
    ends: frozenset[int]
    spellings: Spellings | None
    fingerprint: str


def probe(
    terms: Terms, tokenizer: LocalTokenizer | None, ends: Collection[int] | None
) -> Steps[Abilities]:
    """Find out what a server can do, with the user's tokenizer and end tokens, if any.

    Raises:
        PublicCallError: If the server does not answer, or tells no log-probabilities.
        InvalidParameterError: If the model is unknown, the tokenizer another one, or a
            tokenizer or end tokens are needed and not given.
    """
    kind, knows = yield from _kind(terms)
    told, options, lists = yield from _first_answer(terms, kind, knows=knows)
    has_ids = told[0].said.startswith(ID_MARK)
    spellings = None
    if not has_ids:
        if tokenizer is None:
            raise InvalidParameterError(
                "The server names tokens by their text, and not by ids "
                "(return_tokens_as_token_ids): pass tokenizer=, the model's own."
            )
        spellings = Spellings.of(tokenizer)
    ids = yield from _tokens_of_public_texts(terms, tokenizer, told)
    size = yield from _whole_vocabulary(terms, options, has_ids=has_ids)
    named = yield from _by_id(terms, options, ids[0], has_ids=has_ids)
    allowed = yield from _restricted(terms, options, ids[0], has_ids=has_ids)
    if ends is None:
        ends = tokenizer.ends if tokenizer else ()
        ends = ends or (yield from _ends(terms, options, has_ids=has_ids))
    if spellings is not None and not set(ends) <= spellings.known:
        raise InvalidParameterError(
            "An end token can't be told from others by its text; name others with "
            "end_tokens=."
        )
    # Of what no option of the server's changes.
    shown = json.dumps(ids).encode()
    return Abilities(
        kind=kind,
        options=options,
        lists=lists,
        by_id=named,
        restricted=allowed,
        whole=size is not None,
        tokenizes=tokenizer is None,
        vocabulary_size=size or (tokenizer.size if tokenizer else None),
        ends=frozenset(ends),
        spellings=spellings,
        fingerprint=hashlib.sha256(shown).hexdigest()[:8],
    )


def _kind(terms: Terms) -> Steps[tuple[str, bool]]:
    """Return which server it is, and whether it has the model by its own account."""
    (reply,) = yield [Call("/models")]
    if isinstance(reply, Failure):
        # Only what will be so tomorrow: the name in the records depends on it.
        if reply.status not in _NO_LIST:
            refuse(reply, "which models it has")
        return _kind_by_host(terms), False
    data = reply.get("data") if isinstance(reply, dict) else None
    models = [one for one in data or [] if isinstance(one, dict)]
    ours = [one for one in models if one.get("id") == terms.model]
    if any(one.get("owned_by") == "vllm" for one in ours or models):
        return "vllm", bool(ours)
    return _kind_by_host(terms), bool(ours)


def _kind_by_host(terms: Terms) -> str:
    return "openai" if terms.host.endswith("openai.com") else "server"


def _first_answer(
    terms: Terms, kind: str, *, knows: bool
) -> Steps[tuple[list[Choice], dict[str, Any], bool]]:
    """Ask for one log-probability after each of two texts, in a list if it can be.

    Return the answers, what to send along, and whether lists can be sent.
    """
    options = {**IDS, **(PLAIN if kind == "vllm" else {})} if kind != "openai" else {}
    texts = list(PUBLIC_TEXTS)
    more = {**options, "return_token_ids": True} if options else {}
    (reply,) = yield [terms.completion(texts, 1, **more)]
    if more and isinstance(reply, Failure) and reply.status in UNSUPPORTED:
        options, more = {}, {}
        (reply,) = yield [terms.completion(texts, 1)]
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
        _require_possible(choice)
    return told, options, lists


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
        "The server tells no log-probabilities. Use one that does, such as vLLM; "
        "llama.cpp's Python server needs logits_all."
    )


def _require_possible(choice: Choice, *, whole: bool = False) -> dict[str, float]:
    read = figures(choice)
    mass = math.fsum(map(math.exp, read.values())) if read else 0.0
    if not read or (whole and abs(mass - 1) > MASS_TOLERANCE):
        raise PublicCallError(
            "What the server tells as log-probabilities can't be any: not a number, "
            "above 0, or not 1 in all. Start vLLM with --logprobs-mode raw_logprobs."
        )
    return read


def _tokens_of_public_texts(
    terms: Terms, tokenizer: LocalTokenizer | None, told: list[Choice]
) -> Steps[list[list[int]]]:
    """Return the public texts' tokens, and require that all agree on them."""
    servers = [choice.prompt_ids for choice in told]
    if tokenizer is not None:
        ids = [tokenizer.encode(text) for text in PUBLIC_TEXTS]
        if None in servers:
            yield from _compare_counts(terms, ids)
        elif ids != servers:
            _refuse_tokenizer()
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
    if None not in servers and asked != servers:
        raise PublicCallError(
            "The server's /tokenize and its completions cut up a text differently: "
            "pass tokenizer=, the model's own."
        )
    return [found or [] for found in asked]


def _compare_counts(terms: Terms, ids: list[list[int]]) -> Steps[None]:
    """Compare what the server counts of a text, and of its tokens as we have them."""
    prompts: list[Any] = [*PUBLIC_TEXTS, *ids]
    replies = yield [terms.completion([prompt], 1) for prompt in prompts]
    counts = []
    for reply in replies:
        if isinstance(reply, Failure):
            refuse(reply, "a public text as token ids")
        usage = reply.get("usage") if isinstance(reply, dict) else None
        counts.append(usage.get("prompt_tokens") if isinstance(usage, dict) else None)
    half = len(PUBLIC_TEXTS)
    expected = [len(found) for found in ids]
    if None in counts:
        raise PublicCallError(
            "The server does not say how many tokens a prompt has, so that the "
            "tokenizer can't be checked."
        )
    if counts[:half] != expected or counts[half:] != expected:
        _refuse_tokenizer()


def _refuse_tokenizer() -> NoReturn:
    raise InvalidParameterError(
        "tokenizer= is not the model's: it cuts up public texts otherwise than the "
        "server does. Load the one of the very model that the server runs."
    )


def _ask(terms: Terms, logprobs: int, **more: Any) -> Steps[Choice | None]:
    """Ask after the first public text; None where the server does not take it."""
    choice = None
    for _ in range(TRIES):
        (reply,) = yield [terms.completion([PUBLIC_TEXTS[0]], logprobs, **more)]
        if isinstance(reply, Failure) and reply.status not in UNSUPPORTED:
            refuse(reply, "an option, with a public text")
        read = choices(reply, 1)
        choice = read[0] if read else None
        if choice is None or len(choice.top) >= LEAST_ASKED:
            break
    return choice


def _whole_vocabulary(
    terms: Terms, options: dict[str, Any], *, has_ids: bool
) -> Steps[int | None]:
    """Return the vocabulary's size if the server tells all of it.

    It must be known before more tokens than it has are asked for: where its limit
    allows that, vLLM 0.32 does not refuse it, but ends.
    """
    if not has_ids:
        return None
    choice = yield from _ask(terms, -1, **options)
    reported = by_id(choice.top) if choice else None
    if not choice or not reported or set(reported) != set(range(len(reported))):
        return None
    _require_possible(choice, whole=True)
    return len(reported)


def _by_id(
    terms: Terms, options: dict[str, Any], ids: list[int], *, has_ids: bool
) -> Steps[bool]:
    """Return whether the server tells the figures of tokens that are named by id."""
    if not has_ids:
        return False
    wanted = sorted({0, 1, *ids[:4]})
    choice = yield from _ask(terms, len(wanted), logprob_token_ids=wanted, **options)
    return choice is not None and set(wanted) <= set(by_id(choice.top) or {})


def _restricted(
    terms: Terms, options: dict[str, Any], ids: list[int], *, has_ids: bool
) -> Steps[bool]:
    """Return whether allowed tokens are the only ones that the server tells of.

    vLLM does so with `--logprobs-mode processed_logprobs`.
    """
    if not has_ids:
        return False
    wanted = sorted(set(ids))[:LEAST_ASKED]
    choice = yield from _ask(terms, len(wanted), allowed_token_ids=wanted, **options)
    reported = by_id(choice.top) if choice else None
    if not reported or set(reported) != set(wanted):
        return False
    mass = math.fsum(map(math.exp, reported.values()))
    return abs(mass - 1) <= MASS_TOLERANCE


def _ends(
    terms: Terms, options: dict[str, Any], *, has_ids: bool
) -> Steps[frozenset[int]]:
    """Return the tokens after which the server says that a text has ended."""
    replies = yield [tokenize(terms, text, special=False) for text in COMMON_ENDS]
    found = [tokens_of(reply) or [] for reply in replies]
    tried = sorted({ids[0] for ids in found if len(ids) == 1})
    replies = []
    if has_ids and tried:
        known = {**options, "max_tokens": 2}
        replies = yield [
            terms.completion([PUBLIC_TEXTS[0]], 1, **known, allowed_token_ids=[token])
            for token in tried
        ]
    ends = set()
    for token, reply in zip(tried, replies, strict=False):
        read = choices(reply, 1)
        if read and read[0] and read[0].ended and read[0].tokens == 1:
            ends.add(token)
    if not ends:
        raise InvalidParameterError(
            "The server does not say which token ends a text: pass end_tokens=, their "
            "ids, or end_tokens=() for texts that end by their length alone."
        )
    return frozenset(ends)
