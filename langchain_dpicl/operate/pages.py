"""Pages for people that need no other file: one look, for a screen and for paper."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from langchain_dpicl.common import files
from langchain_dpicl.errors import InvalidParameterError

Cell = str | float | bool | None
_SMALL = 1e-3  # Below, three decimals tell nothing.
_LARGE = 1e6


def rendered(template: str, *, package: str = "", **values: Any) -> str:
    """Return a page of a template beside this file, or in a package.

    It extends `page.html`. All values are escaped; one that is missing is an error.

    Raises:
        InvalidParameterError: If Jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError:
        raise InvalidParameterError(
            'A page needs Jinja2: pip install ".[report]", or jinja2.'
        ) from None

    def text(name: str) -> str:
        places = [resources.files(folder) / name for folder in folders if folder]
        return next(place for place in places if place.is_file()).read_text("utf-8")

    folders = (package, __package__)
    environment = Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        loader=FunctionLoader(text),
    )
    environment.filters["shown"] = shown
    return environment.get_template(template).render(**values)


def put(text: str, path: str | os.PathLike[str], mode: int | None = None) -> None:
    """Write a page or data to a file, over what was there.

    Raises:
        InvalidParameterError: If it can't be written.
    """
    try:
        files.put(text.encode(), Path(path), overwrite=True, mode=mode)
    except OSError as error:
        reason = error.strerror or type(error).__name__
    else:
        return
    raise InvalidParameterError(
        f"{str(path)!r} can't be written ({reason}): choose another path."
    )


def require_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a path where no file can be put, before there is anything to put.

    Raises:
        InvalidParameterError: If its folder is not there or can't be written to, or it
            is a folder itself.
    """
    target = Path(path)
    if target.is_dir() or not os.access(target.parent, os.W_OK):
        raise InvalidParameterError(
            f"{str(path)!r} can't be written: choose another path."
        )


def ending(path: str | os.PathLike[str]) -> str:
    """Return `.html` or `.json`, the ending of a path; refuse any other."""
    suffix = Path(path).suffix
    if suffix not in (".html", ".json"):
        raise InvalidParameterError(f"It is saved as .html or .json, not {suffix!r}.")
    return suffix


def shown(value: Cell) -> str:
    """Return a cell as people read it.

    Example:
        >>> shown(0.123456), shown(12), shown(True), shown(None), shown(2e-7)
        ('0.123', '12', 'yes', '', '2.00e-07')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and math.isfinite(value):
        if abs(value) >= _LARGE or 0 < abs(value) < _SMALL:
            return f"{value:.2e}"
        return str(int(value)) if value.is_integer() else f"{value:.3f}"
    return str(value)


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Return aligned columns under their names, for a terminal.

    Example:
        >>> print(table(("account", "charges"), [("notes", 12), ("b", None)]))
        account  charges
        notes    12
        b
    """
    cells = [list(columns), *([shown(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )
    return "\n".join(lines)
