"""The net keeps its own rules, so that a redesign of the package changes one file.

Tests reach the package through `faces.py` alone and hide nothing. Those of `unit_tests`
start no process and open no socket.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
UNIT, INTEGRATION = TESTS / "unit_tests", TESTS / "integration_tests"
PACKAGE = "langchain_dpicl"
OUTSIDE = {"subprocess", "multiprocessing", "socket", "pgserver", "psycopg", "httpx"}
HIDING = {"skip", "skipif", "xfail", "importorskip"}


def modules(tree: ast.AST) -> set[str]:
    """Return the modules that are imported, wherever in a file."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or ".")
    return found


def reaches(module: str) -> bool:
    """Whether a module is the package's, or a helper's that is not the door."""
    first, _, rest = module.partition(".")
    if first != "support":
        return first == PACKAGE
    helper = TESTS / "support" / f"{rest.replace('.', '/')}.py"
    return not helper.is_file() or any(
        map(reaches, modules(ast.parse(helper.read_text())))
    )


def faces(tree: ast.AST) -> set[str]:
    """Return the names that a file has from the door."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "faces"
        for alias in node.names
    } | {"faces"}


def root(node: ast.expr) -> str:
    """Return the name that a chain of attributes and calls begins with."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def is_private(node: ast.AST, doors: set[str]) -> bool:
    """Whether a private attribute of something from the door is used."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and root(node) in doors
    )


def hides(node: ast.AST) -> bool:
    """Whether a test may be left out, or may fail."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr in HIDING
        and root(node) in {"pytest", "mark"}
    )


def patches(node: ast.AST, doors: set[str]) -> bool:
    """Whether something of the package is put in another's place."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    if node.func.attr not in {"setattr", "delattr", "patch", "object"} or not node.args:
        return False
    first = node.args[0]
    if isinstance(first, ast.Constant):
        return str(first.value).startswith(PACKAGE)
    return root(first) in doors


def broken(code: str, *, is_unit: bool = True) -> set[str]:
    """Return the rules that a test file breaks."""
    tree = ast.parse(code)
    nodes, used, doors = list(ast.walk(tree)), modules(tree), faces(tree)
    rules = {
        "door": any(map(reaches, used)),
        "outside": is_unit
        and bool({name.partition(".")[0] for name in used} & OUTSIDE),
        "private": any(is_private(node, doors) for node in nodes),
        "hides": any(map(hides, nodes)),
        "patch": any(patches(node, doors) for node in nodes),
    }
    return {rule for rule, is_broken in rules.items() if is_broken}


FILES = sorted([*UNIT.rglob("*.py"), *INTEGRATION.rglob("*.py")])


@pytest.mark.promise("net-rules")
@pytest.mark.parametrize(
    "path", FILES, ids=lambda path: path.relative_to(TESTS).as_posix()
)
def test_a_file_of_the_net_keeps_the_rules(path: Path) -> None:
    assert broken(path.read_text(), is_unit=UNIT in path.parents) == set()


@pytest.mark.promise("net-rules")
@pytest.mark.parametrize("name", ["scripted", "worlds", "suite"])
def test_what_the_tests_share_knows_nothing_of_the_package(name: str) -> None:
    assert broken((TESTS / f"{name}.py").read_text(), is_unit=False) == set()
    assert "faces" not in modules(ast.parse((TESTS / f"{name}.py").read_text()))


@pytest.mark.promise("net-rules")
def test_the_door_is_short() -> None:
    text = (TESTS / "faces.py").read_text()
    assert len(text.splitlines()) <= 400
    first = {name.partition(".")[0] for name in modules(ast.parse(text))}
    assert "support" not in first


@pytest.mark.promise("net-rules", twin=True)
@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("from langchain_dpicl.ledger import SQLLedger", "door"),
        ("def f():\n    import langchain_dpicl as d", "door"),
        ("from support.ledgers import opened", "door"),
        ("from faces import Ledger\nLedger(':memory:')._database", "private"),
        ("import faces\nfaces.offline._words", "private"),
        (
            "def f(monkeypatch):\n    monkeypatch.setattr('langchain_dpicl.a.b', 1)",
            "patch",
        ),
        (
            "from faces import offline\ndef f(m):\n    m.setattr(offline, 'a', 1)",
            "patch",
        ),
        ("import pytest\n@pytest.mark.skipif(True)\ndef test(): ...", "hides"),
        ("import pytest\npytest.importorskip('torch')", "hides"),
        ("import subprocess", "outside"),
        ("from multiprocessing import Process", "outside"),
    ],
)
def test_twin_a_file_that_breaks_a_rule_is_noticed(code: str, rule: str) -> None:
    assert broken(code) == {rule}
