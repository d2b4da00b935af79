"""From command-line words to records and models.

LangChain is imported where it is needed: a look at a ledger needs little of it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial, reduce
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_dpicl.errors import DPError, InvalidParameterError, UnitError

if TYPE_CHECKING:
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings

    from langchain_dpicl.chain import DPChain


def sqlite_path(url: str) -> Path | None:
    """Return the file of a SQLite URL, or None for any other URL."""
    prefix = "sqlite:///"
    return Path(url.removeprefix(prefix)) if url.startswith(prefix) else None


def read_corpus(path: str, *, unit_key: str) -> list[Document]:
    """Read records from a JSON Lines file, all fields but `text` as metadata.

    A line that is no object, or has no text, is named by its number; nothing of it is
    shown.
    """
    from langchain_core.documents import Document

    documents: list[Document] = []
    for number, record in read_lines(path):
        text = record.pop("text", None)
        if not isinstance(text, str) or not text.strip():
            raise InvalidParameterError(
                f"Line {number} has no text in the field 'text'."
            )
        if not is_encodable(text):
            raise InvalidParameterError(
                f"Line {number} has half a character in the field 'text', "
                "which no model can be sent."
            )
        if unit_key not in record:
            raise UnitError(
                f"Line {number} has no field {unit_key!r}: name the field that "
                "says whose record it is with --unit-key, and drop records "
                "without one."
            )
        documents.append(Document(text, metadata=record))
    if not documents:
        raise UnitError("There is no record in the file.")
    return documents


def read_lines(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a JSON Lines file, with the numbers of their lines."""
    with Path(path).open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, _object(line, number)


def _object(line: bytes, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line.decode().lstrip("\ufeff"))
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise InvalidParameterError(f"Line {number} is not a JSON object in UTF-8.")
    return record


def is_encodable(text: str) -> bool:
    """Return whether a text has whole characters only; JSON can write half of one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_text(path: str) -> str:
    """Return the text of a file."""
    text = None
    with suppress(UnicodeDecodeError):
        text = Path(path).read_text(encoding="utf-8")
    if text is None:
        raise InvalidParameterError(f"{path} is not a text in UTF-8.")
    return text


def load_model(name: str) -> Any:
    """Return the chat model that `provider:name` names."""
    if name == "offline":
        from langchain_dpicl.offline import OfflineChatModel

        return OfflineChatModel()
    provider, _, model = name.partition(":")
    if provider == "openai" and model:
        from langchain_openai import ChatOpenAI

        return _made(lambda: ChatOpenAI(model=model, temperature=0), name)
    try:
        from langchain.chat_models import init_chat_model
    except ImportError:
        raise InvalidParameterError(
            f"--model {name} needs LangChain itself and the provider's package: pip "
            "install langchain langchain-PROVIDER. Without them there are openai:NAME "
            "and offline."
        ) from None
    return _made(lambda: init_chat_model(name, temperature=0), name)


def load_object(name: str, kind: type[Any], example: str) -> Any:
    """Return what `module:name` names, or what that returns if it is a function.

    The module is looked for in the current folder first.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InvalidParameterError(f"Name it as MODULE:NAME, such as {example}.")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found: Any = import_module(module)
        found = reduce(getattr, attribute.split("."), found)
        return found() if callable(found) and not isinstance(found, kind) else found
    except Exception as error:  # noqa: BLE001 - a module raises what it likes
        is_public = isinstance(error, (ImportError, AttributeError, DPError))
        why = f"{type(error).__name__}{f': {error}' if is_public else ''}"
        raise InvalidParameterError(
            f"{name} can't be loaded ({why}). Import it in Python to see more."
        ) from None
    finally:
        with suppress(ValueError):  # The module may have changed the path, too.
            sys.path.remove(here)


def load_chain(name: str) -> tuple[DPChain, list[Any]]:
    """Return the chain that `module:chain` names, and the callbacks bound to it."""
    from langchain_core.runnables import Runnable, RunnableBinding

    from langchain_dpicl.chain import DPChain

    found = load_object(name, Runnable, "app:chain")
    handlers: list[Any] = []
    while isinstance(found, RunnableBinding):
        callbacks: Any = found.config.get("callbacks") or ()
        handlers += getattr(callbacks, "handlers", callbacks)
        found = found.bound
    if not isinstance(found, DPChain):
        raise InvalidParameterError(
            f"{name} can't be loaded: it is a {type(found).__name__}, and no DPChain."
        )
    return found, handlers


def load_embedding(name: str) -> Embeddings:
    """Return the embedding model that `openai:name` or `module:name` names."""
    if name == "offline":
        from langchain_dpicl.offline import HashingEmbeddings

        return HashingEmbeddings()
    provider, _, model = name.partition(":")
    if provider != "openai" or not model:
        from langchain_core.embeddings import Embeddings

        found = load_object(name, Embeddings, "offline, openai:NAME or app:embedding")
        if not isinstance(found, Embeddings):
            raise InvalidParameterError(f"{name} is no embedding model of LangChain.")
        return found
    from langchain_openai import OpenAIEmbeddings

    # Other servers than OpenAI's read texts, not the token numbers of OpenAI's models,
    # for which a vocabulary would be downloaded as well.
    own = os.environ.get("OPENAI_API_BASE") or os.environ.get("OPENAI_BASE_URL")
    make = partial(OpenAIEmbeddings, model=model, check_embedding_ctx_length=not own)
    made: Embeddings = _made(make, name)
    return made


def _made(make: Any, name: str) -> Any:
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - a provider raises what it likes
        raise InvalidParameterError(
            f"{name} can't be used ({type(error).__name__}). Is its key set in the "
            "environment, and its package installed?"
        ) from None
