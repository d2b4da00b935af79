"""Next-token probabilities of a Hugging Face model in this process.

It needs torch and transformers: `pip install ".[hf]"`. Importing this
module loads neither.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from langchain_dpicl.common.parameters import count
from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.few_shot.models.contract import (
    LogProbabilities,
    NextTokenModel,
    TokenPrompt,
    Tokens,
)
from langchain_dpicl.few_shot.models.huggingface.passes import (
    ForwardPasses,
    Logits,
    PublicPrefixes,
    Row,
)
from langchain_dpicl.few_shot.models.huggingface.tokens import PromptTokens, public_name
from langchain_dpicl.sealed import attempt

_LOADING = ("cache_dir", "force_download", "local_files_only", "revision", "subfolder")
_TRUSTING = ("token", "trust_remote_code")

# Fewest shared tokens for which a private prompt is computed from a public prefix.
WORTH = 16
PUBLIC_CACHES = 16  # How many public prompts' keys and values are kept.


class TransformersNextToken(NextTokenModel):
    """A causal language model of transformers, asked for next-token probabilities.

    A prompt is cut into tokens as the tokenizer does it for a text to go on from, BOS
    token included where it has one; generated tokens are added as ids. Probabilities
    are those of the model's whole output, in float64 from the logits on, before any
    temperature. Ids that the tokenizer has no token for (output layers are often wider
    than vocabularies) have probability 0, log-probability `-inf`, and are never among
    the top tokens; what the model gives them is lost and nothing is scaled up.

    A prompt that is longer than the model's context, or empty, is None; so is one for
    which a pass fails or gives what is not a number. The model is put into evaluation
    mode. Threads may share an object: they take turns.

    Args:
        model: The model; on a GPU, if it was put there.
        tokenizer: Its tokenizer.
        device: Where to put the model; None leaves it where it is.
        name: The model's public name for the record. None takes its configuration's
            `name_or_path` without the folders, or else the family's name.
        revision: Which weights of that name these are, for the record: a commit of
            the hub, or a version of your own. You state it; a loaded model does not
            tell, and nothing is checked. Without one the record has the name alone.
            Give models that differ, in precision or tokenizer too, names or revisions
            that differ: `resume` goes on with a model of the same name and revision.

    Raises:
        InvalidParameterError: If tokenizer and model do not belong together, or the
            model can't make a pass.

    Privacy:
        A release's sensitivity assumes that one unit's change reaches one slot. In
        exact arithmetic a prompt's probabilities do not depend on what it is batched
        with. In floating point they do in their last bits: kernels add in an order
        that follows the *shape* of a batch, and shape follows the longest prompt. One
        unit's longer record would move other slots by some 1e-6 (float32) or 1e-2
        (bfloat16), and from there over an edge of the mechanism's grid. Rounding
        before that only makes it rarer; no rounding has no edges.

        So each prompt has a forward pass of its own. What is said of it is a function,
        bit for bit, of that prompt and of public prompts asked before, whatever the
        family, precision or quantization. The bound holds as stated. (Some GPU kernels
        add in random order: that is random, and no other prompt takes part in it.)

        This is for one process: threads, libraries and hardware are public and the
        same for every prompt. How long a call takes depends on its prompts.
        Only public prompts' keys and values are kept after a call. The tokenizer
        itself may keep words that it has cut before, in memory alone.

    Example:
        ```python
        model = TransformersNextToken.from_pretrained("Qwen/Qwen2.5-0.5B")
        ```
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        device: Any = None,
        name: str | None = None,
        revision: str | None = None,
    ) -> None:
        self._passes = ForwardPasses(model, device)
        self._tokens = PromptTokens(tokenizer, self._passes.reads, self._passes.width)
        self._end_tokens = self._tokens.end_tokens(model)
        named = name or public_name(model)
        self._name = f"{named}@{revision}" if revision else named
        self._lock = threading.Lock()
        self._prefixes = PublicPrefixes(PUBLIC_CACHES)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str,
        *,
        revision: str | None = None,
        model_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> TransformersNextToken:
        """Load a model and its tokenizer from the Hugging Face hub or a folder.

        Args:
            name_or_path: The model's name on the hub, or its folder.
            revision: The commit, tag or branch to load, which the record then names.
                A branch moves: name a commit. A folder has none: state your own.
            model_kwargs: Other arguments of `AutoModelForCausalLM.from_pretrained`,
                such as `dtype` or `device_map`.
            kwargs: Arguments of this class.

        Raises:
            ImportError: If torch or transformers are not installed.
            OSError: If there is no such model; as transformers raise it.
            InvalidParameterError: As the class does.
        """
        try:
            from transformers import AutoModelForCausalLM, AutoTokenizer
        except ImportError as error:
            raise ImportError(
                "TransformersNextToken needs torch and transformers: "
                "pip install torch 'transformers>=5'."
            ) from error
        given = dict(model_kwargs or {})
        if revision is not None:
            given["revision"] = revision
        common = {key: given[key] for key in (*_LOADING, *_TRUSTING) if key in given}
        tokenizer = AutoTokenizer.from_pretrained(name_or_path, **common)
        model = AutoModelForCausalLM.from_pretrained(name_or_path, **given)
        return cls(model, tokenizer, revision=given.get("revision"), **kwargs)

    def __repr__(self) -> str:
        return f"TransformersNextToken({self._name!r})"

    @property
    def name(self) -> str:
        """The model's public name, and after an @ its revision if one was stated."""
        return self._name

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids that the model tells probabilities of."""
        return self._passes.width

    @property
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end a text, as the model's and the tokenizer's settings say."""
        return self._end_tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text that tokens spell; special tokens have none."""
        return self._tokens.spelled(tokens)

    def top_tokens(self, prompts: Sequence[TokenPrompt], k: int) -> list[Tokens]:
        """Return the k likeliest next tokens after each *public* prompt.

        What is computed of them is kept, and serves the prompts that begin like them.
        """
        wanted = count(k, "k")
        usable = int(self._tokens.known.sum())
        if wanted > usable:
            raise InvalidParameterError(f"k is {wanted} and there are {usable} tokens.")
        with self._lock:
            rows = [self._public_row(prompt) for prompt in prompts]
            found = {row: _likeliest(self._public(row), wanted) for row in rows}
        return [found[row].copy() for row in rows]

    def log_probabilities(
        self, prompts: Sequence[TokenPrompt], tokens: Sequence[Tokens | None]
    ) -> list[LogProbabilities | None]:
        """Return how likely given tokens are after each prompt.

        Raises:
            InvalidParameterError: If there are not as many token sets as prompts, or a
                token is none of the model's.
        """
        if len(prompts) != len(tokens):
            raise InvalidParameterError("Each prompt needs its tokens, or None.")
        for asked in tokens:
            if asked is not None and not _within(asked, self._passes.width):
                raise InvalidParameterError("A token is none of the model's.")
        # Equal prompts are computed once, in the order of the call: what rows say does
        # not order the passes. Logits of all at once would be gigabytes.
        places: dict[Row, list[int]] = {}
        found: list[LogProbabilities | None] = [None] * len(prompts)
        with self._lock:
            for place, prompt in enumerate(prompts):
                row = self._row(prompt)
                if row is not None:
                    places.setdefault(row, []).append(place)
            for row, its_places in places.items():
                logits = attempt(partial(self._alone, row))
                if logits is not None:
                    for place in its_places:
                        found[place] = self._said(logits, tokens[place])
        return found

    def _row(self, prompt: TokenPrompt) -> Row | None:
        """Return a prompt's ids, None where it can't be asked; by itself alone."""
        row = attempt(partial(self._tokens.ids, prompt))
        limit = self._passes.limit
        if not row or (limit is not None and len(row) > limit):
            return None
        return row

    def _alone(self, row: Row) -> Logits:
        """Return the logits after a row, from a pass that has it alone.

        They are a function of that row and of the public prefixes, and nothing else.
        """
        prefix, shared = self._prefixes.best(row, least=WORTH)
        return self._passes.logits(row, prefix=prefix, shared=shared)

    def _public_row(self, prompt: TokenPrompt) -> Row:
        row = attempt(partial(self._tokens.ids, prompt))
        if not row:
            raise InvalidParameterError("A public prompt is empty, or can't be cut up.")
        if self._passes.limit is not None and len(row) > self._passes.limit:
            raise InvalidParameterError(
                f"A public prompt has {len(row)} tokens; the model takes "
                f"{self._passes.limit}."
            )
        return row

    def _public(self, row: Row) -> LogProbabilities:
        prefix, shared = self._prefixes.best(row)
        try:
            logits, grown = self._passes.grown(row, prefix, shared)
        except Warning:
            raise  # Python was told to make warnings errors: the model did not fail.
        except Exception as error:  # noqa: BLE001 - replaced by an error of ours
            failure = type(error).__name__
        else:
            if grown is not None:
                self._prefixes.add(grown)
            said = self._said(logits, None)
            if said is not None:
                return said
            failure = "its probabilities are not numbers"
        raise PublicCallError(f"The model failed on a public prompt: {failure}.")

    def _said(self, logits: Logits, tokens: Tokens | None) -> LogProbabilities | None:
        """Return log-probabilities of one row's logits, None for what can't be."""
        highest = logits.max()
        if not np.isfinite(highest):
            return None
        said: LogProbabilities = logits - highest
        said -= np.log(np.exp(said).sum())
        said[~self._tokens.known] = -np.inf
        np.minimum(said, 0.0, out=said)
        if tokens is None:
            return said
        asked: LogProbabilities = said[np.asarray(tokens, dtype=np.int64)]
        return asked


def _within(tokens: Tokens, size: int) -> bool:
    asked = np.asarray(tokens)
    return bool(
        asked.ndim == 1
        and (not asked.size or np.issubdtype(asked.dtype, np.integer))
        and (not asked.size or (asked.min() >= 0 and asked.max() < size))
    )


def _likeliest(said: LogProbabilities, k: int) -> Tokens:
    possible = np.flatnonzero(said > -np.inf)
    if possible.size < k:
        raise PublicCallError(
            f"The model gives {possible.size} tokens, {k} are needed."
        )
    edge = np.partition(said[possible], possible.size - k)[possible.size - k]
    among = possible[said[possible] >= edge]
    order = np.argsort(-said[among], kind="stable")[:k]
    return np.asarray(among[order], dtype=np.int64)
