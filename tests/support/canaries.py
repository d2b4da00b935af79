"""Markers in every private thing, and the search for them in what observers saw.

A marker is a stem that says what it marks, and letters that differ for each thing. The
search looks for stems: in texts, bytes and numbers, however deep they lie in an object,
as they are, in base64, in hex, in UTF-16, and in compressed bytes.
"""

from __future__ import annotations

import base64
import dataclasses
import gzip
import hashlib
import io
import types
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import zstandard
from pydantic import BaseModel

STEMS = {
    "document": "qzvdocmnt",
    "metadata": "qzvmetadt",
    "unit": "qzvunitid",
    "answer": "qzvanswer",
    "usage": "917263548",
}
"""What is marked, and how. Usage is a number: of tokens, in a group's answer."""

PUBLIC = "qzvpublic"
"""Marks the question: an observer that works sees it."""

_LETTERS = str.maketrans("0123456789abcdef", "bcdfghjklmnpqrst")


def marker(kind: str, source: object) -> str:
    """Return the marker of one thing: one word of letters."""
    digest = hashlib.blake2b(f"{kind}/{source}".encode(), digest_size=6).hexdigest()
    return STEMS[kind] + digest.translate(_LETTERS)


@dataclasses.dataclass(frozen=True)
class Sight:
    """What was found in what an observer saw."""

    private: list[str]
    question: bool
    something: bool


def look(seen: object) -> Sight:
    """Look for private things, and for the public question, in what somebody saw."""
    text = b"\n".join(_flat(seen))
    found = [
        kind
        for kind, stem in STEMS.items()
        if any(form in text for form in _forms(stem))
    ]
    question = any(form in text for form in _forms(PUBLIC))
    return Sight(sorted(found), question, bool(text.strip()))


def _forms(stem: str) -> Iterator[bytes]:
    plain = stem.encode()
    yield plain
    yield plain.hex().encode()
    yield stem.encode("utf-16-le")
    for before in range(3):
        # What base64 makes of the stem in the middle of other bytes: the digits at
        # either end also depend on the neighbors and are left out.
        code = base64.b64encode(b"\0" * before + plain + b"\0" * 3)
        yield code[(before * 8 + 5) // 6 : (before + len(plain)) * 8 // 6]


def _flat(seen: object) -> Iterator[bytes]:
    for leaf in leaves(seen):
        if isinstance(leaf, bytes):
            yield leaf
            yield from _decompressed(leaf)
        else:
            yield str(leaf).encode(errors="replace")


def _decompressed(data: bytes) -> Iterator[bytes]:
    if data.startswith(b"\x1f\x8b"):
        yield gzip.decompress(data)
    elif data.startswith(b"\x28\xb5\x2f\xfd"):
        with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)) as reader:
            yield reader.read()
    elif data.startswith((b"\x78\x01", b"\x78\x9c", b"\x78\xda")):
        yield zlib.decompress(data)


_OPAQUE = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.FrameType,
    types.TracebackType,
    types.CodeType,
    types.GeneratorType,
    types.CoroutineType,
)
# Machinery that leads from a handler to half of the process, and holds no text of ours.
_MACHINERY = (
    "_thread",
    "_weakref",
    "asyncio",
    "concurrent",
    "langsmith.client",
    "logging",
    "opentelemetry",
    "requests",
    "sqlalchemy",
    "sqlite3",
    "threading",
    "urllib3",
    "weakref",
)


def leaves(root: object) -> Iterator[str | bytes | int | float]:
    """Yield every text, bytes and number that can be reached from an object.

    Objects whose repr shows nothing are opened as well: an observer could do that too.
    """
    left: deque[Any] = deque([root])
    met: set[int] = set()
    held: list[object] = []
    while left:
        item = left.pop()
        if isinstance(item, str | int | float):
            yield item
            continue
        if isinstance(item, bytes | bytearray | memoryview):
            yield bytes(item)
            continue
        if item is None or id(item) in met or isinstance(item, _OPAQUE):
            continue
        met.add(id(item))
        # Objects made on the way must live on, or another one gets their id.
        held.append(item)
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
    for owner in type(item).__mro__:
        slots = owner.__dict__.get("__slots__", ())
        names = [slots] if isinstance(slots, str) else list(slots)
        parts += [getattr(item, name, None) for name in names if name != "__dict__"]
    parts.append(getattr(item, "__dict__", None))
    return parts
