"""`dpicl`: the commands, their options, and how errors end.

What a command does stands in another module, which is imported when it runs: `dpicl
--help` need not load a model library.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from langchain_dpicl._version import __version__
from langchain_dpicl.errors import DPError

BROKEN_PIPE = 141  # What a shell says of a program that wrote into a closed pipe.
STOPPED = 130  # And of one that Ctrl-C has ended.


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
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with dpicl.make_context("dpicl", list(given)) as context:
            status = int(dpicl.invoke(context) or 0)
        # What is not written yet, here and not while Python ends.
        sys.stdout.flush()
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.UsageError as error:
        path = "dpicl" if error.ctx is None else error.ctx.command_path
        click.echo(f"usage: {path} --help says what it takes", err=True)
        click.echo(f"{path}: error: {error.format_message()}", err=True)
        return error.exit_code
    except BrokenPipeError:
        # The reader has seen enough, as `head` does; nothing more can be told.
        _forget_output()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        click.echo("Stopped. What was charged stays charged.", err=True)
        return STOPPED
    except Exception as error:  # noqa: BLE001 - its message may hold a record
        kind, message = type(error).__name__, _public(error)
        if "--json" in given:
            click.echo(json.dumps({"error": kind, "message": message}))
        else:
            click.echo(f"{kind}: {message}", err=True)
        return 1
    return status


def _public(error: Exception) -> str:
    """Return what may be said of an error: of one that is not ours, where it arose."""
    if isinstance(error, DPError):
        return str(error)
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}."
    package = Path(__file__).parents[1]
    ours = [
        f"{Path(frame.filename).relative_to(package.parent)}, line {frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(package)
    ]
    return (
        f"A fault in {ours[-1] if ours else 'dpicl'}, whose message is not shown as it "
        "may hold a record. Please report this line."
    )


def _forget_output() -> None:
    """Have Python write what is left of the output to nowhere as it ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


# ---- commands ------------------------------------------------------------------------


def option(name: str, help: str, **more: Any) -> click.Option:  # noqa: A002 - click's name
    """Return an option; `more` is click's."""
    return click.Option([name], help=help, **more)


def command(
    module: str,
    name: str,
    help: str,  # noqa: A002 - click's name
    *params: click.Parameter,
) -> click.Command:
    """Return a command, which a module's function of its name runs."""

    def run(**options: Any) -> int:
        home = import_module(f"langchain_dpicl.cli.{module}")
        return int(getattr(home, name)(**options))

    given = [*params, JSON]
    return click.Command(name.rstrip("_"), callback=run, help=help, params=given)


JSON = click.Option(
    ["--json", "as_json"], is_flag=True, help="Print JSON, for programs."
)
LEDGER, MAYBE_LEDGER = (
    option(
        "--ledger",
        "The ledger, such as sqlite:///clinic.db.",
        metavar="URL",
        envvar="DPICL_LEDGER",
        show_envvar=True,
        required=is_needed,
    )
    for is_needed in (True, False)
)
ACCOUNT = click.Argument(["account"])
CHAIN = click.Argument(["chain"], metavar="MODULE:CHAIN")
MODEL = option(
    "--model",
    "A chat model, such as openai:gpt-4o-mini.",
    default="offline",
    metavar="PROVIDER:NAME",
)
OUT = option("--out", "Save it, .html or .json; repeatable.", multiple=True)
BUDGET = (
    option("--epsilon", "In all.", default=8.0),
    option("--delta", "In all.", default=1e-6),
    option("--queries", "How many answers the budget pays for.", default=20),
)

