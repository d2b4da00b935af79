"""The options of `dpicl report` and `dpicl verify`."""

from __future__ import annotations

import argparse

from langchain_dpicl.cli.erase_options import Commands, Run


def add_report(commands: Commands, run: Run) -> argparse.ArgumentParser:
    """Add `dpicl report`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "report",
        help="what an account has promised and spent, for an officer to sign",
        description=(
            "Write a page for a data-protection officer (html), or the same as data "
            "(json). All of it is public. The exit status is 1 where the ledger is "
            "damaged."
        ),
    )
    parser.add_argument("account", metavar="ACCOUNT")
    parser.add_argument("--format", choices=("html", "json"), help="default: by --out")
    parser.add_argument(
        "--out", metavar="FILE", help=".html or .json (default: printed)"
    )
    for option, metavar, meaning in (
        (
            "--facts",
            "FILE",
            "what only you can say: names, purpose, dates (YAML, JSON)",
        ),
        ("--audits", "FOLDER", "audits as JSON; only their verdicts are shown"),
        ("--erasures", "FOLDER", "certificates of erasures as JSON"),
    ):
        parser.add_argument(option, metavar=metavar, help=meaning)
    parser.set_defaults(run=run)
    return parser


def add_verify(commands: Commands, run: Run) -> argparse.ArgumentParser:
    """Add `dpicl verify`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "verify",
        help="check the record of a saved answer against the ledger",
        description=(
            "Check that the ledger holds the charge that a saved answer, or a file of "
            "released examples or facts, names: same account, same events, no less "
            "spent, and a whole journal; and whatever the ledger stored beside the "
            "charge. What it did not store is named, and not confirmed. The exit "
            "status is 0 if nothing differs, else 1."
        ),
    )
    parser.add_argument("answer", metavar="ANSWER.json")
    parser.set_defaults(run=run)
    return parser
