"""A collector of traces gets the question and the answer, and nothing private.

LangSmith is switched on by the environment of a process of its own, as an operator
does, and sends over HTTP in each of its forms.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import zstandard
from unit_tests.wall.marks import marks_in

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])
TESTS = Path(__file__).parents[2]
PROGRAM = """
import asyncio, contextlib, os
from urllib.request import urlopen
from faces import DPChain, VoteOutputParser, open_for_tests
from langsmith.run_trees import get_cached_client
from unit_tests.wall.leaky import AsyncLeakyModel, LeakyModel
from unit_tests.wall.ways import LABELS, QUESTION, corpus_account, groups

for wall in (contextlib.nullcontext, open_for_tests):
    with wall():
        for model in (LeakyModel, AsyncLeakyModel):
            chain = DPChain(
                groups=groups(sampled=False),
                model=model(script=lambda _prompt: None),
                parser=VoteOutputParser(labels=LABELS),
                budget=corpus_account(":memory:"),
            )
            chain.invoke(QUESTION)
            asyncio.run(chain.ainvoke(QUESTION))
    get_cached_client().flush()
    urlopen(os.environ["LANGSMITH_ENDPOINT"], b"all sent")
"""


class Collector(ThreadingHTTPServer):
    """Speaks as much of LangSmith's protocol as its client needs; keeps all bodies."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[tuple[str, bytes]] = []


class Handler(BaseHTTPRequestHandler):
    server: Collector
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        batches = {
            "use_multipart_endpoint": "/batch" not in self.path,
            "size_limit": 100,
            "size_limit_bytes": 20_000_000,
            "scale_up_nthreads_limit": 1,
            "scale_up_qsize_trigger": 1000,
            "scale_down_nempty_trigger": 4,
        }
        flags = {"zstd_compression_enabled": "/zstd" in self.path}
        self._reply({"instance_flags": flags, "batch_ingest_config": batches})

    def do_POST(self) -> None:
        body = b""
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        encoding = self.headers.get("Content-Encoding", "plain")
        if encoding == "gzip":
            body = gzip.decompress(body)
        elif encoding == "zstd":
            source = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(body))
            body = source.read()
        kind = self.headers.get("Content-Type", "").partition(";")[0]
        self.server.bodies.append((f"{kind} {encoding}", body))
        self._reply({})

    do_PATCH = do_POST  # noqa: N815

    def _reply(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


FORMS = {
    "zstd": "multipart/form-data zstd",
    "multipart": "multipart/form-data plain",
    "batch": "application/json plain",
}


def collected(collector: Collector, form: str) -> tuple[list[bytes], list[bytes]]:
    """Return what a process that is traced sends: behind the wall, and in the open."""
    address = f"http://127.0.0.1:{collector.server_address[1]}/{form}"
    given = {"TRACING": "true", "ENDPOINT": address, "API_KEY": "k", "PROJECT": "p"}
    environment = {
        **os.environ,
        **{f"LANGSMITH_{name}": value for name, value in given.items()},
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
    }
    program = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    subprocess.run(program, env=environment, check=True, timeout=240)
    assert FORMS[form] in {kind for kind, _ in collector.bodies}
    bodies = [body for _, body in collector.bodies]
    first = bodies.index(b"all sent")
    return bodies[:first], bodies[first:]


@pytest.mark.promise("a-collector-gets-no-record")
@pytest.mark.promise("a-collector-gets-no-record", twin=True)
@pytest.mark.parametrize(
    "form",
    ["zstd", *(pytest.param(form, marks=pytest.mark.whole) for form in (*FORMS,)[1:])],
)
def test_a_collector_gets_nothing_private(collector: Collector, form: str) -> None:
    sealed, in_the_open = collected(collector, form)
    assert marks_in(sealed) == []
    assert any(b"What did lisinopril give?" in body for body in sealed)
    with pytest.raises(AssertionError):
        assert marks_in(in_the_open) == []
