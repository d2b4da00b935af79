"""`draft_schema`: public values for each column, from names and questions alone.

A model knows what patients' conditions are called without seeing a patient. What it is
told is what its user writes here; no argument takes records. So the values are public,
and so is everything that is released by them.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.documents import Document
from langchain_core.prompt_values import PromptValue

from langchain_dpicl.common import parameters
from langchain_dpicl.common.prompts import VALUES_PROMPT
from langchain_dpicl.common.replies import answer_of
from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.parsers.reading.drafts import read_drafts
from langchain_dpicl.tabular.schema.columns import CategoricalColumn, TableColumn
from langchain_dpicl.tabular.schema.table import TableSchema
from langchain_dpicl.tabular.text.card import Card, ColumnNames
from langchain_dpicl.tabular.text.fields import CategoryField, is_denial, value_key
from langchain_dpicl.tabular.text.objects import objects_in
from langchain_dpicl.tabular.text.reading import fill

_MOST_COLUMNS = 12
_FEW = 3
_LEAST_PEOPLE = 20
_LEAST_VALUES = 2


class SchemaDraftWarning(UserWarning):
    """A drafted list of values looks too long, too short, or cut off."""


def draft_schema(
    model: Any,
    *,
    about: str,
    columns: Sequence[str | TableColumn] | Mapping[str, str] | None = None,
    questions: Sequence[str] | None = None,
    label: str | None = None,
    max_values: int = 20,
    n_people: int | None = None,
) -> TableSchema:
    """Have a model list public values for each column, in one public call.

    Read what comes back, edit it (`schema.save(path)`, `TableSchema.load(path)`), and
    read records with it (`TextRows`). Each column has its "unknown" already.

    Args:
        model: A chat model or completion model.
        about: What the records are, in a sentence.
        columns: The columns' names, or a mapping from names to what they mean. A column
            that is given as a column (numbers, say) stays as it is. None: the model
            chooses columns by the questions.
        questions: What the table is to answer.
        label: The name of the column to predict; None: the first one of categories.
        max_values: Most values of a column.
        n_people: A public guess of how many people there are, for the warnings.

    Returns:
        The schema.

    Raises:
        InvalidParameterError: If an argument is of another form. Records are refused.
        PublicCallError: If the model fails, or drafts no values for a column.

    Warns:
        SchemaDraftWarning: If a list looks too long for so many people, too short, or
            cut off at `max_values`.

    Privacy:
        Nothing private goes in: the call is an ordinary one, in sight of callbacks and
        traces. Values taken out of records would tell of single people.

    Example:
        >>> from langchain_core.language_models import FakeListChatModel
        >>> reply = '{"drug": ["ibuprofen", "aspirin", "Aspirins", "codeine", "none"]}'
        >>> model = FakeListChatModel(responses=[reply])
        >>> sex = CategoricalColumn(name="sex", values=["f", "m"])
        >>> schema = draft_schema(
        ...     model, about="Notes on headaches.", columns=["drug", sex]
        ... )
        >>> schema.column("drug").values
        ('ibuprofen', 'aspirin', 'codeine', 'none', 'unknown')
    """
    request = _Request.of(about, columns, questions, label, max_values, n_people)
    if not request.asks:
        return request.schema("")
    failure = ""
    try:
        reply = model.invoke(request.prompt)
    except Exception as error:  # noqa: BLE001 - replaced by an error of ours
        failure = type(error).__name__
    if failure:
        raise _failed(failure)
    return request.schema(_text(reply))


async def adraft_schema(
    model: Any,
    *,
    about: str,
    columns: Sequence[str | TableColumn] | Mapping[str, str] | None = None,
    questions: Sequence[str] | None = None,
    label: str | None = None,
    max_values: int = 20,
    n_people: int | None = None,
) -> TableSchema:
    """Have a model list public values for each column; see `draft_schema`."""
    request = _Request.of(about, columns, questions, label, max_values, n_people)
    if not request.asks:
        return request.schema("")
    failure = ""
    try:
        reply = await model.ainvoke(request.prompt)
    except Exception as error:  # noqa: BLE001 - replaced by an error of ours
        failure = type(error).__name__
    if failure:
        raise _failed(failure)
    return request.schema(_text(reply))


@dataclass(frozen=True)
class _Request:
    """What is drafted; public.

    Attributes:
        about: What the records are.
        columns: By name, what a column means, or the column itself; empty: the model
            chooses.
        questions: What the table is to answer.
        label: The column to predict.
        max_values: Most values of a column.
        n_people: How many people there are, roughly.
    """

    about: str
    columns: Mapping[str, str | TableColumn]
    questions: Sequence[str]
    label: str | None
    max_values: int
    n_people: int | None

    @classmethod
    def of(
        cls,
        about: Any,
        columns: Any,
        questions: Any,
        label: str | None,
        max_values: Any,
        n_people: Any,
    ) -> _Request:
        named = _named(columns)
        asked = _texts("questions", questions or ())
        if not named and not asked:
            raise InvalidParameterError("Give columns=, questions=, or both.")
        count = parameters.count(max_values, "max_values", minimum=2)
        if n_people is not None:
            n_people = parameters.count(n_people, "n_people")
        (sentence,) = _texts("about", [about])
        return cls(sentence, named, asked, label, count, n_people)

    @property
    def asks(self) -> bool:
        """Whether there is anything to ask for."""
        return not self.columns or any(self._open)

    @property
    def _open(self) -> list[str]:
        return [name for name, given in self.columns.items() if isinstance(given, str)]

    @property
    def prompt(self) -> PromptValue:
        """The prompt."""
        lines = [
            f'- "{name}"' + (f": {meaning}" if meaning else "")
            for name, meaning in self.columns.items()
            if isinstance(meaning, str)
        ]
        columns = (
            "Its columns:" if lines else "Choose the columns: few, and short names."
        )
        asked = ["What it is to answer:", *(f"- {one}" for one in self.questions)]
        return VALUES_PROMPT.format_prompt(
            about=self.about,
            columns="\n".join([columns, *lines, ""]),
            questions="\n".join([*asked, ""]) if self.questions else "",
            max_values=self.max_values,
        )

    def schema(self, reply: str) -> TableSchema:
        """Return the schema that a reply drafts."""
        drafted = self._drafted(reply) if self.asks else {}
        columns: list[Any] = []
        for name, given in (self.columns or dict.fromkeys(drafted, "")).items():
            if isinstance(given, TableColumn):
                columns.append(given)
                continue
            values = drafted.get(name, [])
            if len(values) < _LEAST_VALUES:
                raise PublicCallError(
                    f"The model drafted no values for column {name!r:.80}. Say more in "
                    "about=, name the column more clearly, or give it as a "
                    "CategoricalColumn with values of your own."
                )
            columns.append(CategoricalColumn(name=name, values=values))
        labels = [one.name for one in columns if isinstance(one, CategoricalColumn)]
        label = self.label if self.label is not None else next(iter(labels), "")
        card = Card.of(TableSchema(label=label, columns=columns))
        for field in card.fields:
            if isinstance(field, CategoryField) and field.column.name in drafted:
                self._warn(field)
        return card.schema

    def _drafted(self, reply: str) -> dict[str, list[str]]:
        """Return the values of each column that a reply has some for."""
        found: dict[str, list[Any]] = {}
        if self._open:
            names = ColumnNames({name: [name] for name in self._open})
            for one in objects_in(reply):
                filled: dict[str, list[Any]] = {}
                fill(filled, one, names)
                found = filled if len(filled) >= len(found) else found
            found = found or _sections(reply, names)
        else:
            for one in objects_in(reply):
                lists = {
                    name.strip(): values
                    for name, values in one.items()
                    if name.strip() and isinstance(values, list) and len(values) > 1
                }
                found = lists if len(lists) >= len(found) else found
        return {
            name: self._values(said)
            for name, said in list(found.items())[:_MOST_COLUMNS]
        }

    def _values(self, said: Iterable[Any]) -> list[str]:
        """Return different values without remarks; what says "none" is the last."""
        texts = [str(each) for each in said if isinstance(each, str | int | float)]
        none = [text for text in texts if is_denial(text)][:1]
        listed = [text for text in texts if not is_denial(text)]
        if len(listed) == 1:
            listed = read_drafts(listed[0], self.max_values)
        kept: dict[Any, str] = {}
        for value in read_drafts(json.dumps(listed), len(listed)):
            kept.setdefault(value_key(value), value)
        most = self.max_values - len(none)
        return [
            *list(kept.values())[:most],
            *(text.strip(" .").lower() for text in none),
        ]

    def _warn(self, field: CategoryField) -> None:
        values = [one for one in field.labels if one not in (field.unknown, field.none)]
        count, name = len(values), field.column.name
        problem = ""
        if count < _FEW:
            problem = "what is none of them will be unknown: look for what is missing"
        elif count + (field.none is not None) >= self.max_values:
            problem = "the list may be cut off: look for what is missing"
        elif self.n_people is not None and self.n_people < _LEAST_PEOPLE * count:
            problem = (
                f"that is {self.n_people / count:.0f} people a value, of whom noise "
                "hides many: merge values"
            )
        if problem:
            warnings.warn(
                f"Column {name!r} has {count} values; {problem}.",
                SchemaDraftWarning,
                stacklevel=4,
            )


def _named(columns: Any) -> dict[str, str | TableColumn]:
    if isinstance(columns, Mapping):
        names = _texts("columns", columns)
        return dict(zip(names, _texts("columns", columns.values()), strict=True))
    found: dict[str, str | TableColumn] = {}
    if isinstance(columns, str | bytes):
        raise _refused("columns", columns)
    for column in columns or ():
        if isinstance(column, TableColumn):
            found[column.name] = column
        else:
            found[_texts("columns", [column])[0]] = ""
    return found


def _texts(name: str, given: Any) -> list[str]:
    """Return texts; what is none, a record for instance, is refused unseen."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise _refused(name, given)
    texts = list(given)
    for text in texts:
        if not isinstance(text, str) or not text.strip():
            raise _refused(name, text)
    return texts


