"""One column of the public card, as it is asked for and as replies are read for it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from langchain_dpicl.parsers.reading.denials import NEGATORS
from langchain_dpicl.parsers.reading.text import passage
from langchain_dpicl.tabular.schema.columns import CategoricalColumn
from langchain_dpicl.tabular.schema.numeric import NumericColumn

UNKNOWN = "unknown"
"""The value that is added to a column of categories without one of this meaning."""

DENIALS = (NEGATORS | {"nil", "zero"}) - {"cannot", "cant", "not"}
"""First words of a reply, or a value, that says that there is none."""

_POLAR = frozenset({"yes", "no"})
_SIGNS = re.compile(r"[<>=+#%$&\u20ac\u00a3]|^-(?=\d)")
# Of pairs of spellings the American one; both sides of a comparison are spelled so.
_AMERICAN = (
    (re.compile(r"(?<=\w)oe|(?<=\w)ae|\b[ao]e(?=d|s|c|n)"), "e"),
    (re.compile(r"our(?=s?\b)"), "or"),
    (re.compile(r"ys(?=e[ds]?\b)"), "yz"),
    (re.compile(r"is(?=(?:e[ds]?|ing|ations?)\b)"), "iz"),
    (re.compile(r"(?<=[bt])re\b"), "er"),
)


@dataclass(frozen=True)
class CategoryField:
    """A column of categories, as replies are read for it.

    Attributes:
        column: The column, with its "unknown".
        unknown: The value that stands for "unknown".
    """

    column: CategoricalColumn
    unknown: str

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The values, in the order of their codes."""
        return self.column.values

    @cached_property
    def aliases(self) -> dict[str, tuple[str, ...]]:
        """Further spellings: how values are shown."""
        return {value: (text,) for value, text in self.column.texts.items()}

    @cached_property
    def denials(self) -> tuple[str, ...]:
        """The values that deny something: "none", "no sound"."""
        return tuple(value for value in self.labels if is_denial(value))

    @cached_property
    def none(self) -> str | None:
        """The one value that says that there is none, if there is one."""
        bare = [one for one in self.denials if one.casefold() in DENIALS]
        found = bare or self.denials
        return found[0] if len(found) == 1 else None

    @cached_property
    def polar(self) -> dict[str, str]:
        """The values "yes" and "no", where both are there."""
        found = {value.casefold(): value for value in self.labels}
        return {word: found[word] for word in _POLAR if found.keys() >= _POLAR}

    @cached_property
    def name_stems(self) -> frozenset[str]:
        """The words of the column's names."""
        return frozenset((*stems_of(self.column.name), *stems_of(self.column.title)))

    @cached_property
    def american(self) -> tuple[str, ...]:
        """The values in one spelling; empty where two would be the same."""
        found = tuple(map(american, self.labels))
        return found if len(set(found)) == len(found) else ()

    @cached_property
    def words(self) -> dict[str, frozenset[int]]:
        """From a word's stem to the values that have it."""
        found: dict[str, set[int]] = {}
        for code, label in enumerate(self.labels):
            for token in passage(label).tokens:
                found.setdefault(token.stem, set()).add(code)
        return {stem: frozenset(codes) for stem, codes in found.items()}

    def within(self, stems: AbstractSet[str]) -> frozenset[int]:
        """Return the values all of whose words are among some, those of most words."""
        counts = Counter(code for stem in stems for code in self.words.get(stem, ()))
        whole = {code: n for code, n in counts.items() if n == self.lengths[code]}
        most = max(whole.values(), default=0)
        return frozenset(code for code, length in whole.items() if length == most)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """How many different words each value has."""
        counts = Counter(code for codes in self.words.values() for code in codes)
        return tuple(counts[code] for code in range(len(self.labels)))

    @property
    def line(self) -> str:
        """The column's line of the prompt."""
        values = [
            f'"{value}"' + (f" ({texts[value]})" if value in texts else "")
            for texts in [self.column.texts]
            for value in self.labels
            if value != self.unknown
        ]
        others = self.column.other
        hint = f' ("{others}" for any other)' if others not in (None, UNKNOWN) else ""
        if self.column.open:
            most = self.column.max_items
            more = f", at most {most} with commas between them" if most > 1 else ""
            hint = f' ("other: " and one to three words for any other{more})'
        return (
            f'"{self.column.name}"{_title(self.column)}: {", ".join(values)}{hint}, or '
            f'"{self.unknown}"'
        )

    @property
    def json_schema(self) -> dict[str, Any]:
        """The values as JSON Schema; of an open column any text."""
        listed = {} if self.column.open else {"enum": list(self.labels)}
        return {"type": "string", **listed}


@dataclass(frozen=True)
class NumberField:
    """A column of numbers, as replies are read for it.

    Attributes:
        column: The column.
        unknown: The number that stands for "unknown".
    """

    column: NumericColumn
    unknown: int | float

    @property
    def line(self) -> str:
        """The column's line of the prompt."""
        column = self.column
        kind = "a whole number" if column.kind == "integer" else "a number"
        unit = f" of {column.unit}" if column.unit else ""
        return (
            f'"{column.name}"{_title(column)}: {kind}{unit} from {column.lower} to '
            f"{column.upper}, or null"
        )

    @property
    def json_schema(self) -> dict[str, Any]:
        """The numbers as JSON Schema."""
        return {
            "type": ["integer" if self.column.kind == "integer" else "number", "null"]
        }


Field = CategoryField | NumberField


def is_denial(text: str) -> bool:
    """Return whether a text begins by saying that there is none.

    Example:
        >>> is_denial("No side effects."), is_denial("nausea")
        (True, False)
    """
    tokens = passage(text).tokens
    return bool(tokens) and tokens[0].word in DENIALS


def american(text: str) -> str:
    """Return a text in American spelling, or nearly: both sides of a comparison are.

    Example:
        >>> american("Diarrhoea, oedema, tumour"), american("poem")
        ('diarrhea, edema, tumor', 'pem')
    """
    text = text.casefold()
    for pattern, spelling in _AMERICAN:
        text = pattern.sub(spelling, text)
    return text


def value_key(value: str) -> tuple[Any, ...]:
    """Return what a value is known by in a reply.

    Example:
        >>> value_key("Weight-losses") == value_key("loss, weight")
        True
        >>> value_key("<5") == value_key("5")
        False
    """
    stems = sorted(token.stem for token in passage(value).tokens)
    return (tuple(stems), *_SIGNS.findall(value))


def stems_of(name: str) -> tuple[str, ...]:
    """Return the stems of a name's words, however it is written.

    Example:
        >>> {stems_of(name) for name in ("main_drugs", "Main Drug(s)", "mainDrug")}
        {('main', 'drug')}
    """
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", name.replace("(s)", ""))
    return tuple(token.stem for token in passage(split).tokens)


def _title(column: CategoricalColumn | NumericColumn) -> str:
    return f" ({column.title})" if column.title != column.name else ""
