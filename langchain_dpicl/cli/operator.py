"""`dpicl audit`, `report`, `verify`, `erase` and `mcp`."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import redirect_stdout
from typing import Any

import click

from langchain_dpicl.cli.loading import read_text
from langchain_dpicl.common import files
from langchain_dpicl.common.progress import is_watched
from langchain_dpicl.errors import InvalidParameterError


def audit(
    *,
    chain: str,
    questions: str,
    canaries: str | None,
    units: int | None,
    out: tuple[str, ...],
    as_json: bool,
    **terms: Any,
) -> int:
    """Measure, save and print; return 1 where the claim is exceeded."""
    from langchain_dpicl.budget import PrivacyBudgetHandler
    from langchain_dpicl.cli.loading import load_chain, read_corpus
    from langchain_dpicl.operate.audit import snapshot

    if (canaries is None) == (units is None):
        raise InvalidParameterError("Name the people: --canaries FILE, or --units N.")
    found, handlers = load_chain(chain)
    budgets = [one for one in handlers if isinstance(one, PrivacyBudgetHandler)]
    people: Any = units
    if canaries is not None and canaries.endswith(".jsonl"):
        people = read_corpus(canaries, unit_key=found.groups.unit_key)
    elif canaries is not None:
        people = _lines(canaries)
    made = snapshot(
        found,
        people,
        _lines(questions),
        budget=next(iter(budgets), None),
        progress=not as_json,
        **terms,
    )
    for path in out:
        made.save(path)
    click.echo(made.model_dump_json(indent=2) if as_json else str(made))
    return 0 if made.is_sound else 1


def report(
    *,
    account: str,
    ledger: str,
    format: str,  # noqa: A002 - the option's name
    out: str | None,
    as_json: bool,
    **given: str | None,
) -> int:
    """Save or print the report; return 1 where the ledger is damaged."""
    from langchain_dpicl.operate.report import account_report

    made = account_report(ledger, account, **given)
    if out is not None:
        made.save(out)
        state = "whole" if made.is_whole else f"damaged: {made.damage}"
        saved = {"saved": out, "is_whole": made.is_whole}
        text = f"Wrote {out}. The ledger is {state}."
        click.echo(json.dumps(saved) if as_json else text)
    elif as_json or format == "json":
        click.echo(made.model_dump_json(indent=2))
    else:
        click.echo(made.to_html())
    return 0 if made.is_whole else 1


def verify(*, answer: str, ledger: str, as_json: bool) -> int:
    """Print the verdict; return 0 where the record is confirmed, else 1."""
    from langchain_dpicl.operate.verifying import verify

    try:
        content = files.strict_json(read_text(answer))
    except (ValueError, RecursionError):
        content = None
    if content is None:
        raise InvalidParameterError(f"{answer!r} holds no JSON.")
    verdict = verify(content, ledger)
    if as_json:
        found = {"is_confirmed": verdict.is_confirmed, "summary": verdict.summary}
        click.echo(json.dumps({**found, **verdict.model_dump()}, indent=2))
    else:
        click.echo(verdict.summary)
        for words, lines in (
            ("pass", verdict.checked),
            ("fail", verdict.wrong),
            ("not compared", verdict.not_compared),
        ):
            for line in lines:
                click.echo(f"  {words}: {line}")
        if verdict.digest:
            click.echo(f"  digest of the journal up to it: {verdict.digest}")
    return 0 if verdict.is_confirmed else 1


def erase(
    *,
    unit: str,
    index: str,
    account: tuple[str, ...],
    certificate: str | None,
    check: bool,
    as_json: bool,
    **terms: Any,
) -> int:
    """Erase a person, or check whose a certificate is; return 1 if somebody else's."""
    from langchain_dpicl.operate.erasure import ErasureCertificate, erase

    # An argument can be read in the list of processes and in the shell's history.
    person = sys.stdin.readline().rstrip("\r\n") if unit == "-" else unit
    if check:
        if certificate is None:
            raise InvalidParameterError(
                "Name the certificate to check: --certificate FILE."
            )
        is_of = ErasureCertificate.load(certificate).is_of(person, index)
        who = "this person" if is_of else "somebody else"
        text = f"The certificate is of {who}."
        click.echo(json.dumps({"is_of": is_of}) if as_json else text)
        return 0 if is_of else 1
    made = erase(
        person,
        index=index,
        accounts=account,
        certificate=certificate,
        progress=is_watched(),
        **terms,
    )
    if as_json:
        click.echo(made.model_dump_json(indent=2))
        return 0
    count = made.index["documents_erased"]
    click.echo(f"Erased {count} document{'s' * (count != 1)}.")
    for store in made.stores:
        click.echo(f"  {store.state}: {store.store}. {store.note}")
    for line in made.not_undone:
        click.echo(f"  not undone: {line}")
    return 0


def mcp(
    *, chain: str, name: str, description: str, port: int | None, **_json: bool
) -> int:
    """Serve until the client hangs up, or Ctrl-C."""
    from langchain_core.runnables import Runnable
    from langchain_core.tools import BaseTool

    from langchain_dpicl.cli.loading import load_object
    from langchain_dpicl.mcp import create_mcp_server
    from langchain_dpicl.tools import create_dp_tool

    # Over stdio, what the module prints would be read as a message.
    with redirect_stdout(sys.stderr):
        tool = load_object(chain, Runnable, "app:chain")
        if not isinstance(tool, BaseTool):
            tool = create_dp_tool(tool, name=name, description=description)
        server = create_mcp_server(tool)
    if port is None:
        asyncio.run(_serve(server))
    else:
        import uvicorn

        # This machine alone: a service with callers needs its own authorization.
        uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=port)
    return 0


async def _serve(server: Any) -> None:
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (received, sent):
        await server.run(received, sent, server.create_initialization_options())


def _lines(path: str) -> list[str]:
    return [line.strip() for line in read_text(path).splitlines() if line.strip()]
