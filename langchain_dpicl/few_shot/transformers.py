"""Next-token probabilities of a Hugging Face model in this process.

It needs torch and transformers: `pip install ".[hf]"`. Importing this module loads
neither.
"""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from langchain_dpicl.common.parameters import count
from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.few_shot.model import (
    LogProbabilities,
    NextTokenModel,
    TokenPrompt,
    Tokens,
    public_call,
)
from langchain_dpicl.sealed import attempt

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
        name: The model's public name for the record, such as `gpt2@COMMIT`. None takes
            its configuration's `name_or_path` without the folders, or else the family's
            name. A loaded model does not tell which weights it has: give models that
            differ, in precision or tokenizer too, names that differ. `resume` goes on
            with a model of the same name.

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
        model = AutoModelForCausalLM.from_pretrained("gpt2", revision=commit)
        tokenizer = AutoTokenizer.from_pretrained("gpt2", revision=commit)
        TransformersNextToken(model, tokenizer, name=f"gpt2@{commit}")
        ```
    """

    def __init__(self, model: Any, tokenizer: Any, *, name: str | None = None) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._lock = threading.Lock()
        try:
            config = getattr(model.config, "get_text_config", lambda: model.config)()
            self._limit = getattr(config, "max_position_embeddings", None) or math.inf
            parameters = inspect.signature(model.forward).parameters
            # A vocabulary of 150,000 at every position takes more memory than a model.
            self._last_only = {"logits_to_keep"} & parameters.keys()
            self._width = self._logits((0,)).size
            self._before = self._special_before()
            self._ends = _end_tokens(model, tokenizer, self._width)
            ids = sorted(set(tokenizer.get_vocab().values()))
        except Exception as error:
            raise InvalidParameterError(
                "model must be a causal language model of transformers, and tokenizer "
                "its tokenizer, as AutoModelForCausalLM and AutoTokenizer load them: "
                f"they can't be asked ({type(error).__name__})."
            ) from error
        most = min(int(model.get_input_embeddings().weight.shape[0]), self._width)
        if ids[-1] >= most:
            raise InvalidParameterError(
                f"The tokenizer's ids go up to {ids[-1]} and the model has {most} "
                "tokens: they do not belong together."
            )
        self._known = np.isin(np.arange(self._width), ids)
        self._name = name or _public_name(model)

    def __repr__(self) -> str:
        return f"TransformersNextToken({self._name!r})"

    @property
    def name(self) -> str:
        """The model's public name."""
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
        with self._lock:
            return str(self._tokenizer.decode(known, **options))

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, as a prompt of it is cut."""
        with self._lock:
            return [*self._before, *self._cut(text, special=False)]

    def require_room(self, prompts: Sequence[TokenPrompt]) -> None:
        """Refuse public prompts that are too long for the model."""
        with self._lock:
            for prompt in prompts:
                self._ids(prompt)

    def top_tokens(self, prompts: Sequence[TokenPrompt], k: int) -> list[Tokens]:
        """Return the k likeliest next tokens after each *public* prompt."""
        usable = int(self._known.sum())
        if count(k, "k") > usable:
            raise InvalidParameterError(f"k is {k} and there are {usable} tokens.")
        with self._lock, public_call("answer a prompt without records"):
            rows = [self._row(prompt) for prompt in prompts]
        return [_likeliest(row, k) for row in rows]

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

    def _ids(self, prompt: TokenPrompt) -> tuple[int, ...]:
        """Return the tokens of one prompt; refuse too few and too many."""
        cut = self._cut(prompt.text, special=False)
        row = (*self._before, *cut, *prompt.generated)
        if not row:
            raise InvalidParameterError("A prompt is empty, or can't be cut up.")
        if len(row) > self._limit:
            raise InvalidParameterError(
                f"A prompt has {len(row)} tokens; the model takes {self._limit}."
            )
        return row

    def _row(self, prompt: TokenPrompt) -> LogProbabilities | None:
        """Return all log-probabilities after one prompt; None for what can't be."""
        logits = self._logits(self._ids(prompt))
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


def _likeliest(row: LogProbabilities | None, k: int) -> Tokens:
    if row is None:
        raise PublicCallError("The model's probabilities are not numbers.")
    tokens = np.argsort(-row, kind="stable")[:k].astype(np.int64)
    if row[tokens[-1]] == -np.inf:
        raise PublicCallError(f"The model gives fewer than {k} tokens.")
    return tokens
