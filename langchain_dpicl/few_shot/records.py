"""The private records of a generation, and the prompts that show them.

Privacy:
    Unit: what one value of `unit_key` names; without a key, one record. Neighbors: all
    records of one unit more or less. Everything here treats each unit by itself:
    which label a unit stands under depends on that unit's records alone, so labels
    have disjoint units *by construction*, whatever the data. (To look whether they
    happen to be disjoint, and to account by what is found, would tell whether anybody
    has records under two labels.) A group's prompt is a function of its own records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from numbers import Number
from string import Formatter
from typing import Any

from langchain_core.documents import Document
from langchain_core.prompts import PromptTemplate

from langchain_dpicl.common.prompts import FEW_SHOT_CUE
from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.few_shot.terms import GenerationTerms, Sizes
from langchain_dpicl.groups import SampledGroups

TEXT, LABEL, UNIT = "text", "label", "unit"
EXAMPLES = "examples"

LONGEST_TEXT = 2000
"""Most characters of a record that a prompt shows."""

_HERE = "\N{OBJECT REPLACEMENT CHARACTER}records\N{OBJECT REPLACEMENT CHARACTER}"

Records = dict[str, list[Document]]
"""Each label's documents, whose metadata holds label and unit. Private."""


class FewShotPrompts:
    """From a label, and from a group's records, to the text of a prompt.

    The template is public. Where its `{examples}` stand, a prompt shows the group's
    records, each as what follows `{examples}` goes on: with its label, a space and its
    text. The model goes on where the prompt ends.

    Args:
        template: It has `{examples}` once, and `{label}`.
        one_line: Whether white space in a record's text becomes single spaces: a text
            that ends at the first line break is learned from texts without any.

    Example:
        >>> prompts = FewShotPrompts(template_of("Write a text."), one_line=True)
        >>> print(prompts.group("billing", [Document("my  parcel")]))
        Write a text.
        <BLANKLINE>
        Label: billing
        Text: my parcel
        <BLANKLINE>
        Label: billing
        Text:
    """

    def __init__(self, template: str, *, one_line: bool) -> None:
        self._template, self._one_line = template, one_line

    def public(self, label: str) -> str:
        """Return the instruction alone: no record takes part."""
        return self.group(label, [])

    def group(self, label: str, records: Sequence[Document]) -> str:
        """Return the prompt of one group of a label's records."""
        filled = self._template.format(examples=_HERE, label=label[:LONGEST_TEXT])
        before, _, cue = filled.partition(_HERE)
        shown = "".join(f"{cue} {self._text(record)}\n\n" for record in records)
        return f"{before}{shown}{cue}"

    def _text(self, record: Document) -> str:
        # A function of this record alone. Cut first: a text of megabytes is not split.
        text = record.page_content[: 2 * LONGEST_TEXT]
        return (" ".join(text.split()) if self._one_line else text)[:LONGEST_TEXT]


def template_of(prompt: Any) -> str:
    """Return a user's prompt as a template of `{examples}` and `{label}`.

    Args:
        prompt: Such a template; one of `{label}` alone, before which records are put;
            or an instruction. It is text, or a LangChain prompt template in f-string
            form without bound values.

    Raises:
        InvalidParameterError: If it is something else.

    Example:
        >>> template_of("Topic: {label}. News:")
        '{examples}Topic: {label}. News:'
    """
    if (
        isinstance(prompt, PromptTemplate)
        and prompt.template_format == "f-string"
        and not prompt.partial_variables
    ):
        prompt = prompt.template
    names = _names(prompt) if isinstance(prompt, str) and prompt.strip() else None
    if names == []:
        return f"{prompt.strip()}\n\n{{{EXAMPLES}}}{FEW_SHOT_CUE}"
    if names is not None and set(names) == {LABEL}:
        return f"{{{EXAMPLES}}}{prompt}"
    if names and set(names) == {EXAMPLES, LABEL} and names.count(EXAMPLES) == 1:
        return str(prompt)
    raise InvalidParameterError(
        "prompt must be an instruction, or a template with {examples} (once: where a "
        "group's records go) and {label}: text, or a PromptTemplate in f-string form "
        "without bound values. A brace that is meant as one is written twice."
    )


def _names(text: str) -> list[str] | None:
    """Return the variables of a template; None where it is none that can be filled."""
    try:
        fields = list(Formatter().parse(text))
    except ValueError:
        return None
    if any(form or conversion for _, _, form, conversion in fields):
        return None
    return [name for _, name, _, _ in fields if name is not None]


