"""A completions server with known next-token probabilities, in a few lines.

It cuts texts up by characters, and what follows a prompt is drawn from a generator
seeded by the prompt, so that a test can say to the last digit what must come back.
`TokenServer()` answers as vLLM does; its fields make it any lesser server.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from support.servers.recording_proxy import Answer, Exchange
from support.servers.scripted_provider import KEY, MODEL

SIZE = 128
"""Tokens: the ASCII characters."""

END, END_TEXT = 0, "<|end|>"

LONGEST = 600
"""Most tokens of a prompt."""

REFUSALS = {400: "bad", 401: "key", 404: "nothing there"}


def encode(text: str) -> list[int]:
    if text == END_TEXT:
        return [END]
    return [min(ord(letter), SIZE - 1) for letter in text]


def decode(tokens: Sequence[int]) -> str:
    return "".join(END_TEXT if token == END else chr(token) for token in tokens)


class Letters:
    """The server's tokenizer, as a user may hold it."""

    eos_token_id = END

    def __len__(self) -> int:
        return SIZE

    def encode(self, text: str) -> list[int]:
        return encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        return decode(tokens)


def log_probs(prompt: str | Sequence[int]) -> np.ndarray:
    """Return the model's log-probabilities after a prompt, shape `(SIZE,)`."""
    ids = encode(prompt) if isinstance(prompt, str) else list(prompt)
    logits = np.random.default_rng([len(ids), *ids]).normal(0.0, 2.0, SIZE)
    return logits - math.log(np.exp(logits).sum())


@dataclass
class TokenServer:
    """A server; every field makes it different from vLLM.

    Attributes:
        marks: Whether it names tokens by their ids when it is asked to.
        strict: Whether it refuses arguments that it does not know.
        names: Whether it tells the figures of tokens that are named by id.
        most: Tokens that it tells at most.
        capped: Whether it tells fewer than asked for, and does not refuse.
        silent: Whether it tells no log-probabilities.
        draw: From log-probabilities to the token that it draws.
        edit: Changes a choice before it is sent; gets the prompt's tokens too.
    """

    marks: bool = True
    strict: bool = False
    names: bool = True
    most: int = SIZE
    capped: bool = False
    silent: bool = False
    draw: Callable[[np.ndarray], int] = field(default=lambda found: int(found.argmax()))
    edit: Callable[[list[int], dict[str, Any]], Any] = field(
        default=lambda _ids, choice: choice
    )

    def __call__(self, exchange: Exchange) -> Answer:
        if exchange.headers.get("authorization") != f"Bearer {KEY}":
            return refusal(401)
        body, path = exchange.body, exchange.path
        if path == "/v1/completions" and body["model"] == MODEL:
            return self._complete(body)
        return refusal(404)

    def _complete(self, body: dict[str, Any]) -> Answer:
        prompts = body["prompt"]
        ids = [encode(p) if isinstance(p, str) else p for p in prompts]
        wanted = body.get("logprobs") or 0
        named = body.get("logprob_token_ids") if self.names else None
        if any(not 0 < len(one) <= LONGEST for one in ids):
            return refusal(400)
        if self.strict and {"return_token_ids", "top_k"} & set(body):
            return refusal(400)
        if not named and wanted > self.most and not self.capped:
            return refusal(400)
        if named and not (len(named) == wanted <= SIZE and max(named) < SIZE):
            return refusal(400)
        choices = [
            self.edit(one, self._choice(one, body, min(wanted, self.most), index))
            for index, one in enumerate(ids)
        ]
        # Not in order: their numbers count.
        return Answer.of({"choices": choices[::-1]})

    def _choice(
        self, ids: list[int], body: dict[str, Any], wanted: int, index: int
    ) -> dict[str, Any]:
        found = log_probs(ids)
        drawn = self.draw(found)
        marked = self.marks and bool(body.get("return_tokens_as_token_ids"))
        named = body.get("logprob_token_ids") if self.names else None
        top = named or np.argsort(-found, kind="stable")[:wanted].tolist()
        said = [self._name(drawn, marked=marked)]
        choice: dict[str, Any] = {
            "index": index,
            "text": decode([drawn]),
        }
        if body.get("logprobs") is not None and not self.silent:
            reported = {
                self._name(token, marked=marked): max(float(found[token]), -9999.0)
                for token in [drawn, *top]
            }
            choice["logprobs"] = {
                "tokens": said,
                "token_logprobs": [float(found[drawn])],
                "top_logprobs": [reported],
            }
        if body.get("return_token_ids"):
            choice["prompt_token_ids"] = ids
        return choice

    def _name(self, token: int, *, marked: bool) -> str:
        return f"token_id:{token}" if marked else decode([token])


def refusal(status: int) -> Answer:
    """Return a refusal, with a word that must not be passed on."""
    message = f"{REFUSALS.get(status, 'broken')}: the server's own words"
    return Answer.of({"error": {"message": message}}, status, retry_after_ms="1")
