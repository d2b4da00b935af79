"""Embeddings that notice, or let be seen, that texts of two units share a call."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from langchain_core.embeddings import Embeddings

from langchain_dpicl.offline import HashingEmbeddings

POISON = "poison"
INNER = HashingEmbeddings(64)


def unit_of(text: str) -> str:
    """Return the unit that a text names."""
    found = re.search(r"unit-\w+", text)
    return found.group() if found else ""


class Watching(Embeddings):
    """Computes in this process, and remembers whose texts came in each call."""

    def __init__(self, inner: Embeddings = INNER) -> None:
        self.inner = inner
        self.calls: list[list[str]] = []
        self.threads: set[str] = set()
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        with self._seen(texts):
            return self.vectors(texts)

    def embed_query(self, text: str) -> list[float]:
        return self.inner.embed_query(text)

    def vectors(self, texts: list[str]) -> list[list[float]]:
        return self.inner.embed_documents(texts)

    @property
    def units(self) -> list[set[str]]:
        """The units of each call."""
        return [set(map(unit_of, call)) for call in self.calls]

    @contextmanager
    def _seen(self, texts: list[str]) -> Iterator[None]:
        with self._lock:
            self.calls.append(list(texts))
            self.threads.add(threading.current_thread().name)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        try:
            yield
        finally:
            with self._lock:
                self._now -= 1


class WatchingServer(Watching):
    """The client of a server, with an asynchronous call of its own."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        with self._seen(texts):
            time.sleep(0.002)
            return self.vectors(texts)

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        raise AssertionError("Embeddings are called by their blocking methods.")


class Neighborly(Watching):
    """A text's vector depends on the other texts of its call, and fails with them."""

    def vectors(self, texts: list[str]) -> list[list[float]]:
        if any(POISON in text for text in texts):
            raise RuntimeError("This text is too long.")
        found = super().vectors(texts)
        for place, vector in enumerate(found):
            others = [text for i, text in enumerate(texts) if i != place]
            if others:
                digest = hashlib.blake2b("|".join(others).encode(), digest_size=2)
                vector[0] += 0.1 + int.from_bytes(digest.digest(), "big") / 65536
        return found


class NeighborlyServer(Neighborly, WatchingServer):
    """The same, behind a server."""


PLACES = (Watching, WatchingServer)
NEIGHBORLY = (Neighborly, NeighborlyServer)
