"""`dpicl demo`: the same questions, asked in the ordinary way and privately."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import Runnable, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from langchain_dpicl.budget import Forecast, PrivacyBudgetHandler, forecast
from langchain_dpicl.budget.pricing import check_delta
from langchain_dpicl.chain import DPChain
from langchain_dpicl.cli.loading import (
    is_encodable,
    load_embedding,
    load_model,
    read_corpus,
    sqlite_path,
)
from langchain_dpicl.common import parameters
from langchain_dpicl.common.prompts import (
    DOCUMENT_SEPARATOR,
    FACTS_PROMPT,
    GROUP_PROMPT,
    NONE_OF_THESE,
    SENTENCE_INSTRUCTIONS,
)
from langchain_dpicl.common.replies import answer_of
from langchain_dpicl.demo import (
    DemoQuestion,
    RecordedReader,
    clinic,
    questions,
    secrets_of,
    visit_note_schema,
    visit_notes,
)
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    DPError,
    InvalidParameterError,
    UnitError,
)
from langchain_dpicl.groups import RetrievedGroups
from langchain_dpicl.groups.units import unit_id_of
from langchain_dpicl.parsers import VoteOutputParser
from langchain_dpicl.parsers.ksa_joint import domain_places
from langchain_dpicl.parsers.reading import declines
from langchain_dpicl.release.record import Status
from langchain_dpicl.tabular import GDPTable, TextRows

RIGHT, WRONG, SILENT = "right", "wrong", "no answer"
VERDICTS = {
    RIGHT: "right answers to questions about the population",
    WRONG: "wrong answers to them",
    SILENT: "no answer to them",
}
COLORS = {RIGHT: "green", WRONG: "red"}
LEAK = "  [bold white on red] a secret, in the clear [/]"

FACTS = {"epsilon": 3.0, "delta": 1e-5, "queries": 1, "account": "visit-notes"}
PAIRS = [("condition", "drug"), ("condition", "trigger"), ("drug", "side effect")]
ASIDE = ("none", "other", "unknown")
"""Values that are counted and no answer to these questions."""
FACT_QUESTIONS = {
    ("side effect", "drug", "on {} report"): ("lisinopril", "metformin", "sertraline"),
    ("drug", "condition", "with {} take"): ("migraine", "asthma", "depression"),
    ("trigger", "condition", "with {} name"): ("migraine", "asthma", "hypertension"),
}


@dataclass(frozen=True)
class Task:
    """Whose records, which questions, and which secrets to look for."""

    name: str
    documents: list[Document]
    unit_key: str
    asked: list[DemoQuestion]
    secrets: frozenset[str] = frozenset()

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
    parser = VoteOutputParser(
        labels="draft"
        if not options.labels
        else [one.strip() for one in options.labels.split(",")]
    )
    plan = _plan(options, task, parser)
    model, embedding = load_model(options.model), load_embedding(options.embedding)
    budget = _budget(options, task)
    answers, stop = list[Answered](), ""
    if budget.can_afford():
        _introduce(console, options, task, budget, plan)
        with console.status(f"Embedding {len(task.documents)} records, twice ..."):
            groups, store = _embedded(options, task, embedding)
        chain = DPChain(groups=groups, model=model, parser=parser, budget=budget)
        rag = _rag(store, model, options.docs_per_group)
        todo = task.asked[: options.first]
        for number, asked in enumerate(todo, start=1):
            try:
                with console.status(f"Question {number} of {len(todo)} ..."):
                    answers.append(_ask(asked, rag, chain, budget, task.secrets))
            except BudgetExhaustedError as error:
                stop = str(error)
                break
            _show(console, answers[-1], number, budget)
    else:
        closed = not budget.ledger.state(budget.account).is_open
        why = "is closed" if closed else f"has spent all its {budget.queries} queries"
        stop = f"Account {budget.account!r} {why}; nothing was asked of the model."
    _conclude(console, budget, answers, stop)
    facts = None if options.corpus else _facts(console, options, model)
    if options.json:
        report = {
            "answers": [asdict(answer) for answer in answers],
            "account": budget.public_state(),
            "stopped": stop or None,
            "facts": facts,
        }
        print(json.dumps(report, indent=2))  # noqa: T201 - the command's output
    return 0


# ---- what is asked of what -----------------------------------------------------------


def _task(options: argparse.Namespace) -> Task:
    if not options.corpus:
        if options.question or options.unit_key:
            raise InvalidParameterError(
                "--question and --unit-key go with --corpus FILE.jsonl."
            )
        documents = clinic(options.patients)
        asked, secrets = questions(options.patients), frozenset(secrets_of(documents))
        name = f"clinic-{options.patients}"
        return Task(name, documents, "patient_id", asked, secrets)
    if not options.unit_key or not options.question:
        raise InvalidParameterError(
            "--corpus needs --unit-key FIELD, the field that says whose record each "
            "line is, and at least one --question TEXT."
        )
    if not all(map(is_encodable, options.question)):
        raise InvalidParameterError("--question must be a text in UTF-8.")
    documents = read_corpus(options.corpus, unit_key=options.unit_key)
    asked = [DemoQuestion(text, "population", ()) for text in options.question]
    return Task(Path(options.corpus).stem, documents, options.unit_key, asked)


def _plan(
    options: argparse.Namespace, task: Task, parser: VoteOutputParser
) -> Forecast:
    """Return what the plan can do, or refuse one that can't do anything."""
    for name in ("first", "docs_per_group"):
        if (number := getattr(options, name)) is not None:
            parameters.count(number, name)
    if options.groups > (n_units := task.n_units):
        raise UnitError(
            f"{options.groups} groups need at least as many units, and the corpus has "
            f"{n_units}: give --groups less."
        )
    is_drafted = not options.labels
    plan = forecast(
        parser.charge(),
        epsilon=options.epsilon,
        delta=parameters.delta(options.delta),
        queries=parameters.count(options.queries, "queries"),
        groups=options.groups,
        public_calls=int(is_drafted),
        choices=parser.max_labels if is_drafted else len(parser.labels),
        drafted=is_drafted,
    )
    if not options.corpus:
        # Before the ledger's folder is made.
        check_delta(options.delta, options.patients)
    if not plan.is_possible:
        raise InvalidParameterError(plan.advice())
    return plan


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
        # Made-up patients are public; how many people a file holds is not.
        people_at_most=None if options.corpus else options.patients,
    )


