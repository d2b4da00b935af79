"""A record, compared field by field with what the ledger stored beside its charge.

The ledger keeps the record of a release as far as it was known before the charge, what
was charged, and the draw. A table's record, statistics and sentences are computed anew
from these. What the ledger does not have is named, and never taken for right.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_dpicl.budget import Stored
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.ledger import AccountTerms
from langchain_dpicl.release.record import (
    Outcome,
    Status,
    charged_record,
    damaged,
    noise_of,
)

if TYPE_CHECKING:
    from langchain_core.documents import Document

    from langchain_dpicl.tabular.gdp.statistics import NoisyStatistics

_PARTS = ("parameters", "details", "account")
"""The fields that are compared part by part."""
_ACCOUNT = ("name", "epsilon", "delta", "accounting", "scope", "queries")
_ADDED = ("source", "privacy")
"""Metadata that no `FactWriter` writes."""
_ROUNDING = 1e-9
"""Another processor's floats may differ in their last places."""


@dataclass(frozen=True)
class Comparison:
    """What came of comparing a record with the ledger, by the names of its fields.

    Attributes:
        other: What the ledger says otherwise.
        not_compared: What the ledger does not store.
    """

    other: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class StoredRecord:
    """What a ledger stored beside one charge.

    Attributes:
        record: The record as far as the ledger has it.
        statistics: The statistics of a `GDPTable`.
        documents: The documents of `insights`, which have no other wording.
        drawn: The noisy counts and words of `insights`.
    """

    record: Mapping[str, Any] = field(default_factory=dict)
    statistics: NoisyStatistics | None = None
    documents: tuple[Document, ...] = ()
    drawn: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, record: Mapping[str, Any], stored: Stored, delta: float
    ) -> StoredRecord:
        """Return what is stored beside a charge of the account that a record names."""
        known = stored.header.get("record")
        if known is None:
            return cls()
        if not isinstance(known, dict):
            raise damaged()
        if known.get("kind") == "answer":
            return cls(_answer(record, stored))
        if known.get("kind") == "examples":
            return cls(_paid(charged_record(known, stored, delta), stored))
        return _table(record, stored, delta) if stored.values else cls()

    def compared(
        self, record: Mapping[str, Any], known: Mapping[str, Any]
    ) -> Comparison:
        """Compare a record, of which charge and account say what is `known`."""
        own, kept = (
            json.loads(json.dumps(one, default=repr)) for one in (record, self.record)
        )
        parts = [n for n in _PARTS if isinstance({**known, **kept}.get(n), dict)]
        given = _flat(own, parts)
        ledger = {**_flat(known, parts), **_flat(kept, parts)}
        # That noise is secure is said by leaving this out.
        random = () if self.record else ("random",)
        names = dict.fromkeys([*given, *ledger, *random])
        other = [n for n in names if n in ledger and not _same(given.get(n), ledger[n])]
        return Comparison(tuple(other), tuple(n for n in names if n not in ledger))

    def compared_documents(
        self, record: Mapping[str, Any], documents: Sequence[Document]
    ) -> Comparison:
        """Compare documents with those that the stored draw makes.

        Words of the operator's (`wording`) are in no ledger.
        """
        facts = self._facts(record.get("wording"))
        if facts is None:
            return Comparison(not_compared=("documents",))
        other = []
        for place, one in enumerate(documents):
            fact = facts.get(_about(one.metadata))
            if (
                fact is None
                or not _same(_written(one), _written(fact))
                or one.page_content != fact.page_content
            ):
                other.append(f"documents[{place}]")
        return Comparison(tuple(other))

    def _facts(self, wording: Any) -> dict[tuple[Any, ...], Document] | None:
        """Return the documents of the stored draw by what they are about."""
        if self.documents:
            return {_about(one.metadata): one for one in self.documents}
        if self.statistics is None or not isinstance(wording, Mapping):
            return None
        from langchain_dpicl.tabular.gdp.facts import facts_of

        try:
            made = facts_of(self.statistics, wording)
        except (InvalidParameterError, TypeError):
            return None
        return {_about(one.metadata): one for one in made}


