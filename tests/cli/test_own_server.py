"""`dpicl demo` with the embeddings of an OpenAI-compatible server of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.servers.recording_proxy import Answer, Exchange, RecordingProxy

from langchain_dpicl.cli import main
from langchain_dpicl.offline import HashingEmbeddings

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

INNER = HashingEmbeddings()


def embeds_texts(exchange: Exchange) -> Answer:
    """Answer as servers do that know no token numbers of OpenAI's models."""
    texts = exchange.body["input"]
    if not all(isinstance(text, str) for text in texts):
        return Answer.of({"error": {"message": "input must be text"}}, 400)
    rows = INNER.embed_documents(texts)
    data = [{"index": i, "embedding": row} for i, row in enumerate(rows)]
    return Answer.of({"data": data, "model": "mini", "usage": {}})


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    def download(*_: Any) -> Any:
        raise AssertionError("tiktoken is asked for a vocabulary.")

    monkeypatch.setattr("tiktoken.encoding_for_model", download)
    monkeypatch.setattr("tiktoken.get_encoding", download)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.chdir(tmp_path)
    lines = [
        {"patient": f"p{i}", "text": "Side effect of lisinopril: cough."}
        for i in range(200)
    ]
    Path("notes.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return [
        *("demo", "--corpus", "notes.jsonl", "--unit-key", "patient", "--json"),
        *("--question", "Which side effect of lisinopril?", "--groups", "20"),
        *("--labels", "cough,rash", "--queries", "1", "--embedding"),
    ]


def answers(printed: str) -> list[str]:
    return [one["private"] for one in json.loads(printed)["answers"]]


@pytest.mark.parametrize("name", ["OPENAI_BASE_URL", "OPENAI_API_BASE"])
def test_a_server_of_ones_own_gets_texts(
    name: str,
    demo: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with RecordingProxy(embeds_texts) as server:
        monkeypatch.setenv(name, f"{server.url}/v1")
        assert main([*demo, "openai:mini"]) == 0
    assert server.exchanges
    assert answers(capsys.readouterr().out) == ["cough"]


def test_an_embedding_model_can_be_a_name_in_a_module(
    demo: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own_module.py").write_text(
        "from langchain_dpicl.offline import HashingEmbeddings\n"
        "embedding = HashingEmbeddings()\nother = 3\n"
    )
    assert main([*demo, "own_module:embedding"]) == 0
    assert answers(capsys.readouterr().out) == ["cough"]
    assert main([*demo, "own_module:other"]) == 1
    assert "no embedding model" in capsys.readouterr().out


def test_a_server_that_fails_is_told_without_a_traceback(
    demo: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_exchange: Exchange) -> Answer:
        return Answer.of({"error": {"message": "cough"}}, 400)

    with RecordingProxy(fails) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        assert main([*demo, "openai:mini"]) == 1
    said = capsys.readouterr().out
    assert "--embedding openai:mini failed (BadRequestError)" in said
    assert "cough" not in said
