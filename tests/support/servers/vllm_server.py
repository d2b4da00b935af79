"""A real vLLM server with the tiny model, in a process group of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from support.servers.scripted_provider import KEY, MODEL

START = 300
"""Seconds until the server must be up: 45 on two idle cores."""

STOP = 20
"""Seconds that the server has to end by itself."""

LAST_LINES = 60
"""Lines of the log that an error shows."""

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # Without it, some first requests wait half a minute for a compiler.
    "TORCHDYNAMO_DISABLE": "1",
}

CONTEXT = "2048"


class VLLMServer:
    """A server on a free loopback port.

    Args:
        environment: The virtual environment that holds vLLM.
        folder: Where the model and the log go.
        options: More of `vllm serve`'s options.
    """

    def __init__(
        self, environment: Path, folder: Path, options: tuple[str, ...] = ()
    ) -> None:
        self._options = options
        self._bin = environment.resolve() / "bin"
        self.model = folder / "model"
        self.log = folder / "vllm.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> None:
        """Start the server, if it does not run, and wait until it answers.

        Raises:
            RuntimeError: If it does not; the message ends with its log's last lines.
        """
        if self._process is not None and self._process.poll() is None:
            return
        if not self.model.exists():
            self._make_model()
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [self._bin / "vllm", "serve", self.model]
        command += ["--host", "127.0.0.1", "--port", str(port), "--api-key", KEY]
        command += ["--served-model-name", MODEL, "--max-model-len", CONTEXT]
        command += ["--dtype", "float32", "--enforce-eager", "--max-logprobs", "512"]
        command += self._options
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=self._environment(),
                # Its workers die with it, and Ctrl-C at a terminal is ours to pass on.
                start_new_session=True,
            )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server and its workers, and wait until they are gone."""
        process, self._process = self._process, None
        if process is None:
            return
        _signal_group(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP)
        _signal_group(process, signal.SIGKILL)
        process.wait()

    def kill(self) -> None:
        """End the server and its workers at once, as a machine that fails does."""
        process, self._process = self._process, None
        assert process is not None
        _signal_group(process, signal.SIGKILL)
        process.wait()

    def _make_model(self) -> None:
        script = Path(__file__).with_name("make_tiny_model.py")
        with self.log.open("ab") as log:
            subprocess.run(
                [self._bin / "python", script, self.model],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(),
                check=True,
            )

    def _environment(self) -> dict[str, str]:
        # Nothing of the tests' own environment, above all no PYTHONPATH.
        kept = {
            name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ
        }
        path = f"{self._bin}:{os.environ.get('PATH', os.defpath)}"
        return {**kept, **OFFLINE, "PATH": path}

    def _wait(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                # By hand: a proxy named in the environment is not for loopback.
                opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
                with opener.open(f"{self.url}/health", timeout=5):
                    return
            time.sleep(0.5)
        last = self.log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        raise RuntimeError("vLLM did not start:\n" + "\n".join(last))


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
