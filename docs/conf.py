"""The site: `make docs` builds it into `docs/_build/html`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docutils.nodes import Element, reference
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import api_pages

from langchain_dpicl import __version__

project = "langchain-dpicl"
author = "The langchain-dpicl authors"
copyright = "The langchain-dpicl authors. MIT license."  # noqa: A001 - Sphinx's name
release = version = __version__
REPOSITORY = "https://github.com/langchain-dpicl/langchain-dpicl/"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
suppress_warnings = ["ref.python"]  # A word of a docstring that several classes have.
default_role = "code"
nitpicky = True
# A public name must be found. Types of other projects, for which the site would need a
# network, and of our own that only signatures name, are shown without a link.
PUBLIC = "|".join(path.rpartition(".")[2] for _, path, _ in api_pages.entries())
nitpick_ignore_regex = [(r"py:.*", rf"(?!langchain_dpicl\.(?:.*\.)?(?:{PUBLIC})$).*")]

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4

napoleon_custom_sections = [("Privacy", "Privacy")]
napoleon_use_ivar = True
autodoc_inherit_docstrings = False
autodoc_preserve_defaults = True
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 72
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"langchain-dpicl {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "source_repository": REPOSITORY,
    "source_branch": "main",
    "source_directory": "docs/",
}


def links_out_of_the_docs(_: Sphinx, name: str, source: list[str]) -> None:
    """Make links to files of the repository links to their pages on GitHub."""
    folder = (HERE / name).parent

    def absolute(found: re.Match[str]) -> str:
        target = (folder / found["target"]).resolve()
        if target.is_relative_to(HERE):
            return found[0]
        return f"]({REPOSITORY}blob/main/{target.relative_to(HERE.parent)}"

    source[0] = re.sub(r"\]\((?P<target>\.\./[^)#\s]+)", absolute, source[0])


def public_name(
    app: Sphinx, env: BuildEnvironment, node: Element, content: reference
) -> reference | None:
    """Link a class's internal path, as signatures have it, to its public name."""
    if node.get("refdomain") != "py":
        return None
    last = node["reftarget"].rpartition(".")[2]
    for path in api_pages.public_paths(last):
        domain = env.get_domain("py")
        found: Any = domain.resolve_xref(
            env, node["refdoc"], app.builder, "obj", path, node, content
        )
        if found is not None:
            return found  # type: ignore[no-any-return]
    return None


def markdown(
    _: Sphinx, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]
) -> None:
    """Make the Markdown of docstrings reStructuredText: fences, tables, plurals."""
    text = "\n".join(lines)
    # Before a letter, reStructuredText needs an escape at the end of code.
    text = re.sub(r"(?<![`\w])(`[^`\n]+`)(?=\w)", r"\1\\ ", text)
    text = _FENCE.sub(
        lambda found: (
            f"{found[1]}.. code-block:: {found[2] or 'text'}\n\n"
            + indent(found[3], "    ")
        ),
        text,
    )
    lines[:] = _TABLE.sub(_list_table, text).split("\n")


_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"(?:^\|.*\|\n)+", re.MULTILINE)


def _list_table(found: re.Match[str]) -> str:
    head, _, *rows = (row.strip("|").split("|") for row in found[0].splitlines())
    table = [".. list-table::", "   :header-rows: 1", ""]
    for row in [head, *rows]:
        cells = [cell.strip() for cell in row]
        table += [f"   * - {cells[0]}", *(f"     - {cell}" for cell in cells[1:])]
    return "\n".join([*table, "", ""])


def plain_signature(
    _: Sphinx,
    _what: str,
    _name: str,
    _object: Any,
    _options: Any,
    signature: str | None,
    returned: str | None,
) -> tuple[str | None, str | None]:
    """Leave out defaults that are longer than a name."""
    return signature and _LONG.sub("=...", signature), returned


def plain_types(app: Sphinx, *_: Any) -> None:
    """Leave out pydantic's marks of types, and where Python keeps its own."""
    for types in app.env.current_document.autodoc_annotations.values():
        for key, text in types.items():
            types[key] = _MARKED.sub(r"\1", text).replace("collections.abc.", "")


_MARKED = re.compile(r"~?[\w.]*Annotated\[(.*?), ~?[\w.]+\([^()]*\)\]")
_LONG = re.compile(r"""=(?:[A-Z]\w+\(.*?\)|'[^']{20,}'|"[^"]{20,}")(?=[,)])""")


def setup(app: Sphinx) -> None:
    """Write the pages of the reference and of the proofs; connect what is above."""
    api_pages.write(HERE / "reference" / "api")
    api_pages.write_proofs(HERE / "reviewers" / "proofs")
    app.connect("autodoc-process-signature", plain_signature)
    # Before autodoc shows the types that it has noted.
    app.connect("object-description-transform", plain_types, priority=400)
    app.connect("source-read", links_out_of_the_docs)
    app.connect("missing-reference", public_name)
    app.connect("autodoc-process-docstring", markdown, priority=400)
