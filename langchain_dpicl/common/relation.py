"""Neighboring relations: what "one unit more or less" does to the slots.

A *unit* is one person (account, document: whatever one unit id names). Two corpora
are neighbors when one is the other plus all records of one unit. A query turns a
corpus into *slots*, one model answer each; the relation says how two neighboring
corpora's slots can differ, and every sensitivity in the library follows from it.
"""

from __future__ import annotations

from enum import Enum


class Relation(str, Enum):
    """How the slots of two neighboring corpora differ.

    Example:
        >>> Relation("replace") is Relation.REPLACE
        True
    """

    ADD_REMOVE = "add_remove"
    """One slot appears or vanishes; all other slots are the same."""

    REPLACE = "replace"
    """One slot changes from any answer (or none) to any other; the rest stay."""
