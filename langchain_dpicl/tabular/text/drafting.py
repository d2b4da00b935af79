"""`draft_schema`: public values for each column, from names and a sentence alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_dpicl.common import parameters
from langchain_dpicl.common.prompts import VALUES_PROMPT
from langchain_dpicl.common.replies import answer_of
from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.parsers.reading import read_drafts
from langchain_dpicl.tabular.columns import CategoricalColumn
from langchain_dpicl.tabular.schema import TableSchema
from langchain_dpicl.tabular.text.card import (
    Card,
    column_named,
    is_denial,
    value_key,
)
from langchain_dpicl.tabular.text.reply import objects_in


def draft_schema(
    model: Any,
    *,
    about: str,
    columns: Sequence[str] | Mapping[str, str] = (),
    label: str | None = None,
    max_values: int = 20,
) -> TableSchema:
    """Have a model list public values for each column, in one public call.

    Read what comes back, edit it (`schema.save(path)`, `TableSchema.load(path)`), and
    read records with it (`TextRows`). Each column has its "unknown" already.

    Args:
        model: A chat model or completion model.
        about: What the records are, in a sentence.
        columns: The columns' names, or a mapping from names to what they mean.
        label: The name of the column to predict; None: the first one.
        max_values: Most values of a column.

    Raises:
        InvalidParameterError: If an argument is of another form. Records are refused.
        PublicCallError: If the model fails, or drafts no values for a column.

    Privacy:
        Nothing private goes in: the call is an ordinary one, in sight of callbacks and
        traces. Values taken out of records would tell of single people.
    """
    most = parameters.count(max_values, "max_values", minimum=2)
    names = list(columns) if isinstance(columns, list | tuple | Mapping) else []
    meanings = list(columns.values()) if isinstance(columns, Mapping) else []
    texts = [about, *names, *meanings]
    if not names or not all(isinstance(one, str) and one.strip() for one in texts):
        raise InvalidParameterError(
            "about must be a sentence, and columns a list of names, or a mapping from "
            "names to what they mean. Values must not be drafted from records."
        )
    said = [f": {meaning}" for meaning in meanings] or [""] * len(names)
    lines = [f'- "{name}"{more}' for name, more in zip(names, said, strict=True)]
    asked = {"about": about, "columns": "\n".join(lines), "max_values": most}
    failure = ""
    try:
        reply = answer_of((VALUES_PROMPT | model).invoke(asked))
    except Exception as error:  # noqa: BLE001 - replaced by an error of ours
        failure = type(error).__name__
    if failure:
        raise PublicCallError(f"The model failed on the description ({failure}).")
    known, drafted = {name: [name] for name in names}, dict[str, Any]()
    for found in objects_in(reply):
        within = [each for each in found.values() if isinstance(each, dict)]
        for key, values in (pair for each in (found, *within) for pair in each.items()):
            if (
                isinstance(values, list)
                and (name := column_named(key, known)) is not None
            ):
                drafted[name] = _values(values, most)
    if short := [name for name in names if len(drafted.get(name, ())) < 2]:  # noqa: PLR2004
        raise PublicCallError(f"The model drafted no values for column {short[0]!r}.")
    made = [CategoricalColumn(name=name, values=drafted[name]) for name in names]
    return Card.of(TableSchema(label=label or names[0], columns=made)).schema


def _values(said: list[Any], most: int) -> list[str]:
    """Return different values without remarks; what says "none" is the last."""
    texts = [str(each) for each in said if isinstance(each, str | int | float)]
    none = [text.strip(" .").lower() for text in texts if is_denial(text)][:1]
    listed = json.dumps([text for text in texts if not is_denial(text)])
    found = {value_key(value): value for value in reversed(read_drafts(listed, most))}
    return [*list(found.values())[::-1][: most - len(none)], *none]