def _embedded(
    options: argparse.Namespace, task: Task, embedding: Any
) -> tuple[RetrievedGroups, InMemoryVectorStore]:
    """Embed the records for the private chain, and for the ordinary one."""
    try:
        groups = RetrievedGroups.from_documents(
            task.documents,
            embedding,
            unit_key=task.unit_key,
            n_groups=options.groups,
            docs_per_group=options.docs_per_group,
        )
        return groups, InMemoryVectorStore.from_documents(task.documents, embedding)
    except DPError:
        raise
    except Exception as error:  # noqa: BLE001 - a provider raises what it likes
        raise InvalidParameterError(
            f"--embedding {options.embedding} failed ({type(error).__name__}). Does "
            "its server answer, and does it have this model?"
        ) from None


def _rag(store: InMemoryVectorStore, model: Any, k: int) -> Runnable[str, str]:
    """Return the RAG chain that everybody writes: the comparison, not private."""
    rag: Runnable[str, str] = (
        {
            "context": store.as_retriever(search_kwargs={"k": k}) | _joined,
            "question": RunnablePassthrough(),
        }
        | GROUP_PROMPT.partial(format_instructions=SENTENCE_INSTRUCTIONS)
        | model
        | StrOutputParser()
    )
    return rag


def _joined(documents: list[Document]) -> str:
    return DOCUMENT_SEPARATOR.join(one.page_content for one in documents)


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
    plain, private = ordinary.invoke(asked.text), str(message.text)
    record = message.response_metadata["privacy"]
    details = record["details"]
    votes = dict(details.get("noisy_votes", {}))
    if votes:
        votes[NONE_OF_THESE] = details["noisy_none"]
    is_refusal = record["status"] == Status.ABSTAINED.value
    return Answered(
        question=asked.text,
        kind=asked.kind,
        ordinary=plain,
        private=private,
        status=record["status"],
        reason=details.get("reason", ""),
        noisy_votes=votes,
        epsilon_spent=budget.spent().epsilon,
        is_charged=record["charge"] is not None,
        ordinary_verdict=_verdict(asked, plain),
        private_verdict=_verdict(asked, "" if is_refusal else private),
        ordinary_leaks=any(secret in plain for secret in secrets),
        private_leaks=any(secret in private for secret in secrets),
        seconds=seconds,
    )


