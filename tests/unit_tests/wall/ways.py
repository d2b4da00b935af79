"""Ways of asking, and faces of a question: mechanisms, and troubles on the way."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy
from faces import (
    BudgetExhaustedError,
    DPChain,
    DPError,
    DPOutputParser,
    DPRetriever,
    ESAOutputParser,
    HashingEmbeddings,
    KSAJointOutputParser,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    PrivacyBudgetHandler,
    RetrievedGroups,
    SampledGroups,
    VoteOutputParser,
    create_dp_tool,
    dispose,
    open_account,
    settle,
)
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda
from unit_tests.wall.leaky import (
    GROUPS,
    KEY,
    PEOPLE,
    AsyncLeakyModel,
    LeakyEmbeddings,
    LeakyModel,
    documents,
    quoting,
)
from unit_tests.wall.marks import is_private, marks_in
from unit_tests.wall.observers import Run, watched

QUESTION = "What did lisinopril give?"
LABELS = ("cough", "rash")
MODELS = {"environment": AsyncLeakyModel, "config": LeakyModel}

# ---- ways ----------------------------------------------------------------------------


def _tool(run: Run, chain: Any) -> tuple[Any, Any]:
    tool = create_dp_tool(chain, name="ask", description="Asks a clinic's notes.")
    run.things.append(tool)
    args = {"question": QUESTION}
    return tool, {"type": "tool_call", "id": "1", "name": "ask", "args": args}


def _retriever(run: Run, chain: Any) -> Any:
    run.things.append(DPRetriever(chain=chain))
    return run.things[-1]


def _piped(chain: Any) -> Any:
    return RunnableLambda(lambda text: {"question": text}) | chain | StrOutputParser()


def _with_fallback(chain: Any) -> Any:
    return chain.with_fallbacks([RunnableLambda(lambda _: "sorry")])


def _copied(run: Run, chain: Any) -> Any:
    """Copy a chain, and its groups by way of a folder."""
    groups, folder = chain.groups, str(run.folder / "saved")
    if isinstance(groups, RetrievedGroups):
        groups.save(folder)
        groups = RetrievedGroups.load(folder, HashingEmbeddings())
    return copy.copy(chain).model_copy(update={"groups": groups})


SYNC: dict[str, Callable[[Run, Any], Any]] = {
    "invoke": lambda run, chain: chain.invoke(QUESTION, run.config),
    "batch": lambda run, chain: chain.batch([QUESTION], run.config),
    "stream": lambda run, chain: list(chain.stream(QUESTION, run.config)),
    "tool": lambda run, chain: (t := _tool(run, chain))[0].invoke(t[1], run.config),
    "retriever": lambda run, chain: _retriever(run, chain).invoke(QUESTION, run.config),
    "lcel": lambda run, chain: _piped(chain).invoke(QUESTION, run.config),
    "copied": lambda run, chain: _copied(run, chain).invoke(QUESTION, run.config),
}


async def _all(stream: Any) -> list[Any]:
    return [each async for each in stream]


ASYNC: dict[str, Callable[[Run, Any], Any]] = {
    "ainvoke": lambda run, chain: chain.ainvoke(QUESTION, run.config),
    "abatch": lambda run, chain: chain.abatch([QUESTION], run.config),
    "astream": lambda run, chain: _all(chain.astream(QUESTION, run.config)),
    "events": lambda run, chain: _all(
        _piped(chain).astream_events(QUESTION, run.config, version="v2")
    ),
    "log": lambda run, chain: _all(chain.astream_log(QUESTION, run.config)),
    "fallbacks": lambda run, chain: _with_fallback(chain).ainvoke(QUESTION, run.config),
}
WAYS = [*SYNC, *ASYNC]

# ---- faces ---------------------------------------------------------------------------

Stop = Callable[[], None]


@dataclass(frozen=True)
class Face:
    """What is asked, and what goes wrong.

    A reply is a function of a private prompt, and of how to stop the question; None is
    the usual answer. The account is each unit's, the corpus's, or a spent one.
    """

    parser: Callable[[], DPOutputParser] = lambda: VoteOutputParser(labels=LABELS)
    reply: Callable[[str, Stop], Any] = lambda _prompt, _stop: None
    raises: tuple[type[BaseException], ...] = ()
    seconds: float = 0.0
    account: str = "unit"
    sampled: bool = False
    breaks_ledger: bool = False
    cache: bool = True


def _fail(prompt: str, _stop: Stop) -> Any:
    return quoting(prompt)


def _interrupt(prompt: str, _stop: Stop) -> Any:
    return KeyboardInterrupt(prompt)


def _stop_and_answer(_prompt: str, stop: Stop) -> Any:
    stop()
    time.sleep(0.05)


def esa(*, failing: bool = False) -> DPOutputParser:
    embedding = LeakyEmbeddings(failing=failing)
    return ESAOutputParser(embedding=embedding, candidates=["A dry cough.", "A rash."])


def picky(text: str) -> list[str]:
    if is_private(text):
        raise quoting(text)
    return text.split()


STOPS = (KeyboardInterrupt, asyncio.CancelledError)
FACES: dict[str, Face] = {
    "vote": Face(),
    "draft": Face(lambda: VoteOutputParser(labels="draft")),
    "likelihood": Face(
        lambda: VoteOutputParser(
            labels=LABELS, read="likelihood", calibrate=["Who is it?"]
        )
    ),
    "failing likelihood": Face(
        lambda: VoteOutputParser(labels=LABELS, read="likelihood"), reply=_fail
    ),
    "esa": Face(esa),
    "ptr": Face(lambda: KSAPTROutputParser(k=1)),
    "threshold": Face(KSAThresholdOutputParser),
    "joint": Face(lambda: KSAJointOutputParser(k=1, domain=["cough", "rash"])),
    "sampled": Face(sampled=True, account="corpus"),
    "failing": Face(reply=_fail),
    "failing embedding": Face(functools.partial(esa, failing=True)),
    "failing tokenizer": Face(
        lambda: KSAPTROutputParser(k=1, tokenizer=picky), cache=False
    ),
    "slow": Face(seconds=0.02),
    "cancelled": Face(reply=_stop_and_answer, raises=STOPS),
    "interrupt": Face(reply=_interrupt, raises=STOPS),
    "exhausted": Face(account="spent", raises=(BudgetExhaustedError, DPError)),
    "failing ledger": Face(breaks_ledger=True, raises=(DPError,)),
}
RELEASE = {"vote", "draft", "likelihood", "slow", "joint"}
"""Faces whose answer is "cough", whatever the noise."""

MAY_SWALLOW = {"tool", "fallbacks"}
"""Ways that turn an error into an answer."""


@functools.cache
def groups(*, sampled: bool) -> Any:
    """Return the marked records in groups."""
    if sampled:
        return SampledGroups.from_documents(
            documents(), unit_key=KEY, n_groups=GROUPS, sampling_rate=0.9
        )
    return RetrievedGroups.from_documents(
        documents(),
        HashingEmbeddings(),
        unit_key=KEY,
        n_groups=GROUPS,
        docs_per_group=PEOPLE,
        score_threshold=-1.0,
    )


@functools.cache
def _empty_ledger() -> Path:
    """Return a ledger without accounts: to make one takes longer than a question."""
    path = Path(tempfile.mkdtemp()) / "ledger.db"
    dispose(corpus_account(f"sqlite:///{path}", account="unused"))
    return path


def corpus_account(ledger: str, queries: int = 4, **more: Any) -> PrivacyBudgetHandler:
    """Open an account of the whole corpus."""
    terms = {"epsilon": 200, "delta": 1e-6, "queries": queries, **more}
    return PrivacyBudgetHandler(ledger=ledger, **terms)


@contextmanager
def account(run: Run, kind: str) -> Iterator[PrivacyBudgetHandler]:
    """Open an account in a file of the run's folder."""
    shutil.copy(_empty_ledger(), run.folder / "ledger.db")
    url = f"sqlite:///{run.folder}/ledger.db"
    opened = (
        open_account(url, epsilon=200, queries=4, accounting="renyi", scope="unit")
        if kind == "unit"
        else corpus_account(url, queries=1)
    )
    run.things.append(opened)
    try:
        yield opened
    finally:
        dispose(opened)