def account_says(
    record: Mapping[str, Any], terms: AccountTerms, unit_key: str | None
) -> dict[str, Any]:
    """Return the fields of a record that account and charge have confirmed.

    What a caller has compared by itself is as the record has it.
    """
    names = ["version", "charge", "events"]
    if (record["epsilon"] is None) == (record["delta"] is None):
        names += ["epsilon", "delta"]
    known = {name: record[name] for name in names if name in record}
    stated = record["account"]
    account = {name: getattr(terms, name) for name in _ACCOUNT if name in stated}
    return {**known, "unit_key": unit_key, "account": account}


def _written(document: Document) -> dict[str, Any]:
    return {n: v for n, v in document.metadata.items() if n not in _ADDED}


def _about(metadata: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(str(metadata.get(name)) for name in ("of", "by", "value", "status"))


def _answer(record: Mapping[str, Any], stored: Stored) -> Mapping[str, Any]:
    """Return the record of an answer, with what was drawn for it."""
    is_again = record["charge"] is None
    # An answer that is given again has charge, events and account of its own.
    free = {"charge", "events", "account", "status", "keywords", "ranking"}
    terms = stored.header["record"]
    known = {name: value for name, value in terms.items() if name not in free}
    known["parameters"] = {**terms["parameters"], **noise_of(stored.events)}
    if not stored.values:
        return known
    outcome = Outcome.from_dict(stored.values[0])
    details = {**terms["details"], **outcome.details}
    is_released = outcome.status is Status.RELEASED and bool(
        outcome.text is not None or outcome.keywords
    )
    status = record["status"]
    if is_again:
        first = Status.RELEASED.value if is_released else status
        details["first"] = {"status": first, "charge": stored.charge}
    if is_released:
        status = (Status.CACHED if is_again else Status.RELEASED).value
    elif status not in ("fallback", "abstained"):
        # Which of the two is the chain's to say, and is not compared.
        status = "fallback"
    drawn = {"keywords": [*outcome.keywords], "ranking": [*outcome.ranking]}
    return {**known, **drawn, "details": details, "status": status}


def _paid(record: Mapping[str, Any], stored: Stored) -> dict[str, Any]:
    """Return a record with its charge, and without the account: that is asked alone."""
    known = {name: value for name, value in record.items() if name != "account"}
    return {**known, "charge": stored.charge}


def _table(record: Mapping[str, Any], stored: Stored, delta: float) -> StoredRecord:
    """Return a table's record and statistics, computed from what is stored."""
    # They bring the readers of rows; answers need none of them.
    from langchain_dpicl.tabular.gdp import release, terms
    from langchain_dpicl.tabular.ldp.release import stored_collection

    known = stored.header["record"]
    random = {"random": known["random"]} if "random" in known else {}
    if known["mechanism"] == "insights":
        from langchain_dpicl.insights.run import stored_insights

        made = stored_insights(stored, delta, record["account"])
        return StoredRecord(
            {**_paid(made.record, stored), **random},
            documents=tuple(made.documents()),
            drawn=stored.values[0],
        )
    if known["mechanism"] == terms.MECHANISM:
        statistics, found = release.stored_release(stored, delta)
        return StoredRecord({**_paid(found, stored), **random}, statistics)
    model = record["parameters"].get("model")
    found = stored_collection(stored, model).record
    return StoredRecord({**_paid(found, stored), **random})


def _flat(record: Mapping[str, Any], parts: Sequence[str]) -> dict[str, Any]:
    """Return a record's fields, with parts of some of them as fields of their own."""
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if name in parts and isinstance(value, Mapping):
            flat.update({f"{name}.{part}": one for part, one in value.items()})
        else:
            flat[name] = value
    return flat


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_ROUNDING)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            _same(value, other[name]) for name, value in one.items()
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
