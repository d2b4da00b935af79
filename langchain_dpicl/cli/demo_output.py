"""What `dpicl demo` prints: the promise, each question's answers, the sums."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from langchain_dpicl.budget import Forecast, PrivacyBudgetHandler
from langchain_dpicl.common.outcome import Status
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


def introduce(
    console: Console,
    options: argparse.Namespace,
    records: str,
    budget: PrivacyBudgetHandler,
    plan: Forecast,
) -> None:
    """Say what is asked of which records, and what was promised of them."""
    console.rule("[bold]langchain-dpicl demo")
    console.print(f"[bold]Records[/]  {records}")
    model = "the offline stand-in, not a language model" * (options.model == "offline")
    if model and options.corpus and not options.labels:
        model += (
            "; it lists possible answers only for the subjects of the demo: name them "
            "with --labels"
        )
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


def show(
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


def conclude(
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


def report(
    budget: PrivacyBudgetHandler,
    answers: list[Answered],
    stop: str,
    facts: dict[str, Any] | None,
) -> dict[str, Any]:
    """Return all of it for programs."""
    return {
        "answers": [asdict(answer) for answer in answers],
        "account": budget.public_state(),
        "stopped": stop or None,
        "facts": facts,
    }
