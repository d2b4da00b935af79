"""`dpicl demo`: the same questions, asked in the ordinary way and privately."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import Runnable, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from langchain_dpicl.budget import Forecast, PrivacyBudgetHandler, forecast
from langchain_dpicl.chain import DPChain
from langchain_dpicl.cli.loading import (
    is_encodable,
    load_embedding,
    load_model,
    read_corpus,
    sqlite_path,
)
from langchain_dpicl.common import parameters
from langchain_dpicl.common.outcome import Status
from langchain_dpicl.common.prompts import (
    DOCUMENT_SEPARATOR,
    GROUP_PROMPT,
    NONE_OF_THESE,
    SENTENCE_INSTRUCTIONS,
)
from langchain_dpicl.demo import DemoQuestion, clinic, questions, secrets_of
from langchain_dpicl.exceptions import (
    BudgetExhaustedError,
    InvalidParameterError,
    UnitError,
)
from langchain_dpicl.groups import RetrievedGroups
from langchain_dpicl.groups.units import unit_id_of
from langchain_dpicl.parsers import KSAPTROutputParser, VoteOutputParser
from langchain_dpicl.parsers.reading.refusal import says_nothing

RIGHT, WRONG, SILENT = "right", "wrong", "no answer"
VERDICTS = {
    RIGHT: "right answers to questions about the population",
    WRONG: "wrong answers to them",
    SILENT: "no answer to them",
}
COLORS = {RIGHT: "green", WRONG: "red", SILENT: "yellow"}
LEAK = "  [bold white on red] a secret, in the clear [/]"
OUTCOMES = {
    Status.RELEASED.value: "[green]released[/]",
    Status.FALLBACK.value: "[yellow]not released[/]",
    Status.ABSTAINED.value: "[yellow]refused[/]",
    Status.CACHED.value: "[green]given again[/]",
}


@dataclass(frozen=True)
class Task:
    """Whose records, which questions, and which secrets to look for."""

    name: str
    documents: list[Document]
    unit_key: str
    asked: list[DemoQuestion]
    secrets: frozenset[str]

    @property
    def n_units(self) -> int:
        """Number of units in the corpus."""
        return len({unit_id_of(document, self.unit_key) for document in self.documents})


@dataclass(frozen=True)
class Answered:
    """One question, answered both ways.

    A verdict is `RIGHT`, `WRONG` or `SILENT`; None where there is nothing to check by.
    """

    question: str
    kind: str
    ordinary: str
    private: str
    status: str
    reason: str
    keywords: list[str]
    noisy_votes: dict[str, float]
    epsilon_spent: float
    is_charged: bool
    ordinary_verdict: str | None
    private_verdict: str | None
    ordinary_leaks: bool
    private_leaks: bool
    seconds: float


def run(options: argparse.Namespace) -> int:
    """Run the demo; see `dpicl demo --help`."""
    console = Console(quiet=options.json, highlight=False)
    task = _task(options)
    # Whatever can be refused is refused before an account is opened under its terms.
    plan = _plan(options, task)
    model = load_model(options.model)
    embedding = load_embedding(options.embedding)
    budget = _budget(options, task)
    stop = ""
    answers: list[Answered] = []
    if budget.can_afford():
        chain = _private_chain(options, task, budget, console, model, embedding)
        _introduce(console, options, task, budget, plan)
        ordinary = _ordinary_chain(options, task, chain, console)
        todo = task.asked[: options.first]
        for number, asked in enumerate(todo, start=1):
            try:
                with console.status(f"Question {number} of {len(todo)} ..."):
                    answer = _ask(asked, ordinary, chain, budget, task.secrets)
            except BudgetExhaustedError as error:
                stop = str(error)
                break
            answers.append(answer)
            _show(console, answer, len(answers), budget)
    else:
        closed = budget.ledger.state(budget.account).closed
        why = "is closed" if closed else f"has spent all its {budget.queries} queries"
        stop = f"Account {budget.account!r} {why}; nothing was asked of the model."
    if options.json:
        print(json.dumps(_report(budget, answers, stop), indent=2))  # noqa: T201 - the command's output
    else:
        _conclude(console, budget, answers, stop)
    return 0


def _task(options: argparse.Namespace) -> Task:
    if not options.corpus:
        if options.question or options.unit_key:
            raise InvalidParameterError(
                "--question and --unit-key go with --corpus FILE.jsonl."
            )
        documents = clinic(options.patients)
        return Task(
            name=f"clinic-{options.patients}",
            documents=documents,
            unit_key="patient_id",
            asked=questions(options.patients),
            secrets=frozenset(secrets_of(documents)),
        )
    if not options.unit_key or not options.question:
        raise InvalidParameterError(
            "--corpus needs --unit-key FIELD, the field that says whose record each "
            "line is, and at least one --question TEXT."
        )
    if not all(map(is_encodable, options.question)):
        raise InvalidParameterError("--question must be a text in UTF-8.")
    return Task(
        name=Path(options.corpus).stem,
        documents=read_corpus(
            options.corpus, unit_key=options.unit_key, text_key=options.text_key
        ),
        unit_key=options.unit_key,
        asked=[DemoQuestion(text, "population", ()) for text in options.question],
        secrets=frozenset(),
    )


def _plan(options: argparse.Namespace, task: Task) -> Forecast:
    """Return what the plan can do, or refuse one that can't do anything.

    Raises:
        InvalidParameterError: If delta is too large for the corpus, or not even a
            unanimous answer would come out.
        UnitError: If there are fewer units than groups, or a record has no unit.
    """
    for name in ("first", "docs_per_group"):
        if (number := getattr(options, name)) is not None:
            parameters.count(number, name)
    n_units = task.n_units
    if options.groups > n_units:
        raise UnitError(
            f"{options.groups} groups need at least as many units, and the corpus has "
            f"{n_units}: give --groups less."
        )
    parser = _parser(options)
    plan = forecast(
        parser.event_template(),
        epsilon=options.epsilon,
        delta=parameters.delta(options.delta),
        queries=parameters.count(options.queries, "queries"),
        groups=options.groups,
        public_calls=1,
        choices=getattr(parser, "max_labels", 2),
        drafted=options.parser == "vote",
    )
    if options.delta * n_units >= 1:
        raise InvalidParameterError(
            f"delta {options.delta:g} is too large for {n_units} units: give --delta "
            f"below {1 / n_units:.2g}."
        )
    if not plan.is_possible:
        raise InvalidParameterError(plan.advice())
    return plan


def _parser(options: argparse.Namespace) -> VoteOutputParser | KSAPTROutputParser:
    if options.parser == "ksa":
        return KSAPTROutputParser(k=1 if options.k is None else options.k)
    if options.k is not None:
        raise InvalidParameterError("--k goes with --parser ksa.")
    return VoteOutputParser(labels="draft")


def _budget(options: argparse.Namespace, task: Task) -> PrivacyBudgetHandler:
    path = sqlite_path(options.ledger)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    return PrivacyBudgetHandler(
        epsilon=options.epsilon,
        delta=options.delta,
        queries=options.queries,
        ledger=options.ledger,
        account=options.account or task.name,
    )


def _private_chain(
    options: argparse.Namespace,
    task: Task,
    budget: PrivacyBudgetHandler,
    console: Console,
    model: Any,
    embedding: Embeddings,
) -> DPChain:
    with console.status(f"Embedding {len(task.documents)} records ..."):
        groups = RetrievedGroups.from_documents(
            task.documents,
            embedding,
            unit_key=task.unit_key,
            n_groups=options.groups,
            docs_per_group=options.docs_per_group,
        )
    return DPChain(
        groups=groups,
        model=model,
        parser=_parser(options),
        budget=budget,
    )


def _ordinary_chain(
    options: argparse.Namespace, task: Task, chain: DPChain, console: Console
) -> Runnable[str, str]:
    """Return the RAG chain that everybody writes: the comparison, not private."""
    embedding: Embeddings = load_embedding(options.embedding)
    with console.status("Embedding them again for the ordinary chain ..."):
        store = InMemoryVectorStore.from_documents(task.documents, embedding)
    retriever = store.as_retriever(search_kwargs={"k": options.docs_per_group})
    rag: Runnable[str, str] = (
        {
            "context": retriever
            | (lambda found: DOCUMENT_SEPARATOR.join(d.page_content for d in found)),
            "question": RunnablePassthrough(),
        }
        | GROUP_PROMPT.partial(format_instructions=SENTENCE_INSTRUCTIONS)
        | chain.model
        | StrOutputParser()
    )
    return rag


def _ask(
    asked: DemoQuestion,
    ordinary: Runnable[str, str],
    chain: DPChain,
    budget: PrivacyBudgetHandler,
    secrets: frozenset[str],
) -> Answered:
    start = time.perf_counter()
    message = chain.invoke(asked.text)
    seconds = time.perf_counter() - start
    plain = ordinary.invoke(asked.text)
    private = str(message.text)
    record = message.response_metadata["privacy"]
    details = record["details"]
    votes = dict(details.get("noisy_votes", {}))
    if votes:
        votes[NONE_OF_THESE] = details["noisy_none"]
    return Answered(
        question=asked.text,
        kind=asked.kind,
        ordinary=plain,
        private=private,
        status=record["status"],
        reason=details.get("reason", ""),
        keywords=record["keywords"],
        noisy_votes=votes,
        epsilon_spent=budget.spent().epsilon,
        is_charged=record["charge"] is not None,
        ordinary_verdict=_verdict(asked, plain),
        private_verdict=_verdict(asked, private),
        ordinary_leaks=any(secret in plain for secret in secrets),
        private_leaks=any(secret in private for secret in secrets),
        seconds=seconds,
    )


def _verdict(asked: DemoQuestion, said: str) -> str | None:
    if asked.kind != "population" or not asked.keywords:
        return None
    if asked.answered_by(said):
        return RIGHT
    return SILENT if says_nothing(said) else WRONG


def _introduce(
    console: Console,
    options: argparse.Namespace,
    task: Task,
    budget: PrivacyBudgetHandler,
    plan: Forecast,
) -> None:
    console.rule("[bold]langchain-dpicl demo")
    console.print(
        f"[bold]Records[/]  {len(task.documents)} of {task.n_units} units "
        f"(one unit: all records with the same {task.unit_key!r})"
    )
    model = "the offline stand-in, not a language model" * (options.model == "offline")
    console.print(f"[bold]Model[/]    {model or options.model}")
    spent = budget.spent()
    console.print(
        f"[bold]Promise[/]  epsilon {budget.epsilon:g}, delta {budget.delta:g} per "
        f"unit, for {budget.queries} answers in all; account {budget.account!r} has "
        f"spent {spent.queries} of them"
    )
    console.print(
        f"[bold]Plan[/]     {options.groups} groups of {options.docs_per_group} "
        f"records, {plan.calls_per_query} model calls a question, at most one more. "
        f"{plan.advice()}"
    )
    console.print()


def _show(
    console: Console, answer: Answered, number: int, budget: PrivacyBudgetHandler
) -> None:
    table = Table.grid(padding=(0, 1))
    table.add_column(min_width=9, style="bold")
    table.add_column(overflow="fold")
    table.add_row(f"{number}", f"[bold]{escape(answer.question)}[/]")
    for way, said, leaks, verdict in (
        ("ordinary", answer.ordinary, answer.ordinary_leaks, answer.ordinary_verdict),
        ("private", answer.private, answer.private_leaks, answer.private_verdict),
    ):
        mark = f"  [{COLORS[verdict]}]({verdict})[/]" if verdict else ""
        table.add_row(way, escape(said) + LEAK * leaks + mark)
    if answer.noisy_votes:
        votes = [f"{label} {round(n)}" for label, n in answer.noisy_votes.items()]
        said = f"{', '.join(votes)} (noisy votes)"
        table.add_row("options", f"[dim]{escape(said)}[/]")
    told = [OUTCOMES[answer.status] + f": {answer.reason}" * bool(answer.reason)]
    told += [] if answer.is_charged else ["nothing is charged"]
    told += [f"epsilon so far {answer.epsilon_spent:.2f} of {budget.epsilon:g}"]
    table.add_row("", f"[dim]{'; '.join(told)}; {answer.seconds:.1f} s[/]")
    console.print(table)
    console.print()


def _conclude(
    console: Console,
    budget: PrivacyBudgetHandler,
    answers: list[Answered],
    stop: str,
) -> None:
    if answers:
        console.print(_summary(answers))
    if stop:
        console.print(f"\n[bold yellow]Stopped.[/] {escape(stop)}")
    spent = budget.spent()
    console.print(
        f"\nAccount {budget.account!r} in {budget.ledger!r}: epsilon "
        f"{spent.epsilon:.2f} of {budget.epsilon:g} spent on {spent.queries} of "
        f"{budget.queries} answers."
    )
    if not budget.can_afford():
        console.print(
            "It pays for nothing more: run this again and nothing is asked. Other "
            "questions need another promise to the same people, and the two add up: "
            "'dpicl demo --account NAME' opens one. 'dpicl ledger show "
            f"{budget.account}' lists what was spent."
        )
    else:
        console.print("Run this again to go on with the same account.")


def _summary(answers: list[Answered]) -> Table:
    table = Table("", "ordinary", "private")
    table.columns[1].justify = table.columns[2].justify = "right"
    checked = [a for a in answers if a.private_verdict is not None]
    for verdict, row in VERDICTS.items() if checked else ():
        table.add_row(
            row,
            f"{sum(a.ordinary_verdict == verdict for a in checked)} of {len(checked)}",
            f"{sum(a.private_verdict == verdict for a in checked)} of {len(checked)}",
        )
    people = [a for a in answers if a.kind == "person"]
    if people:
        table.add_row(
            "secrets given away, asked about one person",
            f"{sum(a.ordinary_leaks for a in people)} of {len(people)}",
            f"{sum(a.private_leaks for a in people)} of {len(people)}",
        )
    table.add_row(
        "answers shaped by the records",
        str(sum(not says_nothing(a.ordinary) for a in answers)),
        str(sum(a.status == Status.RELEASED.value for a in answers)),
    )
    return table


def _report(
    budget: PrivacyBudgetHandler, answers: list[Answered], stop: str
) -> dict[str, Any]:
    return {
        "answers": [asdict(answer) for answer in answers],
        "account": budget.public_state(),
        "stopped": stop or None,
    }
