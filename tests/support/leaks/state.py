"""Observers of what is left when a run is over: answers, errors, objects, files."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from pprint import pformat
from typing import Any

from langchain_core.caches import BaseCache, InMemoryCache
from langchain_core.globals import get_llm_cache, set_llm_cache
from langchain_core.load import dumpd, dumps
from langchain_core.outputs import Generation

from support.leaks.observer import Observer, Stage
from support.leaks.output import rendered


class Answers(Observer):
    """What the caller is given: messages, chunks, events, states, metadata, tags."""

    name = "output"
    sees = "something"

    def seen(self, stage: Stage) -> object:
        return stage.outputs


class Errors(Observer):
    """What the caller is raised, as a crash reporter shows it."""

    name = "exception"
    sees = "nothing"

    def seen(self, stage: Stage) -> object:
        return stage.error, rendered(stage.error)


class Reprs(Observer):
    name = "repr"
    sees = "something"

    def seen(self, stage: Stage) -> object:
        parts = [*stage.parts.values(), *stage.outputs, stage.error]
        chain = stage.parts["chain"]
        query = chain._query
        parts += [vars(chain), query, vars(query), query.private, vars(query.private)]
        return [(repr(each), str(each), f"{each}", pformat(each)) for each in parts]


class Pickles(Observer):
    """Pickles of the parts, or the errors that refuse to make them."""

    name = "pickle"
    sees = "something"

    def seen(self, stage: Stage) -> object:
        parts = [*stage.parts.values(), *stage.outputs, stage.error]
        return [_attempted(pickle.dumps, part) for part in parts]


class Dumps(Observer):
    """LangChain's and pydantic's own forms of the parts, and the chain's graph."""

    name = "dumpd"
    sees = "something"

    def seen(self, stage: Stage) -> object:
        parts = [*stage.parts.values(), *stage.outputs]
        ways: list[Callable[[Any], Any]] = [
            dumpd,
            dumps,
            lambda part: part.to_json(),
            lambda part: part.model_dump(),
            lambda part: part.model_dump_json(),
            lambda part: part.get_graph().to_json(),
        ]
        return [_attempted(way, part) for way in ways for part in parts]


def _attempted(way: Callable[[Any], Any], part: Any) -> object:
    try:
        return way(part)
    except Exception as error:  # noqa: BLE001 - what it says is looked at
        return error


class LedgerFiles(Observer):
    """The bytes of the ledger's files, with the journal."""

    name = "ledger_files"
    sees = "something"

    def seen(self, stage: Stage) -> object:
        return [path.read_bytes() for path in sorted(stage.folder.glob("ledger*"))]


class StoredAnswers(Observer):
    """What the ledger keeps of answers and releases, read as a database."""

    name = "answer_cache"
    sees = "nothing"

    def seen(self, stage: Stage) -> object:
        with sqlite3.connect(stage.folder / "ledger.db") as database:
            rows = [
                database.execute(f"SELECT * FROM {table}").fetchall()
                for table in ("dpicl_release", "dpicl_step")
            ]
        database.close()
        return rows


class GlobalCache(Observer):
    name = "global_llm_cache"
    sees = "nothing"

    def __init__(self) -> None:
        self._cache = InMemoryCache()

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        before = get_llm_cache()
        set_llm_cache(self._cache)
        try:
            yield
        finally:
            set_llm_cache(before)

    def seen(self, stage: Stage) -> object:
        return self._cache._cache


class FileCache(BaseCache):
    """An LLM cache in a SQLite file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._open() as database:
            database.execute("CREATE TABLE cache (prompt TEXT, llm TEXT, answer TEXT)")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self.path, timeout=60)
        try:
            with database:
                yield database
        finally:
            database.close()

    def lookup(self, prompt: str, llm_string: str) -> list[Generation] | None:
        return None

    def update(self, prompt: str, llm_string: str, return_val: Any) -> None:
        row = (prompt, llm_string, dumps(return_val))
        with self._open() as database:
            database.execute("INSERT INTO cache VALUES (?, ?, ?)", row)

    def clear(self, **kwargs: Any) -> None:
        self.path.unlink()


class ModelCache(Observer):
    name = "model_llm_cache"
    sees = "nothing"

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        self._cache = FileCache(stage.folder / "llm-cache.db")
        stage.model_fields["cache"] = self._cache
        yield

    def seen(self, stage: Stage) -> object:
        return self._cache.path.read_bytes()
