"""An OpenAI-compatible server in a few lines, for what needs no real model.

It answers as the vLLM of the server tests does, as far as those tests look: the label
that structured outputs or a biased token ask for, the errors for an unknown model, a
wrong key and a prompt that is too long. The same tests run on both.
"""

from __future__ import annotations

import json
from typing import Any

from support.servers.recording_proxy import Answer, Exchange

MODEL = "tiny"
KEY = "test-key"
LONGEST = 26_624
"""Characters of a prompt; vLLM refuses more for the tiny model without counting."""

SAYS = "They had a dry cough."


def scripted_provider(exchange: Exchange) -> Answer:
    """Answer one request as an OpenAI-compatible server does."""
    body = exchange.body
    if exchange.headers.get("authorization") != f"Bearer {KEY}":
        return Answer.of({"error": "Unauthorized"}, 401)
    if body["model"] != MODEL:
        return _error(404, f"The model `{body['model']}` does not exist.")
    if any(len(prompt) > LONGEST for prompt in exchange.prompts):
        return _error(400, "The prompt is longer than the model's context.")
    if (body.get("max_completion_tokens") or body.get("max_tokens") or 1) < 1:
        return _error(400, "max_tokens must be at least 1.")
    choices = body.get("structured_outputs", {}).get("choice", [SAYS])
    is_chat = "messages" in body
    if body.get("stream"):
        return _stream(choices[0], is_chat=is_chat)
    texts = [choices[0]] * (len(exchange.prompts) * (body.get("n") or 1))
    return Answer.of(completion(texts, is_chat=is_chat))


def completion(texts: list[Any], *, is_chat: bool = True) -> dict[str, Any]:
    """Return the body of an answer with these texts, or messages."""
    choices = [
        {
            "index": index,
            "finish_reason": "stop",
            **(_message(text) if is_chat else {"text": text}),
        }
        for index, text in enumerate(texts)
    ]
    return {
        "id": "1",
        "object": "chat.completion" if is_chat else "text_completion",
        "created": 1,
        "model": MODEL,
        "choices": choices,
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _message(content: Any) -> dict[str, Any]:
    message = content if isinstance(content, dict) else {"content": content}
    return {"message": {"role": "assistant", **message}}


def _stream(text: str, *, is_chat: bool) -> Answer:
    first, *rest = text.split(" ")
    pieces = []
    for word in (first, *(f" {word}" for word in rest)):
        said = {"delta": {"content": word}} if is_chat else {"text": word}
        chunk = {
            "id": "1",
            "object": "chat.completion.chunk" if is_chat else "text_completion",
            "created": 1,
            "model": MODEL,
            "choices": [{"index": 0, "finish_reason": None, **said}],
        }
        pieces.append(f"data: {json.dumps(chunk)}\n\n".encode())
    pieces.append(b"data: [DONE]\n\n")
    return Answer(200, tuple(pieces), {"content-type": "text/event-stream"})


def _error(status: int, message: str) -> Answer:
    return Answer.of({"error": {"message": message, "code": status}}, status)
