"""`dpicl demo`: the same questions, asked in the ordinary way and privately."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill, indent
from typing import Any

from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore

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
from langchain_dpicl.demo import (
    DemoQuestion,
    RecordedReader,
    clinic,
    questions,
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
from langchain_dpicl.parsers.reading import declines
from langchain_dpicl.tabular import GDPTable, TextRows

RIGHT, WRONG, SILENT = "right", "wrong", "no answer"
INTRODUCTION = """\
langchain-dpicl demo

Records   {records:,} of {people:,} people; one person's records are one unit.
Model     {model}
Promise   epsilon {epsilon:g}, delta {delta:g} to each person, over {queries} answers.
Account   {name!r} has spent {spent} of them.
Groups    {groups} of {docs_per_group} records; {calls} model calls a question.
{advice}"""
STAND_IN = "an offline stand-in, which extracts sentences: no language model."
UNLISTED = """
          It lists possible answers only for the subjects of the demo: name them with
          --labels."""
LEFT = "Run this again: what was paid for is given again for nothing."
SPENT = """\
It pays for nothing more: run this again and nothing is asked. Other questions need
another promise to the same people, and the two add up: 'dpicl demo --account NAME'
opens one. 'dpicl ledger show {account} --ledger {ledger}' lists what was spent."""
FACTS = """
Facts: paid for once, asked for nothing

{notes} visit notes that a language model wrote, each read once by another one, whose
replies are recorded. One charge of epsilon {epsilon:g}, delta {delta:g} gave
{documents} documents of noisy counts."""
ASKED = """
Nothing was charged for the questions: ask the documents with any model, as often as
you like. docs/guides/facts.md says how."""
FACT_QUESTIONS = (
    "Which side effect do patients on metformin report most?",
    "Which side effect do patients on sertraline report most?",
    "Which drug do patients with migraine take most?",
    "Which drug do patients with depression take most?",
    "Which trigger do patients with hypertension name most?",
    "Which trigger do patients with migraine name most?",
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to ask of whose records, how, and on which account; see the command."""

    corpus: str | None
    unit_key: str | None
    question: Sequence[str]
    patients: int
    groups: int
    docs_per_group: int
    labels: str | None
    model: str
    embedding: str
    first: int | None
    epsilon: float
    delta: float
    queries: int
    ledger: str
    account: str | None
    as_json: bool


def demo(**given: Any) -> int:
    """Ask, show both answers to each question, and what was spent; return 0."""
    options = Options(**given)
    show: Callable[[str], None] = (lambda _text: None) if options.as_json else print
    unit_key, documents, asked = _records(options)
    # Whatever can be refused is refused before an account is opened under its terms.
    labels = options.labels and [one.strip() for one in options.labels.split(",")]
    parser = VoteOutputParser(labels=labels or "draft")
    plan = _plan(options, documents, unit_key, parser)
    model, embedding = load_model(options.model), load_embedding(options.embedding)
    budget = _account(options)
    answers, stop = list[dict[str, Any]](), ""
    if budget.can_afford():
        show(_introduction(options, documents, unit_key, budget, plan))
        groups, rag = _chains(options, documents, unit_key, model, embedding)
        chain = DPChain(groups=groups, model=model, parser=parser, budget=budget)
        secrets = [one.metadata["secret"] for one in documents if not options.corpus]
        for number, question in enumerate(asked[: options.first], start=1):
            show(f"\n{number:2}  {question.text}")
            try:
                answers.append(_ask(question, rag, chain, secrets))
            except BudgetExhaustedError as error:
                stop = str(error)
                break
            show(_shown(answers[-1]))
    else:
        closed = not budget.ledger.state(budget.account).is_open
        why = "is closed" if closed else f"has spent all its {budget.queries} queries"
        stop = f"Account {budget.account!r} {why}; nothing was asked of the model."
    show(_conclusion(budget, options.ledger, answers, stop))
    facts = None if options.corpus else _facts(options.ledger, model, show)
    if options.as_json:
        report = {
            "answers": answers,
            "account": budget.public_state(),
            "stopped": stop or None,
            "facts": facts,
        }
        print(json.dumps(report, indent=2))  # noqa: T201 - the command's output
    return 0


# ---- what is asked of what -----------------------------------------------------------


