"""The built wheel is whole, holds no test, and works without its optional packages.

The numbers (`accounting`, `mechanisms`) work without LangChain, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "langchain_dpicl"
BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""
OPTIONAL = {
    *("langchain", "langgraph", "psycopg", "langchain_postgres", "langchain_qdrant"),
    *("qdrant_client", "langchain_chroma", "chromadb", "pyarrow", "pandas", "polars"),
    *("transformers", "torch", "opentelemetry", "matplotlib", "mcp", "cryptography"),
}
"""What a user has not got who installs the package alone."""
LANGCHAIN = {"langchain_core", "langchain_openai", "langsmith", *OPTIONAL}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that pip makes of this tree, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index"]
    command += ["--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True)
    (path,) = folder.glob("*.whl")
    with ZipFile(path) as packed:
        packed.extractall(folder / "unpacked")
    return folder / "unpacked"


def files(folder: Path) -> set[str]:
    """Return the names of the files below a folder, without compiled ones."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def check_whole(found: set[str]) -> None:
    """Every file of the source is there, with its types and its data."""
    assert files(SOURCE) <= found
    assert "py.typed" in found
    assert {".py", ".typed", ".csv", ".json", ".html"} <= {
        Path(name).suffix for name in found
    }


def run(wheel: Path, blocked: set[str], code: str) -> str:
    """Run code in a new process that has the wheel, and not what is blocked."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED.format(blocked=blocked) + code],
        cwd=wheel,
        env={**os.environ, "PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.promise("wheel-complete")
def test_the_wheel_holds_the_whole_package_and_no_test(wheel: Path) -> None:
    check_whole(files(wheel / SOURCE.name))
    folders = {path.name for path in wheel.iterdir()}
    (facts,) = folders - {SOURCE.name}
    assert facts.endswith(".dist-info")
    assert not [path for path in wheel.rglob("*test*") if path.suffix == ".py"]
    assert "dpicl = " in (wheel / facts / "entry_points.txt").read_text()


@pytest.mark.promise("wheel-complete", twin=True)
@pytest.mark.parametrize("suffix", [".csv", ".typed", ".html"])
def test_twin_a_wheel_without_its_data_is_noticed(wheel: Path, suffix: str) -> None:
    found = files(wheel / SOURCE.name)
    with pytest.raises(AssertionError):
        check_whole({name for name in found if not name.endswith(suffix)})


@pytest.mark.promise("wheel-complete")
def test_every_public_name_is_there_without_the_optional_packages(wheel: Path) -> None:
    code = """
import os, langchain_dpicl
assert langchain_dpicl.__file__.startswith(os.getcwd())
for name in langchain_dpicl.__all__:
    getattr(langchain_dpicl, name)
print(len(langchain_dpicl.__all__))
"""
    assert int(run(wheel, OPTIONAL, code)) > 20


@pytest.mark.promise("numbers-without-langchain")
@pytest.mark.parametrize("module", ["accounting", "mechanisms"])
def test_the_numbers_need_no_langchain(wheel: Path, module: str) -> None:
    code = f"""
import sys
from langchain_dpicl import {module}
for name in {module}.__all__:
    getattr({module}, name)
print(*sys.modules)
"""
    loaded = {name.partition(".")[0] for name in run(wheel, LANGCHAIN, code).split()}
    assert not loaded & LANGCHAIN


@pytest.mark.promise("numbers-without-langchain", twin=True)
def test_twin_what_needs_langchain_is_noticed(wheel: Path) -> None:
    with pytest.raises(AssertionError, match="langchain_core"):
        run(wheel, LANGCHAIN, "from langchain_dpicl import DPChain")
