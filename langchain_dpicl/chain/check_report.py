"""What `DPChain.check` tells. Public throughout: no record of a source takes part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]

FINDINGS: dict[str, tuple[Severity, str]] = {
    "no-answer": ("error", "Make model.invoke('Hello') work: key, URL, name, network."),
    "some-failed": ("warning", "Lower max_concurrency; raise max_retries."),
    "context": (
        "error",
        "Show each group fewer or shorter records, or give the model a larger context.",
    ),
    "truncated": ("warning", "Raise the server's context (num_ctx in Ollama)."),
    "cut": ("warning", "Raise the model's max_tokens, or let it think less."),
    "empty": ("error", "Raise the model's max_tokens, or let it think less."),
    "format": ("warning", "Use a model that does as told, or another prompt=."),
    "says-nothing": ("info", "Pass public records= that answer the question."),
    "no-options": (
        "error",
        "Name the possible answers yourself, or ask for one that a few words can say.",
    ),
    "preparation": ("error", "Mend the prompt, the parser or its embedding."),
    "sealed": (
        "error",
        "Mend the model's _generate, or use one that needs no callbacks or context.",
    ),
    "budget": ("error", "Do what the message says, or open another account."),
    "no-budget": ("info", "Pass budget= to see what a question would be charged."),
    "group-size": ("info", "Let tokens_per_record= stand for larger groups."),
    "record-length": ("info", "Declare your longest records: tokens_per_record=."),
}
"""All that a check can find: how bad it is, and the way out."""


@dataclass(frozen=True)
class Finding:
    """One thing that a check has found.

    Attributes:
        code: Its name in `docs/operate/troubleshooting.md`.
        severity: `error`: the chain will not answer; `warning`: some groups will not;
            `info`: what to know.
        what: What was seen.
        way_out: What to do.
    """

    code: str
    severity: Severity
    what: str
    way_out: str

    @classmethod
    def of(cls, code: str, what: str, severity: Severity | None = None) -> Finding:
        """Return a finding with the way out of `FINDINGS`."""
        usual, way_out = FINDINGS[code]
        return cls(code, severity or usual, what, way_out)

    def __str__(self) -> str:
        return f"{self.severity}: {self.code}: {self.what}\n  {self.way_out}"


@dataclass(frozen=True)
class CheckedQuestion:
    """How the groups of made-up records answered a question.

    Attributes:
        question: The question.
        options: The public options, where the parser has any.
        replies: What each group said; None: nothing, or its call failed.
        readable: Replies that are as the parser asks for.
        says_nothing: Replies that say that the records do not tell.
        unreadable: All other replies, such as sentences where words were asked for.
        failed: Calls that failed.
        input_tokens: Tokens of one group's prompt, where the model tells.
        output_tokens: Tokens of one reply.
    """

    question: str
    options: tuple[str, ...]
    replies: tuple[str | None, ...] = ()
    readable: int = 0
    says_nothing: int = 0
    unreadable: int = 0
    failed: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None

    def __str__(self) -> str:
        lines = [f"Question: {self.question}"]
        if self.options:
            lines.append(f"  options: {', '.join(self.options)}")
        if self.replies:
            lines.append(
                f"  {len(self.replies)} groups: {self.readable} readable, "
                f"{self.says_nothing} say that they do not know, {self.unreadable} "
                f"unreadable, {self.failed} failed"
            )
        said = dict.fromkeys(reply for reply in self.replies if reply is not None)
        lines += [f"  said: {reply[:120]!r}" for reply in list(said)[:3]]
        if self.input_tokens is not None:
            told = f"{self.input_tokens} tokens in, {self.output_tokens} out"
            lines.append(f"  a group call: {told}")
        return "\n".join(lines)


@dataclass(frozen=True)
class CheckReport:
    """What a check has found: print it, or read it.

    Attributes:
        findings: What was found, errors first.
        questions: How each question was answered.
        group_calls: Group calls of one question: the public number of groups, and the
            most there are where calls are not padded.
        public_calls: Calls without records, for one question at most.
        records_per_group: Made-up records of a group.
        tokens_per_record: Their declared length; None: as they are.
        charge: What one question would be charged, where there is an account.

    Example:
        >>> report = CheckReport((Finding.of("cut", "A reply was cut."),), ())
        >>> report.ok, report.findings[0].severity
        (True, 'warning')
    """

    findings: tuple[Finding, ...]
    questions: tuple[CheckedQuestion, ...]
    group_calls: int = 0
    public_calls: int = 0
    records_per_group: int = 0
    tokens_per_record: int | None = None
    charge: dict[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return all(finding.severity != "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-able values."""
        return {"ok": self.ok, **asdict(self)}

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        length = self.tokens_per_record
        yield (
            f"{'Ready' if self.ok else 'Not ready'}. Checked free of charge on made-up "
            f"records, {self.records_per_group} a group"
            + (f" of about {length} tokens each." if length else ".")
        )
        yield from map(str, self.questions)
        yield (
            f"A question makes {self.group_calls} group calls and up to "
            f"{self.public_calls} without records."
        )
        known = [q.input_tokens for q in self.questions if q.input_tokens]
        if known:
            tokens = max(known) * self.group_calls
            yield f"Its groups read about {tokens:,} tokens."
        if (charge := self.charge) is not None:
            left = charge["queries_left"]
            yield (
                f"It would be charged to account {charge['account']!r} for "
                f"{' and '.join(charge['mechanisms'])}: epsilon {charge['epsilon']:.3g}"
                f" by itself; epsilon {charge['epsilon_left']:.3g} is left"
                + ("." if left is None else f", and {left} queries.")
            )
        yield from map(str, self.findings)
