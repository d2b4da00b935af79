"""The requests that a completions server gets, and how its tokenizer's replies read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langchain_dpicl.few_shot.models.openai.wire import Call, Reply

PUBLIC_TEXTS = (
    "Write a short sentence about the weather.\nSentence:",
    "  Two spaces, a tab\tand naïve café 北京 🙂 1234567890.",
)
"""What servers are asked to find out what they can do: nothing private."""

TRIES = 20
"""How often a prompt is asked whose answer came back mutilated, as
`openai_questions.py` describes."""

LEAST_ASKED = 3
"""Fewest tokens asked for: a mutilated answer names two at most."""

UNSUPPORTED = (400, 422)
"""Statuses of a server that does not take an argument."""


@dataclass(frozen=True, repr=False)
class Terms:
    """How to ask: public, and the same for every prompt.

    Attributes:
        model: The model's name at the server.
        extra: More of every request's body, as the user set it.
        host: The server's host name.
    """

    model: str
    extra: dict[str, Any]
    host: str

    def completion(self, prompts: list[Any], logprobs: int, **more: Any) -> Call:
        """Return the request for one token after each prompt."""
        body: dict[str, Any] = {
            **self.extra,
            "model": self.model,
            "prompt": prompts,
            "max_tokens": 1,
            # Or the figures may be those of another distribution than the model's.
            "temperature": 1,
            "top_p": 1,
            "logprobs": logprobs,
        }
        return Call("/completions", {**body, **more})


IDS = {"return_tokens_as_token_ids": True}
PLAIN = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""Against a model's own defaults, which vLLM takes from its files."""


def tokenize(terms: Terms, text: str, *, special: bool = True) -> Call:
    """Return vLLM's request to cut up a text."""
    body = {"model": terms.model, "prompt": text, "add_special_tokens": special}
    return Call("../tokenize", body)


def tokens_of(reply: Reply) -> list[int] | None:
    """Read the tokens of a text, or None if there are none."""
    ids = reply.get("tokens") if isinstance(reply, dict) else None
    if not isinstance(ids, list) or not ids:
        return None
    return ids if all(type(token) is int for token in ids) else None


def detokenize(terms: Terms, tokens: list[int]) -> Call:
    """Return vLLM's request to spell tokens."""
    return Call("../detokenize", {"model": terms.model, "tokens": tokens})


def text_of(reply: Reply) -> str | None:
    """Read the text of tokens, or None if there is none."""
    text = reply.get("prompt") if isinstance(reply, dict) else None
    return text if isinstance(text, str) else None
