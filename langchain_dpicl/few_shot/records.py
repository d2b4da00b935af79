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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any, NoReturn

from langchain_core.documents import Document

from langchain_dpicl.common.inferred import warn_inferred
from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.groups import SampledGroups
from langchain_dpicl.mechanisms.random import SecureRandom
from langchain_dpicl.sealed import Hidden

LABEL, UNIT = "label", "unit"
"""Where a document of ours keeps its label, and its unit's id."""


@dataclass(frozen=True)
class RecordFields:
    """The fields, or metadata keys, of a record's text, label and unit id.

    The text of a `Document` is its content. Without a unit, each record is one.
    """

    text: str
    label: str
    unit: str | None

    def check(self) -> RecordFields:
        """Return the fields; raise `InvalidParameterError` if they are no names."""
        named = {"text_key": self.text, "label_key": self.label}
        if self.unit is not None:
            named["unit_key"] = self.unit
        for name, value in named.items():
            if not isinstance(value, str) or not value.strip():
                raise InvalidParameterError(f"{name} must be the name of a field.")
        if len(set(named.values())) < len(named):
            raise InvalidParameterError(
                f"{', '.join(named)} must name fields that are not the same."
            )
        return self

    @property
    def described(self) -> str:
        """The protected unit in words, for the record."""
        if self.unit is None:
            return "one record"
        return f"all records with the same {self.unit!r}"


@dataclass(frozen=True, repr=False)
class PrivateRecords:
    """Records of a generation, by label. Private; the repr tells nothing of them.

    Attributes:
        by_label: Each label's documents, whose metadata holds `UNIT` and `LABEL`.
        sizes: Each label's number of units.
    """

    by_label: dict[str, list[Document]]
    sizes: dict[str, int]

    @classmethod
    def read(
        cls,
        records: Iterable[Any],
        labels: Sequence[str],
        fields: RecordFields,
    ) -> PrivateRecords:
        """Take mappings or `Document`s, each under its label.

        A unit stands under one label alone: the one that most of its records have, the
        first such in the order of `labels`. Its other records take no part.

        Raises:
            InvalidParameterError: If something is no record, or its label is not among
                the labels.
            UnitError: If a record has no usable unit id, or there is no record. No
                message holds anything of a record but its place.
        """
        taken = _documents(records, fields)
        known = set(labels)
        for place, document in enumerate(taken):
            if document.metadata[LABEL] not in known:
                raise InvalidParameterError(
                    f"records[{place}] has a label that is not in labels. The list of "
                    "labels is public and is given, never taken from the records: add "
                    "the label, or leave such records out."
                )
        by_label: dict[str, list[Document]] = {label: [] for label in labels}
        for document in _with_one_label(taken, labels):
            by_label[document.metadata[LABEL]].append(document)
        return cls._of(by_label)

    @classmethod
    def _of(cls, by_label: dict[str, list[Document]]) -> PrivateRecords:
        sizes = {
            label: len({document.metadata[UNIT] for document in documents})
            for label, documents in by_label.items()
        }
        return cls(by_label, sizes)

    def __repr__(self) -> str:
        return "PrivateRecords(<hidden>)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("Private records are not pickled.")

    def require_enough(self, n_groups: int, declared: Mapping[str, int] | None) -> None:
        """Refuse labels with fewer units than there are groups.

        Only declared sizes are looked at where there are any. A size that was counted
        is in the message, as it is published anyway.
        """
        for label, size in (declared or self.sizes).items():
            if size < n_groups:
                raise UnitError(
                    f"Label {label!r} has {size} units and n_groups is {n_groups}: "
                    "some groups could never hold anybody. Bring more records of it, "
                    "ask for fewer groups, or leave the label out."
                )

    def source(
        self,
        label: str,
        *,
        n_groups: int,
        sampling_rate: float,
        records_per_unit: int,
        declared: int | None,
        random: SecureRandom | None,
    ) -> SampledGroups:
        """Return what draws one label's groups, afresh for every token."""
        return SampledGroups.from_documents(
            self.by_label[label],
            unit_key=UNIT,
            n_groups=n_groups,
            sampling_rate=sampling_rate,
            docs_per_unit=records_per_unit,
            n_units=declared,
            random=random,
        )


def _documents(records: Any, fields: RecordFields) -> list[Document]:
    taken = [
        _document(record, fields, place)
        for place, record in enumerate(_listed(records, fields))
    ]
    if not taken:
        raise UnitError("There are no records to generate from.")
    return taken


def _listed(records: Any, fields: RecordFields) -> list[Any]:
    if hasattr(records, "columns") and hasattr(records, "to_dict"):
        # A pandas DataFrame, which would be iterated over by its columns' names.
        if fields.unit in records.columns:
            warn_inferred(Hidden(records), "pandas", {str(fields.unit): ()})
        return list(records.to_dict("records"))
    if isinstance(records, (str, bytes, Mapping)) or not isinstance(records, Iterable):
        raise InvalidParameterError(
            "records must be a list of mappings or Documents, not "
            f"{type(records).__name__}."
        )
    return list(records)


def _document(record: Any, fields: RecordFields, place: int) -> Document:
    found: dict[Any, Any]
    if isinstance(record, Document):
        found = {**record.metadata, fields.text: record.page_content}
    elif isinstance(record, Mapping):
        found = dict(record)
    else:
        raise InvalidParameterError(
            f"records[{place}] is a {type(record).__name__}, not a mapping or Document."
        )
    for field in (fields.text, fields.label):
        held = found.get(field)
        if isinstance(held, str) and held.strip():
            continue
        if isinstance(held, Number):
            raise InvalidParameterError(
                f"records[{place}] holds a number under {field!r}: write what it "
                "stands for in its place, since the model reads it."
            )
        raise InvalidParameterError(
            f"records[{place}] has no text under {field!r}. Name the fields with "
            "text_key= and label_key=, or leave such records out."
        )
    return Document(
        page_content=found[fields.text],
        metadata={LABEL: found[fields.label], UNIT: _unit(found, fields, place)},
    )


def _unit(found: dict[Any, Any], fields: RecordFields, place: int) -> str:
    if fields.unit is None:
        if set(found) - {fields.text, fields.label}:
            raise UnitError(
                f"records[{place}] has more fields than {fields.text!r} and "
                f"{fields.label!r}, so records may have people in common. Name the "
                "field that says whose each record is with unit_key=. If every record "
                "is a person of its own, pass records of these two fields alone."
            )
        return str(place)
    unit = canonical_unit_id(found.get(fields.unit))
    if unit is None:
        raise UnitError(
            f"records[{place}] has no usable unit id under {fields.unit!r}: a "
            "non-empty string or an integer. A record without an id cannot count as a "
            "unit of its own."
        )
    return unit


def _with_one_label(documents: list[Document], labels: Sequence[str]) -> list[Document]:
    order = {label: -place for place, label in enumerate(labels)}
    counts: dict[str, Counter[str]] = {}
    for document in documents:
        unit, label = document.metadata[UNIT], document.metadata[LABEL]
        counts.setdefault(unit, Counter())[label] += 1
    chosen = {
        unit: max(held, key=lambda label: (held[label], order[label]))
        for unit, held in counts.items()
    }
    return [
        document
        for document in documents
        if document.metadata[LABEL] == chosen[document.metadata[UNIT]]
    ]
