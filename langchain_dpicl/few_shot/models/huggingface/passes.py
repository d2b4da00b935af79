"""Forward passes of a transformers model: token ids in, logits of the next token out.

Each pass has one row, which is never padded: what is computed of it has no other row's
length in it. `TransformersNextToken` says under "Privacy" why.
"""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.errors import InvalidParameterError

# A prompt's token ids, those of what was generated after it among them.
Row = tuple[int, ...]
# Logits after a row, shape `(width,)`.
Logits = NDArray[np.float64]
_LIMITS = ("max_position_embeddings", "n_positions", "max_seq_len")


class ForwardPasses:
    """One model's forward passes, in evaluation mode and without gradients.

    `width` is the number of logits, that is of token ids, `reads` that of those the
    model can read, `limit` the most tokens of a row, None if the model names none.
    What is no causal model, or can't make a pass, is refused.
    """

    def __init__(self, model: Any, device: Any = None) -> None:
        config = getattr(model, "config", None)
        if config is None or not hasattr(model, "get_input_embeddings"):
            raise InvalidParameterError(
                "model must be a causal language model of transformers, such as "
                "AutoModelForCausalLM.from_pretrained(...) returns."
            )
        if getattr(config, "is_encoder_decoder", False):
            raise InvalidParameterError(
                "model is an encoder-decoder; a causal language model is needed."
            )
        self.model = model if device is None else model.to(device)
        text = (
            config.get_text_config() if hasattr(config, "get_text_config") else config
        )
        limits = [getattr(text, name, None) for name in _LIMITS]
        self.limit = min(
            (n for n in limits if isinstance(n, int) and n > 0), default=None
        )
        self.reads = int(model.get_input_embeddings().weight.shape[0])
        try:
            self.width = self.logits((0,)).size
        except Exception as error:
            raise InvalidParameterError(
                f"model can't make a forward pass: {type(error).__name__}."
            ) from error

    def logits(
        self, row: Row, *, prefix: Prefix | None = None, shared: int = 0
    ) -> Logits:
        """Return the logits of the token after a row.

        It begins with the first `shared` tokens of the prefix and is longer.
        """
        cache = prefix.taken(shared) if prefix else None
        return self._pass(row, cache, shared)[0]

    def grown(
        self, row: Row, prefix: Prefix | None, shared: int
    ) -> tuple[Logits, Prefix | None]:
        """Return the logits after a *public* row, and a prefix that covers it.

        The prefix is None where the model's cache can't be cut and shared: sliding
        windows, recurrent states and other caches than a plain growing one.
        """
        cache = prefix.taken(shared) if prefix else None
        logits, cache = self._pass(row, cache, shared, keep=True)
        return logits, Prefix(row, cache) if is_plain(cache, len(row)) else None

    def _pass(
        self, row: Row, cache: Any, shared: int, *, keep: bool = False
    ) -> tuple[Logits, Any]:
        import torch

        # A module in training mode drops units at random.
        if self.model.training:
            self.model.eval()
        device = self.model.get_input_embeddings().weight.device
        ids = torch.tensor([row[shared:]], dtype=torch.long, device=device)
        mask = torch.ones(1, len(row), dtype=torch.long, device=device)
        given = {} if cache is None else {_cache_argument(self.model): cache}
        with torch.no_grad(), _only_last(self.model, len(row) - shared):
            out = self.model(
                input_ids=ids,
                attention_mask=mask,
                use_cache=keep or cache is not None,
                return_dict=True,
                **given,
            )
        # As the output calls it, which need not be the argument's name.
        named = "cache" if hasattr(out, "cache") else "past_key_values"
        kept = getattr(out, named) if keep else None
        return out.logits[0, -1].cpu().double().numpy(), kept


def _cache_argument(model: Any) -> str:
    """Return the name under which a model takes its cache.

    transformers renamed `past_key_values` to `cache` in 5.24. A model with code of its
    own may have the old name still, and a wrapper may pass on whatever it is given.
    """
    from transformers.modeling_outputs import CausalLMOutputWithPast

    old = "past_key_values"
    if old in inspect.signature(model.forward).parameters:
        return old
    return "cache" if hasattr(CausalLMOutputWithPast, "cache") else old


@contextmanager
def _only_last(model: Any, length: int) -> Iterator[None]:
    """Let the output layer see the last of a row's positions alone.

    A vocabulary of 150,000 at every position would take more memory than the model.
    What a family does before and after that layer stays as it is. (Not every family
    takes `logits_to_keep`.)
    """
    layer = model.get_output_embeddings()
    thread = threading.get_ident()

    def cut(_module: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        hidden = arguments[0] if arguments else None
        if threading.get_ident() != thread or hidden is None:
            return None
        if hidden.shape[:-1] != (1, length):
            return None
        return (hidden[:, -1:].clone(), *arguments[1:])

    if layer is None:
        yield
        return
    hook = layer.register_forward_pre_hook(cut)
    try:
        yield
    finally:
        hook.remove()


@dataclass(frozen=True, repr=False)
class Prefix:
    """A *public* beginning of prompts and the model's cache of it.

    The cache holds keys and values of one row, and is never changed in place.
    """

    tokens: Row
    cache: Any

    def taken(self, length: int) -> Any:
        """Return a cache of the first `length` tokens.

        It shares memory with this one, which stays as it is: layers of this kind grow
        by making new tensors.
        """
        cache = copy.copy(self.cache)
        cache.layers = [copy.copy(layer) for layer in self.cache.layers]
        if length < len(self.tokens):
            cache.crop(length - len(self.tokens))
        return cache


class PublicPrefixes:
    """The *public* rows of late, the `most` last used ones.

    A group's prompt is another one at every token, as every token's sample is a fresh
    one: there is nothing of it to use again, and a cache of it would be private text
    that outlives its release.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[Prefix] = []

    def add(self, prefix: Prefix) -> None:
        """Keep a public prefix; one that it goes on from gives way to it."""
        kept = [
            other
            for other in self._kept
            if other.tokens != prefix.tokens[: len(other.tokens)]
        ]
        self._kept = [*kept, prefix][-self._most :] if self._most else []

    def best(self, row: Row, *, least: int = 1) -> tuple[Prefix | None, int]:
        """Return the prefix that saves most, and how many tokens of it are shared.

        The row must begin with what is shared, `least` tokens or more, and be longer.
        The answer depends on that row and on public rows alone.
        """
        found: Prefix | None = None
        most = least - 1
        for prefix in self._kept:
            shared = _shared(row[:-1], prefix.tokens)
            if shared > most:
                found, most = prefix, shared
        return found, most if found else 0


def _shared(row: Sequence[int], other: Sequence[int]) -> int:
    for place, (one, two) in enumerate(zip(row, other, strict=False)):
        if one != two:
            return place
    return min(len(row), len(other))


def is_plain(cache: Any, length: int) -> bool:
    """Tell whether a cache is keys and values of all tokens and nothing else."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    return (
        type(cache) is DynamicCache
        and bool(cache.layers)
        and all(type(layer) is DynamicLayer for layer in cache.layers)
        and cache.get_seq_length() == length
    )
