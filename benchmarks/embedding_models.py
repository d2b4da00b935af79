"""Embeddings for `bench_embedding.py`: an encoder in this process, a slow server."""

from __future__ import annotations

import json
import multiprocessing
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

BATCH = 32
"""Texts of one pass, as sentence-transformers has by default."""

LONGEST = 128
"""Tokens that a text is cut to, and that one public shape has."""

REQUEST_SECONDS, TEXT_SECONDS = 0.020, 0.0002
"""What a request takes by itself, and each text in it, as on a GPU server."""


class Encoder:
    """A BERT of 1.4 million random weights, mean of its tokens.

    Args:
        kind: Numbers to compute with, "float32" or "bfloat16".
        fixed: Whether each pass has one public shape: BATCH texts of LONGEST tokens,
            filled up with empty ones. Otherwise the texts of a call are sorted by
            length and each pass is padded to its longest, as libraries do.
    """

    def __init__(self, kind: str = "float32", *, fixed: bool = False) -> None:
        import torch
        from support.servers.make_tiny_model import _tokenizer
        from transformers import BertConfig, BertModel

        self._torch = torch
        self._tokenizer = _tokenizer()
        self._fixed = fixed
        # Threads cost a model of this size more than they save.
        torch.set_num_threads(1)
        torch.manual_seed(1)
        config = BertConfig(
            vocab_size=len(self._tokenizer),
            hidden_size=192,
            num_hidden_layers=3,
            num_attention_heads=6,
            intermediate_size=768,
        )
        model = BertModel(config, add_pooling_layer=False).eval()
        self._model = model.to(getattr(torch, kind))

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts, pass by pass."""
        order = range(len(texts))
        if not self._fixed:
            order = sorted(order, key=lambda place: -len(texts[place]))
        found: dict[int, list[float]] = {}
        for start in range(0, len(texts), BATCH):
            places = list(order)[start : start + BATCH]
            rows = self._pass([texts[place] for place in places])
            found.update(zip(places, rows, strict=False))
        return [found[place] for place in range(len(texts))]

    def embed_query(self, text: str) -> list[float]:
        """Embed one text."""
        return self.embed_documents([text])[0]

    def _pass(self, texts: Sequence[str]) -> list[list[float]]:
        torch = self._torch
        filled = [*texts, *[""] * (BATCH - len(texts))] if self._fixed else list(texts)
        inputs = self._tokenizer(
            [text or "." for text in filled],
            padding="max_length" if self._fixed else True,
            truncation=True,
            max_length=LONGEST,
            return_tensors="pt",
            return_token_type_ids=False,
        )
        with torch.inference_mode():
            states = self._model(**inputs).last_hidden_state.float()
            mask = inputs["attention_mask"].unsqueeze(-1).float()
            mean = (states * mask).sum(1) / mask.sum(1)
            return torch.nn.functional.normalize(mean).cpu().tolist()


def what_neighbors_change(
    encoder: Any, texts: Sequence[str], count: int
) -> tuple[float, float]:
    """Embed some texts between others, then between others one of which is longer.

    Returns:
        The largest difference of any coordinate of a vector of norm 1, and the share of
        texts whose vector is not the same to the last bit.
    """
    long = "a longer story of one patient " * 40
    worst, changed = 0.0, 0
    for place, text in enumerate(texts[:count]):
        others = [*texts[:place], *texts[place + 1 :]][: BATCH - 2]
        one = encoder.embed_documents([text, *others, "Short."])[0]
        two = encoder.embed_documents([text, *others, long])[0]
        difference = float(np.abs(np.subtract(one, two)).max())
        worst, changed = max(worst, difference), changed + (difference > 0)
    return worst, changed / count


def _serve(told: Connection) -> None:
    computing = threading.Lock()
    row = np.random.default_rng(1).normal(size=384)

    class Handler(BaseHTTPRequestHandler):
        """Requests overlap in what each takes by itself, and compute in turns."""

        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            texts = json.loads(self.rfile.read(length))["input"]
            time.sleep(REQUEST_SECONDS)
            with computing:
                time.sleep(TEXT_SECONDS * len(texts))
            rows = [(row + len(text)).round(6).tolist() for text in texts]
            data = [{"index": i, "embedding": row} for i, row in enumerate(rows)]
            body = json.dumps({"data": data, "model": "slow", "usage": {}}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    told.send(f"http://127.0.0.1:{server.server_port}/v1")
    told.recv()


@contextmanager
def slow_server() -> Iterator[str]:
    """A slow embedding server, in a process of its own: it takes none of ours."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(theirs,), daemon=True
    )
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()
