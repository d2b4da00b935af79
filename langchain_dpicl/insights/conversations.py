"""Conversations as documents: what was said to an assistant, and whose it is.

| a record | whose it is |
|---|---|
| a LangChain `Document` | its metadata |
| a mapping with `text`, `messages`, or `chats` (lists of messages) | a field of it |
| a pair of an id and a text, or a list of messages | the id |
| a run of LangSmith, an object or exported as JSON | its metadata |
| a span of OpenInference, flat or nested | an attribute (`user.id`) |

Messages are LangChain's, OpenAI's (`role` and `content`, a text or parts), or LangChain
messages as LangSmith writes them. What users and assistants say is kept. System
prompts, tools' results and images are left out.

Privacy:
    Each record is read by itself. One that can't be read has no text, and its unit
    takes part all the same. What is dropped because a longer record repeats it depends
    on records of the same unit alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date
from itertools import pairwise
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage

from langchain_dpicl.common.hidden import hiding
from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.groups.units import unit_id_of

_ROLES = {"user": "user", "human": "user", "HumanMessageChunk": "user"}
_ROLES |= dict.fromkeys(("assistant", "ai", "model", "AIMessageChunk"), "assistant")
_SILENT = {"system", "developer", "tool", "function", "remove"}
_HELD: dict[str, str | None] = {
    **dict.fromkeys(("inputs", "input", "question", "prompts"), "user"),
    **dict.fromkeys(("messages", "conversation", "llm", "input_messages", "kwargs")),
    **dict.fromkeys(("message", "message_content", "content", "contents", "parts")),
    **dict.fromkeys(("text", "value")),
    **dict.fromkeys(("outputs", "generations", "choices"), "assistant"),
    **dict.fromkeys(("output_messages", "output", "answer"), "assistant"),
}
"""Fields that hold what was said, in the order of reading; and who says it there."""
_TEXTS = {"text", "input_text", "output_text", "message", "constructor", "Generation"}
_TEXTS |= {"GenerationChunk", "ChatGeneration", "ChatGenerationChunk", "LLMResult"}
"""Types of parts that hold what was said, besides those that name who says it."""
_TALKS = {"llm", "chain", "agent"}
"""Kinds of runs and spans that hold a conversation; others repeat parts of it."""
_PARTS_OF_RUNS = ("inputs", "outputs", "extra", "attributes", "run_type", "start_time")
_PLACES = ("", "metadata", "extra.metadata", "attributes", "attributes.metadata")
"""Where a record says whose it is, and its attributes."""
_SPAN_KIND = "attributes.openinference.span.kind"
_DEEPEST = 24


@hiding
def documents_of(conversations: Iterable[Any], unit_key: str) -> list[Document]:
    r"""Return conversations as documents, with their units' ids in the metadata.

    A document stays as it is. A conversation's fields and metadata become metadata, if
    they are single values. Of a unit's conversations that begin alike the longest is
    kept: logs of calls repeat what was said before.

    Args:
        conversations: Records of the kinds above.
        unit_key: The field, metadata key or attribute that says whose a record is.

    Raises:
        InvalidParameterError: If it is no iterable of records.
        UnitError: If a record does not say whose it is, or there are none.

    Example:
        >>> said = [{"role": "user", "content": "Hello?"}]
        >>> documents_of([{"user": "ada", "messages": said}], "user")
        [Document(metadata={'user': 'ada'}, page_content='user: Hello?')]
    """
    if isinstance(conversations, str | bytes | Mapping) or not isinstance(
        conversations, Iterable
    ):
        raise InvalidParameterError(
            "conversations must be an iterable of documents, mappings, runs, spans, or "
            f"pairs of an id and a conversation, not {type(conversations).__name__}."
        )
    if not isinstance(unit_key, str):
        raise InvalidParameterError("unit_key must be a name: text.")
    documents: list[Document] = []
    own: list[tuple[str, str, str, int]] = []
    for position, record in enumerate(conversations):
        for document in _documents(record, unit_key):
            unit_id = unit_id_of(document, unit_key, position=position)
            if document is not record:
                rest = ""  # Of equal texts their metadata decides, not their order.
                with suppress(Exception):  # An endless number stops nobody.
                    rest = repr(sorted(document.metadata.items()))
                own.append((unit_id, document.page_content, rest, len(documents)))
            documents.append(document)
    if not documents:
        raise UnitError("There are no conversations. Pass those of one person or more.")
    repeated = {
        place
        for (unit_id, text, _, place), (next_id, longer, *_) in pairwise(sorted(own))
        if unit_id == next_id and longer.startswith(text)
    }
    return [item for place, item in enumerate(documents) if place not in repeated]


def _documents(record: Any, unit_key: str) -> Iterator[Document]:
    """Yield the documents of a record: one for each of its conversations."""
    if isinstance(record, Document):
        yield record
        return
    fields: Any = record
    if isinstance(record, tuple) and len(record) == 2:  # noqa: PLR2004
        fields = {"text" if isinstance(record[1], str) else "messages": record[1]}
        metadata = {unit_key: record[0]}
    else:
        if not isinstance(record, Mapping):
            fields = {name: getattr(record, name, None) for name in _PARTS_OF_RUNS}
        with suppress(Exception):  # Fields with odd names stop nobody.
            nested = _nested(fields)
            fields = nested if isinstance(nested, dict) else fields
        metadata = _metadata(fields, unit_key)
    chats = fields.get("chats")
    for talk in chats if isinstance(chats, list) and chats else [fields]:
        text = ""
        with suppress(Exception):  # What can't be read has no text.
            text = _text(talk)
        yield Document(text, metadata=dict(metadata))


def _metadata(fields: Mapping[str, Any], unit_key: str) -> dict[str, Any]:
    """Return a record's single values, and its unit's id where it has one."""
    metadata: dict[str, Any] = {}
    for place in reversed(_PLACES):
        values = _at(fields, place)
        if isinstance(values, Mapping):
            metadata |= {
                name: value
                for name, value in values.items()
                if isinstance(value, str | int | float | date) and name not in _HELD
            }
            if (unit_id := _at(values, unit_key)) is not None:
                metadata[unit_key] = unit_id
    return metadata


def _at(value: Any, path: str) -> Any:
    """Return what stands at a path of fields; None where nothing does."""
    for name in filter(None, path.split(".")):
        value = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(value, str) and value.startswith("{"):
        with suppress(ValueError, RecursionError):  # A span's metadata is JSON.
            return _nested(json.loads(value))
    return value


def _nested(value: Any, depth: int = 0) -> Any:
    """Return a value whose dotted names are nested, and numbered ones a list."""
    if depth > _DEEPEST:
        return None
    if isinstance(value, list | tuple):
        return [_nested(item, depth + 1) for item in value]
    if not isinstance(value, Mapping):
        return value
    nested: dict[str, Any] = {}
    for name, inner in value.items():
        first, *rest = str(name).split(".", 1)
        held = {rest[0]: inner} if rest else inner
        before = nested.get(first)
        if isinstance(before, dict) and isinstance(held, Mapping):
            before.update(held)
        else:
            nested[first] = dict(held) if isinstance(held, Mapping) else held
    nested = {name: _nested(inner, depth + 1) for name, inner in nested.items()}
    if nested and all(name.isdecimal() for name in nested):
        return [nested[name] for name in sorted(nested, key=int)]
    return nested


def _text(talk: Any) -> str:
    """Return a conversation as a text: a line begins with who says it."""
    if isinstance(talk, Mapping):
        kind = talk.get("run_type") or _at(talk, _SPAN_KIND)
        if kind is not None and str(kind).casefold() not in _TALKS:
            return ""
        if isinstance(talk.get("text"), str):
            return str(talk["text"])
        talk = {name: inner for name, inner in talk.items() if name != "type"}
        talk |= talk.pop("attributes", None) or {}
        if "llm" in talk:  # It holds the messages; these would repeat them.
            talk = {k: v for k, v in talk.items() if k not in ("input", "output")}
    turns = dict.fromkeys(_turns(talk, "user"))
    return "\n".join(f"{role}: {text.strip()}" for role, text in turns if text.strip())


def _turns(talk: Any, role: str) -> Iterator[tuple[str, str]]:
    """Yield what is said by whom, in order."""
    if isinstance(talk, BaseMessage):
        talk = {"role": talk.type, "content": talk.content}
    if isinstance(talk, str):
        yield role, talk
    elif isinstance(talk, list | tuple):
        for item in talk:
            yield from _turns(item, role)
    elif isinstance(talk, Mapping):
        kind = talk.get("type")
        speaker = talk.get("role", kind)
        if speaker in _SILENT or not (kind is None or kind in _ROLES or kind in _TEXTS):
            return
        role = _ROLES.get(speaker, role)
        if talk.get("mime_type") == "application/json":
            talk = {"messages": _nested(json.loads(talk["value"]))}
        for name, by in _HELD.items():
            if name in talk:
                yield from _turns(talk[name], by or role)
