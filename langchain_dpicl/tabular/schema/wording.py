"""Rows as text: Jinja2 templates, checked when a schema is made and compiled once.

Templates are LangChain's: `prompt_template` gives the `PromptTemplate` of one. Its
`format` compiles the template at every call, which for a table means once per row and
column; `render` keeps the compiled template and writes the same text.

A template comes with the schema, from a person who is trusted to make it. What is put
into it - a category, a number - is data: braces in it are shown as they are. Templates
run in Jinja2's sandbox all the same, as LangChain runs them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from langchain_dpicl.errors import InvalidParameterError

if TYPE_CHECKING:
    from jinja2 import Template
    from langchain_core.prompts import PromptTemplate

SENTENCE = "The {{ column }} is {{ value }}{{ ' ' + unit if unit }}."
"""How a column's value is said, unless its `wording` says otherwise."""

SENTENCE_VARIABLES = ("column", "value", "unit")

ROW = "{{ sentences | join(' ') }}"
"""How a row's sentences make one text, unless the schema's `template` says it."""

ROW_VARIABLE = "sentences"

_LIMIT = 100_000


def check(
    template: str, variables: Iterable[str], sample: dict[str, Any]
) -> frozenset[str]:
    """Refuse a template that could not be rendered.

    Args:
        template: The Jinja2 template.
        variables: The variables that it may use.
        sample: Public values to render it with once.

    Returns:
        The variables that it uses.

    Raises:
        ValueError: If it is too long, is no Jinja2, uses no variable or another one, or
            fails.

    Example:
        >>> check("It is {{ value }}.", SENTENCE_VARIABLES, {"value": "1"})
        frozenset({'value'})
    """
    if len(template) > _LIMIT:
        raise ValueError(f"the template is longer than {_LIMIT} characters")
    from jinja2 import TemplateError, meta
    from jinja2.sandbox import SandboxedEnvironment

    allowed = tuple(variables)
    try:
        used = meta.find_undeclared_variables(SandboxedEnvironment().parse(template))
    except TemplateError as error:
        raise ValueError(f"this is no Jinja2 template ({error.message})") from None
    if unknown := sorted(used.difference(allowed)):
        raise ValueError(
            f"the template uses {unknown[0]!r}, which it is not given; it may use "
            f"{', '.join(allowed)}"
        )
    if not used:
        raise ValueError(
            "the template uses no variable, so that it says the same of every row; "
            "variables stand in double braces: {{ " + allowed[0] + " }}"
        )
    try:
        compiled(template).render(sample)
    except Exception as error:  # noqa: BLE001  # A template may fail in any way.
        raise ValueError(
            f"the template can't be rendered ({type(error).__name__})"
        ) from None
    return frozenset(used)


def render(template: str, owner: str, values: dict[str, Any]) -> str:
    """Write a text from a checked template.

    Args:
        template: The template.
        owner: Whose template it is, for the message.
        values: Its variables.

    Returns:
        The text, without white space at its ends.

    Raises:
        InvalidParameterError: If the template fails on these values. The message
            holds none of them.

    Example:
        >>> render("It is {{ value }}.", "column 'a'", {"value": "{{ 1 }}"})
        'It is {{ 1 }}.'
    """
    try:
        return compiled(template).render(values).strip()
    except Exception as error:  # noqa: BLE001  # A template may fail in any way.
        reason = type(error).__name__
    raise InvalidParameterError(
        f"The template of {owner} fails on a value ({reason}). Write it so that it "
        "takes every value that the column can have."
    )


def prompt_template(template: str) -> PromptTemplate:
    """Return a template as LangChain's `PromptTemplate`.

    Example:
        >>> prompt_template(SENTENCE).format(column="age", value="37", unit="years")
        'The age is 37 years.'
    """
    from langchain_core.prompts import PromptTemplate

    return PromptTemplate.from_template(template, template_format="jinja2")


@lru_cache(maxsize=4096)
def compiled(template: str) -> Template:
    """Compile a template as LangChain does, once."""
    from jinja2.sandbox import SandboxedEnvironment

    return SandboxedEnvironment().from_string(template)
