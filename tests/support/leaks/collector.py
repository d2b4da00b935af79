"""A trace collector on the loopback interface, which keeps whatever it is sent."""

from __future__ import annotations

import gzip
import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import zstandard

from support.leaks.canaries import STEMS, marker


class Collector(ThreadingHTTPServer):
    """Speaks as much of LangSmith's protocol as its client needs.

    A client whose path starts with `/zstd` is told that bodies may be compressed.
    """

    daemon_threads = True
    # A run's client opens a connection or two; nothing must wait for a free slot.
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[tuple[str, dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def bodies(self, path: str) -> list[bytes]:
        return [body for where, _, body in self.received if where.startswith(path)]

    def encodings(self, path: str) -> set[str]:
        return {
            f"{headers.get('content-type', '').partition(';')[0]} "
            f"{headers.get('content-encoding', 'plain')}"
            for where, headers, _ in self.received
            if where.startswith(path)
        }


class _Handler(BaseHTTPRequestHandler):
    server: Collector
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._reply(
            {
                "version": "0.13.0",
                "instance_flags": {
                    "zstd_compression_enabled": self.path.startswith("/zstd")
                },
                "batch_ingest_config": {
                    "use_multipart_endpoint": not self.path.startswith("/batch"),
                    "size_limit": 100,
                    "size_limit_bytes": 20_000_000,
                    "scale_up_nthreads_limit": 1,
                    "scale_up_qsize_trigger": 1000,
                    "scale_down_nempty_trigger": 4,
                },
            }
        )

    def do_POST(self) -> None:
        headers = {key.lower(): value for key, value in self.headers.items()}
        body = _decoded(self._body(), headers.get("content-encoding", ""))
        self.server.received.append((self.path, headers, body))
        self._reply(_completion(body) if "/openai/" in self.path else {})

    def do_PATCH(self) -> None:
        self.do_POST()

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        found = b""
        while size := int(self.rfile.readline(), 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def _reply(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing: the terminal is watched."""


def _completion(request: bytes) -> dict[str, Any]:
    """Return what an OpenAI-compatible server answers."""
    mark = marker("answer", request)
    message = {"role": "assistant", "content": f"cough {mark}"}
    tokens = int(STEMS["usage"])
    return {
        "id": mark,
        "object": "chat.completion",
        "created": 1,
        "model": f"model-{mark}",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": tokens,
            "completion_tokens": 1,
            "total_tokens": tokens + 1,
        },
    }


def _decoded(body: bytes, encoding: str) -> bytes:
    if encoding == "gzip":
        return gzip.decompress(body)
    if encoding == "zstd":
        with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(body)) as reader:
            return reader.read()
    return body


@contextmanager
def collecting() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
