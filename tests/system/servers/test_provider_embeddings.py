"""`OpenAIEmbeddings` over real HTTP: what shares a request, what can be mixed up.

The client sends lists, cuts long texts up, and takes the vectors of an answer by their
place, whatever `index` says.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import openai
import pytest
from langchain_core.documents import Document
from langchain_openai import OpenAIEmbeddings
from support.embedding_fakes import INNER, POISON, unit_of
from support.servers.recording_proxy import Answer, Exchange, RecordingProxy

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.embedding_calls import each_call

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""All of this is plain HTTP, and certificates take as long to read as a test."""

ANSWERS = [f"unit-{i} had a dry cough {'often ' * (i % 5)}" for i in range(24)]


class Letters:
    """Stands for tiktoken's encodings, which are downloaded: a token is a letter."""

    def encode_ordinary(self, text: str) -> list[int]:
        return list(map(ord, text))


class EmbeddingServer:
    """Embeds each text alone, and orders or loses vectors as its fault says."""

    def __init__(self, fault: str = "none") -> None:
        self.fault = fault
        self.requests: list[list[str]] = []
        self._lock = threading.Lock()

    def __call__(self, exchange: Exchange) -> Answer:
        given = exchange.body["input"]
        texts = [
            one if isinstance(one, str) else "".join(map(chr, one)) for one in given
        ]
        with self._lock:
            self.requests.append(texts)
        if any(POISON in text for text in texts):
            return Answer.of({"error": {"message": "too long"}}, 400)
        rows = INNER.embed_documents(texts)
        data = [{"index": i, "embedding": row} for i, row in enumerate(rows)]
        if self.fault == "reordered":
            data.sort(key=lambda one: len(texts[one["index"]]))
        if self.fault == "repeated":
            data = [data[0], *data[:-1]]
        return Answer.of({"data": data, "model": "m", "usage": {}})


@pytest.fixture
def make() -> Iterator[Callable[..., OpenAIEmbeddings]]:
    """Make a client of a server: `make(EmbeddingServer())`."""
    with contextlib.ExitStack() as stack:

        def made(server: EmbeddingServer, **changes: Any) -> OpenAIEmbeddings:
            proxy = stack.enter_context(RecordingProxy(server))
            sync = openai.DefaultHttpxClient(trust_env=False, verify=NO_CERTIFICATES)
            stack.callback(sync.close)
            terms: dict[str, Any] = {
                "model": "m",
                "api_key": "key",
                "base_url": f"{proxy.url}/v1",
                "max_retries": 0,
                "check_embedding_ctx_length": False,
                "http_client": sync,
            }
            return OpenAIEmbeddings(**{**terms, **changes})

        yield made


@pytest.mark.parametrize("cut", [False, True])
def test_a_request_holds_one_units_texts(
    cut: bool, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiktoken.encoding_for_model", lambda _name: Letters())
    server = EmbeddingServer()
    embedding = make(server, check_embedding_ctx_length=cut, embedding_ctx_length=40)
    documents = [
        Document(f"unit-{i % 12} coughed. " * (1 + i % 5), metadata={"unit": i % 12})
        for i in range(36)
    ]
    terms: dict[str, Any] = {"unit_key": "unit", "n_groups": 3}
    RetrievedGroups.from_documents(documents, embedding, **terms)
    assert len(server.requests) == 12
    # Cut up, a piece may name its unit no more: each request is one unit's whole texts.
    sent = sorted("".join(request) for request in server.requests)
    assert sent == sorted(
        "".join(one.page_content for one in documents if one.metadata["unit"] == unit)
        for unit in range(12)
    )
    if not cut:
        assert all(len(set(map(unit_of, one))) == 1 for one in server.requests)


@pytest.mark.parametrize("fault", ["none", "reordered", "repeated"])
@pytest.mark.parametrize("said", ["A rash.", "A long story. " * 50, POISON])
def test_no_answer_gets_another_ones_vector(fault: str, said: str, make: Any) -> None:
    calls = [[text] for text in (*ANSWERS[:9], said, *ANSWERS[9:])]
    embedding = make(EmbeddingServer(fault))
    found = each_call(embedding, calls, lambda vectors, _: vectors[0], alone=True)
    assert (found.pop(9) is None) is (said == POISON)
    wanted = INNER.embed_documents(ANSWERS)
    assert np.allclose(found, wanted, atol=1e-7)


@pytest.mark.parametrize("fault", ["reordered", "repeated"])
def test_twin_in_batches_they_do(fault: str, make: Any) -> None:
    embedding = make(EmbeddingServer(fault))
    without = embedding.embed_documents(ANSWERS)
    said = "A long story. " * 50
    found = embedding.embed_documents([*ANSWERS[:9], said, *ANSWERS[9:]])
    del found[9]
    assert not np.array_equal(found, without)
