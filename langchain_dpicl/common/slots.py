"""A slot: what one group of records answered, or that it did not."""

from __future__ import annotations

from dataclasses import dataclass

from langchain_dpicl.common.replies import answer_of


def hidden_repr(self: object) -> str:
    """Return the repr of an object that holds private text: the name of its class.

    Example:
        >>> class Note(str):
        ...     __repr__ = hidden_repr
        >>> Note("private")
        Note(<hidden>)
    """
    return f"{type(self).__name__}(<hidden>)"


@dataclass(frozen=True, repr=False)
class Slot:
    """One group's answer, or None for *abstain*. Private: its repr shows nothing.

    A group abstains if it is empty, its call failed or was refused, or its answer is
    empty. Whether a call was made and raised (`failed`) is as private as the answer.
    In a chain only groups that had records have a slot, and a reply without an answer
    is `BLANK`: it can't be read.
    """

    text: str | None
    failed: bool = False

    def __repr__(self) -> str:
        return hidden_repr(self)


ABSTAIN = Slot(text=None)  # The slot of a group with nothing to say.
FAILED = Slot(text=None, failed=True)  # The slot of a group whose call raised.
BLANK = Slot(text="")  # The slot of a group with records whose reply has no answer.


def answered(text: object) -> Slot:
    """Return the slot for a model's reply; one without an answer abstains."""
    answer = answer_of(text) if isinstance(text, str) else ""
    return Slot(answer) if answer.strip() else ABSTAIN
