"""A whole chain on synthetic records that the user may see, with the groups' answers.

Privacy:
    None, on purpose: the groups' answers are shown as they are. The chain is a copy
    over a source that is made of the given records, and its account is in memory. That
    these are not the chain's own records can't be told here: the caller vouches for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage

from langchain_dpicl.chain.query import QueryRunner
from langchain_dpicl.chain.sealed_query import SealedQuery
from langchain_dpicl.chain.steps import PreparedQuery
from langchain_dpicl.common.slots import Slot
from langchain_dpicl.release.flow import Flow

NOTE = "rehearsal, not private: synthetic records only"
"""What every rehearsal is marked with."""

MOST_SHOWN = 12
"""Different answers that a printed rehearsal shows."""


@dataclass(frozen=True)
class Rehearsal:
    """One question, rehearsed: not private.

    Attributes:
        question: The question.
        answer: What the chain answers.
        group_answers: What each group with records said; None: nothing, or its call
            failed.
        record: The answer's record, with `rehearsal` in it. Its account is in memory.
    """

    question: str
    answer: str
    group_answers: tuple[str | None, ...]
    record: dict[str, Any]

    @property
    def options(self) -> tuple[str, ...]:
        """The options that the model drafted, or ESA's candidates that came out."""
        details = self.record["details"]
        return tuple(details.get("labels") or self.record["ranking"])

    @property
    def noisy_counts(self) -> dict[str, float]:
        """The noisy counts, where the mechanism publishes them."""
        return dict(self.record["details"].get("noisy_votes", {}))

    def to_dict(self) -> dict[str, Any]:
        """Return the rehearsal as JSON-able values."""
        return {
            "note": NOTE,
            "question": self.question,
            "answer": self.answer,
            "options": list(self.options),
            "group_answers": list(self.group_answers),
            "noisy_counts": self.noisy_counts,
            "record": self.record,
        }

    def __str__(self) -> str:
        said = Counter(self.group_answers).most_common()
        rest = sum(count for _, count in said[MOST_SHOWN:])
        lines = [NOTE.capitalize() + ".", f"Question: {self.question}"]
        if self.options:
            lines.append(f"Options: {', '.join(self.options)}")
        lines.append(f"{len(self.group_answers)} groups with records said:")
        lines += [
            f"  {count:4} {text or '(nothing, or failed)'}"
            for text, count in said[:MOST_SHOWN]
        ]
        if rest:
            lines.append(f"  {rest:4} other answers")
        if self.noisy_counts:
            noisy = (f"{label} {count}" for label, count in self.noisy_counts.items())
            lines.append(f"Noisy counts: {', '.join(noisy)}")
        reason = self.record["details"].get("reason")
        why = f" ({reason})" if reason else ""
        lines.append(f"Outcome: {self.record['status']}{why}: {self.answer}")
        return "\n".join(lines)


@dataclass(frozen=True, repr=False)
class ShownPart(SealedQuery):
    """A private part that also shows its groups' answers: for rehearsals alone."""

    seen: list[list[Slot]] = field(default_factory=list)

    def ask_groups(
        self, asked: PreparedQuery, drawn: Sequence[Sequence[Document]], places: range
    ) -> Flow[list[Slot]]:
        """Ask the groups, and show what they say."""
        slots = yield from super().ask_groups(asked, drawn, places)
        # A stage adds to the stages before it.
        before = [] if places.start == 0 else self.seen.pop()
        self.seen[:] = [[*before, *slots]]
        return slots


def showing(query: QueryRunner) -> tuple[QueryRunner, list[list[Slot]]]:
    """Return a query runner that shows the groups' answers, and where they appear."""
    parts = {f.name: getattr(query.private, f.name) for f in fields(SealedQuery)}
    shown = ShownPart(**parts)
    return replace(query, private=shown), shown.seen


def rehearsed(question: Any, message: AIMessage, seen: list[list[Slot]]) -> Rehearsal:
    """Return what was rehearsed; empty what was seen for the next question."""
    slots: Sequence[Slot] = seen.pop() if seen else ()
    record = {**message.response_metadata["privacy"], "rehearsal": NOTE}
    text = question if isinstance(question, str) else question["question"]
    answers = tuple(slot.text for slot in slots)
    return Rehearsal(text, str(message.text), answers, record)
