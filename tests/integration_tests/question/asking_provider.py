"""A small OpenAI-compatible server, whose answers a test may spoil.

It answers chat requests and completion requests, the latter in lists. `answer` says
what comes back to one prompt, and `spoil` changes the choices of a reply.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
from langchain_openai import ChatOpenAI, OpenAI

Choices = list[dict[str, Any]]
_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Provider:
    """What the server says, and what it was asked.

    Args:
        answer: From a prompt to a text, or to the status of a refusal, or to None: the
            connection is closed.
    """

    def __init__(self, answer: Callable[[str], str | int | None]) -> None:
        self.answer = answer
        self.spoil: Callable[[list[str], Choices], Choices] = lambda _, choices: choices
        self.requests: list[list[str]] = []
        self.lock = threading.Lock()

    def reply(self, body: dict[str, Any]) -> tuple[int | None, dict[str, Any]]:
        """Return a status and a body."""
        is_chat = "messages" in body
        given = body["messages"][-1]["content"] if is_chat else body["prompt"]
        prompts = given if isinstance(given, list) else [given]
        with self.lock:
            self.requests.append(prompts)
        texts = [self.answer(prompt) for prompt in prompts]
        for text in texts:
            if not isinstance(text, str):
                return text, {"error": {"message": f"refused: {prompts}"}}
        choices = [
            {
                "index": index,
                "finish_reason": "stop",
                **(
                    {"message": {"role": "assistant", "content": text}}
                    if is_chat
                    else {"text": text}
                ),
            }
            for index, text in enumerate(texts)
        ]
        return 200, {
            "id": "1",
            "object": "chat.completion" if is_chat else "text_completion",
            "created": 1,
            "model": "tiny",
            "choices": self.spoil(prompts, choices),
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }


@contextmanager
def served(provider: Provider) -> Iterator[str]:
    """Serve a provider on the loopback; give its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            status, body = provider.reply(json.loads(self.rfile.read(length)))
            if status is None:
                self.close_connection = True
                return
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def client(kind: type[ChatOpenAI | OpenAI], url: str, **terms: Any) -> Iterator[Any]:
    """Make a client that retries nothing, and close its connections."""
    # Plain HTTP: to read certificates takes as long as a test.
    plain: dict[str, Any] = {"trust_env": False, "verify": _NO_CERTIFICATES}
    sync = httpx.Client(**plain)
    yield kind(
        model="tiny",
        api_key="none",
        base_url=url,
        max_retries=0,
        http_client=sync,
        http_async_client=httpx.AsyncClient(**plain),
        **terms,
    )
    sync.close()
