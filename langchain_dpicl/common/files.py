"""Files of releases and schemas: complete when they have their name; strict JSON."""

from __future__ import annotations

import json
import math
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

_MAX_DIGITS = 40


def put(data: bytes, target: Path, *, overwrite: bool, mode: int | None = None) -> None:
    """Write a file, and its folders; it has its name when it is complete on disk.

    `mode` is who may read and write it, such as 0o600; None: as the system sets it.

    Raises:
        FileExistsError: If something is there, or came meanwhile, and `overwrite` is
            False. Nothing was written then.
        OSError: If it can't be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if not overwrite and os.path.lexists(target):
        raise FileExistsError
    # Beside the target, so that the rename stays on one file system.
    draft = target.with_name(f".{secrets.token_hex(8)}.draft")
    try:
        with draft.open("xb") as file:
            if mode is not None:
                draft.chmod(mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            draft.replace(target)
        else:
            link(draft, target)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()
    sync_directory(target.parent)


def link(draft: Path, target: Path) -> None:
    """Give a complete file its name, unless somebody else has taken it meanwhile."""
    try:
        os.link(draft, target)
    except FileExistsError:
        raise
    except OSError:
        # Some file systems know no links: take the name, for a moment without content.
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        try:
            draft.replace(target)
        except OSError:
            target.unlink()
            raise


def sync_directory(path: Path) -> None:
    """Make a directory's entries durable, where a directory can be opened."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def strict_json(text: str) -> Any:
    """Read JSON in which no field is named twice and every number is one.

    Example:
        >>> strict_json('{"a": 1.5}')
        {'a': 1.5}
        >>> strict_json('{"a": 1, "a": 2}')
        Traceback (most recent call last):
        ValueError
    """
    return json.loads(
        text,
        object_pairs_hook=_unique,
        parse_constant=_refused,
        parse_float=_finite,
        parse_int=_integer,
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _refused(constant: str) -> NoReturn:
    raise ValueError(constant)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError
    return number


def _integer(digits: str) -> int:
    # Python refuses to read integers of thousands of digits, with another error.
    if len(digits) > _MAX_DIGITS:
        raise ValueError
    return int(digits)
