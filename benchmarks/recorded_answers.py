"""Recorded answers of a language model: their files, and how their drafts are read.

A file per question, JSON: `question`; `options`, the answers that the model listed from
the question alone; `right`, those of them that are true of the whole corpus (none where
the records do not tell); `zero_shot`, its answers to the question alone; `groups`, each
with one answer per manner. `drafts.jsonl` has raw drafts and wordings: `draft_lines`,
`draft_json`; `words`, `wording` and its `wording_kind`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from langchain_dpicl.parsers.reading.drafts import read_drafts
from langchain_dpicl.parsers.reading.refusal import says_nothing
from langchain_dpicl.parsers.reading.wording import keeps
from langchain_dpicl.parsers.words import tokenize

MANNERS = ("choice", "terse", "sentence", "chatty")
GROUPS = 60
MOST = 8
KINDS = ("good", "ignores", "refuses", "contradicts")
"""What a wording was asked for as."""

_MARK = re.compile(r"^\s*(?:\d+[.)]|[-*])\s+")


@dataclass(frozen=True)
class Recording:
    """One question, with the answers of its groups by manner."""

    name: str
    question: str
    options: tuple[str, ...]
    right: tuple[str, ...]
    zero_shot: tuple[str, ...]
    answers: dict[str, tuple[str, ...]]

    @property
    def draft(self) -> str:
        """The options as models list them: with a remark, numbered, in bold."""
        lines = [f"{n}. **{option}**" for n, option in enumerate(self.options, 1)]
        return "\n".join(["Sure! Here are the possible answers:", "", *lines])

    @property
    def candidates(self) -> tuple[str, ...]:
        """Public sentences: the answers to the question alone, one for each option."""
        said = tuple(text for text in self.zero_shot if not says_nothing(text))
        return (*said, *(f"The answer is: {option}." for option in self.options))


def load_recordings(folder: Path) -> list[Recording]:
    """Read every question of a folder."""
    return [_recording(path) for path in sorted(folder.glob("*.json"))]


def _recording(path: Path) -> Recording:
    read = json.loads(path.read_text("utf-8"))
    answers = {m: tuple(group[m] for group in read["groups"]) for m in MANNERS}
    kept = (tuple(read[key]) for key in ("options", "right", "zero_shot"))
    return Recording(path.stem, read["question"], *kept, answers)


def drafting(path: Path) -> Table:
    """Show how drafts are read, beside a reader that knows their format."""
    shown = Table("drafts as", "options", "read", "else read", box=box.MARKDOWN)
    for key, reference in (("draft_lines", _lines), ("draft_json", _json)):
        wanted = read = more = 0
        for line in _cases(path):
            listed = reference(line[key])[:MOST]
            options = {_bare(one) for one in listed if not says_nothing(one)}
            found = {_bare(one) for one in read_drafts(line[key], MOST)}
            wanted += len(options)
            read += len(options & found)
            more += len(found - options)
        shown.add_row(key, str(wanted), str(read), str(more))
    return shown


def _lines(text: str) -> list[str]:
    """Return a list's items: an introduction ends in a colon, a remark in a period."""
    lines = [_MARK.sub("", line).strip(" *") for line in text.splitlines()]
    said = [one for one in lines if one and one[-1] not in ":."]
    return [re.split(r" [\u2013-] ", one)[0] for one in said]


def _bare(option: str) -> tuple[str, ...]:
    return tuple(tokenize(option.split(" (", maxsplit=1)[0]))


def _json(text: str) -> list[str]:
    """Return the strings of a JSON list, or the first one of each object in it."""
    inside = re.sub(r",\s*\]", "]", text[text.index("[") : text.rindex("]") + 1])
    found = json.loads(inside)
    return [next(iter(one.values())) if isinstance(one, dict) else one for one in found]


def wordings(path: Path) -> Table:
    """Show which wordings keep the released words, by what was asked for."""
    shown = Table("wordings asked for as", "kept", "thrown away", box=box.MARKDOWN)
    found: Counter[tuple[str, bool]] = Counter()
    for line in _cases(path):
        kept = keeps(line["wording"], line["words"], line["question"])
        found[line["wording_kind"], kept] += 1
    for kind in KINDS:
        shown.add_row(kind, str(found[kind, True]), str(found[kind, False]))
    return shown


def _cases(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
