"""What passes from step to step of a chain. Nothing in here is private."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from langchain_core.prompt_values import PromptValue

from langchain_dpicl.budget import Paid, PrivacyBudgetHandler
from langchain_dpicl.chain.prompting import Prompting, Question
from langchain_dpicl.chain.public_model import Use
from langchain_dpicl.common.outcome import Outcome, Status
from langchain_dpicl.common.slots import ABSTAIN, BLANK, FAILED, Slot
from langchain_dpicl.parsers.reading.wording import keeps
from langchain_dpicl.sealed import attempt


@dataclass(frozen=True)
class PreparedQuery:
    """A question whose public part is done.

    Attributes:
        question: The question.
        budget: Who pays.
        embedded: What the group source made of the question.
        zero_shot: The model's answers to the question alone.
        prepared: What the parser made of those.
        key: What its answer is stored under, with a cache.
        use: What it has taken of the model so far.
    """

    question: Question
    budget: PrivacyBudgetHandler
    embedded: Any = None
    zero_shot: tuple[str, ...] = ()
    prepared: Any = None
    key: str | None = None
    use: Use = field(default_factory=Use)


@dataclass(frozen=True)
class Step:
    """What a query has just done, or is about to do: public, for the caller who waits.

    Attributes:
        name: `public` (the model is about to be asked the question alone), `charged`,
            `groups` (they are about to be asked), `merged`.
        details: What is known about it, ready for JSON.

    Privacy:
        Steps follow from public parameters and from the status of the outcome. When
        they come is time, of which the proof says nothing.
    """

    name: str
    details: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the step as one mapping."""
        return {"step": self.name, **self.details}


@dataclass(frozen=True)
class Released:
    """What came out of the sealed region, and what paid for it.

    Attributes:
        asked: The question.
        outcome: What was released.
        paid: The charge; None where public input decided it.
    """

    asked: PreparedQuery
    outcome: Outcome
    paid: Paid | None = None

    @property
    def step(self) -> Step:
        """What is said of it while it is put into words."""
        return Step("merged", {"status": self.outcome.status.value})


@dataclass(frozen=True)
class Wording:
    """How a release is put into words.

    Attributes:
        status: How the answer came about.
        text: What is said, if no model is asked.
        prompt: The public prompt whose answer is said; None if `text` is.
        otherwise: What is said, and how it came about, if the model fails on it or
            says nothing.
        note: What stands before what the model says.
        keywords: Released words that the model's answer must keep: a refusal, another
            answer or a denial would throw away what was paid for.
    """

    status: Status
    text: str = ""
    prompt: PromptValue | None = None
    otherwise: tuple[str, Status] = ("", Status.ABSTAINED)
    note: str = ""
    keywords: tuple[str, ...] = ()
    question: str = ""

    def rest(self, said: str, *, failed: bool) -> tuple[str, Status]:
        """Return what is still to be said, and how the answer came about.

        Args:
            said: What the model has said so far.
            failed: Whether it failed on the way.
        """
        if self.prompt is None:
            return self.text, self.status
        is_said = said.strip() and (
            not self.keywords or keeps(said, self.keywords, self.question)
        )
        if not failed and is_said:
            return "", self.status
        # A model that says nothing loses a paid release like one that fails.
        text, status = self.otherwise
        return (f"\n{text}" if said.strip() else text), status


class GroupPrompts:
    """One prompt per slot, and which slots have none. Private: no repr.

    A group whose records can't be written into the prompt (None) abstains, like one
    whose call fails: it must not stop the others. An empty group is asked too, so that
    the number of calls is the public number of groups, and its answer is dropped.
    """

    def __init__(
        self,
        written: Sequence[list[str] | None],
        prompting: Prompting,
        question: Question,
        *,
        pad_to: int,
    ) -> None:
        padding: PromptValue | None = prompting.group(question, ()) if pad_to else None
        self.prompts: list[PromptValue | None] = []
        self._failed: set[int] = set()
        self._empty: set[int] = set()
        for index, texts in enumerate(written):
            prompt = padding
            if texts is None or texts:
                filled = None
                if texts is not None:
                    filled = attempt(partial(prompting.group, question, texts))
                if filled is None:
                    self._failed.add(index)
                else:
                    prompt = filled
            else:
                self._empty.add(index)
            self.prompts.append(prompt)
        self._slots = len(self.prompts)
        self.prompts.extend([padding] * max(pad_to - self._slots, 0))

    @property
    def calls(self) -> int:
        """How many calls they make, private."""
        return sum(prompt is not None for prompt in self.prompts)

    def slots(self, answers: Sequence[Slot]) -> list[Slot]:
        """Return the slots of the groups that had records, without the padding."""
        return [
            FAILED if index in self._failed else BLANK if answer == ABSTAIN else answer
            for index, answer in enumerate(answers[: self._slots])
            if index not in self._empty
        ]
