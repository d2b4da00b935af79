"""The private records of a generation: read once, divided by label.

Privacy:
    Unit: what one value of `unit_key` names; without a key, one record. Neighbors: all
    records of one unit more or less. Everything here treats each unit by itself:
    which label a unit stands under depends on that unit's records alone, so labels
    have disjoint units *by construction*, whatever the data. (To look whether they
    happen to be disjoint, and to account by what is found, would tell whether anybody
    has records under two labels.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from numbers import Number
from typing import Any

from langchain_core.documents import Document

from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.few_shot.prompts import LABEL
from langchain_dpicl.few_shot.terms import GenerationTerms
from langchain_dpicl.groups import SampledGroups

TEXT, UNIT = "text", "unit"

Records = dict[str, list[Document]]
"""Each label's documents, whose metadata holds label and unit. Private."""


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
    documents = [_document(one, place, terms) for place, one in enumerate(records)]
    if not documents and terms.sizes is None:  # Else their number is private.
        raise UnitError("There are no records to generate from.")
    order = {label: place for place, label in enumerate(terms.labels)}
    held: dict[str, Counter[str]] = {}
    for document in documents:
        unit, label = document.metadata[UNIT], document.metadata[LABEL]
        held.setdefault(unit, Counter())[label] += 1
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


def counted(records: Records) -> dict[str, int]:
    """Return each label's number of units."""
    return {
        label: len({document.metadata[UNIT] for document in documents})
        for label, documents in records.items()
    }


def require_enough(records: Records, terms: GenerationTerms) -> None:
    """Refuse labels with fewer units than there are groups.

    Only declared sizes are looked at where there are any. A size that was counted is in
    the message, as it is published anyway.
    """
    for label, size in (terms.declared or counted(records)).items():
        if size < terms.n_groups:
            raise UnitError(
                f"Label {label!r} has {size} units and n_groups is {terms.n_groups}: "
                "some groups could never hold anybody. Bring more records of it, ask "
                "for fewer groups, or leave the label out."
            )


def sources(
    records: Records, terms: GenerationTerms, rates: Mapping[str, float]
) -> dict[str, SampledGroups]:
    """Return what draws each label's groups, afresh for every token.

    A sample holds one record of a unit, a fresh random one.
    """
    # More units than the declared are no reason to refuse, nor are fewer.
    sizes = terms.declared or counted(records)
    return {
        label: SampledGroups.from_documents(
            records[label],
            unit_key=UNIT,
            n_groups=terms.n_groups,
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
        if isinstance(value, str) and value.strip():
            continue
        if isinstance(value, Number):
            raise InvalidParameterError(
                f"records[{place}] holds a number under {name!r}: write what it "
                "stands for in its place, since the model reads it."
            )
        raise InvalidParameterError(
            f"records[{place}] has no text under {name!r}. Rename the fields, or leave "
            "such records out."
        )
    if fields[LABEL] not in terms.labels:
        raise InvalidParameterError(
            f"records[{place}] has a label that is not in labels. The list of labels "
            "is public and is given, never taken from the records: add the label, or "
            "leave such records out."
        )
    unit = _unit(fields, place, terms.unit_key)
    return Document(fields[TEXT], metadata={LABEL: fields[LABEL], UNIT: unit})


def _unit(fields: Mapping[Any, Any], place: int, unit_key: str | None) -> str:
    if unit_key is None:
        if set(fields) - {TEXT, LABEL}:
            raise UnitError(
                f"records[{place}] has more fields than {TEXT!r} and {LABEL!r}, so "
                "records may have people in common. Name the field that says whose "
                "each record is with unit_key=. If every record is a person of its "
                "own, pass records of these two fields alone."
            )
        return str(place)
    unit = canonical_unit_id(fields.get(unit_key))
    if unit is None:
        raise UnitError(
            f"records[{place}] has no usable unit id under {unit_key!r}: a non-empty "
            "string or an integer. A record without an id cannot count as a unit of "
            "its own."
        )
    return unit
