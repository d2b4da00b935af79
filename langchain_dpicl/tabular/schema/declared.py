"""What a column's declared type says: numbers, categories or text, and listed values.

Types are told by their names, so that neither pandas nor polars nor SQLAlchemy is
imported for it. A dtype is never asked for its categories: those of a pandas
categorical are made from values.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Literal, get_args, get_origin

import numpy as np

from langchain_dpicl.tabular.schema.spelling import UnreadableError, spelled

Kind = Literal["integer", "number", "categorical", "text", "unknown"]

# The first that matches decides: numpy's timedelta64 is derived from its integers.
_KINDS: tuple[tuple[str, Kind], ...] = (
    (r"(date|time|duration|interval|period).*", "unknown"),
    (r"bool(ean)?_?(\[pyarrow\])?", "categorical"),
    (
        r"u?(small|big|tiny|medium)?int(eger)?\d*(\[pyarrow\]|\(\d+\))?|\w*serial",
        "integer",
    ),
    (r"(float|double|decimal|numeric|real|number).*", "number"),
    (r"(category|categorical|enum|dictionary).*", "categorical"),
    (
        r"((large_)?str(ing)?|object|utf8|\w*text|n?(var)?char\d?|clob|unicode)\W?.*",
        "text",
    ),
)
_SQL = ("sqlalchemy.",)
_LIBRARIES = (*_SQL, "pandas.", "polars.", "pyarrow.")
_BOOLEAN = _KINDS[1][0]
_MIN_VALUES = 2


def kind_of(type_: Any) -> Kind:
    """Return what a declared type is like.

    Args:
        type_: A Python type, a dtype of numpy, pandas or polars, a type of SQLAlchemy,
            or the name of one of these.

    Returns:
        Its kind; "unknown" for dates, binary data and what is not known.

    Example:
        >>> kind_of(int), kind_of("float64"), kind_of("VARCHAR(20)"), kind_of("date")
        ('integer', 'number', 'text', 'unknown')
    """
    if values_of(type_) is not None:
        return "categorical"
    for name in _names(type_):
        for pattern, kind in _KINDS:
            if re.fullmatch(pattern, name):
                return kind
    return "unknown"


def values_of(type_: Any) -> tuple[str, ...] | None:
    """Return the values that a declared type lists itself, or None.

    Args:
        type_: As in `kind_of`.

    Returns:
        Those of a truth value, a Python or SQLAlchemy `Enum`, or a `Literal`, if there
        are at least two and a column can have them.

    Example:
        >>> values_of(bool), values_of(Literal["low", "high"]), values_of(str)
        (('False', 'True'), ('low', 'high'), None)
    """
    found: list[Any] = []
    if isinstance(type_, type) and issubclass(type_, Enum):
        found = list(type_)
    elif get_origin(type_) is Literal:
        found = list(get_args(type_))
    elif _is_from(_SQL, type(type_)) and isinstance(
        listed := getattr(type_, "enums", None), list
    ):
        found = listed
    elif re.fullmatch(_BOOLEAN, _names(type_)[0]):
        found = [False, True]
    try:
        values = [spelled(value) for value in found]
    except UnreadableError:
        return None
    kept = tuple(dict.fromkeys(value for value in values if value is not None))
    return kept if len(kept) >= _MIN_VALUES else None


def _names(type_: Any) -> list[str]:
    """What a type may be called, its own name first."""
    if isinstance(type_, str):
        return [type_.strip().lower()]
    kind = type_ if isinstance(type_, type) else type(type_)
    if kind is type_ or isinstance(type_, np.dtype) or _is_from(_LIBRARIES, kind):
        if isinstance(own := getattr(type_, "name", None), str):
            return [own.lower()]  # a dtype of numpy or pandas
        bases = [base.__name__.lower() for base in kind.__mro__ if base is not object]
        return bases or ["object"]
    return [""]  # A value, for instance of a row, is no type.


def _is_from(libraries: tuple[str, ...], kind: type) -> bool:
    return any(base.__module__.startswith(libraries) for base in kind.__mro__)
