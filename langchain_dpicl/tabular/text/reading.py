"""What one reply fills in of the card: a public rule about one text.

1. Of the JSON objects in the reply the one counts that names most columns; of equals
   the last. Objects within it count as part of it. A list of `{"name": ..., "value":
   ...}` is read as one.
2. Where no object names a column: what stands behind "condition:", "condition =" or
   "the condition is", up to the next column's name or the end of the line.
3. For a column that has neither, where no object names a column: the one value that the
   whole reply names.

Rules 2 and 3 are for prose: an object whose names are other ones tells nothing, also
where its texts hold a value (`{"note": "Headache clinic"}`).

A name is known by its words, in any case and inflection ("side_effects"), or by some of
them that only one column has, or by more. Of a list the first item counts that tells
anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from langchain_dpicl.parsers.reading.choice import read_choice
from langchain_dpicl.parsers.reading.text import LONGEST, spelled, word_set
from langchain_dpicl.tabular.text.card import Card, ColumnNames
from langchain_dpicl.tabular.text.fields import CategoryField, Field
from langchain_dpicl.tabular.text.objects import objects_in, prose_in
from langchain_dpicl.tabular.text.values import read_names, read_value

_NAMES = word_set("name key column field slot attribute label")
_VALUES = ("value", "answer", "choice", "selected", "label", "name", "text", "option")
_SAYS = r"[\"'*_`\s]{0,6}(?::|=|\||->|\s-+\s|\b(?:is|are|was|were|seems|appears)\b)"
_LINE = re.compile(r"\S[^\n]*")


def read_reply(reply: str, card: Card) -> dict[str, Any]:
    """Return the row that a reply fills in.

    Args:
        reply: What the model wrote about one unit. Private.
        card: The public card.

    Returns:
        A value for every column: its "unknown" where the reply tells nothing that can
        be read.

    Privacy:
        A pure function of one reply and of the public schema. It raises on no text.

    Example:
        >>> from langchain_dpicl.demo import visit_note_schema
        >>> card = Card.of(visit_note_schema())
        >>> read_reply('{"Condition": "Asthma (mild)", "drugs": ["montelukast"]}', card)
        ... # doctest: +NORMALIZE_WHITESPACE
        {'condition': 'asthma', 'drug': 'montelukast', 'side effect': 'unknown',
         'trigger': 'unknown'}
    """
    text = spelled(reply)[-LONGEST:]
    told = _from_objects(text, card)
    if told is None:
        text = prose_in(text)
        told = _from_phrases(text, card)
        for field in card.fields:
            if field.column.name not in told and isinstance(field, CategoryField):
                found = _named(field, text)
                if found is not None:
                    told[field.column.name] = found
    return {**card.unknowns, **told}


def read_named(reply: str, card: Card) -> dict[str, list[str]]:
    """Return what a reply names of open columns outside their lists.

    Args:
        reply: What the model wrote about one unit. Private.
        card: The public card.

    Returns:
        At most `max_items` names for each open column; none where it names none.

    Privacy:
        A pure function of one reply and of the public schema.

    Example:
        >>> from langchain_dpicl.tabular import CategoricalColumn, TableSchema
        >>> ill = CategoricalColumn(name="ill", values=["flu", "cold"], open=True)
        >>> job = CategoricalColumn(name="job", values=["clerk", "nurse"])
        >>> card = Card.of(TableSchema(label="job", columns=[ill, job]))
        >>> read_named('{"ill": "other: the gout", "job": "pilot"}', card)
        {'ill': ['gout']}
    """
    if not card.opened:
        return {}
    text = spelled(reply)[-LONGEST:]
    said = _best_object(text, card)
    if not said:
        # The last one: models think aloud before they answer.
        phrases = _phrases(prose_in(text), card)
        said = {field.column.name: [line] for field, line in phrases}
    found = {
        name: read_names(field, said.get(name, ()))
        for name, field in card.opened.items()
    }
    return {name: names for name, names in found.items() if names}


def _from_objects(text: str, card: Card) -> dict[str, Any] | None:
    """Return what the best object tells; None where none names a column."""
    best = _best_object(text, card)
    if not best:
        return None
    told: dict[str, Any] = {}
    for field in card.fields:
        for said in best.get(field.column.name, ()):
            value = read_value(field, said)
            if value is not None:
                told[field.column.name] = value
                break
    return told


def _best_object(text: str, card: Card) -> dict[str, list[Any]]:
    """Return what the best object says of each column; nothing where none names one."""
    objects = objects_in(text)
    best: dict[str, list[Any]] = {}
    for found in [_listed(objects), *objects]:
        filled: dict[str, list[Any]] = {}
        _fill(filled, found, card.names)
        if filled and len(filled) >= len(best):
            best = filled
    return best


def _fill(
    filled: dict[str, list[Any]], found: Mapping[str, Any], names: ColumnNames
) -> None:
    """Collect what an object, and those within it, say of each column.

    Args:
        filled: By column what was said so far; added to.
        found: The object.
        names: The columns.
    """
    within: list[Any] = []
    for name, value in found.items():
        column = names.find(name)
        if column is not None:
            filled.setdefault(column, []).extend(_said(value))
        else:
            within += value if isinstance(value, list) else [value]
    for item in within:
        if isinstance(item, dict):
            _fill(filled, item, names)


def _listed(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the object that is written as a list of names and values."""
    found: dict[str, Any] = {}
    for one in objects:
        keys = {key.casefold(): key for key in one}
        named = [keys[key] for key in keys if key in _NAMES]
        values = [
            keys[key] for key in _VALUES if key in keys and keys[key] not in named
        ]
        if named and values and isinstance(one[named[0]], str):
            found.setdefault(one[named[0]], one[values[0]])
    return found


