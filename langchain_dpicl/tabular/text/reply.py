"""What one reply fills in of the card: public rules about one text.

Of the JSON objects in the reply the one counts that names most columns; of equals the
last. Objects within it count as part of it. Where no object names a column, lines such
as "condition: asthma" count. All else tells nothing: prose is not understood.

A name is known by its words, in any case and inflection ("side_effects"), or by some of
them that only one column has. Of a list the first item counts that tells anything.

A value of a column of categories is, in this order:

1. what `read_choice` finds, which reads votes ("other: ..." is the column's `other`);
2. nothing, where the text says that nothing is told;
3. where it says that there is none, and no more: the value that says so, if one does;
4. the first value that it names, if it denies nothing;
5. the column's `other`, if it has one.

A number is the only one in the text, or the only one within the bounds.

Privacy:
    Each function is a pure one of one reply and of the public schema, and raises on no
    text. The time is linear in the reply, of which the last 20,000 characters count.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from langchain_dpicl.parsers.reading import declines, forms_of, named_in, read_choice
from langchain_dpicl.parsers.words import NEGATORS, form, words_of
from langchain_dpicl.parsers.words import spelled as respelled
from langchain_dpicl.tabular.cells import UnreadableError, spelled
from langchain_dpicl.tabular.columns import NumericColumn
from langchain_dpicl.tabular.text.card import (
    Card,
    Field,
    column_named,
    forms_of_name,
    is_denial,
)

_NUMBER = re.compile(r"(?<![\w.,])(?:(?<![\w-])-)?\d+(?:,\d{3})*(?:\.\d+)?(?![,.]?\d)")
_SIGN = re.compile(r"[:=|]")
_VALUES = ("value", "answer", "choice", "selected", "label", "text", "option")
_MARKS = " \t*_-|>#\"'`"
_MOST_WORDS = 20
_LONGEST = 2_000
_MOST_OBJECTS = 50


def read_reply(reply: str, card: Card) -> dict[str, Any]:
    """Return the row that a reply about one unit fills in.

    Every column has a value: its "unknown" where the reply tells nothing that can be
    read.

    Example:
        >>> from langchain_dpicl.demo import visit_note_schema
        >>> card = Card.of(visit_note_schema())
        >>> read_reply('{"Condition": "Asthma (mild)", "drugs": ["montelukast"]}', card)
        ... # doctest: +NORMALIZE_WHITESPACE
        {'condition': 'asthma', 'drug': 'montelukast', 'side effect': 'unknown',
         'trigger': 'unknown'}
    """
    text = respelled(reply)
    objects = objects_in(text)
    best: dict[str, list[Any]] = {}
    for found in objects:
        filled: dict[str, list[Any]] = {}
        _fill(filled, found, card)
        if filled and len(filled) >= len(best):
            best = filled
    if not best and not any(objects):
        for line in text.split("\n"):
            name, *said = _SIGN.split(line.lstrip(_MARKS), maxsplit=1)
            if said and (column := column_named(name, card.names)) is not None:
                # The last one: models think aloud before they answer.
                best[column] = said
    told: dict[str, Any] = {}
    for field in card.fields:
        values = (read_value(field, said) for said in best.get(field.column.name, ()))
        told[field.column.name] = next(
            (value for value in values if value is not None), field.unknown
        )
    return told


def objects_in(text: str) -> list[dict[str, Any]]:
    r"""Return the JSON objects of a text, in order.

    Read are objects with remarks around, an object in Python's spelling, and one that
    is cut off, up to its last whole value.

    Example:
        >>> objects_in('Sure: {"drug": ["a", "b"]} Bye!')
        [{'drug': ['a', 'b']}]
        >>> objects_in('{"drug": "a", "side effect": "dry co')
        [{'drug': 'a'}]
    """
    found: list[dict[str, Any]] = []
    decoder = json.JSONDecoder(strict=False)
    place = text.find("{")
    for _ in range(_MOST_OBJECTS):
        if place < 0:
            break
        end = place + 1
        try:
            value, end = decoder.raw_decode(text, place)
            found.append(value)
        except (ValueError, RecursionError):
            pass
        place = text.find("{", end)
    return found or _repaired(text)


def _repaired(text: str) -> list[dict[str, Any]]:
    start = text.find("{")
    whole = text[start : text.rfind("}") + 1]
    cut = text[start : max(text.rfind(","), start)] + "}"
    for read, given in ((ast.literal_eval, whole), (json.loads, cut)):
        try:
            value = read(given)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        if isinstance(value, dict) and all(isinstance(name, str) for name in value):
            return [value]
    return []


def _fill(filled: dict[str, list[Any]], found: Mapping[str, Any], card: Card) -> None:
    """Collect what an object, and those within it, say of each column."""
    within: list[Any] = []
    for name, value in found.items():
        column = column_named(str(name), card.names)
        if column is not None:
            filled.setdefault(column, []).extend(_said(value))
        else:
            within += value if isinstance(value, list) else [value]
    for item in within:
        if isinstance(item, dict):
            _fill(filled, item, card)


def _said(value: Any) -> Iterator[Any]:
    """Yield the texts and numbers of a value, in order."""
    if isinstance(value, dict):
        keys = {str(key).casefold(): key for key in value}
        named = [value[keys[known]] for known in _VALUES if known in keys]
        value = named[:1] or list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _said(item)
    else:
        yield value


def read_value(field: Field, said: Any) -> Any:
    """Return a value that a reply says of a column, never its "unknown"; or None.

    `said` is the text, number, truth value or None that the reply has for it.

    Example:
        >>> from langchain_dpicl.tabular import CategoricalColumn
        >>> values = ["dry cough", "diarrhea", "none", "unknown"]
        >>> column = CategoricalColumn(name="side effect", values=values)
        >>> field = Field(column, "unknown")
        >>> said = ["Coughs, dry", "No side effects", "not mentioned"]
        >>> [read_value(field, each) for each in said]
        ['dry cough', 'none', None]
    """
    if isinstance(field.column, NumericColumn):
        return _number(field.column, said)
    try:
        text = ("no", "yes")[said] if isinstance(said, bool) else spelled(said)
    except UnreadableError:
        text = str(said)
    found = None if text is None else _category(field, respelled(text[:_LONGEST]))
    return None if found == field.unknown else found


def _category(field: Field, text: str) -> str | None:
    labels, other = field.labels, getattr(field.column, "other", None)
    words = words_of(text)
    if words[:1] in (["other"], ["others"]) and text not in labels:
        return other
    chosen = read_choice(text, labels, field.aliases)
    if isinstance(chosen, int):
        return labels[chosen]
    if not words or words == ["null"] or declines(text):
        return None
    if is_denial(text):
        beside = set(map(form, words[1:]))
        return field.none if beside.issubset(forms_of_name(field.column.name)) else None
    if len(words) > _MOST_WORDS or any(map(_is_negator, words)):
        return None
    named = named_in(words, forms_of(labels, field.aliases))[0]
    return labels[named[0]] if named else other


def _is_negator(word: str) -> bool:
    return word in NEGATORS or word.endswith("n't")


def _number(column: NumericColumn, said: Any) -> int | float | None:
    if isinstance(said, bool) or said is None:
        return None
    found = {
        float(each.replace(",", ""))
        for each in _NUMBER.findall(respelled(str(said)[:_LONGEST]))
    }
    if len(found) > 1:
        found = {each for each in found if column.lower <= each <= column.upper}
    if len(found) != 1:
        return None
    number = min(max(found.pop(), column.lower), column.upper)
    return round(number) if column.kind == "integer" else number
