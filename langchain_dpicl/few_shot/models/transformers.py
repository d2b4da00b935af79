"""Next-token probabilities of a Hugging Face model in this process.

It needs torch and transformers: `pip install ".[hf]"`. Importing this module loads
neither.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
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
from langchain_dpicl.sealed import attempt

_LIMITS = ("max_position_embeddings", "n_positions", "max_seq_len")
_SAMPLE = "a"


class TransformersNextToken(NextTokenModel):
    """A causal language model of transformers, asked for next-token probabilities.

    A prompt is cut into tokens as the tokenizer does it for a text to go on from, BOS
    token included where it has one; generated tokens are added as ids. Probabilities
    are those of the model's whole output, in float64 from the logits on, before any
    temperature. Ids that the tokenizer has no token for (output layers are often wider
    than vocabularies) have log-probability `-inf`, and are never among the top tokens;
    what the model gives them is lost and nothing is scaled up.

    A prompt that is longer than the model's context, or empty, is None; so is one for
    which a pass fails or gives what is not a number. The model is put into evaluation
    mode. Threads may share an object: they take turns. A server of vLLM is many times
    as fast.

    Args:
        model: The model; on a GPU, if it was put there.
        tokenizer: Its tokenizer.
        device: Where to put the model; None leaves it where it is.
        name: The model's public name for the record. None takes its configuration's
            `name_or_path` without the folders, or else the family's name.
        revision: Which weights of that name these are, for the record: a commit of
            the hub, or a version of your own. You state it; a loaded model does not
            tell, and nothing is checked. Give models that differ, in precision or
            tokenizer too, names or revisions that differ: `resume` goes on with a model
            of the same name and revision.

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
        bit for bit, of that prompt, whatever the family, precision or quantization. The
        bound holds as stated. (Some GPU kernels add in random order: that is random,
        and no other prompt takes part in it.)

        This is for one process: threads, libraries and hardware are public and the
        same for every prompt. How long a call takes depends on its prompts. Nothing of
        a prompt is kept after a call. The tokenizer itself may keep words that it has
        cut before, in memory alone.

    Example:
        ```python
        name = "Qwen/Qwen2.5-0.5B"
        model = AutoModelForCausalLM.from_pretrained(name, revision=commit)
        tokenizer = AutoTokenizer.from_pretrained(name, revision=commit)
        TransformersNextToken(model, tokenizer, revision=commit)
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
        _check_kinds(model, tokenizer)
        self._model = model if device is None else model.to(device)
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        config = model.config
        text = getattr(config, "get_text_config", lambda: config)()
        limits = [getattr(text, limit, None) for limit in _LIMITS]
        self._limit = min(
            (n for n in limits if isinstance(n, int) and n > 0), default=0
        )
        parameters = inspect.signature(model.forward).parameters
        # A vocabulary of 150,000 at every position takes more memory than the model.
        self._last_only = {"logits_to_keep"} & parameters.keys()
        try:
            self._width = self._logits((0,)).size
        except Exception as error:
            raise InvalidParameterError(
                f"model can't make a forward pass: {type(error).__name__}."
            ) from error
        self._known = _known_ids(model, tokenizer, self._width)
        self._before = self._special_before()
        named = name or _public_name(model)
        self._name = f"{named}@{revision}" if revision else named
        self._ends = _end_tokens(model, tokenizer, self._width)

    def __repr__(self) -> str:
        return f"TransformersNextToken({self._name!r})"

    @property
    def name(self) -> str:
        """The model's public name, and after an @ its revision if one was stated."""
        return self._name

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids that the model tells probabilities of."""
        return self._width

    @property
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end a text, as the model's and the tokenizer's settings say."""
        return self._ends

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text that tokens spell; special tokens have none."""
        known = [int(t) for t in tokens if 0 <= t < self._width and self._known[t]]
        options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
        return str(self._tokenizer.decode(known, **options))

    def top_tokens(self, prompts: Sequence[TokenPrompt], k: int) -> list[Tokens]:
        """Return the k likeliest next tokens after each *public* prompt."""
        usable = int(self._known.sum())
        if count(k, "k") > usable:
            raise InvalidParameterError(f"k is {k} and there are {usable} tokens.")
        with self._lock:
            return [_likeliest(self._public(prompt), k) for prompt in prompts]

    def log_probabilities(
        self, prompts: Sequence[TokenPrompt], tokens: Sequence[Tokens | None]
    ) -> list[LogProbabilities | None]:
        """Return how likely given tokens are after each prompt.

        Raises:
            InvalidParameterError: If a token is none of the model's.
        """
        for asked in tokens:
            if asked is not None and not (0 <= min(asked) <= max(asked) < self._width):
                raise InvalidParameterError("A token is none of the model's.")
        # Equal prompts, as empty groups have, are computed once.
        known: dict[TokenPrompt, LogProbabilities | None] = {}
        result: list[LogProbabilities | None] = []
        with self._lock:
            for prompt, asked in zip(prompts, tokens, strict=True):
                if prompt not in known:
                    known[prompt] = attempt(partial(self._row, prompt))
                told = known[prompt]
                result.append(told if told is None or asked is None else told[asked])
        return result

    def _public(self, prompt: TokenPrompt) -> LogProbabilities:
        try:
            told = self._row(prompt)
        except (Warning, InvalidParameterError):
            raise  # A warning that Python was told to raise is no failure.
        except Exception as error:  # noqa: BLE001 - replaced by an error of ours
            failure = type(error).__name__
        else:
            if told is not None:
                return told
            failure = "its probabilities are not numbers"
        raise PublicCallError(f"The model failed on a public prompt: {failure}.")

    def _row(self, prompt: TokenPrompt) -> LogProbabilities | None:
        """Return all log-probabilities after one prompt; None for what can't be."""
        cut = self._cut(prompt.text, special=False)
        row = (*self._before, *cut, *prompt.generated)
        if not row:
            raise InvalidParameterError("A prompt is empty, or can't be cut up.")
        if self._limit and len(row) > self._limit:
            raise InvalidParameterError(
                f"A prompt has {len(row)} tokens; the model takes {self._limit}."
            )
        logits = self._logits(row)
        highest = logits.max()
        if not np.isfinite(highest):
            return None
        told: LogProbabilities = logits - highest
        told -= np.log(np.exp(told).sum())
        told[~self._known] = -np.inf
        np.minimum(told, 0.0, out=told)
        return told

    def _logits(self, row: Sequence[int]) -> LogProbabilities:
        """Return the logits after a row, from a pass that has it alone, unpadded."""
        import torch

        # A module in training mode drops units at random.
        if self._model.training:
            self._model.eval()
        device = self._model.get_input_embeddings().weight.device
        ids = torch.tensor([list(row)], dtype=torch.long, device=device)
        last = dict.fromkeys(self._last_only, 1)
        with torch.no_grad():
            out = self._model(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                use_cache=False,
                return_dict=True,
                **last,
            )
        logits: LogProbabilities = out.logits[0, -1].cpu().double().numpy()
        return logits

    def _cut(self, text: str, *, special: bool) -> list[int]:
        # Without `verbose=False` a long text's length goes to the log.
        cut = self._tokenizer(text, add_special_tokens=special, verbose=False)
        return list(cut["input_ids"])

    def _special_before(self) -> tuple[int, ...]:
        """Return the special tokens that stand before a text (a BOS token)."""
        plain = self._cut(_SAMPLE, special=False)
        full = self._cut(_SAMPLE, special=True)
        for start in range(len(full) - len(plain) + 1):
            if full[start : start + len(plain)] == plain:
                return tuple(full[:start])
        return ()


def _check_kinds(model: Any, tokenizer: Any) -> None:
    config = getattr(model, "config", None)
    if not hasattr(model, "get_input_embeddings") or getattr(
        config, "is_encoder_decoder", False
    ):
        raise InvalidParameterError(
            "model must be a causal language model of transformers, such as "
            "AutoModelForCausalLM.from_pretrained(...) returns, and no encoder-decoder."
        )
    if not hasattr(tokenizer, "get_vocab") or not callable(tokenizer):
        raise InvalidParameterError("tokenizer must be a tokenizer of transformers.")


def _known_ids(model: Any, tokenizer: Any, width: int) -> np.ndarray[Any, Any]:
    """Return whether the tokenizer has a token of each of the model's ids."""
    ids = sorted(set(tokenizer.get_vocab().values()))
    most = min(int(model.get_input_embeddings().weight.shape[0]), width)
    if not ids or ids[-1] >= most or ids[0] < 0:
        raise InvalidParameterError(
            f"The tokenizer's ids go up to {ids[-1] if ids else None} and the model "
            f"has {most} tokens: they do not belong together."
        )
    known = np.zeros(width, np.bool_)
    known[ids] = True
    return known


def _end_tokens(model: Any, tokenizer: Any, width: int) -> frozenset[int]:
    ends: set[int] = set()
    for owner in (getattr(model, "generation_config", None), model.config, tokenizer):
        value = getattr(owner, "eos_token_id", None)
        given = value if isinstance(value, list | tuple) else [value]
        ends.update(int(token) for token in given if token is not None)
    return frozenset(token for token in ends if 0 <= token < width)


def _public_name(model: Any) -> str:
    """Return what a model is called, without the folders that it was loaded from.

    Example:
        >>> from types import SimpleNamespace
        >>> config = SimpleNamespace(name_or_path="/home/me/gpt2", model_type="gpt2")
        >>> _public_name(SimpleNamespace(config=config))
        'gpt2'
    """
    given = str(getattr(model.config, "name_or_path", "") or "")
    if given and (Path(given).is_absolute() or Path(given).exists()):
        given = Path(given).name
    return given or str(getattr(model.config, "model_type", "") or "model")


def _likeliest(told: LogProbabilities, k: int) -> Tokens:
    tokens = np.argsort(-told, kind="stable")[:k].astype(np.int64)
    if told[tokens[-1]] == -np.inf:
        raise PublicCallError(f"The model gives fewer than {k} tokens.")
    return tokens