def _refused(name: str, found: Any) -> InvalidParameterError:
    if isinstance(found, Document):
        return InvalidParameterError(
            f"{name} holds a Document: values must not be drafted from records. A "
            "value that one record alone has tells that this record is there. Describe "
            "the records in general."
        )
    what = "a sentence" if name == "about" else "a list of texts, none of them blank"
    return InvalidParameterError(f"{name} must be {what}, not {type(found).__name__}.")


def _sections(reply: str, names: ColumnNames) -> dict[str, list[Any]]:
    """Return what stands under each column's name, where it is no JSON."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in reply.splitlines():
        head, colon, rest = line.partition(":")
        name = (
            names.find(head) if colon or line.lstrip().startswith(("#", "*")) else None
        )
        if name is not None:
            lines = sections.setdefault(name, [])
        kept = line if name is None else rest
        if kept.strip(" *_"):
            lines.append(kept)
    return {
        name: list(read_drafts("\n".join(lines), len(reply)))
        for name, lines in sections.items()
    }


def _text(reply: Any) -> str:
    return json.dumps(reply) if isinstance(reply, Mapping) else answer_of(reply)


def _failed(failure: str) -> PublicCallError:
    return PublicCallError(
        f"The model failed on the description alone ({failure}). Call the model by "
        "itself, model.invoke('Hello'), to see what is wrong."
    )
