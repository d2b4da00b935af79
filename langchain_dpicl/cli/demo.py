"""`dpicl demo`: the same questions, asked in the ordinary way and privately."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import Runnable, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from rich.console import Console

from langchain_dpicl.budget import Forecast, PrivacyBudgetHandler, forecast
from langchain_dpicl.budget.terms import check_delta
from langchain_dpicl.chain import DPChain
from langchain_dpicl.cli.demo_facts import ask_facts
from langchain_dpicl.cli.demo_output import (
    RIGHT,
    SILENT,
    WRONG,
    Answered,
    conclude,
    introduce,
    report,
    show,
)
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
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    DPError,
    InvalidParameterError,
    UnitError,
)
from langchain_dpicl.groups import RetrievedGroups
from langchain_dpicl.groups.units import unit_id_of
from langchain_dpicl.parsers import KSAPTROutputParser, VoteOutputParser
from langchain_dpicl.parsers.reading.refusal import says_nothing


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

    @property
    def described(self) -> str:
        """The records and their units in words."""
        return (
            f"{len(self.documents)} of {self.n_units} units "
            f"(one unit: all records with the same {self.unit_key!r})"
        )


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
        introduce(console, options, task.described, budget, plan)
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
            show(console, answer, len(answers), budget)
    else:
        closed = not budget.ledger.state(budget.account).is_open
        why = "is closed" if closed else f"has spent all its {budget.queries} queries"
        stop = f"Account {budget.account!r} {why}; nothing was asked of the model."
    if not options.json:
        conclude(console, budget, answers, stop)
    facts = None if options.corpus else ask_facts(console, options, model)
    if options.json:
        print(json.dumps(report(budget, answers, stop, facts), indent=2))  # noqa: T201 - the command's output
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
    """Return what the plan can do, or refuse one that can't do anything."""
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
        parser.charge(),
        epsilon=options.epsilon,
        delta=parameters.delta(options.delta),
        queries=parameters.count(options.queries, "queries"),
        groups=options.groups,
        public_calls=0 if options.labels else 1,
        choices=_choices(parser),
        drafted=options.parser == "vote" and not options.labels,
    )
    if not options.corpus:
        # Before the ledger's folder is made.
        check_delta(options.delta, options.patients)
    if not plan.is_possible:
        raise InvalidParameterError(plan.advice())
    return plan


def _parser(options: argparse.Namespace) -> VoteOutputParser | KSAPTROutputParser:
    if options.parser == "ksa":
        if options.labels:
            raise InvalidParameterError("--labels goes with --parser vote.")
        return KSAPTROutputParser(k=1 if options.k is None else options.k)
    if options.k is not None:
        raise InvalidParameterError("--k goes with --parser ksa.")
    if not options.labels:
        return VoteOutputParser(labels="draft")
    return VoteOutputParser(labels=[one.strip() for one in options.labels.split(",")])


def _choices(parser: VoteOutputParser | KSAPTROutputParser) -> int:
    """Return among how many answers the groups choose, at most."""
    if not isinstance(parser, VoteOutputParser):
        return 2
    return parser.max_labels if parser.labels == "draft" else len(parser.labels)


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


def _private_chain(
    options: argparse.Namespace,
    task: Task,
    budget: PrivacyBudgetHandler,
    console: Console,
    model: Any,
    embedding: Embeddings,
) -> DPChain:
    try:
        with console.status(f"Embedding {len(task.documents)} records ..."):
            groups = RetrievedGroups.from_documents(
                task.documents,
                embedding,
                unit_key=task.unit_key,
                n_groups=options.groups,
                docs_per_group=options.docs_per_group,
            )
    except DPError:
        raise
    except Exception as error:  # noqa: BLE001 - a provider raises what it likes
        raise InvalidParameterError(
            f"--embedding {options.embedding} failed ({type(error).__name__}). Does "
            "its server answer, and does it have this model?"
        ) from None
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
        private_verdict=_verdict(
            asked, private, is_refusal=record["status"] == Status.ABSTAINED.value
        ),
        ordinary_leaks=any(secret in plain for secret in secrets),
        private_leaks=any(secret in private for secret in secrets),
        seconds=seconds,
    )


def _verdict(asked: DemoQuestion, said: str, *, is_refusal: bool = False) -> str | None:
    if asked.kind != "population" or not asked.keywords:
        return None
    if is_refusal:
        return SILENT
    if asked.answered_by(said):
        return RIGHT
    return SILENT if says_nothing(said) else WRONG
