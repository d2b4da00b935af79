"""The steps of one query, in the order that makes the guarantee.

1. Find the budget, or refuse.
2. The *public* part: embed the question, ask the model the question alone.
3. **Charge** the account, durably, or refuse.
4. The *private* part, sealed: draw the groups, ask the model once per group, merge the
   answers by the mechanism.
5. Put the release into words: one public call that sees the question and the release.

Whatever fails in 1 to 3 costs nothing and releases nothing. Whatever fails in 4 costs
the charge and releases nothing.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import aclosing, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import RunnableConfig, patch_config

from langchain_dpicl.budget import PrivacyBudgetHandler, find_budget
from langchain_dpicl.chain.answers import answer_key, remember
from langchain_dpicl.chain.prompting import Question, filter_of, read_question
from langchain_dpicl.chain.public_model import PublicModel, Use
from langchain_dpicl.chain.sealed_query import SealedQuery
from langchain_dpicl.chain.steps import PreparedQuery, Released, Step, Wording
from langchain_dpicl.common.outcome import Status
from langchain_dpicl.common.prompts import FALLBACK_NOTE
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    PublicCallError,
)
from langchain_dpicl.groups import GroupSource
from langchain_dpicl.parsers import PublicInput
from langchain_dpicl.release.flow import Do, Each, Flow, arun, in_thread, run

STEP_EVENT = "dpicl_step"
"""Name of the custom event that tells of a step."""


@dataclass(frozen=True, repr=False)
class QueryRunner:
    """A chain's parts, and how they answer a question together.

    Attributes:
        private: Steps 3 and 4.
        public: The model, for everything but the groups.
        budget: Who pays, unless the run names a handler.
        fallback: What is given where nothing is released.
        abstain_text: The refusal; None: one sentence that says why.
        cache: Whether answers that were paid for are stored and given again.
        longest: Most characters of an input; None: any number.
        filter_keys: What a question may filter people by.
    """

    private: SealedQuery
    public: PublicModel
    budget: PrivacyBudgetHandler | None
    fallback: Literal["refuse", "model"]
    abstain_text: str | None
    cache: bool
    longest: int | None = None
    filter_keys: tuple[str, ...] = ()

    def where(self, value: Any) -> QueryRunner:
        """Return the same for only the people whom an input's filter names.

        Raises:
            InvalidParameterError: If it is no filter, or a question may not filter by
                it.

        Privacy:
            The filter is public, as the question is; see `groups.filtering`.
        """
        only = filter_of(value)
        if only is None:
            return self
        unknown = [key for key in only.description() if key not in self.filter_keys]
        if unknown:
            raise InvalidParameterError(
                f"This chain lets no question filter by {unknown[0]!r}: its "
                f"filter_keys= are {list(self.filter_keys)}. Make the chain with "
                f"filter_keys=[{unknown[0]!r}]."
            )
        groups = self.private.groups.where(only)
        return replace(self, private=replace(self.private, groups=groups))

    # -- the four ways to ask, one order of steps -----------------------------------

    def answer(self, value: Any, run_manager: Any, config: RunnableConfig) -> AIMessage:
        """Answer one question."""
        child = patch_config(config, callbacks=run_manager.get_child())
        with closing(run(self._steps(value, run_manager, child, whole=True))) as steps:
            for item in steps:
                if isinstance(item, Step):
                    _tell(item, child)
                elif isinstance(item, AIMessage):
                    message = item
        return message

    def stream(
        self, chunks: Iterator[Any], run_manager: Any, config: RunnableConfig
    ) -> Iterator[AIMessage]:
        """Answer one question; the last, public call comes piece by piece."""
        child = patch_config(config, callbacks=run_manager.get_child())
        value = _collect(chunks)
        with closing(run(self._steps(value, run_manager, child, whole=False))) as steps:
            for item in steps:
                yield _tell(item, child) if isinstance(item, Step) else _chunk(item)

    async def aanswer(
        self, value: Any, run_manager: Any, config: RunnableConfig
    ) -> AIMessage:
        """Answer one question; see `answer`."""
        child = patch_config(config, callbacks=run_manager.get_child())
        flow = self._steps(value, run_manager, child, whole=True)
        async with aclosing(arun(flow)) as steps:
            async for item in steps:
                if isinstance(item, Step):
                    await _atell(item, child)
                elif isinstance(item, AIMessage):
                    message = item
        return message

    async def astream(
        self, chunks: AsyncIterator[Any], run_manager: Any, config: RunnableConfig
    ) -> AsyncIterator[AIMessage]:
        """Answer one question piece by piece; see `stream`."""
        child = patch_config(config, callbacks=run_manager.get_child())
        value = _collect([chunk async for chunk in chunks])
        flow = self._steps(value, run_manager, child, whole=False)
        async with aclosing(arun(flow)) as steps:
            async for item in steps:
                if isinstance(item, Step):
                    yield await _atell(item, child)
                else:
                    yield _chunk(item)

    # -- the order of the steps -----------------------------------------------------

    def _steps(
        self, value: Any, run_manager: Any, child: RunnableConfig, *, whole: bool
    ) -> Flow[None]:
        """Hand on the steps of a query, of those whom its filter names."""
        asked = self.where(value)
        yield from asked._ordered(value, run_manager, child, whole=whole)  # noqa: SLF001 - itself, for fewer people

    def _ordered(
        self, value: Any, run_manager: Any, child: RunnableConfig, *, whole: bool
    ) -> Flow[None]:
        """Hand on the steps of a query, pieces of its wording, and last its message.

        A release is stored before it is here: whatever stops the caller, with a cache
        the next one to ask gets it for nothing.
        """
        asked = self._begin(value, run_manager)
        released = yield from self._release(asked, child)
        wording = self._word(released)
        spoken = self._spoken(wording, child, asked.use, whole=whole)
        failed = False
        try:
            yield spoken
        except PublicCallError:
            failed = True
        said = "".join(spoken.handed_on)
        rest, status = wording.rest(said, failed=failed)
        if whole and rest and wording.keywords:
            said, rest = "", rest.lstrip()  # The words themselves are the answer.
        is_worded = status is Status.RELEASED and said and not rest
        if released.paid is not None and asked.key is not None and is_worded:
            keep = partial(remember, released.paid, said)
            yield in_thread(keep, shielded=True)
        yield self._message((said + rest if whole else rest, status), released)

    def _release(self, asked: PreparedQuery, child: RunnableConfig) -> Flow[Released]:
        """Hand on the steps of a release, unless it is stored; return it."""
        known = yield from self.private.stored(asked)
        if known is not None:
            return known
        released = yield from self._ask(asked, child)
        yield released.step
        return released

    def _spoken(
        self, wording: Wording, child: RunnableConfig, use: Use, *, whole: bool
    ) -> Each:
        public, prompt, note = self.public, wording.prompt, wording.note
        if prompt is None:
            return Each(tuple, partial(_aeach, _anothing))
        if whole:
            whole_answer = partial(
                public.aanswers, prompt, 1, child, use, drafted=False
            )
            return Each(
                lambda: _led(
                    note, public.answers(prompt, 1, child, use, drafted=False)
                ),
                lambda: _aled(note, _aeach(whole_answer)),
            )
        return Each(
            lambda: _led(note, public.stream(prompt, child, use)),
            lambda: _aled(note, public.astream(prompt, child, use)),
        )

    def _ask(self, asked: PreparedQuery, child: RunnableConfig) -> Flow[Released]:
        """Hand on the steps of the public and the private part; return the release."""
        private, first = self.private, self.private.charge
        if self._asks_first:
            try:
                yield in_thread(partial(asked.budget.require_payable, first))
            except BudgetExhaustedError:
                # Another asking of the same may have spent the account.
                known = yield from private.stored(asked)
                if known is None:
                    raise
                return known
        asked = yield from self.prepare(asked, child)
        return (yield from private.release(asked))

    def prepare(
        self, asked: PreparedQuery, child: RunnableConfig
    ) -> Flow[PreparedQuery]:
        """Hand on the public steps before the first charge; return the question."""
        private, groups = self.private, self.private.groups
        text = asked.question.text
        embedded = yield Do(
            partial(groups.prepare, text), partial(groups.aprepare, text)
        )
        asked = replace(asked, embedded=embedded)
        question, parser = asked.question, private.parser
        drafting = private.prompting.draft(parser.draft_prompt, question)
        zero_shot: tuple[str, ...] = ()
        draft = ""
        if count := self._zero_shot_answers:
            prompt = private.prompting.public(question)
            yield Step("public", {"answers": count})
            zero_shot = yield self._answers(prompt, count, child, asked.use)
        if drafting is not None:
            yield Step("public", {"answers": 1})
            (draft,) = yield self._answers(drafting, 1, child, asked.use)
        public = self._public_input(question, zero_shot, draft)
        prepared = yield Do(
            partial(parser.prepare, public), partial(parser.aprepare, public)
        )
        if drafting is not None:
            yield Step("drafts", {"labels": list(prepared)})
        return self._prepared(asked, public, prepared)

    @property
    def _asks_first(self) -> bool:
        """Whether the model is asked anything before the charge."""
        drafts = self.private.parser.draft_prompt is not None
        return bool(self._zero_shot_answers) or drafts

    def _answers(
        self, prompt: PromptValue, count: int, child: RunnableConfig, use: Use
    ) -> Do:
        return Do(
            partial(self.public.answers, prompt, count, child, use),
            partial(self.public.aanswers, prompt, count, child, use),
        )

    # -- public decisions --------------------------------------------------------------

    def _begin(self, value: Any, run_manager: Any) -> PreparedQuery:
        budget = find_budget(self.budget, run_manager)
        question = read_question(value, self.longest)
        if not self.cache:
            return PreparedQuery(question, budget)
        key = answer_key(
            question,
            prompting=self.private.prompting,
            parser=self.private.parser,
            groups=self.private.groups,
            model=self.private.sealed.model,
        )
        return PreparedQuery(question, budget, key=key)

    def _public_input(
        self, question: Question, zero_shot: tuple[str, ...], draft: str
    ) -> PublicInput:
        return PublicInput(
            question=question.text,
            prompt_text=self.private.prompting.fixed_text(question),
            zero_shot=zero_shot,
            draft=draft,
        )

    @property
    def _zero_shot_answers(self) -> int:
        parser = self.private.parser
        # A wrong key or URL must cost nothing: until the model has answered once, the
        # question alone comes before the charge, and is kept as the fallback.
        is_new = parser.draft_prompt is None and not self.public.has_answered
        return max(parser.zero_shot_answers, int(is_new))

    def _prepared(
        self, asked: PreparedQuery, public: PublicInput, prepared: Any
    ) -> PreparedQuery:
        private = self.private
        # A wording that can't be asked for must not fail after the charge.
        private.prompting.rewrite(private.parser.rewrite_prompt, asked.question, "")
        instructions = private.parser.instructions(prepared)
        return replace(
            asked,
            question=replace(asked.question, instructions=instructions),
            zero_shot=public.zero_shot,
            prepared=prepared,
        )

    def _word(self, released: Released) -> Wording:
        """Decide how a release is put into words; see `Wording`."""
        outcome, asked = released.outcome, released.asked
        if released.paid is not None and released.paid.note is not None:
            return Wording(outcome.status, released.paid.note)
        if outcome.status is Status.FALLBACK:
            return self._fall_back(released)
        if outcome.text is not None:
            return Wording(outcome.status, outcome.text)
        if outcome.keywords:
            words = ", ".join(outcome.keywords)
            prompt = self.private.prompting.rewrite(
                self.private.parser.rewrite_prompt, asked.question, words
            )
            # The words are paid for: they must not be lost with the wording.
            return Wording(
                outcome.status,
                text=words if prompt is None else "",
                prompt=prompt,
                otherwise=(words, outcome.status),
                keywords=outcome.keywords,
                question=asked.question.text,
            )
        return self._fall_back(released)

    def _fall_back(self, released: Released) -> Wording:
        """Decide what is said where nothing was released."""
        outcome, asked = released.outcome, released.asked
        refusal = outcome.refusal(self.abstain_text)
        if self.fallback == "refuse":
            return Wording(Status.ABSTAINED, refusal)
        known = [outcome.text] if outcome.text is not None else asked.zero_shot
        if known:
            return Wording(Status.FALLBACK, f"{FALLBACK_NOTE} {known[0]}")
        return Wording(
            Status.FALLBACK,
            prompt=self.private.prompting.public(asked.question),
            otherwise=(refusal, Status.ABSTAINED),
            note=FALLBACK_NOTE,
        )

    def _message(self, said: tuple[str, Status], released: Released) -> AIMessage:
        text, status = said
        record, use = self.private.record(released, status), released.asked.use
        if self.private.call_count_is_public:
            record["calls"] = use.calls
        return AIMessage(
            content=text,
            response_metadata={"privacy": record},
            usage_metadata=use.usage,
        )


def check_filter_keys(
    keys: Iterable[str], groups: GroupSource, known: frozenset[str] | None
) -> None:
    """Refuse keys that no question could filter by.

    Args:
        keys: Metadata keys.
        groups: The groups.
        known: The keys that records have, where they are known.

    Raises:
        InvalidParameterError: If the groups can't leave anybody out, or no record has a
            key.
    """
    unknown = sorted(set(keys) - known) if known is not None else []
    if unknown:
        raise InvalidParameterError(
            f"filter_keys names metadata that no record has: {', '.join(unknown)}. "
            "Nobody would ever match."
        )
    own = groups.description.get("filter", {})
    if others := [key for key in keys if key not in own]:
        groups.where(dict.fromkeys(others, "any"))


def _led(note: str, pieces: Iterable[str]) -> Iterator[str]:
    """Hand on what a model says, with a note before it if it says anything."""
    for piece in pieces:
        yield f"{note} {piece.lstrip()}" if note and piece.strip() else piece
        note = "" if piece.strip() else note


async def _aled(note: str, pieces: AsyncIterator[str]) -> AsyncIterator[str]:
    """Hand on what a model says; see `_led`."""
    async for piece in pieces:
        for led in _led(note, [piece]):
            yield led
        note = "" if piece.strip() else note


async def _aeach(call: Callable[[], Awaitable[Iterable[str]]]) -> AsyncIterator[str]:
    for piece in await call():
        yield piece


async def _anothing() -> tuple[()]:
    return ()


def _chunk(message: AIMessage | str) -> AIMessageChunk:
    if isinstance(message, str):
        return AIMessageChunk(content=message)
    return AIMessageChunk(
        content=message.content,
        response_metadata=message.response_metadata,
        usage_metadata=message.usage_metadata,
        chunk_position="last",
    )


def _tell(step: Step, child: RunnableConfig) -> AIMessageChunk:
    """Tell the run's callbacks of a step, and return it as a piece of a stream."""
    if _is_heard(child):
        dispatch_custom_event(STEP_EVENT, step.to_dict(), config=child)
    return _step_chunk(step)


async def _atell(step: Step, child: RunnableConfig) -> AIMessageChunk:
    """Tell the run's callbacks of a step; see `_tell`."""
    if _is_heard(child):
        await adispatch_custom_event(STEP_EVENT, step.to_dict(), config=child)
    return _step_chunk(step)


def _is_heard(child: RunnableConfig) -> bool:
    # Dispatching to nobody takes a tenth of a millisecond, several times a query.
    handlers = getattr(child["callbacks"], "handlers", ())
    return not all(handler.ignore_custom_event for handler in handlers)


def _step_chunk(step: Step) -> AIMessageChunk:
    # A list, so that adding up the chunks keeps every step.
    steps = {"privacy_steps": [step.to_dict()]}
    return AIMessageChunk(content="", response_metadata=steps)


def _collect(chunks: Iterable[Any]) -> Any:
    """Add up a streamed input; what can't be added replaces what came before."""
    total: Any = None
    for chunk in chunks:
        can_add = isinstance(chunk, str) and isinstance(total, str)
        can_merge = isinstance(chunk, Mapping) and isinstance(total, Mapping)
        if can_add:
            total = total + chunk
        elif can_merge:
            total = {**total, **chunk}
        else:
            total = chunk
    return total
