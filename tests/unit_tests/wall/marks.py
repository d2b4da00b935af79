"""Marks in all that is private, and the search for them in what an observer saw.

A mark is a stem that says what it marks, and letters that differ for each thing. The
search finds stems in texts, bytes and numbers, however deep in an object: as they are,
in hex, base64 and UTF-16.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

STEMS = {
    "record": "qzvrecord",
    "metadata": "qzvmetadt",
    "unit": "qzvunitid",
    "answer": "qzvanswer",
    "usage": "917263548",
}
"""What is marked, and how. Usage is a number: of tokens, in a group's answer."""

_LETTERS = str.maketrans("0123456789abcdef", "bcdfghjklmnpqrst")


def mark(kind: str, source: object) -> str:
    """Return the mark of one thing: one word of letters."""
    digest = hashlib.blake2b(f"{kind}/{source}".encode(), digest_size=6).hexdigest()
    return STEMS[kind] + digest.translate(_LETTERS)


def is_private(text: str) -> bool:
    """Return whether a text holds a mark as it is."""
    return any(stem in text for stem in STEMS.values())


def marks_in(seen: object) -> list[str]:
    """Return the kinds of marks in what somebody saw."""
    text = b"\n".join(
        leaf if isinstance(leaf, bytes) else str(leaf).encode(errors="replace")
        for leaf in _leaves(seen)
    )
    return [k for k, stem in STEMS.items() if any(f in text for f in _forms(stem))]


def _forms(stem: str) -> Iterator[bytes]:
    plain = stem.encode()
    yield plain
    yield plain.hex().encode()
    yield stem.encode("utf-16-le")
    for before in range(3):
        # Base64 in the middle of other bytes: the digits at either end depend on these.
        code = base64.b64encode(b"\0" * before + plain + b"\0" * 3)
        yield code[(before * 8 + 5) // 6 : (before + len(plain)) * 8 // 6]


_OPAQUE = (
    *(type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType),
    *(types.MethodType, types.FrameType, types.TracebackType, types.CodeType),
    *(types.GeneratorType, types.CoroutineType),
)
_MACHINERY = (
    *("_thread", "_weakref", "asyncio", "concurrent", "langsmith.client", "logging"),
    *("opentelemetry", "requests", "sqlalchemy", "sqlite3", "threading", "weakref"),
)
"""Modules of objects that lead from a handler to half of the process."""


def _leaves(root: object) -> Iterator[str | bytes | int | float]:
    """Yield each text, bytes and number that can be reached, also past a repr."""
    left: deque[Any] = deque([root])
    met: dict[int, object] = {}  # They live on: no other object gets their id.
    while left:
        item = left.pop()
        if isinstance(item, str | int | float):
            yield item
        elif isinstance(item, bytes | bytearray | memoryview):
            yield bytes(item)
        elif item is not None and id(item) not in met:
            met[id(item)] = item
            if not isinstance(item, _OPAQUE):
                left.extend(_parts(item))


def _parts(item: Any) -> Iterable[Any]:
    if isinstance(item, Mapping):
        return [*item.keys(), *item.values()]
    if isinstance(item, list | tuple | set | frozenset | deque):
        return list(item)
    if isinstance(item, io.BytesIO | io.StringIO):
        return [item.getvalue()]
    parts: list[Any] = [repr(item)]
    if type(item).__module__.startswith(_MACHINERY):
        return parts
    if isinstance(item, BaseException):
        parts += [str(item), item.args, item.__cause__, item.__context__]
        parts.append(getattr(item, "__notes__", None))
    if isinstance(item, BaseModel):
        parts += [item.__pydantic_private__, item.__pydantic_extra__]
    if dataclasses.is_dataclass(item):
        parts += [getattr(item, each.name, None) for each in dataclasses.fields(item)]
    parts.append(getattr(item, "__dict__", None))
    return parts
