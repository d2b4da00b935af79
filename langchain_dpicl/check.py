"""A chain tried out on one public record, free of charge: `DPChain.check`.

The record goes into a prompt as a group's records do, and the model is asked by an
ordinary call, whose reply and error may be shown.

Privacy:
    No record of the group source takes part, no length and no count of one: a check
    reads the source's public parameters and draws nothing. It charges nothing and
    writes nothing to a ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from langchain_core.documents import Document

from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.common.replies import answer_of
from langchain_dpicl.errors import DPError, PublicCallError
from langchain_dpicl.prompting import Question
from langchain_dpicl.question import PrivateQuestion
from langchain_dpicl.release.record import NO_OPTION

MADE_UP = "Plot 12: this gardener grows beans. Rain came at noon."
"""A public record, where the caller gives none."""

WAYS_OUT = {
    "no-answer": "Make model.invoke('Hello') work: key, URL, name, network.",
    "cut": "Raise the model's max_tokens, or let it think less.",
    "empty": "Raise the model's max_tokens, or let it think less.",
    "format": "Use a model that does as told, or another prompt=.",
    "says-nothing": "Pass a public record= that answers the question.",
    "no-options": "Name the possible answers yourself, or ask for one of a few words.",
    "preparation": "Mend the prompt, the parser or its embedding.",
    "budget": "Do what the message says, or open another account.",
}
"""All that a check can find, and the way out; see `docs/operate/troubleshooting.md`."""

_HARMLESS = {"cut", "says-nothing"}
_CUT = frozenset({"length", "max_tokens", "MAX_TOKENS", "incomplete"})
_ENDS = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")

Alone = Callable[[Question], tuple[list[Any], list[Any]]]
"""Asks the model what the parser wants to know of the question alone."""


@dataclass(frozen=True)
class CheckReport:
    """What a check has found: print it, or read it.

    Attributes:
        question: The question.
        reply: What the model said to the prompt of one record; None: nothing.
        reading: How the parser reads it: `answer`, `loose` (one that counts, though not
            in the form asked for), `nothing` ("I don't know") or `unreadable`.
        options: The possible answers, where the parser has any.
        group_calls: Group calls of a question: one for each group, or several.
        public_calls: Calls without records, at most.
        findings: Names of what is wrong, each with what was seen.

    Example:
        >>> report = CheckReport("Who?", findings={"cut": "The reply was cut."})
        >>> report.ok
        True
    """

    question: str
    reply: str | None = None
    reading: str | None = None
    options: tuple[str, ...] = ()
    group_calls: int = 0
    public_calls: int = 0
    findings: dict[str, str] | None = None

    @property
    def ok(self) -> bool:
        """Whether the chain can answer, as far as one reply tells."""
        return set(self.findings or ()) <= _HARMLESS

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-able values."""
        return {"ok": self.ok, **asdict(self)}

    def __str__(self) -> str:
        state = "Ready" if self.ok else "Not ready"
        lines = [
            f"{state}. Tried on one public record, free of charge.",
            f"Question: {self.question}",
        ]
        if self.options:
            lines.append(f"  options: {', '.join(self.options)}")
        if self.reply is not None:
            lines.append(f"  read as {self.reading}: {self.reply[:200]!r}")
        lines.append(
            f"A question makes {self.group_calls} group calls and up to "
            f"{self.public_calls} without records."
        )
        for name, seen in (self.findings or {}).items():
            lines += [f"{name}: {seen}", f"  {WAYS_OUT[name]}"]
        return "\n".join(lines)


def checked(
    asked: PrivateQuestion,
    model: Any,
    alone: Alone,
    budget: PrivacyBudgetHandler | None,
    record: str | Document | None,
) -> CheckReport:
    """Ask one question of one public record; see `DPChain.check`."""
    parser, findings = asked.parser, dict[str, str]()
    prompts = (parser.rewrite_prompt, parser.draft_prompt)
    others = sum(prompt is not None for prompt in prompts)
    report = CheckReport(
        asked.question.text,
        group_calls=asked.group_calls,
        public_calls=max(parser.zero_shot_answers, 1) + others + parser.reads_figures,
        findings=findings,
    )
    if budget is not None:
        try:
            budget.require_payable(asked.charge)
        except DPError as error:
            findings["budget"] = str(error)
    prepared = _prepared(asked, model, alone, findings)
    if prepared is None:
        return report
    texts = getattr(prepared.prepared, "texts", prepared.prepared)
    report = replace(report, options=texts if isinstance(texts, tuple) else ())
    if "no-options" in findings:
        return report
    try:
        has_options = bool(report.options)
        message, reply = _replied(prepared, model, record, has_options=has_options)
    except Exception as error:  # noqa: BLE001 - shown, whatever it is
        findings["no-answer"] = _told(error)
        return report
    reading = parser.reads(reply, prepared.prepared) if reply.strip() else None
    ended = getattr(message, "response_metadata", {})
    if any(str(ended.get(name)) in _CUT for name in _ENDS):
        findings["cut"] = "The reply was cut at the model's limit of tokens."
    if reading is None:
        findings["empty"] = "The reply is empty."
    elif reading in {"loose", "unreadable"}:
        findings["format"] = f"The reply is not as asked: {reply[:200]!r}."
    elif reading == "nothing":
        findings["says-nothing"] = "The reply says that the record does not tell."
    return replace(report, reply=reply, reading=reading)


def _prepared(
    asked: PrivateQuestion, model: Any, alone: Alone, findings: dict[str, str]
) -> PrivateQuestion | None:
    """Take the public steps; note what is wrong with them."""
    try:
        zero_shot, draft = alone(asked.question)
        said = "".join(map(answer_of, draft))
        asked = asked.prepare(tuple(map(answer_of, zero_shot)), said).asked_alone()
    except PublicCallError as error:
        findings["no-answer"] = str(error)
        try:  # The same prompt by an ordinary call, whose error may be shown.
            model.invoke(asked.prompting.public(asked.question))
        except Exception as why:  # noqa: BLE001 - shown, whatever it is
            findings["no-answer"] = _told(why)
        return None
    except Exception as error:  # noqa: BLE001 - a prompt, a parser, an embedding
        findings["preparation"] = _told(error)
        return None
    decided = asked.decided()
    if decided is not None:
        reason = decided.outcome.details.get("reason", NO_OPTION)
        findings["no-options"] = f"{reason}. The model said: {said[:500]!r}."
    return asked


def _replied(
    asked: PrivateQuestion,
    model: Any,
    record: str | Document | None,
    *,
    has_options: bool,
) -> tuple[Any, str]:
    """Return what the model says of one record, as a message and as its answer.

    Where there are options and figures, the answer is the option that these choose.
    """
    prompts = asked.written([_document(record, asked)])
    if not (has_options and asked.parser.reads_figures):
        message = model.invoke(prompts[0])
        return message, answer_of(message)
    (slot,) = asked.answers([prompts])
    if not slot.text:
        raise PublicCallError("The model gives no figures for the options.")
    return slot, slot.text


def _document(record: str | Document | None, asked: PrivateQuestion) -> Document:
    """Return a public record, with what the document prompt wants of its metadata."""
    if not isinstance(record, Document):
        record = Document(MADE_UP if record is None else record)
    wanted = set(asked.prompting.document_prompt.input_variables) - {"page_content"}
    given = {**dict.fromkeys(wanted, "made-up"), **record.metadata}
    return Document(record.page_content, metadata=given)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:500]}"