def read_records(records: Any, terms: GenerationTerms) -> Records:
    """Take mappings or `Document`s, each under its label.

    A unit stands under one label alone: the one that most of its records have, the
    first such in the order of the labels. Its other records take no part.

    Raises:
        InvalidParameterError: If something is no record, or its label is not among the
            labels.
        UnitError: If a record has no usable unit id, or there is no record and no
            declared size. No message holds anything of a record but its place.
    """
    if isinstance(records, (str, bytes, Mapping)) or not isinstance(records, Iterable):
        raise InvalidParameterError(
            "records must be mappings or Documents, not "
            f"{type(records).__name__}; None writes examples without records."
        )
    documents = [_document(record, n, terms) for n, record in enumerate(records)]
    if not documents and terms.counts:  # Else their number is private.
        raise UnitError("There are no records to generate from.")
    held: dict[str, Counter[str]] = {}
    for document in documents:
        unit, label = document.metadata[UNIT], document.metadata[LABEL]
        held.setdefault(unit, Counter())[label] += 1
    order = {label: place for place, label in enumerate(terms.labels)}
    chosen = {
        unit: min(labels, key=lambda label: (-labels[label], order[label]))
        for unit, labels in held.items()
    }
    by_label: Records = {label: [] for label in terms.labels}
    for document in documents:
        label = document.metadata[LABEL]
        if label == chosen[document.metadata[UNIT]]:
            by_label[label].append(document)
    return by_label


def sizes_of(records: Records, terms: GenerationTerms) -> Sizes:
    """Return each label's number of units: the declared one, or else the counted one.

    The clipped decoder takes no count: with none declared there is none.

    Raises:
        UnitError: If a label has fewer units than there are groups. Only declared sizes
            are looked at where there are any; a counted one is published anyway.
    """
    if terms.is_clipped:
        return terms.declared or {}
    sizes = terms.declared or {
        label: len({document.metadata[UNIT] for document in documents})
        for label, documents in records.items()
    }
    for label, size in sizes.items():
        if size < terms.groups:
            raise UnitError(
                f"Label {label!r} has {size} units and n_groups is {terms.groups}: "
                "bring more records of it, ask for fewer groups, or leave it out."
            )
    return sizes


def sources(
    records: Records, terms: GenerationTerms, rates: Mapping[str, float]
) -> dict[str, SampledGroups]:
    """Return what draws each label's groups, afresh for every token.

    A sample holds one record of a unit, a fresh random one.
    """
    # More units than the declared are no reason to refuse, nor are fewer.
    sizes = sizes_of(records, terms)
    return {
        label: SampledGroups.from_documents(
            records[label],
            unit_key=UNIT,
            n_groups=terms.groups,
            sampling_rate=rates[label],
            docs_per_unit=1,
            n_units=sizes[label],
        )
        for label in terms.labels
    }


def _document(record: Any, place: int, terms: GenerationTerms) -> Document:
    if isinstance(record, Document):
        fields = {**record.metadata, TEXT: record.page_content}
    elif isinstance(record, Mapping):
        fields = dict(record)
    else:
        raise InvalidParameterError(
            f"records[{place}] is a {type(record).__name__}, not a mapping or Document."
        )
    for name in (TEXT, LABEL):
        value = fields.get(name)
        if not isinstance(value, str) or not value.strip():
            kind = "a number" if isinstance(value, Number) else "no text"
            raise InvalidParameterError(
                f"records[{place}] has {kind} under {name!r}: write what the model is "
                "to read, rename the fields, or leave such records out."
            )
    if fields[LABEL] not in terms.labels:
        raise InvalidParameterError(
            f"records[{place}] has a label that is not in labels, which are public and "
            "never taken from records: add the label, or leave such records out."
        )
    unit = _unit(fields, place, terms.unit_key)
    return Document(fields[TEXT], metadata={LABEL: fields[LABEL], UNIT: unit})


def _unit(fields: Mapping[Any, Any], place: int, unit_key: str | None) -> str:
    if unit_key is None:
        if set(fields) - {TEXT, LABEL}:
            raise UnitError(
                f"records[{place}] has more fields than {TEXT!r} and {LABEL!r}, so "
                "records may have people in common: name the field that says whose "
                "each is with unit_key=, or pass records of these two fields alone."
            )
        return str(place)
    unit = canonical_unit_id(fields.get(unit_key))
    if unit is None:
        raise UnitError(
            f"records[{place}] has no usable unit id under {unit_key!r}: a non-empty "
            "string or an integer. A record without an id can't be a unit of its own."
        )
    return unit
