"""A record, compared field by field with what the ledger stored beside its charge.

The ledger keeps the header of a release, which has the record as far as it was known
before the draw, and the draw. A table's record, statistics and sentences are computed
anew from these. An answer without a cache has nothing beside its charge. What the
ledger does not have is named, and never taken for right.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from langchain_dpicl.common.outcome import Status
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.ledger.base import AccountState
from langchain_dpicl.release.record import paid_part
from langchain_dpicl.release.store import Entry, ReleaseStore, damaged, read

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
class Stored:
    """What a ledger stored beside one charge.

    Attributes:
        record: The record as far as the ledger has it.
        statistics: The statistics of a `GDPTable`.
    """

    record: Mapping[str, Any] = field(default_factory=dict)
    statistics: NoisyStatistics | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any], ledger: Ledger, charge: int) -> Stored:
        """Return what is stored beside a charge of the account that a record names.

        Raises:
            LedgerError: If the ledger can't be read, or what is stored makes no sense.
        """
        name = record["account"]["name"]
        found = next((r for r in ledger.releases(name) if r.charge == charge), None)
        if found is None:
            return cls()
        header = read(found.header)
        known = header.get("record") if isinstance(header, dict) else None
        if not isinstance(known, dict):
            raise damaged()
        # Of the account only its charges are read.
        account: Any = SimpleNamespace(ledger=ledger, account=name)
        entry = Entry(
            ReleaseStore(account, found.kind, ""), charge, header, found.steps
        )
        entry.charged()
        if known.get("kind") == "answer":
            return cls(_answer(record, entry))
        if known.get("kind") == "examples":
            return cls({**known, **paid_part(header)})
        return _table(record, entry) if found.steps else cls()

    def compared(
        self, record: Mapping[str, Any], known: Mapping[str, Any]
    ) -> Comparison:
        """Compare a record, of the types of JSON.

        Args:
            record: The record.
            known: What charge and account say of it.
        """
        return _compared(record, self.record, known)

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
            own = {n: v for n, v in one.metadata.items() if n not in _ADDED}
            fact = facts.get(_about(own))
            if (
                fact is None
                or not _same(own, fact.metadata)
                or one.page_content != fact.page_content
            ):
                other.append(f"documents[{place}]")
        return Comparison(tuple(other))

    def _facts(self, wording: Any) -> dict[tuple[Any, ...], Document] | None:
        """Return the documents of the stored draw by what they are about."""
        if self.statistics is None or not isinstance(wording, Mapping):
            return None
        from langchain_dpicl.tabular.gdp.facts import FactWriter, check_words

        names = self.statistics.terms.measured_names
        try:
            check_words(names, **wording)
        except (InvalidParameterError, TypeError):
            return None
        made = FactWriter(self.statistics, **wording).documents()
        return {_about(one.metadata): one for one in made}


def account_says(record: Mapping[str, Any], state: AccountState) -> dict[str, Any]:
    """Return the fields of a record that account and charge have confirmed.

    What a caller has compared by itself is as the record has it.
    """
    names = ["version", "charge", "events"]
    if (record["epsilon"] is None) == (record["delta"] is None):
        names += ["epsilon", "delta"]
    found = {name: record[name] for name in names if name in record}
    if state.plan is not None:
        found["unit_key"] = state.plan.template.get("unit_key")
    found["account"] = {n: v for n, v in record["account"].items() if n in _ACCOUNT}
    return found


def _about(metadata: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(str(metadata.get(name)) for name in ("of", "by", "value", "status"))


def _answer(record: Mapping[str, Any], entry: Entry) -> Mapping[str, Any]:
    """Return the record of an answer, with what was drawn for it."""
    is_again = record["charge"] is None
    # An answer that is given again has charge, events and account of its own. The
    # record of another one is made anew when it is given.
    own = ("charge", "events", "account") if is_again else ("created",)
    known = entry.header["record"]
    found = {name: one for name, one in known.items() if name not in own}
    for name in ("status", "keywords", "ranking"):
        del found[name]
    # What closes a charge is null.
    if entry.steps and (drawn := read(entry.steps[0])) is not None:
        found.update(_drawn(record, known["details"], drawn, entry.charge))
    return found


def _drawn(
    record: Mapping[str, Any],
    details: Mapping[str, Any],
    outcome: Mapping[str, Any],
    charge: int,
) -> dict[str, Any]:
    """Return the fields of an answer's record that follow from its draw."""
    is_released = outcome["status"] == Status.RELEASED.value and (
        outcome["text"] is not None or outcome["keywords"]
    )
    found = {
        "keywords": outcome["keywords"],
        "ranking": outcome["ranking"],
        "details": {**details, **outcome["details"]},
    }
    is_again = "first" in (record.get("details") or ())
    status = record["status"]
    if is_released:
        found["status"] = "cached" if is_again else "released"
    elif status not in ("fallback", "abstained"):
        # Which of the two is the chain's to say, and is not compared.
        found["status"] = "fallback"
    if is_again:
        first = "released" if is_released else status
        found["details"]["first"] = {"status": first, "charge": charge}
    return found


def _table(record: Mapping[str, Any], entry: Entry) -> Stored:
    """Return a table's record and statistics, computed from what is stored."""
    # They bring the readers of rows; answers need none of them.
    from langchain_dpicl.tabular.gdp import release, terms
    from langchain_dpicl.tabular.ldp import collecting

    known = entry.header["record"]
    random = {"random": known["random"]} if "random" in known else {}
    if known["mechanism"] == terms.MECHANISM:
        statistics, found = release.stored_release(entry)
        return Stored({**found, **random}, statistics)
    model = record["parameters"].get("model")
    return Stored({**collecting.stored_collection(entry, model).record, **random})


def _compared(
    record: Mapping[str, Any], stored: Mapping[str, Any], known: Mapping[str, Any]
) -> Comparison:
    own, kept = (json.loads(json.dumps(one, default=repr)) for one in (record, stored))
    parts = [n for n in _PARTS if isinstance({**known, **kept}.get(n), dict)]
    given = _flat(own, parts)
    ledger = {**_flat(known, parts), **_flat(kept, parts)}
    # That noise is secure is said by leaving this out.
    names = dict.fromkeys([*given, *ledger, *(() if stored else ("random",))])
    other = [n for n in names if n in ledger and not _same(given.get(n), ledger[n])]
    return Comparison(tuple(other), tuple(n for n in names if n not in ledger))


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
