"""How a chain is tried out, on made-up public records."""

from __future__ import annotations

# ruff: noqa: SLF001 - these are methods of the chain, kept in a file of their own.
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.documents import Document

from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.chain.check_report import CheckReport
from langchain_dpicl.chain.checking import ChainCheck
from langchain_dpicl.chain.made_up import QUESTION, made_up_groups
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.release.flow import Flow, arun, run

Questions = str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
"""One question or several, as `invoke` takes them."""

RECORDS_PER_GROUP = 8
"""Made-up records of a group whose source does not say."""


class TriedOut:
    """The methods of `DPChain` that answer no question over its own records."""

    def check(
        self,
        questions: Questions | None = None,
        *,
        records: Sequence[str | Document] | None = None,
        tokens_per_record: int | None = None,
        n: int = 8,
        budget: PrivacyBudgetHandler | None = None,
    ) -> CheckReport:
        """Try the chain out on made-up public records, free of charge.

        They go down the path of group calls, with drafts and instructions as ever. A
        check makes n + 1 calls for each question, and those on the question alone.

        Args:
            questions: One or several; None: one that the library's records answer.
            records: Public texts in place of the library's. Never private ones: what
                the model says of them, and its errors, are shown.
            tokens_per_record: How long to make each record, about; None: as they are.
            n: How many groups to make up.
            budget: The account to read; None: the chain's own, if it has one.

        Returns:
            What was found: print it, or look at `ok`, `findings` and `charge`. What
            each finding means stands in `docs/operate/troubleshooting.md`.

        Raises:
            InvalidParameterError: If an argument can't be used.

        Privacy:
            Nothing private takes part: the group source is not drawn from, and of it
            only public parameters are read. Nothing is charged or written.
        """
        steps = _checking(self, questions, records, tokens_per_record, n, budget)
        report: CheckReport = list(run(steps))[-1]
        return report

    async def acheck(
        self,
        questions: Questions | None = None,
        *,
        records: Sequence[str | Document] | None = None,
        tokens_per_record: int | None = None,
        n: int = 8,
        budget: PrivacyBudgetHandler | None = None,
    ) -> CheckReport:
        """Try the chain out on made-up public records; see `check`."""
        steps = _checking(self, questions, records, tokens_per_record, n, budget)
        report: CheckReport = [item async for item in arun(steps)][-1]
        return report


def _checking(
    chain: Any,
    questions: Questions | None,
    records: Sequence[str | Document] | None,
    tokens: int | None,
    n: int,
    budget: PrivacyBudgetHandler | None,
) -> Flow[None]:
    terms = chain._query.private.groups.description
    if tokens is not None:
        parameters.count(tokens, "tokens_per_record")
    groups = made_up_groups(
        records,
        groups=parameters.count(n, "n"),
        size=terms.get("docs_per_group", RECORDS_PER_GROUP),
        tokens=tokens,
        keys=sorted({*chain.document_prompt.input_variables} - {"page_content"}),
    )
    account = budget or chain.budget
    check = ChainCheck(
        chain._query,
        chain.model,
        groups,
        tokens,
        account,
        shown=chain.progress,
    )
    return check.steps(_listed(QUESTION if questions is None else questions))


def _listed(questions: Questions) -> list[Any]:
    found = [questions] if isinstance(questions, str | Mapping) else list(questions)
    if not found:
        raise InvalidParameterError("There is no question. Give one, or leave it out.")
    return found
