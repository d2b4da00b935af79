"""Group sources: from a question to slots that no unit shares.

A *group source* turns a public question into *slots*, each a list of documents, such
that one unit (person) changes one slot at most, whatever the other units are. How it
can change the slot is the source's `relation`, and every sensitivity follows from that.

Units are put into shards, one a slot: `RetrievedGroups` hashes them to `n_groups`
shards and retrieves from each, `SampledGroups` deals sampled units to slots. One unit
changes one slot, from any documents to any (`REPLACE`).

A global top-k of the corpus, split into groups afterwards, is not offered: removing
one unit lets another document in and can move every later one.

`RetrievedGroups` holds its records itself, or reads an existing vector store out
(`readers`); `postgres.PostgresGroups` searches inside a database.

Groups that retrieve by a threshold can charge each eligible unit, and nobody else, as
per-unit accounts need: eligibility depends on the unit's own documents
(`charging_units`).
"""

from __future__ import annotations

from langchain_dpicl.common.units import Collect
from langchain_dpicl.groups.base import (
    GroupSource,
    RetrievalOptions,
    charging_units,
)
from langchain_dpicl.groups.retrieved import RetrievedGroups
from langchain_dpicl.groups.sampled import SampledGroups
from langchain_dpicl.groups.units import shard_of

__all__ = [
    "Collect",
    "GroupSource",
    "RetrievalOptions",
    "RetrievedGroups",
    "SampledGroups",
    "charging_units",
    "shard_of",
]
