"""Filling in a card: a value of a list for each field, from one person's records."""

from __future__ import annotations

import json
import re
from typing import Any

from langchain_dpicl.offline.words import sentences, stems

_FIELDS = re.compile(r"^Fields:\n((?:- \".*\n?)+)", re.MULTILINE)
_FIELD = re.compile(r'^- ("(?:[^"\\]|\\.)*")(?: \(.*?\))?: (.*)$', re.MULTILINE)
_RECORDS = re.compile(r"^Records:\n(.*)\n\nJSON:\s*\Z", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def filled_in(prompt: str) -> str | None:
    r"""Return the JSON object that a prompt asks to fill in, or None if it asks none.

    A field's value is the first of its list that a sentence with the field's name
    states, or failing that any sentence; of a number, the first one in such a sentence.

    Example:
        >>> filled_in(
        ...     'Fields:\n- "drug": "iron", "zinc", or "unknown"\n- "age": a number\n\n'
        ...     "Reply.\n\nRecords:\nAge 41. The drug is zinc.\n\nJSON:"
        ... )
        '{"drug": "zinc", "age": 41}'
    """
    fields, records = _FIELDS.search(prompt), _RECORDS.search(prompt)
    if fields is None or records is None:
        return None
    said = [(text, stems(text)) for text in sentences(records[1])]
    card: dict[str, Any] = {}
    for quoted, listed in _FIELD.findall(fields[1]):
        name = json.loads(quoted)
        named = set(stems(name))
        # A sentence that names the field comes before the others.
        near = sorted(said, key=lambda one: not named <= set(one[1]))
        values = [json.loads(one) for one in _QUOTED.findall(listed)]
        card[name] = _chosen(values, near) if values else _number(near, named)
    return json.dumps(card)


def _chosen(values: list[str], near: list[tuple[str, list[str]]]) -> str:
    for _, held in near:
        stated = [one for one in values[:-1] if _within(stems(one), held)]
        if stated:
            return max(stated, key=len)
    return values[-1]


def _number(near: list[tuple[str, list[str]]], named: set[str]) -> float | None:
    for text, held in near:
        found = _NUMBER.findall(text)
        if found and named <= set(held):
            number: float = json.loads(found[-1])
            return number
    return None


def _within(wanted: list[str], held: list[str]) -> bool:
    """Return whether words stand in a sentence, one behind the other."""
    size = len(wanted)
    return bool(size) and any(
        held[at : at + size] == wanted for at in range(len(held) - size + 1)
    )