@contextmanager
def _broken_database() -> Iterator[None]:
    """Make the database fail where it hears of units."""

    def fail(_c: Any, _k: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "unit" in statement.lower() and not statement.startswith("SELECT"):
            raise quoting(repr(parameters))

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", fail)
    try:
        yield
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", fail)


# ---- a run ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What came of a question.

    The marks that each observer saw, if it saw any; what the caller was raised; what
    the caller was given, as it shows itself.
    """

    marks: dict[str, list[str]]
    error: BaseException | None
    said: str


def ask(
    crowd: str,
    way: str,
    face: Face,
    during: Callable[[Run], Any] = lambda _run: contextlib.nullcontext(),
) -> Seen:
    """Ask once, in sight of a crowd."""

    def act(run: Run, stack: ExitStack) -> None:
        stop: list[Stop] = [lambda: signal.raise_signal(signal.SIGINT)]
        # Whatever another test's server has made of Ctrl-C in this process.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        stack.callback(signal.signal, signal.SIGINT, before)

        def script(prompt: str) -> Any:
            return face.reply(prompt, stop[0]) if is_private(prompt) else None

        def seconds(prompt: str) -> float:
            return face.seconds if is_private(prompt) else 0.0

        budget = stack.enter_context(account(run, face.account))
        stack.callback(settle)
        chain = DPChain(
            groups=groups(sampled=face.sampled),
            model=MODELS[crowd](script=script, seconds=seconds, **run.fields),
            parser=face.parser(),
            cache=face.cache,
        )
        run.things += [chain, chain.groups, chain.parser]
        run.callbacks.append(budget)
        if face.account == "spent":
            chain.invoke("What else?", {"callbacks": [budget]})
        if face.breaks_ledger:
            stack.enter_context(_broken_database())
        stack.enter_context(during(run))
        if way in SYNC:
            run.outputs.append(SYNC[way](run, chain))
        else:
            asyncio.run(_on_loop(run, ASYNC[way], chain, stop), debug=crowd != "config")

    return observe(crowd, act)


async def _on_loop(run: Run, way: Any, chain: Any, stop: list[Stop]) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.slow_callback_duration = 0
    stop[0] = lambda: loop.call_soon_threadsafe(task.cancel) and None
    run.outputs.append(await way(run, chain))


def observe(crowd: str, act: Callable[[Run, ExitStack], None]) -> Seen:
    """Do something in sight of a crowd."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder))
        with watched(run, crowd) as seen:
            with ExitStack() as stack:
                try:
                    act(run, stack)
                except BaseException as error:  # noqa: BLE001 - it is looked at
                    run.error = error
            found = {name: marks_in(look()) for name, look in seen.items()}
    marks = {name: marks for name, marks in found.items() if marks}
    return Seen(marks, run.error, repr(run.outputs))
