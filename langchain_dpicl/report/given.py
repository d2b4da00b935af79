"""What a report is given beside the ledger: facts, audits, certificates.

Of files that may hold something private only the fields that are named here are taken.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from langchain_dpicl.common import file_format
from langchain_dpicl.errors import DPError, InvalidParameterError
from langchain_dpicl.report import texts

_MOST_BYTES = 1 << 20
_LONGEST = 200
_ISO = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")

Path_ = str | os.PathLike[str]


@dataclass(frozen=True)
class Seen:
    """A row of what was found, by column.

    Attributes:
        fields: What is shown, by name.
        is_good: Whether nothing is wrong with it.
    """

    fields: Mapping[str, str]
    is_good: bool = True


def facts_of(given: Mapping[str, Any] | Path_ | None) -> dict[str, str]:
    """Return the operator's facts, checked.

    Raises:
        InvalidParameterError: If a file can't be read, a fact is unknown or no text,
            number, date or list of them, or a date is not ISO (2027-05-31).
    """
    if isinstance(given, (str, os.PathLike)):
        given = _read_yaml(Path(given))
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidParameterError("facts must be names with what is said of them.")
    if unknown := [name for name in given if name not in texts.FACTS]:
        raise InvalidParameterError(
            f"The fact {unknown[0]!r:.60} is unknown. Known are "
            f"{', '.join(texts.FACTS)}."
        )
    found = {name: _said(name, value) for name, value in given.items()}
    for name in texts.DATES:
        _require_date(name, found.get(name, ""))
    return {name: text for name, text in found.items() if text}


def found_audits(folder: Path_ | None) -> tuple[Seen, ...]:
    """Return the verdicts of a folder's audits, oldest first."""
    found = []
    for path in _listed(folder):
        try:
            audit = file_format.read(path, file_format.AUDIT)
        except DPError:
            found.append(_unreadable("audit", "made", "library"))
            continue
        fields = {
            "audit": audit["kind_of_audit"][:_LONGEST],
            "made": audit["created"][:_LONGEST],
            "library": str(audit["versions"].get("langchain-dpicl", ""))[:_LONGEST],
            "verdict": "within the claim" if audit["is_sound"] else "exceeds the claim",
        }
        found.append(Seen(fields, audit["is_sound"]))
    return tuple(sorted(found, key=lambda seen: seen.fields["made"]))


def found_erasures(folder: Path_ | None, account: str) -> tuple[Seen, ...]:
    """Return the certificates of a folder, oldest first, without saying of whom.

    How many records were erased is about the person, and is not shown.
    """
    found = []
    for path in _listed(folder):
        try:
            content = file_format.read(path, file_format.ERASURE)
        except DPError:
            found.append(_unreadable("made", "names this account"))
            continue
        names = [one.get("account") for one in content["accounts"]]
        fields = {
            "made": content["erased_at"][:_LONGEST],
            "names this account": "yes" if account in names else "no",
            "verdict": "intact",
        }
        found.append(Seen(fields))
    return tuple(sorted(found, key=lambda seen: seen.fields["made"]))


def _listed(folder: Path_ | None) -> Iterator[Path]:
    if folder is None:
        return
    if not Path(folder).is_dir():
        raise InvalidParameterError(
            f"{str(folder)!r} is no folder: name one that holds JSON files."
        )
    yield from sorted(Path(folder).glob("*.json"))


def _unreadable(*columns: str) -> Seen:
    # Not its name, in which people may have written an id.
    fields = {**dict.fromkeys(columns, ""), "verdict": "can't be read, or was edited"}
    return Seen(fields, is_good=False)


def _read_yaml(path: Path) -> Any:
    import yaml

    found = _tried(lambda: yaml.safe_load(_text(path)), yaml.YAMLError)
    if not isinstance(found, dict):
        raise InvalidParameterError(
            f"{str(path)!r} holds no facts: it is missing, or is no YAML or JSON of "
            "names with what is said of them."
        )
    return found


def _tried(read: Callable[[], Any], *errors: type[Exception]) -> Any:
    wrong: tuple[type[Exception], ...] = (OSError, ValueError, RecursionError, *errors)
    try:
        return read()
    except wrong:
        return None


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MOST_BYTES).decode("utf-8-sig")


def _require_date(name: str, text: str) -> None:
    """Refuse a text that is not empty and no date; Python reads more forms than one."""
    with suppress(ValueError):
        if not text or (_ISO.fullmatch(text) and date.fromisoformat(text)):
            return
    raise InvalidParameterError(
        f"The fact {name!r} must be a date such as 2027-05-31, not {text!r:.40}."
    )


def _said(name: str, value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(_said(name, one) for one in value)
    if isinstance(value, (Mapping, tuple, set)):
        raise InvalidParameterError(
            f"The fact {name!r} must be a text, a number, a date or a list of them."
        )
    return "" if value is None else str(value).strip()