def _said(value: Any) -> Iterator[Any]:
    """Yield the texts and numbers of a value, in order."""
    if isinstance(value, list):
        for item in value:
            yield from _said(item)
    elif isinstance(value, dict):
        keys = {key.casefold(): key for key in value}
        key = next((keys[known] for known in _VALUES if known in keys), None)
        yield from _said(list(value.values()) if key is None else value[key])
    else:
        yield value


def _from_phrases(text: str, card: Card) -> dict[str, Any]:
    """Return what stands behind the columns' names."""
    told: dict[str, Any] = {}
    for field, line in _phrases(text, card):
        value = read_value(field, line)
        if value is not None:
            # The last one: models think aloud before they answer.
            told[field.column.name] = value
    return told


def _phrases(text: str, card: Card) -> Iterator[tuple[Field, str]]:
    """Yield the columns that are named, each with what stands behind its name."""
    found: list[tuple[int, int, Field]] = []
    for field in card.fields:
        column = field.column
        spellings = {
            r"[\W_]{0,3}".join(map(re.escape, re.findall(r"[^\W_]+", name)))
            for name in (column.name, column.title)
        }
        pattern = rf"(?<![^\W_])(?:{'|'.join(sorted(spellings))})(?:e?s|\(s\))?{_SAYS}"
        found += [
            (match.start(), match.end(), field)
            for match in re.finditer(pattern, text, re.IGNORECASE)
        ]
    found.sort(key=lambda one: (one[0], -one[1]))
    ends = [begin for begin, _, _ in found[1:]] + [len(text)]
    for (_, begin, field), end in zip(found, ends, strict=False):
        if line := _LINE.search(text[begin:end]):
            yield field, line[0]


def _named(field: CategoryField, text: str) -> str | None:
    """Return the one value that a whole reply names in prose."""
    if field.polar:
        return None  # "Yes" and "no" begin many a sentence.
    chosen = read_choice(text, field.labels, field.aliases)
    value = field.labels[chosen] if isinstance(chosen, int) else None
    return None if value in (field.none, field.unknown) else value