def _records(options: Options) -> tuple[str, list[Document], list[DemoQuestion]]:
    """Return the name of the units, the records and the questions."""
    if not options.corpus:
        if options.question or options.unit_key:
            raise InvalidParameterError(
                "--question and --unit-key go with --corpus FILE.jsonl."
            )
        return "patient_id", clinic(options.patients), questions(options.patients)
    if not options.unit_key or not options.question:
        raise InvalidParameterError(
            "--corpus needs --unit-key FIELD, the field that says whose record each "
            "line is, and at least one --question TEXT."
        )
    if not all(map(is_encodable, options.question)):
        raise InvalidParameterError("--question must be a text in UTF-8.")
    documents = read_corpus(options.corpus, unit_key=options.unit_key)
    asked = [DemoQuestion(text, "population") for text in options.question]
    return options.unit_key, documents, asked


def _plan(
    options: Options, documents: list[Document], unit_key: str, parser: VoteOutputParser
) -> Forecast:
    """Return what the plan can do, or refuse one that can't do anything."""
    for name in ("first", "docs_per_group"):
        if (number := getattr(options, name)) is not None:
            parameters.count(number, name)
    if options.groups > (n_units := _people(documents, unit_key)):
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


def _people(documents: list[Document], unit_key: str) -> int:
    return len({unit_id_of(document, unit_key) for document in documents})


def _account(options: Options) -> PrivacyBudgetHandler:
    if path := sqlite_path(options.ledger):
        path.parent.mkdir(parents=True, exist_ok=True)
    corpus = options.corpus
    name = Path(corpus).stem if corpus else f"clinic-{options.patients}"
    return PrivacyBudgetHandler(
        epsilon=options.epsilon,
        delta=options.delta,
        queries=options.queries,
        ledger=options.ledger,
        account=options.account or name,
        # Made-up patients are public; how many people a file holds is not.
        people_at_most=None if corpus else options.patients,
    )


def _chains(
    options: Options,
    documents: list[Document],
    unit_key: str,
    model: Any,
    embedding: Any,
) -> tuple[RetrievedGroups, Runnable[str, str]]:
    """Return groups for the private chain, and the RAG chain that everybody writes."""
    try:
        groups = RetrievedGroups.from_documents(
            documents,
            embedding,
            unit_key=unit_key,
            n_groups=options.groups,
            docs_per_group=options.docs_per_group,
        )
        store = InMemoryVectorStore.from_documents(documents, embedding)
    except DPError:
        raise
    except Exception as error:  # noqa: BLE001 - a provider raises what it likes
        raise InvalidParameterError(
            f"--embedding {options.embedding} failed ({type(error).__name__}). Does "
            "its server answer, and does it have this model?"
        ) from None
    retriever = store.as_retriever(search_kwargs={"k": options.docs_per_group})
    prompt = GROUP_PROMPT.partial(format_instructions=SENTENCE_INSTRUCTIONS)
    return groups, _rag(retriever, prompt, model)


def _rag(retriever: BaseRetriever, prompt: Any, model: Any) -> Runnable[str, str]:
    context = retriever | _joined
    given: Any = {"context": context, "question": RunnablePassthrough()}
    rag: Runnable[str, str] = given | prompt | model | StrOutputParser()
    return rag


def _joined(documents: list[Document]) -> str:
    return DOCUMENT_SEPARATOR.join(document.page_content for document in documents)


def _ask(
    asked: DemoQuestion, rag: Runnable[str, str], chain: DPChain, secrets: Sequence[str]
) -> dict[str, Any]:
    """Return both answers to a question, and what is to be said of them."""
    message = chain.invoke(asked.text)
    ordinary, private = rag.invoke(asked.text), str(message.text)
    record = message.response_metadata["privacy"]
    details = record["details"]
    votes = dict(details.get("noisy_votes", {}))
    if votes:
        votes[NONE_OF_THESE] = details["noisy_none"]
    is_refusal = record["status"] == "abstained"
    return {
        "question": asked.text,
        "kind": asked.kind,
        "ordinary": ordinary,
        "private": private,
        "status": record["status"],
        "reason": details.get("reason", ""),
        "noisy_votes": votes,
        "epsilon_spent": record["account"]["epsilon_spent"],
        "is_charged": record["charge"] is not None,
        "ordinary_verdict": _verdict(asked, ordinary),
        "private_verdict": _verdict(asked, "" if is_refusal else private),
        "ordinary_leaks": any(secret in ordinary for secret in secrets),
        "private_leaks": any(secret in private for secret in secrets),
    }


def _verdict(asked: DemoQuestion, text: str) -> str | None:
    """Return right, wrong or no answer; None where there is nothing to check by."""
    if asked.kind != "population" or not asked.keywords:
        return None
    if asked.answered_by(text):
        return RIGHT
    return WRONG if text and not declines(text) else SILENT


# ---- what is shown -------------------------------------------------------------------


