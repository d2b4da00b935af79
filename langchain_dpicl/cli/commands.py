"""`dpicl`: the commands, their options, and how errors end."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module

from langchain_dpicl._version import __version__
from langchain_dpicl.cli.erase_options import add_erase
from langchain_dpicl.cli.report_options import add_report, add_verify

BROKEN_PIPE = 141  # What a shell says of a program that wrote into a closed pipe.
DEMO_LEDGER = "sqlite:///.demo/ledger.db"
DESCRIPTION = "Differentially private answers over sensitive records, for LangChain."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; arguments of None are the process's own.

    Returns:
        The exit status: 0 on success, 1 for an error that the message explains, 2 for
        wrong usage, 130 after Ctrl-C, 141 where the reader of the output has gone.

    Example:
        >>> main(
        ...     ["plan", "--epsilon", "8", "--queries", "20", "--json"]
        ... )  # doctest: +ELLIPSIS
        {...}
        0
    """
    options = _parser().parse_args(arguments)
    # Errors of the numbers come from layers that know nothing of LangChain.
    from langchain_dpicl.errors import DPError

    if getattr(options, "default_ledger", None) and options.ledger is None:
        options.ledger = options.default_ledger
        # Not in the output, which programs read.
        said = f"Ledger: {options.ledger}, the demo's. Name yours: --ledger URL."
        print(said, file=sys.stderr)  # noqa: T201 - see above
    try:
        status: int = options.run(options)
        # What is not written yet, here and not while Python ends.
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough, as `head` does; nothing more can be told.
        _forget_output()
        return BROKEN_PIPE
    except (DPError, OSError) as error:
        said = str(error)
        if isinstance(error, OSError) and error.filename:
            said = f"{error.filename}: {error.strerror}."
        if options.json:
            print(json.dumps({"error": type(error).__name__, "message": said}))  # noqa: T201 - the command's output
        else:
            # Loads a while: only where there is something to say.
            from rich.console import Console
            from rich.markup import escape

            Console(stderr=True, soft_wrap=True).print(
                f"[bold red]{type(error).__name__}:[/] {escape(said)}",
                highlight=False,
            )
        return 1
    except KeyboardInterrupt:
        print("Stopped. What was charged stays charged.", file=sys.stderr)  # noqa: T201 - the command's output
        return 130
    return status


