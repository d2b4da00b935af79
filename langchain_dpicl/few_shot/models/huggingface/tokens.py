"""A tokenizer of transformers as a generator needs it, and a model's name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.few_shot.models.contract import TokenPrompt

_SAMPLE = "a"


class PromptTokens:
    """Cuts prompts into tokens and spells tokens.

    A prompt gets the special tokens that the tokenizer puts *before* a text (a BOS
    token, where it has one), and none after it: the text goes on.

    `reads` is the number of token ids that the model reads, `width` that of those it
    tells probabilities of. `known` says for each of the model's ids whether the
    tokenizer has a token of that id: models often have more, to fill a matrix. What is
    no tokenizer, or has ids that the model has not, is refused.
    """

    def __init__(self, tokenizer: Any, reads: int, width: int) -> None:
        if not hasattr(tokenizer, "get_vocab") or not callable(tokenizer):
            raise InvalidParameterError(
                "tokenizer must be a tokenizer of transformers."
            )
        self.tokenizer = tokenizer
        ids = np.array(sorted(set(tokenizer.get_vocab().values())), dtype=np.int64)
        if not ids.size or ids[-1] >= min(reads, width) or ids[0] < 0:
            raise InvalidParameterError(
                f"The tokenizer's ids go up to {ids[-1] if ids.size else None} and the "
                f"model has {min(reads, width)} tokens: they do not belong together."
            )
        self.known: NDArray[np.bool_] = np.zeros(width, dtype=np.bool_)
        self.known[ids] = True
        self._reads = reads
        self._before = self._special_before()

    def end_tokens(self, model: Any) -> frozenset[int]:
        """Return the ids that end a text, as model and tokenizer say."""
        found: set[int] = set()
        generation = getattr(model, "generation_config", None)
        for owner in (generation, model.config, self.tokenizer):
            value = getattr(owner, "eos_token_id", None)
            given = value if isinstance(value, list | tuple) else [value]
            found.update(int(token) for token in given if token is not None)
        return frozenset(token for token in found if 0 <= token < self.known.size)

    def ids(self, prompt: TokenPrompt) -> tuple[int, ...]:
        """Return a prompt's token ids, and after them the generated ones."""
        if any(not 0 <= token < self._reads for token in prompt.generated):
            raise ValueError("A generated token is none of the model's.")
        return (*self._before, *self._cut(prompt.text), *prompt.generated)

    def spelled(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens; special and unknown ones have none."""
        known = [
            int(token)
            for token in tokens
            if 0 <= token < self.known.size and self.known[token]
        ]
        return str(
            self.tokenizer.decode(
                known, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )

    def _cut(self, text: str, *, special: bool = False) -> list[int]:
        # Without `verbose=False` a long text's length goes to the log.
        cut = self.tokenizer(text, add_special_tokens=special, verbose=False)
        return list(cut["input_ids"])

    def _special_before(self) -> tuple[int, ...]:
        plain = self._cut(_SAMPLE)
        full = self._cut(_SAMPLE, special=True)
        for start in range(len(full) - len(plain) + 1):
            if full[start : start + len(plain)] == plain:
                return tuple(full[:start])
        return ()


def public_name(model: Any) -> str:
    """Return what a model is called, without the folders that it was loaded from.

    Example:
        >>> from types import SimpleNamespace
        >>> config = SimpleNamespace(name_or_path="/home/me/gpt2", model_type="gpt2")
        >>> public_name(SimpleNamespace(config=config))
        'gpt2'
    """
    given = str(getattr(model.config, "name_or_path", "") or "")
    if given and (Path(given).is_absolute() or Path(given).exists()):
        given = Path(given).name
    return given or str(getattr(model.config, "model_type", "") or "model")
