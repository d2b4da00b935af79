"""The public card that a model fills in: columns, values, and what "unknown" is.

Everything here follows from the schema alone. "Unknown" is a value of every column, so
that a unit about which the model says nothing has a row like everybody else:

* a category's `missing` value, if the schema declares one; else the one value that says
  itself that nothing is told ("unknown", "not mentioned"); else the value `UNKNOWN`,
  which is added and declared as `missing`;
* a number's `missing`, which the schema must declare.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from langchain_dpicl.exceptions import InvalidParameterError
from langchain_dpicl.parsers.reading.mentions import NEGATORS
from langchain_dpicl.parsers.reading.refusal import says_nothing
from langchain_dpicl.parsers.reading.text import passage
from langchain_dpicl.tabular.schema.columns import CategoricalColumn
from langchain_dpicl.tabular.schema.numeric import NumericColumn
from langchain_dpicl.tabular.schema.table import TableSchema

UNKNOWN = "unknown"
"""The value that is added to a column of categories without one of this meaning."""

DENIALS = (NEGATORS | {"nil", "zero"}) - {"cannot", "cant", "not"}
"""First words of a reply, or a value, that says that there is none."""

_POLAR = frozenset({"yes", "no"})
_LONGEST_NAME = 200
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
        return (
            f'"{self.column.name}"{_title(self.column)}: {", ".join(values)}{hint}, or '
            f'"{self.unknown}"'
        )

    @property
    def json_schema(self) -> dict[str, Any]:
        """The values as JSON Schema."""
        return {"type": "string", "enum": list(self.labels)}


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


class ColumnNames:
    """Columns' names as replies may spell them; public.

    Args:
        names: By column, what it is called.

    Example:
        >>> names = ColumnNames({"drug": ["drug"], "side effect": ["side effect"]})
        >>> [names.find(name) for name in ("Side_Effects", "effect", "drug dose", "x")]
        ['side effect', 'side effect', 'drug', None]
    """

    def __init__(self, names: Mapping[str, Iterable[str]]) -> None:
        self._known = [
            (frozenset(stems_of(called)), column)
            for column, all_called in names.items()
            for called in all_called
        ]

    def find(self, name: str) -> str | None:
        """Return the column that a reply's name means: by all its words, or by some.

        Args:
            name: A name of one column, by fewer words or by more; private.
        """
        stems = frozenset(stems_of(name[:_LONGEST_NAME]))
        shorter = [
            (len(known), column) for known, column in self._known if known < stems
        ]
        most = max(shorter, default=(0, ""))[0]
        for fits in (
            {column for known, column in self._known if known == stems},
            {column for known, column in self._known if stems and known > stems},
            {column for length, column in shorter if length == most},
        ):
            if fits:
                return fits.pop() if len(fits) == 1 else None
        return None


@dataclass(frozen=True)
class Card:
    """A schema as a model fills it in.

    Attributes:
        schema: The effective public schema: each column of categories has its
            "unknown".
        fields: How each column is read.

    Example:
        >>> schema = TableSchema(
        ...     label="ill",
        ...     columns=[
        ...         CategoricalColumn(name="job", values=["clerk", "nurse"]),
        ...         CategoricalColumn(name="ill", values=["no", "yes", "not stated"]),
        ...     ],
        ... )
        >>> card = Card.of(schema)
        >>> card.unknowns, card.schema.column("job").values
        ({'job': 'unknown', 'ill': 'not stated'}, ('clerk', 'nurse', 'unknown'))
    """

    schema: TableSchema
    fields: tuple[Field, ...]

    @classmethod
    def of(cls, schema: Any) -> Card:
        """Return a schema's card.

        Raises:
            InvalidParameterError: If this is no schema, a column has no value for
                "unknown" and can't be given one, or two values or two names can't be
                told apart in a reply.
        """
        if not isinstance(schema, TableSchema):
            raise InvalidParameterError(
                f"schema must be a TableSchema, not {type(schema).__name__}: it says "
                "which values are public. draft_schema(model, about=...) drafts one."
            )
        fields = tuple(map(_field, schema.columns))
        columns = [field.column for field in fields]
        _require_distinct_names(columns)
        return cls(schema.model_copy(update={"columns": columns}), fields)

    @cached_property
    def names(self) -> ColumnNames:
        """The columns' names."""
        return ColumnNames(
            {
                field.column.name: (field.column.name, field.column.title)
                for field in self.fields
            }
        )

    @property
    def unknowns(self) -> dict[str, Any]:
        """The row of a unit about which nothing is known."""
        return {field.column.name: field.unknown for field in self.fields}

    @property
    def nones(self) -> dict[str, str | None]:
        """By column, its value that says that there is none."""
        return {
            field.column.name: getattr(field, "none", None) for field in self.fields
        }

    @property
    def lines(self) -> str:
        """The columns as lines of the prompt."""
        return "\n".join(f"- {field.line}" for field in self.fields)

    @property
    def json_schema(self) -> dict[str, Any]:
        """The answer as JSON Schema, every column required."""
        found = {field.column.name: field.json_schema for field in self.fields}
        return {
            "type": "object",
            "properties": found,
            "required": list(found),
            "additionalProperties": False,
        }


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


def _title(column: CategoricalColumn | NumericColumn) -> str:
    return f" ({column.title})" if column.title != column.name else ""


def _field(column: CategoricalColumn | NumericColumn) -> Field:
    if isinstance(column, NumericColumn):
        if column.missing is None:
            raise InvalidParameterError(
                f"Column {column.name!r} needs missing=: the public number that people "
                "count as whose records tell none."
            )
        return NumberField(column, column.missing)
    unknown = column.missing
    if unknown is None:
        silent = [value for value in column.values if says_nothing(value)]
        if len(silent) > 1:
            raise InvalidParameterError(
                f"Column {column.name!r}: {silent[0]!r} and {silent[1]!r} both say "
                "that nothing is known. Keep one of them, or declare it as missing=."
            )
        unknown = silent[0] if silent else UNKNOWN
        values = column.values if silent else (*column.values, UNKNOWN)
        column = column.model_copy(update={"values": values, "missing": unknown})
    field = CategoryField(column, unknown)
    _require_distinct_values(field)
    return field


def _require_distinct_values(field: CategoryField) -> None:
    """Refuse values that differ in case, punctuation or inflection alone."""
    known: dict[Any, str] = {}
    for value in field.labels:
        other = known.setdefault(value_key(value), value)
        if other != value:
            raise InvalidParameterError(
                f"Column {field.column.name!r}: the values {other!r} and {value!r} "
                "can't be told apart in a reply (letter case, punctuation, inflection "
                "and the order of words don't count). Make one of them."
            )


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


def _require_distinct_names(columns: Iterable[Any]) -> None:
    names = [column.name for column in columns]
    keys = [stems_of(name) for name in names]
    for key, times in Counter(keys).items():
        if times > 1 or not key:
            name = names[keys.index(key)]
            raise InvalidParameterError(
                f"Column {name!r} can't be told from another one in a reply, or its "
                "name has no word in it. Rename one."
            )


def stems_of(name: str) -> tuple[str, ...]:
    """Return the stems of a name's words, however it is written.

    Example:
        >>> {stems_of(name) for name in ("main_drugs", "Main Drug(s)", "mainDrug")}
        {('main', 'drug')}
    """
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", name.replace("(s)", ""))
    return tuple(token.stem for token in passage(split).tokens)
