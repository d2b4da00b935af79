"""`dpicl insights`: from a log of conversations to a page of what people talk about."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from langchain_dpicl.cli.loading import load_model, read_lines
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.insights import Insights, Topics, draft_topics, forecast
from langchain_dpicl.insights import insights as release
from langchain_dpicl.insights.conversations import documents_of
from langchain_dpicl.operate import pages

_PUBLIC = ("epsilon", "delta", "by", "max_topics", "people_at_most")
_COUNTS = ("people", "topics", "groups", "other", "words", "empty", "not_read")
_COSTS = ("tokens_per_person", "price_in", "price_out")
OFFLINE = (
    "The model is the offline stand-in, which compares words: what it counts shows how "
    "this works, and says little of your people. Name a real one with --model."
)


def insights(  # noqa: PLR0913 - the command's options, one by one
    *,
    conversations: str,
    about: str | None,
    topics: str,
    model: str,
    out: tuple[str, ...],
    by: tuple[str, ...],
    previous: str | None,
    next_topics: str | None,
    plan: bool,
    yes: bool,
    as_json: bool,
    **terms: Any,
) -> int:
    """Draft or load topics, forecast, charge, read, save and print."""
    # What can't be read, or saved, is an error before anything costs something.
    _require_places(out, next_topics)
    before = None if previous is None else Insights.load(previous)
    records = [] if plan else [record for _, record in read_lines(conversations)]
    if not plan:  # Does each say whose it is?
        documents_of(records, terms["unit_key"])
    chat, say = load_model(model), (lambda _text: None) if as_json else click.echo
    if model == "offline":
        say(f"{OFFLINE}\n")
    listed = _topics(topics, about, chat, say)
    terms["by"] = _split(by)
    costs = {name: terms.pop(name) for name in _COSTS}
    foreseen = forecast(listed, **{name: terms[name] for name in _PUBLIC}, **costs)
    say(f"\n{foreseen}\n")
    if plan:
        figures = {"topics": listed.tree, "forecast": asdict(foreseen)}
        click.echo(json.dumps(figures, indent=2) if as_json else "Nothing was charged.")
        return 0
    if not (yes or as_json) and sys.stdin.isatty():
        cost = f"epsilon {terms['epsilon']:g} to account {terms['account']!r}"
        if not click.confirm(f"Charge {cost}, and read everybody?"):
            click.echo(f"Nothing was charged. The topics are in {topics}: edit them.")
            return 0
    result = release(records, chat, topics=listed, **terms)
    say(f"{_summary(result)}\n")
    for path in out:
        _save(result, path, before)
        say(f"Wrote {path}.")
    if next_topics is not None:
        words = [word.name for word in result.words]
        listed.with_words(words, chat).save(next_topics, overwrite=True)
        say(f"Wrote {next_topics}.")
    if as_json:
        figures = {name: getattr(result, name) for name in (*_COUNTS, "too_few", "by")}
        figures |= {name: result.record[name] for name in ("epsilon", "delta")}
        click.echo(json.dumps(figures, indent=2, default=asdict))
    return 0


def _require_places(out: tuple[str, ...], next_topics: str | None) -> None:
    if ".html" in {pages.ending(path) for path in out}:
        pages.rendered("page.html")
    for path in filter(None, (*out, next_topics)):
        pages.require_writable(path)


def _save(result: Insights, path: str, before: Insights | None) -> None:
    if pages.ending(path) == ".html":
        pages.put(result.html(before), path)
    else:
        result.save(path, overwrite=True)


def _topics(
    path: str, about: str | None, model: Any, say: Callable[[str], None]
) -> Topics:
    """Return the topics of a file; if there is none, draft and save them there."""
    if Path(path).exists():
        listed = Topics.load(path)
        say(f"{len(listed.names)} topics, from {path}:\n")
    elif about is None:
        raise InvalidParameterError(
            f"There are no topics in {path!r}: name a file of topics with --topics, or "
            "say what the assistant is for with --about, and topics are drafted."
        )
    else:
        listed = draft_topics(model, about=about)
        listed.save(path)
        say(f"{len(listed.names)} topics were drafted, and saved in {path}:\n")
    say(str(listed))
    return listed


def _split(by: tuple[str, ...]) -> dict[str, list[str]] | None:
    """Return attributes and their values, of texts such as "plan=basic,plus"."""
    split: dict[str, list[str]] = {}
    for text in by:
        name, _, values = text.partition("=")
        split[name.strip()] = [value.strip() for value in values.split(",")]
    return split or None


def _summary(result: Insights) -> str:
    """Return what was released, for a terminal."""
    bins = [
        ("all people", result.people),
        ("another topic", result.other),
        *((f'another one: "{word.name}"', word) for word in result.words),
    ]
    topics = [(count.name, count) for count in result.topics]
    rows = [
        (name, "" if count is None else f"{count.count} ± {count.error}")
        for name, count in (*topics, ("", None), *bins)
    ]
    few = ", ".join(result.too_few) or "none"
    return f"{pages.table(('topic', 'people'), rows)}\n\nToo few to tell: {few}."