def _verdict(asked: DemoQuestion, said: str) -> str | None:
    if asked.kind != "population" or not asked.keywords:
        return None
    if asked.answered_by(said):
        return RIGHT
    return WRONG if said and not declines(said) else SILENT


# ---- what is shown -------------------------------------------------------------------


def _introduce(
    console: Console,
    options: argparse.Namespace,
    task: Task,
    budget: PrivacyBudgetHandler,
    plan: Forecast,
) -> None:
    """Say what is asked of which records, and what was promised of them."""
    model = options.model
    if model == "offline":
        model = "the offline stand-in, not a language model"
        if options.corpus and not options.labels:
            model += (
                "; it lists possible answers only for the subjects of the demo: name "
                "them with --labels"
            )
    console.rule("[bold]langchain-dpicl demo")
    console.print(
        f"[bold]Records[/]  {len(task.documents)} of {task.n_units} units (one unit: "
        f"all records with the same {task.unit_key!r})\n"
        f"[bold]Model[/]    {model}\n"
        f"[bold]Promise[/]  epsilon {budget.epsilon:g}, delta {budget.delta:g} per "
        f"unit, for {budget.queries} answers in all; account {budget.account!r} has "
        f"spent {budget.spent().queries} of them\n"
        f"[bold]Plan[/]     {options.groups} groups of {options.docs_per_group} "
        f"records, {plan.calls_per_query} model calls a question, at most one more. "
        f"{plan.advice()}\n"
    )


def _show(
    console: Console, answer: Answered, number: int, budget: PrivacyBudgetHandler
) -> None:
    """Show one question with both answers, and what was spent."""
    table = Table.grid(padding=(0, 1))
    table.add_column(min_width=9, style="bold")
    table.add_column(overflow="fold")
    table.add_row(f"{number}", f"[bold]{escape(answer.question)}[/]")
    for way, said, leaks, verdict in (
        ("ordinary", answer.ordinary, answer.ordinary_leaks, answer.ordinary_verdict),
        ("private", answer.private, answer.private_leaks, answer.private_verdict),
    ):
        table.add_row(way, escape(said) + LEAK * leaks + _marked(verdict))
    if answer.noisy_votes:
        votes = [f"{label} {round(n)}" for label, n in answer.noisy_votes.items()]
        table.add_row("options", f"[dim]{escape(', '.join(votes))} (noisy votes)[/]")
    told = [answer.status + f": {answer.reason}" * bool(answer.reason)]
    told += [] if answer.is_charged else ["nothing is charged"]
    told += [f"epsilon so far {answer.epsilon_spent:.2f} of {budget.epsilon:g}"]
    table.add_row("", f"[dim]{'; '.join(told)}; {answer.seconds:.1f} s[/]")
    console.print(table)
    console.print()


def _marked(verdict: str | None) -> str:
    return f"  [{COLORS.get(verdict, 'yellow')}]({verdict})[/]" if verdict else ""


