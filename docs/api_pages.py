"""The pages of the API reference, and a reviewer's page for each file with a proof.

`write` makes one reStructuredText page for each topic, with autodoc's directives for
the public names of its modules. Each object stands on one page, under the shortest
public path: `langchain_dpicl.DPChain`, not `langchain_dpicl.chain.DPChain`.

`write_proofs` makes one page for each file of `mechanisms` that proves a release: what
it releases, and the argument in the words of its docstring.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from itertools import chain, starmap
from pathlib import Path
from pkgutil import iter_modules
from textwrap import indent
from types import ModuleType
from typing import Any

import langchain_dpicl
from langchain_dpicl import mechanisms
from langchain_dpicl.operate.proofs import PROOFS, Proof

ROOT = "langchain_dpicl"
TOPICS = {
    "chains": (
        "Chains, retrievers, tools",
        ["chain", "retriever", "tools", "mcp"],
    ),
    "groups": (
        "Groups and stores",
        ["groups", "groups.postgres", "common.units"],
    ),
    "parsers": ("Output parsers", ["parsers", "likelihoods", "release.record"]),
    "budget": ("Budget and ledger", ["budget", "ledger"]),
    "few_shot": ("Few-shot examples", ["few_shot"]),
    "released": ("Released data", ["released"]),
    "tabular": ("Private tables", ["tabular"]),
    "insights": ("Insights", ["insights"]),
    "offline": ("Offline stand-ins", ["offline"]),
    "errors": ("Errors", ["errors"]),
    "accounting": ("Accounting", ["accounting"]),
    "mechanisms": (
        "Mechanisms",
        [f"mechanisms.{name}" for name in mechanisms.__all__],
    ),
    "operating": ("Operating", ["operate"]),
}
"""Each page's title, and the modules whose public names it has."""


INTERNAL = {"cli", "common", "demo", "release", "sealed"}
"""Packages that users do not import from, or only to try things out."""


def topics() -> dict[str, tuple[str, list[str]]]:
    """Return the pages, with one for each public package that none of them has."""
    listed = {
        module.partition(".")[0] for _, parts in TOPICS.values() for module in parts
    }
    rest = [
        found.name
        for found in iter_modules(langchain_dpicl.__path__)
        if found.ispkg and found.name not in listed | INTERNAL
    ]
    return TOPICS | {name: (name.capitalize(), [name]) for name in rest}


def names(module: ModuleType) -> list[str]:
    """Return the public names of a package, or those that a module defines.

    Of a module, those of the whole library, or else what has a docstring.
    """
    if hasattr(module, "__path__"):
        return list(module.__all__)
    defined = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", "") == module.__name__
        and inspect.getdoc(value)
    ]
    top = [name for name in defined if name in langchain_dpicl.__all__]
    return top or defined


def entries() -> Iterator[tuple[str, str, Any]]:
    """Yield the page, the public path and the object of everything public, once."""
    seen: set[int] = set()
    for page, (_, modules) in topics().items():
        for part in modules:
            module = import_module(f"{ROOT}.{part}")
            for name in names(module):
                value = getattr(module, name)
                if id(value) in seen or isinstance(value, ModuleType):
                    continue
                seen.add(id(value))
                is_top = getattr(langchain_dpicl, name, None) is value
                home = ROOT if is_top else module.__name__
                yield page, f"{home}.{name}", value


def public_paths(name: str) -> list[str]:
    """Return the public paths that end in this name."""
    return [path for _, path, _ in entries() if path.rpartition(".")[2] == name]


def members(kind: type) -> list[str]:
    """Return a class's documented methods and properties that this package defines.

    The fields of a model or a dataclass are the arguments of its constructor, which
    the docstring of the class describes.
    """
    fields = {
        *getattr(kind, "model_fields", ()),
        *getattr(kind, "__dataclass_fields__", ()),
    }
    found: dict[str, None] = {}
    for base in kind.__mro__:
        if not base.__module__.startswith(ROOT):
            continue
        for name, value in vars(base).items():
            call = getattr(value, "__func__", value)
            if name.startswith("_") or name in fields:
                continue
            method = inspect.isroutine(call) or hasattr(type(value), "__get__")
            if method and inspect.getdoc(call):
                found[name] = None
    return list(found)


def directive(path: str, value: Any) -> list[str]:
    """Return autodoc's directive for one public object."""
    if inspect.isclass(value):
        lines = [f".. autoclass:: {path}"]
        listed = members(value)
        return [*lines, *([f"   :members: {', '.join(listed)}"] if listed else []), ""]
    if inspect.isroutine(value):
        return [f".. autofunction:: {path}", ""]
    return [f".. autodata:: {path}", "   :no-value:", ""]


def summary(value: Any) -> str:
    """Return the first line of an object's docstring, to stand behind its name."""
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return ""
    line = (inspect.getdoc(value) or "").partition("\n\n")[0]
    # Before a letter, reStructuredText needs an escape at the end of code.
    return ": " + re.sub(r"(`[^`]+`)(?=\w)", r"\1\\ ", " ".join(line.split()))


def write(folder: Path) -> None:
    """Write the pages of the reference."""
    pages: dict[str, list[tuple[str, Any]]] = {}
    for page, path, value in entries():
        pages.setdefault(page, []).append((path, value))
    texts = {}
    for page, found in pages.items():
        title, modules = topics()[page]
        lines = [title, "=" * len(title), ""]
        for part in modules if len(modules) == 1 else []:
            lines += [f".. automodule:: {ROOT}.{part}", ""]
        # What is used most, and so has the shortest path, comes first.
        found.sort(key=lambda entry: entry[0].count("."))
        lines += [*(f"* :obj:`~{path}`{summary(value)}" for path, value in found), ""]
        texts[page] = [*lines, *chain.from_iterable(starmap(directive, found))]
    _put(folder, texts)


def write_proofs(folder: Path) -> None:
    """Write the reviewer's pages."""
    proofs: dict[str, list[Proof]] = {}
    for proof in PROOFS:
        proofs.setdefault(Path(proof.file).stem, []).append(proof)
    _put(folder, {name: _proof_page(found) for name, found in proofs.items()})


def _proof_page(proofs: list[Proof]) -> list[str]:
    file, text = proofs[0].file, inspect.getdoc(proofs[0].module) or ""
    lines = [file, "=" * len(file), ""]
    lines += [
        f"* {proof.release}: ``{proof.function}``, made by ``{proof.maker}``, charged "
        f"by ``{proof.charge}`` ({', '.join(sorted(proof.events))})"
        for proof in proofs
    ]
    return [*lines, "", "::", "", *indent(text, "   ").splitlines()]


def _put(folder: Path, pages: dict[str, list[str]]) -> None:
    """Write pages, and leave a file alone that would not change."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.rst"):
        if old.stem not in pages:
            old.unlink()
    for page, lines in pages.items():
        file, text = folder / f"{page}.rst", "\n".join([*lines, ""])
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
