"""Pages for people that need no other file: one look, for a screen and for paper."""

from __future__ import annotations

import math
from importlib import resources
from typing import Any

Cell = str | float | bool | None
_PACKAGE = "langchain_dpicl"
_SMALL = 1e-3  # Below, three decimals tell nothing.
_LARGE = 1e6


def rendered(template: str, **values: Any) -> str:
    """Return a page of a template of this package, which extends `common/page.html`.

    All values are escaped; one that is missing is an error.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    folder = resources.files(_PACKAGE)
    environment = Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        loader=FunctionLoader(lambda name: folder.joinpath(name).read_text("utf-8")),
    )
    environment.filters["shown"] = shown
    return environment.get_template(template).render(**values)


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