def _forget_output() -> None:
    """Have Python write what is left of the output to nowhere as it ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dpicl", description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_demo(commands)
    _add_check(commands)
    _add_plan(commands)
    _add_ledger(commands)
    for add, name in ((add_report, "report"), (add_verify, "verify")):
        added = add(commands, _runner(name))
        _ledger_option(added)
        _json_option(added)
    _add_audit(commands)
    add_erase(commands, _runner("erase"))
    _add_mcp(commands)
    return parser


def _budget_options(parser: argparse.ArgumentParser, *, queries: int) -> None:
    group = parser.add_argument_group("budget")
    group.add_argument("--epsilon", type=float, default=8.0, help="total (default 8)")
    group.add_argument("--delta", type=float, default=1e-6, help="total (default 1e-6)")
    group.add_argument(
        "--queries",
        type=int,
        default=queries,
        help=f"how many answers the budget pays for (default {queries})",
    )


def _ledger_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ledger",
        metavar="URL",
        help=f"default {DEMO_LEDGER}, the demo's",
    )
    parser.set_defaults(default_ledger=DEMO_LEDGER)


def _json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def _add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "demo",
        help="ask a corpus in the ordinary way and privately, side by side",
        description=(
            "Ask questions over private records, by an ordinary RAG chain and by a "
            "differentially private one, and show both answers side by side. Without "
            "--corpus the records are generated visit notes of 2,000 invented "
            "patients. Nothing leaves this machine unless you name a model."
        ),
    )
    corpus = parser.add_argument_group("records")
    corpus.add_argument(
        "--corpus",
        metavar="FILE.jsonl",
        help="your records, one JSON object a line, with a text in its field text",
    )
    corpus.add_argument("--unit-key", help="the field that says whose record it is")
    corpus.add_argument(
        "--question",
        action="append",
        default=[],
        metavar="TEXT",
        help="a question to your records; may be given several times",
    )
    corpus.add_argument(
        "--patients", type=int, default=2000, help="invented patients (default 2000)"
    )
    how = parser.add_argument_group("how to answer")
    how.add_argument(
        "--groups", type=int, default=100, help="groups of records (default 100)"
    )
    how.add_argument(
        "--docs-per-group", type=int, default=8, help="records a group (default 8)"
    )
    how.add_argument(
        "--labels",
        metavar="A,B,C",
        help="the possible answers, where you know them; else the model drafts them",
    )
    how.add_argument(
        "--model",
        default="offline",
        metavar="PROVIDER:NAME",
        help="a chat model, such as openai:gpt-4o-mini (default: offline stand-in)",
    )
    how.add_argument(
        "--embedding",
        default="offline",
        metavar="openai:NAME|MODULE:NAME",
        help="an embedding model, such as openai:text-embedding-3-small (with "
        "OPENAI_BASE_URL, of your own server), or an object of a module of yours "
        "(default: offline stand-in)",
    )
    how.add_argument(
        "--first", type=int, metavar="N", help="ask only the first N questions"
    )
    _budget_options(parser, queries=20)
    parser.add_argument(
        "--ledger",
        metavar="URL",
        default=DEMO_LEDGER,
        help=f"where charges are kept (default {DEMO_LEDGER})",
    )
    parser.add_argument("--account", help="the account's name (default: the corpus's)")
    _json_option(parser)
    parser.set_defaults(run=_run_demo)


def _run_demo(options: argparse.Namespace) -> int:
    from dataclasses import fields

    from langchain_dpicl.cli.demo import Options, run

    given = {field.name: getattr(options, field.name) for field in fields(Options)}
    return run(Options(**given))


def _add_check(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "check",
        help="try a chain of yours out on one public record, free of charge",
        description=(
            "Load a chain (or a function that makes one) from a module, show the model "
            "one public record as a group's records are shown, and tell what is wrong. "
            "Its own records are not looked at and nothing is charged."
        ),
    )
    parser.add_argument("chain", metavar="MODULE:CHAIN", help="such as app:chain")
    parser.add_argument(
        "--question",
        default="What does this gardener grow?",
        metavar="TEXT",
        help="a question to your records",
    )
    parser.add_argument(
        "--record",
        metavar="TEXT",
        help="a made-up record that answers it; never a private one",
    )
    _json_option(parser)
    parser.set_defaults(run=_runner("check"))


def _add_mcp(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "mcp",
        help="serve a chain of yours as the tool of an MCP server",
        description=(
            "Load a chain, or a tool of create_dp_tool, from a module, and serve it to "
            "a client of the Model Context Protocol over stdin and stdout. Each answer "
            "is charged to the account of the chain."
        ),
    )
    parser.add_argument("chain", metavar="MODULE:NAME", help="such as app:chain")
    parser.add_argument(
        "--name", default="ask_records", help="the tool's (default ask_records)"
    )
    parser.add_argument(
        "--description", default="", metavar="TEXT", help="what the records are about"
    )
    parser.add_argument(
        "--port",
        type=int,
        metavar="N",
        help="serve over HTTP, at http://127.0.0.1:N/mcp, without authorization",
    )
    parser.set_defaults(run=_runner("mcp"), json=False)


def _add_plan(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "plan",
        help="what a budget buys: noise, required agreement, model calls",
        description=(
            "From epsilon, delta, queries and groups to the noise of each method, the "
            "lead that an answer needs to come out, the number of model calls and, "
            "with the sizes of the records, their tokens and price."
        ),
    )
    _budget_options(parser, queries=20)
    parser.add_argument("--groups", type=int, default=100, help="default 100")
    parser.add_argument(
        "--sampling-rate",
        type=float,
        default=1.0,
        help="of people, for each question (default 1)",
    )
    parser.add_argument(
        "--choices", type=int, default=10, help="labels or domain words (default 10)"
    )
    cost = parser.add_argument_group("what the model calls cost")
    for option, kind, meaning in (
        ("--records-per-group", int, "records in a group's prompt"),
        ("--tokens-per-record", int, "tokens of a record, on average"),
        ("--price-in", float, "price of a million tokens that are sent"),
        ("--price-out", float, "price of a million tokens that come back"),
    ):
        cost.add_argument(option, type=kind, metavar="N", help=meaning)
    _json_option(parser)
    parser.set_defaults(run=_runner("plan"))


def _add_ledger(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "ledger",
        help="look at accounts and their charges, and check them",
        description=(
            "list and show accounts; verify an account's book (the whole ledger, if "
            "none is named); export its terms and entries as JSON Lines, or with "
            "--units what each unit has spent; close it for good; clear-cache lets "
            "no cached answer (of any account, if none is named) be given again; heads "
            "prints a digest of each book, to be kept elsewhere: verify --head FILE "
            "shows later whether an older copy of the ledger was put back; "
            "corpora shows each corpus's cap and what counts for it; renew opens an "
            "account for the next period; "
            "create makes a ledger; backup copies a SQLite ledger, while it is in use, "
            "to the new file TO."
        ),
    )
    actions = ["list", "show", "verify", "export", "close", "clear-cache"]
    actions += ["heads", "corpora", "renew", "create", "backup"]
    parser.add_argument("action", choices=actions)
    parser.add_argument(
        "account",
        nargs="?",
        metavar="ACCOUNT | TO",
        help="the account; for backup the copy; for create none",
    )
    parser.add_argument(
        "--units",
        action="store_true",
        help="export the units' balances of a per-unit account: private",
    )
    parser.add_argument(
        "--id-file",
        metavar="FILE",
        help="with --units: unit ids to look up, one a line",
    )
    parser.add_argument(
        "--head",
        metavar="FILE",
        help="with verify: what 'dpicl ledger heads' has printed before",
    )
    _ledger_option(parser)
    _json_option(parser)
    parser.set_defaults(run=_runner("ledger"))


def _add_audit(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "audit",
        help="measure what a person could lose: for the operator alone",
        description=(
            "Measure what a person could lose by your chain's answers, on records that "
            "you may see. Nothing is charged. What an audit finds is private. The exit "
            "status is 1 where it exceeds the claim."
        ),
    )
    audits = parser.add_subparsers(required=True, metavar="AUDIT", dest="audit")
    _add_snapshot(audits)


def _add_snapshot(audits: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = audits.add_parser(
        "snapshot",
        help="what each of some people loses by the answers to your questions",
        description=(
            "Ask your chain's groups some questions, and once more for each person "
            "whom a question reaches, and compare what each of them loses with what "
            "the account charges."
        ),
    )
    parser.add_argument("chain", metavar="MODULE:CHAIN", help="such as app:chain")
    parser.add_argument(
        "--questions", required=True, metavar="FILE", help="questions, one a line"
    )
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument(
        "--canaries",
        metavar="FILE",
        help="people: unit ids, one a line; or made-up records to add, as .jsonl with "
        "a text and the unit key",
    )
    who.add_argument(
        "--units", type=int, metavar="N", help="so many people, chosen by chance"
    )
    parser.add_argument(
        "--repeats", type=int, default=1, help="how often to ask each question"
    )
    parser.add_argument(
        "--delta", type=float, help="failure probability (default: the account's)"
    )
    parser.add_argument(
        "--out",
        action="append",
        metavar="FILE",
        help="save the report as .html or .json; may be given several times",
    )
    _json_option(parser)
    parser.set_defaults(run=_runner("audit"))


def _runner(module: str) -> Callable[[argparse.Namespace], int]:
    """Import a command when it runs: `dpicl --help` need not load a model library."""

    def run(options: argparse.Namespace) -> int:
        return int(import_module(f"langchain_dpicl.cli.{module}").run(options))

    return run
