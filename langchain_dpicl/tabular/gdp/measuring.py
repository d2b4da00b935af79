"""What a table is asked to count: its groups, or columns and pairs by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeAlias

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.schema.numeric import NumericColumn
from langchain_dpicl.tabular.schema.table import TableSchema

Measure: TypeAlias = Sequence[str | tuple[str, ...]]
"""Names of columns, and pairs of names."""

_MOST = 2
_ASKED = (
    "measure must list columns and pairs of columns: "
    "[('condition', 'drug'), ('drug', 'side effect'), 'age']."
)


def table_name(columns: Sequence[str]) -> str:
    """Return what a table is called in the split and the record.

    Example:
        >>> table_name(("condition", "drug"))
        'condition x drug'
    """
    return " x ".join(columns)


def read_measure(measure: Any, schema: TableSchema) -> tuple[tuple[str, ...], ...]:
    """Return each table's columns.

    Raises:
        InvalidParameterError: If it is no list of names and pairs of names, a column is
            unknown or has no bins, a table is there twice, or it is a pair without a
            list around it.
    """
    if isinstance(measure, tuple) and list(map(type, measure)) == [str, str]:
        raise InvalidParameterError(
            f"measure={measure!r:.200} may mean one pair or two columns: write a list, "
            "[('drug', 'side effect')] for the pair, ['drug', 'side effect'] for both."
        )
    found = [_columns(one) for one in _listed(measure)]
    if not found:
        raise InvalidParameterError(_ASKED)
    for own in found:
        if len(own) > _MOST or len(set(own)) < len(own):
            raise InvalidParameterError(
                f"measure lists {own!r:.200}: a table is of one column or of two "
                "different ones."
            )
        for name in own:
            column = schema.column(name)
            if isinstance(column, NumericColumn) and not column.has_codes:
                raise InvalidParameterError(
                    f"measure names {name!r}, a number: give the column public bins "
                    "(bins=), which then are counted."
                )
    for place, own in enumerate(found):
        before = found[:place]
        if set(own) in map(set, before):
            raise InvalidParameterError(
                f"measure lists {own!r:.200} twice. The order of a pair does not "
                "matter: name each table once."
            )
        if table_name(own) in map(table_name, before):
            raise InvalidParameterError(
                f"measure lists two tables that are both called {table_name(own)!r} "
                "in the record: give a column another name."
            )
    return tuple(found)


def read_group_by(
    group_by: str | Sequence[str] | None, schema: TableSchema
) -> tuple[str, ...]:
    """Return the names of the `group_by` columns: by default the label.

    Raises:
        InvalidParameterError: If it is no name, and no sequence of names.
    """
    if group_by is None:
        return (schema.label,)
    # A set has another order in every process, and groups come in this order.
    is_listed = isinstance(group_by, Iterable) and not isinstance(
        group_by, (bytes, AbstractSet, Mapping)
    )
    names: tuple[Any, ...] = ()
    if isinstance(group_by, str):
        names = (group_by,)
    elif is_listed:
        names = tuple(group_by)
    if not is_listed or not all(isinstance(name, str) for name in names):
        raise InvalidParameterError(
            "group_by must be names of columns: 'income', or ['income', 'sex'], or [] "
            "for a single group."
        )
    return names


def _listed(given: Any) -> list[Any]:
    # A set has another order in every process; a text is a list of letters.
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Sequence):
        raise InvalidParameterError(_ASKED)
    return list(given)


def _columns(one: Any) -> tuple[str, ...]:
    own = (one,) if isinstance(one, str) else tuple(_listed(one))
    if not own or not all(isinstance(name, str) for name in own):
        raise InvalidParameterError(_ASKED)
    return own