def _introduction(
    options: Options,
    documents: list[Document],
    unit_key: str,
    budget: PrivacyBudgetHandler,
    plan: Forecast,
) -> str:
    """Return what is asked of which records, and what is promised of them."""
    model = STAND_IN if options.model == "offline" else options.model
    if model == STAND_IN and options.corpus and not options.labels:
        model += UNLISTED
    told: dict[str, Any] = {
        **vars(options),
        "model": model,
        "records": len(documents),
        "people": _people(documents, unit_key),
        "name": budget.account,
        "spent": budget.spent().queries,
        "calls": plan.calls_per_query,
        "advice": indent(fill(plan.advice(), 78), " " * 10),
    }
    return INTRODUCTION.format_map(told)


def _shown(answer: dict[str, Any]) -> str:
    """Return both answers to a question, the votes, and what was spent."""
    lines = []
    for way in ("ordinary", "private"):
        verdict, leaks = answer[f"{way}_verdict"], answer[f"{way}_leaks"]
        mark = "   <-- a secret!" if leaks else f"   ({verdict})" if verdict else ""
        lines.append(f"{way:8}  {answer[way]}{mark}")
    if votes := answer["noisy_votes"]:
        first = sorted(votes.items(), key=lambda vote: -vote[1])[:4]
        told = ", ".join(f"{label} {round(count)}" for label, count in first)
        lines.append(f"votes     {told}, ... (noisy)")
    free = "" if answer["is_charged"] else ", nothing is charged"
    spent = f"epsilon so far {answer['epsilon_spent']:.2f}"
    lines.append(f"account   {answer['status']}{free}; {spent}")
    return indent("\n".join(lines), "    ")


def _conclusion(
    budget: PrivacyBudgetHandler, ledger: str, answers: list[dict[str, Any]], stop: str
) -> str:
    """Return the sums of the answers, and what the account still pays for."""
    checked = [one for one in answers if one["private_verdict"]]
    people = [one for one in answers if one["kind"] == "person"]
    lines = []
    if checked:
        lines.append(f"\n{'':21}  ordinary   private")
        kinds = (RIGHT, WRONG, SILENT)
        lines += [_sums(kind, checked, "verdict", kind) for kind in kinds]
    if people:
        lines.append(_sums("secrets given away", people, "leaks", wanted=True))
    if stop:
        lines.append(f"\n{fill(f'Stopped. {stop}', 88)}")
    spent = budget.spent()
    lines.append(
        f"\nAccount {budget.account!r} has spent epsilon {spent.epsilon:.2f} of "
        f"{budget.epsilon:g} on {spent.queries} of {budget.queries} answers."
    )
    can_go_on = budget.can_afford()
    spent_all = SPENT.format(account=budget.account, ledger=ledger)
    lines.append(LEFT if can_go_on else spent_all)
    return "\n".join(lines)


def _sums(name: str, answers: list[dict[str, Any]], key: str, wanted: object) -> str:
    counts = (
        sum(one[f"{way}_{key}"] == wanted for one in answers)
        for way in ("ordinary", "private")
    )
    return f"{name:21}" + "".join(f"{f'{n} of {len(answers)}':>10}" for n in counts)


# ---- facts that are paid for once ----------------------------------------------------


def _facts(ledger: str, model: Any, show: Callable[..., None]) -> dict[str, Any]:
    """Release facts of the visit notes, once, and ask them; return a report."""
    budget = PrivacyBudgetHandler(
        epsilon=3.0, delta=1e-5, queries=1, ledger=ledger, account="visit-notes"
    )
    rows = TextRows(
        visit_notes(),
        visit_note_schema(),
        RecordedReader(),
        unit_key="patient_id",
        progress=False,
    )
    pairs = [("condition", "drug"), ("condition", "trigger"), ("drug", "side effect")]
    table = GDPTable(rows, rows.schema, measure=pairs, budget=budget, progress=False)
    corpus = table.release(resume=True).documents(
        people="patients",
        phrases={"drug": "on {value}", "condition": "with {value}"},
        untold=("none", "other", "unknown"),
    )
    terms = {"epsilon": budget.epsilon, "delta": budget.delta}
    show(FACTS.format(notes=len(visit_notes()), documents=len(corpus), **terms))
    rag = _rag(corpus.as_retriever(k=2), FACTS_PROMPT, model)
    answers = []
    for question in FACT_QUESTIONS:
        answer = rag.invoke(question).strip()
        answers.append({"question": question, "answer": answer})
        show(f"\n    {question}\n{indent(fill(answer, 84), ' ' * 4)}")
    show(ASKED)
    state = budget.public_state()
    return {"account": state, "answers": answers, "documents": len(corpus)}