def _conclude(
    console: Console,
    budget: PrivacyBudgetHandler,
    answers: list[Answered],
    stop: str,
) -> None:
    """Sum up the answers, and say what the account still pays for."""
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
    if budget.can_afford():
        console.print("Run this again: what was paid for is given again for nothing.")
        return
    console.print(
        "It pays for nothing more: run this again and nothing is asked. Other "
        "questions need another promise to the same people, and the two add up: "
        "'dpicl demo --account NAME' opens one. 'dpicl ledger show "
        f"{budget.account}' lists what was spent."
    )


def _summary(answers: list[Answered]) -> Table:
    table = Table("", "ordinary", "private")
    table.columns[1].justify = table.columns[2].justify = "right"

    def add(row: str, pairs: list[tuple[bool, bool]]) -> None:
        ordinary, private = (sum(column) for column in zip(*pairs, strict=True))
        table.add_row(row, f"{ordinary} of {len(pairs)}", f"{private} of {len(pairs)}")

    checked = [a for a in answers if a.private_verdict is not None]
    for verdict, row in VERDICTS.items() if checked else ():
        told = [(a.ordinary_verdict, a.private_verdict) for a in checked]
        add(row, [(one == verdict, other == verdict) for one, other in told])
    if people := [a for a in answers if a.kind == "person"]:
        leaks = [(a.ordinary_leaks, a.private_leaks) for a in people]
        add("secrets given away, asked about one person", leaks)
    return table


# ---- facts that are paid for once ----------------------------------------------------


def _facts(console: Console, options: argparse.Namespace, model: Any) -> dict[str, Any]:
    """Release facts of the visit notes, once, and ask them; return a report."""
    budget = PrivacyBudgetHandler(ledger=options.ledger, **FACTS)  # type: ignore[arg-type]  # its terms
    rows = TextRows(
        visit_notes(),
        visit_note_schema(),
        RecordedReader(),
        unit_key="patient_id",
        progress=False,
    )
    table = GDPTable(rows, rows.schema, measure=PAIRS, budget=budget, progress=False)
    corpus = table.release(resume=True).documents(
        people="patients",
        phrases={"drug": "on {value}", "condition": "with {value}"},
        untold=ASIDE,
    )
    console.rule("[bold]Facts: paid for once, asked for nothing")
    console.print(
        f"{len(visit_notes())} visit notes that a language model wrote, each read once "
        "by another one, whose replies are recorded. One charge of epsilon "
        f"{budget.epsilon:g}, delta {budget.delta:g} released {len(corpus)} documents."
    )
    asking: Runnable[str, str] = (
        {
            "context": corpus.as_retriever(k=2) | _joined,
            "question": RunnablePassthrough(),
        }
        | FACTS_PROMPT
        | model
        | answer_of
    )
    answers, shown = list[dict[str, str]](), Table("", "answer from released facts", "")
    for (of, by, how), values in FACT_QUESTIONS.items():
        for value in values:
            question = f"Which {of} do patients {how.format(value)} most?"
            said = asking.invoke(question).strip()
            counts = Counter(row[of] for row in rows if row[by] == value)
            verdict = _fact_verdict(said, [v for v, _ in counts.most_common()])
            told = {"question": question, "answer": said, "verdict": verdict}
            answers.append(told)
            shown.add_row(escape(question), escape(said), _marked(verdict))
    console.print(shown)
    console.print(
        "Nothing was charged for the questions: ask the documents with any model, as "
        "often as you like. docs/guides/facts.md says how."
    )
    state = budget.public_state()
    return {"account": state, "answers": answers, "documents": len(corpus)}


def _fact_verdict(said: str, ranked: list[str]) -> str:
    if "too close" in said or "too small" in said:
        return "too close to tell"
    if declines(said):
        return SILENT
    names = [name for name in ranked if name not in ASIDE]
    return RIGHT if 0 in domain_places([said], names)[0] else WRONG
