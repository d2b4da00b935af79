"""What a reply says of one column: public rules about one text and public values.

For a column of categories, in this order:

1. "other: ..." is the column's `other`, unless what stands behind it is a value.
2. The value that `read_choice` finds; then the same in American spelling.
3. A reply that says that nothing is told is unknown.
4. Of several values the first that is named, in a reply that denies nothing.
5. A reply that says that there is none is the value that says so, if one does. Where
   several values deny something ("none", "no sound"), only "no" with the column's own
   name does. Of "yes" and "no" the column's name is "yes", its denial "no".
6. The one value that has all the words of the reply ("diabetes": "type 2 diabetes"),
   or all of whose words the reply has ("urinary tract infection": "urinary infection").
7. Anything else is the column's `other`, if it has one.

A number is the only one in the reply, or the only one within the bounds.

In an open column, what says no listed value is also kept by its name (`read_names`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from langchain_dpicl.common.slots import hidden_repr
from langchain_dpicl.parsers.reading.choice import read_choice
from langchain_dpicl.parsers.reading.denials import ARTICLES, is_negator
from langchain_dpicl.parsers.reading.mentions import (
    Options,
    chooses_none,
    mentions,
    options_of,
)
from langchain_dpicl.parsers.reading.refusal import nothing_said
from langchain_dpicl.parsers.reading.text import Passage, passage, stem, word_set
from langchain_dpicl.tabular.schema.numeric import NumericColumn
from langchain_dpicl.tabular.schema.spelling import UnreadableError, spelled
from langchain_dpicl.tabular.text.fields import (
    CategoryField,
    Field,
    NumberField,
    american,
    is_denial,
)
from langchain_dpicl.tabular.text.opened import OTHER, UNSAID, names_in

_NUMBER = re.compile(r"(?<![\w.,])(?:(?<![\w-])-)?\d+(?:,\d{3})*(?:\.\d+)?(?![,.]?\d)")
_TOLD = word_set(
    "mention mentioned mentions stated specified given information info data details "
    "documented evidence record recorded indicated indication provided"
)
_LIGHT_WORDS = (
    "a all an any are at been found has have identified is issues it known noted of "
    "problems reported so the there was were wrong"
)
_LIGHT = frozenset(map(stem, _LIGHT_WORDS.split()))
_POLAR_WORDS = {"y": "yes", "true": "yes", "n": "no", "false": "no"}
_MOST_WORDS = 20
_LONGEST = 2_000


def read_value(field: Field, said: Any) -> Any:
    """Return what a reply says of a column; None where it tells nothing.

    Args:
        field: The column.
        said: The text, number, truth value or None that the reply has for it. Private.

    Returns:
        A value of the column, never its "unknown"; or None.

    Example:
        >>> from langchain_dpicl.tabular import CategoricalColumn
        >>> values = ["dry cough", "diarrhea", "none", "unknown"]
        >>> column = CategoricalColumn(name="side effect", values=values)
        >>> field = CategoryField(column, "unknown")
        >>> said = ["Coughs, dry", "diarrhoea", "No side effects", "not mentioned"]
        >>> [read_value(field, each) for each in said]
        ['dry cough', 'diarrhea', 'none', None]
    """
    if isinstance(field, NumberField):
        return _number(field.column, said)
    try:
        text = spelled(said)
    except UnreadableError:
        return None
    found = None if text is None else _Said(field, text[:_LONGEST]).value()
    return None if found == field.unknown else found


def read_names(field: CategoryField, said: Iterable[Any]) -> list[str]:
    """Return what a reply names of an open column outside its list.

    Args:
        field: The column.
        said: All that the reply has for it. Private.

    Returns:
        At most `max_items` names: what is a listed value has none.
    """
    column, found = field.column, dict[str, None]()
    for one in said:
        if isinstance(one, str) and read_value(field, one) in (None, column.other):
            found.update(dict.fromkeys(names_in(column, one)))
    return list(found)[: column.max_items]


class _Said:
    """What a reply says of one column of categories."""

    def __init__(self, field: CategoryField, text: str) -> None:
        self.field = field
        self.text = text
        self.read: Passage = passage(text)

    def __repr__(self) -> str:
        return hidden_repr(self)

    def value(self) -> str | None:
        """Return the value that is said; see the module."""
        field, labels = self.field, self.field.labels
        other = OTHER.match(self.text)
        if other and self.text not in labels:
            rest = passage(self.text[other.end() :]).tokens
            whole = tuple(sorted(token.stem for token in rest))
            code = self._options().whole.get(whole)
            return field.column.other if code is None else labels[code]
        if chooses_none(self.read):
            return field.column.other
        chosen = read_choice(self.text, labels, field.aliases)
        if not isinstance(chosen, int) and field.american:
            chosen = read_choice(american(self.text), field.american)
        if isinstance(chosen, int):
            return labels[chosen]
        words = [token.word for token in self.read.tokens]
        if field.polar:
            return self._polar(words)
        if not words or nothing_said(self.read) or words[0] in UNSAID:
            return None
        return self._loosely(words)

    def _loosely(self, words: list[str]) -> str | None:
        field, labels = self.field, self.field.labels
        denies = any(map(is_negator, words))
        named = mentions(self.read, self._options())
        if is_denial(self.text) and all(
            labels[one.option] == field.none for one in named
        ):
            told = _TOLD.intersection(words)
            return None if told or not self._denies_all() else field.none
        if len(words) > _MOST_WORDS or denies:
            return None
        for one in named:
            if one.option >= 0 and not one.aside:
                return labels[one.option]
        stems = {token.stem for token in self.read.tokens if token.word not in ARTICLES}
        sharing = [field.words.get(stem, frozenset()) for stem in stems]
        codes = frozenset.intersection(*sharing) if sharing else frozenset()
        codes = codes or field.within(stems)
        return labels[min(codes)] if len(codes) == 1 else field.column.other

    def _polar(self, words: list[str]) -> str | None:
        """Return "yes" or "no" for other words of that meaning."""
        field = self.field
        if len(words) == 1 and words[0] in _POLAR_WORDS:
            return field.polar[_POLAR_WORDS[words[0]]]
        stems = {
            token.stem for token in self.read.tokens if not is_negator(token.word)
        } - _LIGHT
        if words and stems and stems <= field.name_stems:
            return field.polar["no" if any(map(is_negator, words)) else "yes"]
        return None

    def _denies_all(self) -> bool:
        """Return whether a denial is of the column as a whole."""
        rest = {token.stem for token in self.read.tokens[1:]} - _LIGHT
        return len(self.field.denials) == 1 or rest <= self.field.name_stems

    def _options(self) -> Options:
        aliases = tuple(self.field.aliases.items())
        return options_of(self.field.labels, aliases)


def _number(column: NumericColumn, said: Any) -> int | float | None:
    if isinstance(said, bool) or said is None:
        return None
    text = str(said)[:_LONGEST]
    read = passage(text)
    found = {float(each.replace(",", "")) for each in _NUMBER.findall(read.text)}
    if len(found) > 1:
        found = {each for each in found if column.lower <= each <= column.upper}
    if len(found) != 1:
        return None
    number = found.pop()
    if not column.lower <= number <= column.upper:
        if column.outside == "refuse":
            return None
        number = min(max(number, column.lower), column.upper)
    return round(number) if column.kind == "integer" else number