demo = command(
    "demo",
    "demo",
    """Ask records in the ordinary way and privately, side by side.

    Without --corpus the records are generated visit notes of invented patients.
    Nothing leaves this machine unless you name a model.""",
    option("--corpus", "Records: JSON objects with a text.", metavar="FILE.jsonl"),
    option("--unit-key", "The field that says whose record it is."),
    option("--question", "A question to your records; repeatable.", multiple=True),
    option("--patients", "Invented patients.", default=2000),
    option("--groups", "Groups of records.", default=100),
    option("--docs-per-group", "Records of a group.", default=8),
    option("--labels", "The possible answers; else drafted.", metavar="A,B,C"),
    MODEL,
    option(
        "--embedding",
        "An embedding model, such as openai:text-embedding-3-small (with "
        "OPENAI_BASE_URL, of your own server), or an object of your module.",
        default="offline",
        metavar="openai:NAME|MODULE:NAME",
    ),
    option("--first", "Ask only the first so many questions.", type=int),
    *BUDGET,
    option(
        "--ledger",
        "Where charges are kept.",
        metavar="URL",
        default="sqlite:///.demo/ledger.db",
    ),
    option("--account", "The account's name; else the corpus's."),
)
plan = command(
    "plan",
    "plan",
    """What a budget buys: noise, required agreement, model calls, money.

    From epsilon, delta, queries and groups to the noise of each method, the lead that
    an answer needs to come out, and the number of model calls.""",
    *BUDGET,
    option("--groups", "Groups of records.", default=100),
    option("--sampling-rate", "Of people, for each question.", default=1.0),
    option("--choices", "Labels or domain words.", default=10),
    option("--records-per-group", "Records in a group's prompt.", type=int),
    option("--tokens-per-record", "Tokens of a record, on average.", type=int),
    option("--price-in", "Price of a million tokens that are sent.", type=float),
    option("--price-out", "Price of a million that come back.", type=float),
)
insights = command(
    "insights",
    "insights",
    """What people talk about with an assistant, and nobody in particular.

    CONVERSATIONS are JSON objects, one a line: with messages, chats or a text, runs of
    LangSmith, or spans of OpenInference. Topics are read from --topics, or drafted. A
    forecast says which come out. Then there is one charge, and a call for each
    person.""",
    click.Argument(["conversations"], metavar="CONVERSATIONS.jsonl"),
    option("--unit-key", "The field that says whose it is.", required=True),
    option("--about", "What the assistant is for, in a sentence."),
    option(
        "--topics",
        "The list of topics. If there is no such file, a draft is saved there.",
        metavar="FILE",
        default="topics.json",
    ),
    option("--plan", "Draft and forecast; read and charge nothing.", is_flag=True),
    option("--yes", "Don't ask before the charge.", is_flag=True),
    option("--epsilon", "In all.", default=3.0),
    option("--delta", "In all.", default=1e-6),
    MODEL,
    OUT,
    option(
        "--by",
        "Split by an attribute's public values; repeatable.",
        multiple=True,
        metavar="NAME=A,B,C",
    ),
    option("--max-topics", "Topics of a person, at most.", default=2),
    option("--people-at-most", "More people than there are, publicly.", type=int),
    option("--order-key", "The field that orders a person's conversations."),
    option("--previous", "The last release, for changes.", metavar="FILE.json"),
    option("--next-topics", "Save the list with released words.", metavar="FILE"),
    option("--file", "Keep what was read; 'private' is in its name.", metavar="FILE"),
    option("--resume", "Go on, or take the release there is.", is_flag=True),
    option("--tokens-per-person", "Tokens of a person, on average.", type=int),
    option("--price-in", "Price of a million tokens that are sent.", default=0.0),
    option("--price-out", "Price of a million that come back.", default=0.0),
    option("--account", "The account's name.", default="insights"),
    option(
        "--ledger",
        "Where charges are kept.",
        metavar="URL",
        default="sqlite:///insights.db",
        envvar="DPICL_LEDGER",
        show_envvar=True,
    ),
)
ledger = click.Group(
    "ledger",
    no_args_is_help=False,
    help="Look at accounts and their charges, check, copy and close them.",
    commands=[
        command(
            "ledger",
            "list_",
            "List the accounts, or the corpora, or digests of all books.",
            option("--corpora", "Caps, and the accounts that count.", is_flag=True),
            option("--heads", "What 'verify --head' reads later.", is_flag=True),
            LEDGER,
        ),
        command("ledger", "show", "Show an account's charges.", ACCOUNT, LEDGER),
        command(
            "ledger",
            "verify",
            "Check an account's book, or all of the ledger; status 1 if damaged.",
            click.Argument(["account"], required=False),
            option("--head", "Kept heads: was an older copy put back?", metavar="FILE"),
            LEDGER,
        ),
        command(
            "ledger",
            "export",
            "Print an account's terms and entries as JSON Lines.",
            ACCOUNT,
            option("--units", "The balances of units instead: private.", is_flag=True),
            option("--id-file", "With --units: ids to look up.", metavar="FILE"),
            LEDGER,
        ),
        command("ledger", "close", "Close an account for good.", ACCOUNT, LEDGER),
        command("ledger", "renew", "Open the next period's account.", ACCOUNT, LEDGER),
        command(
            "ledger",
            "backup",
            "Copy a SQLite ledger, while it is in use, to a new file.",
            click.Argument(["to"]),
            LEDGER,
        ),
        command("ledger", "create", "Make a ledger without accounts.", LEDGER),
    ],
)
audit = command(
    "operator",
    "audit",
    """Measure what each of some people loses: private, for the operator alone.

    Ask your chain's groups some questions, and once more for each person whom a
    question reaches. Nothing is charged. The exit status is 1 where somebody loses
    more than the account charges.""",
    CHAIN,
    option("--questions", "Questions, one a line.", required=True, metavar="FILE"),
    option(
        "--canaries",
        "People: unit ids, one a line; or made-up records to add, as .jsonl.",
        metavar="FILE",
    ),
    option("--units", "So many people, chosen by chance.", type=int),
    option("--repeats", "How often to ask each question.", default=1),
    option("--delta", "Failure probability; else the account's.", type=float),
    OUT,
)
report = command(
    "operator",
    "report",
    """What an account has promised and spent, for an officer to sign.

    All of it is public. The exit status is 1 where the ledger is damaged.""",
    ACCOUNT,
    option(
        "--format",
        "How it is printed.",
        type=click.Choice(["html", "json"]),
        default="html",
    ),
    option("--out", "Save it, as .html or .json.", metavar="FILE"),
    option("--facts", "What only you can say, in JSON.", metavar="FILE"),
    option("--audits", "Audits, for their verdicts.", metavar="FOLDER"),
    option("--erasures", "Certificates of erasures.", metavar="FOLDER"),
    LEDGER,
)
verify = command(
    "operator",
    "verify",
    """Check the record of a saved answer against the ledger.

    The account holds its charge, for the same events, with no less spent, in a whole
    book, and what the ledger stored of it. What the ledger did not store is named, and
    not confirmed. The exit status is 0 if nothing differs.""",
    click.Argument(["answer"], metavar="ANSWER.json"),
    LEDGER,
)
erase = command(
    "operator",
    "erase",
    """Erase a person from a saved index, with a certificate.

    Processes that follow the index take it over. Balances and what was released stay
    in the ledger. Run it again after a crash. UNIT is the person's id; - reads it
    from a line.""",
    click.Argument(["unit"]),
    option("--index", "The saved groups.", metavar="PATH", required=True),
    option("--account", "Over these records; repeatable.", multiple=True),
    option("--corpus", "All accounts of a corpus.", metavar="NAME"),
    option("--certificate", "Where to write it.", metavar="FILE"),
    option("--clear-cache", "Give no stored answer again.", is_flag=True),
    option("--check", "Is --certificate of this person?", is_flag=True),
    MAYBE_LEDGER,
)
mcp = command(
    "operator",
    "mcp",
    """Serve a chain of yours, or a tool, to a client of MCP.

    Over stdin and stdout, unless a port is named. Each answer is charged to the
    account of the chain.""",
    CHAIN,
    option("--name", "The tool's.", default="ask_records"),
    option("--description", "What the records are about.", default=""),
    option("--port", "Serve http://127.0.0.1:PORT/mcp, open to all here.", type=int),
)
dpicl = click.Group(
    "dpicl",
    no_args_is_help=False,
    context_settings={"show_default": True},
    help="Differentially private answers over sensitive records, for LangChain.",
    commands=[demo, plan, insights, ledger, audit, report, verify, erase, mcp],
)
click.version_option(__version__, message="%(version)s")(dpicl)
