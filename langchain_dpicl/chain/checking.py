"""Trying a chain out on made-up public records, free of charge.

The made-up records go down the very path of group calls: the same prompts, parser
instructions and sealed model. The sealed region tells no error, and is not weakened
for a check: where a call fails, the same public prompt is asked again by an ordinary
call, whose error may be shown.

Privacy:
    No record of the group source takes part, no length and no count of one: a check
    reads the source's public parameters and draws nothing. It charges nothing and
    writes nothing to a ledger.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.outputs import LLMResult
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import RunnableConfig
from typing_extensions import override

from langchain_dpicl import accounting
from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.chain.check_report import (
    CheckedQuestion,
    CheckReport,
    Finding,
    Severity,
)
from langchain_dpicl.chain.made_up import CHARACTERS
from langchain_dpicl.chain.prompting import Question, read_question
from langchain_dpicl.chain.public_model import Use
from langchain_dpicl.chain.query import QueryRunner
from langchain_dpicl.chain.sealed_query import SealedQuery
from langchain_dpicl.common.progress import Advance, progress_bar
from langchain_dpicl.common.replies import usage_of
from langchain_dpicl.common.slots import Slot
from langchain_dpicl.errors import DPError
from langchain_dpicl.parsers import PublicInput
from langchain_dpicl.release.flow import Do, Flow, in_thread
from langchain_dpicl.sealed import sealed

_TOO_LONG = re.compile(
    r"context[ _-]?(length|window|size)|maximum context|max_model_len|n_ctx|"
    r"(prompt|input)\w* (is |are )?too long|too many (input )?tokens|longer than|"
    r"reduce the length|exceed\w* the (model|maximum|context)",
    re.IGNORECASE,
)
_CUT = frozenset({"length", "max_tokens", "MAX_TOKENS", "incomplete"})
_ENDS = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")
_MOST_OF_A_TOKEN = 10
"""Characters of a token, in any language, at the most that a whole prompt has."""


class _Ends(BaseCallbackHandler):
    """Notes whether an ordinary call's reply was cut at the model's limit."""

    cut = False

    @override
    def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:
        for generation in chain.from_iterable(response.generations):
            message = getattr(generation, "message", None)
            told = {
                **(generation.generation_info or {}),
                **getattr(message, "response_metadata", {}),
            }
            if any(str(told.get(name)) in _CUT for name in _ENDS):
                self.cut = True


@dataclass(repr=False)
class ChainCheck:
    """One check of a chain.

    Attributes:
        query: The chain's parts.
        model: Its model, for ordinary calls.
        groups: Groups of public records.
        tokens: Declared tokens of a record.
        budget: An account to read, if there is one.
        shown: Whether to draw a progress bar.
        findings: What has been found.
    """

    query: QueryRunner
    model: Any
    groups: Sequence[Sequence[Document]]
    tokens: int | None
    budget: PrivacyBudgetHandler | None
    shown: bool
    findings: dict[Finding, None] = field(default_factory=dict)

    def steps(self, questions: Sequence[Any]) -> Flow[None]:
        """Ask the questions; hand on the report."""
        read = [read_question(value, self.query.longest) for value in questions]
        for value in questions:
            self.query.where(value)
        total, checked = len(read) * len(self.groups), []
        with progress_bar("Checking", total, shown=self.shown) as done:
            for question in read:
                found = yield from self._ask(question, done)
                checked.append(found)
        charge = yield in_thread(self._charge)
        yield self._report(checked, charge)

    def _found(self, code: str, what: str, severity: Severity | None = None) -> None:
        self.findings.setdefault(Finding.of(code, what, severity))

    # -- one question ------------------------------------------------------------------

    def _ask(self, question: Question, done: Advance) -> Flow[CheckedQuestion]:
        parser = self.query.private.parser
        nothing = CheckedQuestion(question.text, ())
        try:
            prepared, drafted = yield from self._prepared(question)
            question = replace(question, instructions=parser.instructions(prepared))
            prompts = self._prompts(question)
        except Exception as error:  # noqa: BLE001 - a prompt, a parser, an embedding
            self._found("preparation", _told(error))
            return nothing
        if prepared is None:
            return nothing
        options = _options(prepared)
        outcome = parser.public_outcome(prepared)
        if outcome is not None:
            reason = outcome.details.get("reason", "public input decides")
            said = f" It said: {drafted[:500]!r}."
            self._found("no-options", f"{question.text!r}: {reason}.{said}")
            return replace(nothing, options=options)
        # Before the sealed calls: a server that keeps prompts counts this one whole.
        message, failure = yield from self._plain(prompts[0], question)
        slots = yield from self._slots(prompts, done)
        yield from self._failures(prompts, slots, failure)
        return self._read(nothing, options, prepared, slots, prompts[0], message)

    def _prompts(self, question: Question) -> list[PromptValue]:
        prompting = self.query.private.prompting
        return [
            prompting.group(question, prompting.texts(group)) for group in self.groups
        ]

    def _prepared(self, question: Question) -> Flow[tuple[Any, str]]:
        """Do the public part; return it, and what the model said for it.

        What it prepared is None where the model fails in it.
        """
        parser, prompting = self.query.private.parser, self.query.private.prompting
        template = parser.draft_prompt
        prompting.rewrite(parser.rewrite_prompt, question, "")
        asked = [
            (prompting.public(question), parser.zero_shot_answers),
            (prompting.draft(template, question), int(template is not None)),
        ]
        answers: list[tuple[str, ...]] = []
        for prompt, count in asked:
            found: tuple[str, ...] = ()
            if prompt is not None and count:
                found, error = yield from self._public(prompt, count, question)
                if error is not None:
                    self._failed(error)
                    return None, ""
            answers.append(found)
        public = PublicInput(
            question=question.text,
            prompt_text=prompting.fixed_text(question),
            zero_shot=answers[0],
            draft="".join(answers[1]),
        )
        prepared = yield Do(
            partial(parser.prepare, public), partial(parser.aprepare, public)
        )
        return prepared, public.draft or "\n".join(public.zero_shot)

    def _slots(self, prompts: list[PromptValue], done: Advance) -> Flow[list[Slot]]:
        model = self.query.private.sealed

        def asking() -> Flow[list[Slot]]:
            found: list[Slot] = yield Do(
                partial(model.answer, prompts, done),
                partial(model.aanswer, prompts, done),
            )
            return found

        slots: list[Slot] = yield sealed(asking)
        return slots

    def _public(
        self, prompt: PromptValue, count: int, question: Question
    ) -> Flow[tuple[tuple[str, ...], str | None]]:
        """Ask as the chain asks in public; return the answers, or the error's text."""
        public, ends = self.query.public, _Ends()
        asked = prompt, count, RunnableConfig(callbacks=[ends]), Use()
        try:
            answers = yield Do(
                partial(public.answers, *asked), partial(public.aanswers, *asked)
            )
        except DPError as error:
            _, raw = yield from self._plain(prompt, question)
            return (), raw or str(error)
        self._ended(ends, "a reply to the question alone", question)
        return answers, None

    def _plain(
        self, prompt: PromptValue, question: Question
    ) -> Flow[tuple[Any, str | None]]:
        """Ask by an ordinary call; return the reply, or the error's text."""
        ends = _Ends()
        call = partial(self.model.invoke, prompt, RunnableConfig(callbacks=[ends]))
        try:
            reply = yield in_thread(call)
        except Exception as error:  # noqa: BLE001 - shown, whatever it is
            return None, _told(error)
        self._ended(ends, "the reply", question)
        return reply, None

    def _openly(self, prompt: PromptValue) -> Flow[str | None]:
        """Make a group's call with a public prompt; return the error's text."""
        try:
            yield self.query.private.sealed.openly(prompt)
        except Exception as error:  # noqa: BLE001 - shown, whatever it is
            return _told(error)
        return None

    def _ended(self, ends: _Ends, what: str, question: Question) -> None:
        if ends.cut:
            told = f"{what} was cut at the model's limit of tokens"
            self._found("cut", f"{question.text!r}: {told}.")

    # -- what is found -----------------------------------------------------------------

    def _failed(self, error: str) -> None:
        self._found("context" if _TOO_LONG.search(error) else "no-answer", error)

    def _failures(
        self, prompts: list[PromptValue], slots: list[Slot], error: str | None
    ) -> Flow[None]:
        failed = [i for i, slot in enumerate(slots) if slot.failed]
        if not failed and error is None:
            return
        if len(failed) == len(slots):
            if error is not None:
                self._failed(error)
                return
            why = yield from self._openly(prompts[0])
            what = "Every group call failed, and an ordinary one was answered."
            self._found("sealed", f"{what} {why}" if why else what)
            return
        if failed:
            error = yield from self._openly(prompts[failed[0]])
            if error is not None and _TOO_LONG.search(error):
                self._found("context", error)
        again = error or "asked again, the model answered"
        self._found(
            "some-failed", f"{len(failed)} of {len(slots)} group calls failed: {again}"
        )

    def _read(
        self,
        blank: CheckedQuestion,
        options: tuple[str, ...],
        prepared: Any,
        slots: list[Slot],
        prompt: PromptValue,
        message: Any,
    ) -> CheckedQuestion:
        parser = self.query.private.parser
        replies = tuple(slot.text for slot in slots)
        kinds = [(r, parser.reads(r, prepared)) for r in replies if r is not None]
        count = Counter(kind for _, kind in kinds)
        failed = sum(slot.failed for slot in slots)
        usage: Mapping[str, Any] = usage_of(message) or {}
        found = replace(
            blank,
            options=options,
            replies=replies,
            readable=count["answer"],
            says_nothing=count["nothing"],
            unreadable=len(kinds) - count["answer"] - count["nothing"],
            failed=failed,
            input_tokens=usage.get("input_tokens"),
            output_tokens=usage.get("output_tokens"),
        )
        said, asked = len(kinds), f"{blank.question!r}: "
        if empty := len(replies) - said - failed:
            self._found("empty", f"{asked}{empty} of {len(replies)} replies are empty.")
        odd = [text for text, kind in kinds if kind in {"loose", "unreadable"}]
        if len(odd) * 10 > said:
            severity: Severity = (
                "error" if count["unreadable"] * 2 > said else "warning"
            )
            what = f"{asked}{len(odd)} of {said} replies are not as asked, such as"
            self._found("format", f"{what} {odd[0][:200]!r}.", severity)
        if said and found.says_nothing == said:
            self._found("says-nothing", f"{asked}all replies say so.")
        text = prompt.to_string()
        if found.input_tokens and len(text) > _MOST_OF_A_TOKEN * found.input_tokens:
            self._found(
                "truncated",
                f"{asked}the prompt has {len(text)} characters, about "
                f"{len(text) // CHARACTERS} tokens, and the server says that it read "
                f"{found.input_tokens}: it may have dropped the rest.",
            )
        return found

    # -- what a question costs ---------------------------------------------------------

    def _charge(self) -> dict[str, Any] | None:
        private, budget = self.query.private, self.budget
        if budget is None:
            self._found("no-budget", "No account was given.")
            return None
        wanted = private.charge
        try:
            budget.require_payable(wanted)
            events = list(budget.quote(wanted))
            left = budget.remaining()
            epsilon = accounting.compose(events, budget.delta)
        except DPError as error:
            self._found("budget", str(error))
            return None
        return {
            "account": budget.account,
            "mechanisms": [wanted.name],
            "events": [repr(event) for event in events],
            "epsilon": epsilon,
            "epsilon_left": left.epsilon,
            "queries_left": left.queries,
        }

    def _report(
        self, checked: list[CheckedQuestion], charge: dict[str, Any] | None
    ) -> CheckReport:
        private = self.query.private
        size = len(self.groups[0])
        if "docs_per_group" not in private.groups.description:
            self._found("group-size", f"Made-up groups have {size} records.")
        if self.tokens is None:
            longest = max(len(d.page_content) for group in self.groups for d in group)
            self._found(
                "record-length",
                f"Made-up records have {longest // CHARACTERS} tokens at most, about.",
            )
        order: Iterable[str] = ("error", "warning", "info")
        ranked = [
            f for severity in order for f in self.findings if f.severity == severity
        ]
        group_calls, public_calls = most_calls(private)
        return CheckReport(
            findings=tuple(ranked),
            questions=tuple(checked),
            group_calls=group_calls,
            public_calls=public_calls,
            records_per_group=size,
            tokens_per_record=self.tokens,
            charge=charge,
        )


def most_calls(private: SealedQuery) -> tuple[int, int]:
    """Return the calls of one question at most: of groups, and without records."""
    parser = private.parser
    words, drafts = parser.rewrite_prompt, parser.draft_prompt
    public = max(parser.zero_shot_answers, 1) + sum(
        one is not None for one in (words, drafts)
    )
    return private.groups.n_groups, public


def _options(prepared: Any) -> tuple[str, ...]:
    texts = getattr(prepared, "texts", prepared)
    return texts if isinstance(texts, tuple) else ()


def _told(error: Exception) -> str:
    told = f"{type(error).__name__}: {str(error)[:500]}"
    if isinstance(error, TypeError) and "generate" in told:
        told += (
            " LangChain calls _generate(messages, stop=..., run_manager=..., **bound) "
            "and _agenerate alike."
        )
    return told
