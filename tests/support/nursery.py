"""Real processes, started cheaply and killed safely.

The program imports what its workers need once, and forks a child for every worker. It
is the only one that kills and reaps them, so that no signal can reach a stranger who
got the number of a worker that had ended. `Nursery` starts it and talks to it: a JSON
line for every order, a JSON line back.

Every worker writes what it announces to a file of its own, a line each, by a single
system call: what was written before a SIGKILL stays.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from typing_extensions import Self

DEADLINE_SECONDS = 240
"""When a worker is held to be stuck: far beyond what the slowest machine needs."""

POSTGRES_NAME = "crash-worker"
"""As what a PostgreSQL server knows the workers."""

_ENVIRONMENT = {
    # Threads of a number library would not survive the fork.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "PGAPPNAME": POSTGRES_NAME,
}


class Nursery:
    """Workers: functions of a module, each in a process of its own.

    Args:
        folder: Where what goes wrong is written.
        module: The module whose functions they are; its `warm_up` is called once.
    """

    def __init__(self, folder: Path, module: str) -> None:
        self._folder = folder
        self._started = 0
        self._said = folder / f"{module}.txt"
        with self._said.open("wb") as errors:
            self._program = subprocess.Popen(
                [sys.executable, __file__, module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={
                    **os.environ,
                    **_ENVIRONMENT,
                    "PYTHONPATH": os.pathsep.join(sys.path),
                },
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        stdin, stdout = self._pipes()
        stdin.close()
        stdout.close()
        self._program.wait()

    def move_to(self, folder: Path) -> None:
        """Kill all workers, and keep what others announce in another folder."""
        self._order("kill all")
        self._folder = folder

    def start(self, function: str, **arguments: Any) -> int:
        """Start a worker; return its process id."""
        self._started += 1
        log = str(self._folder / f"{self._started:06d}.jsonl")
        return int(self._order("start", function, {"log": log, **arguments}))

    def kill(self, pid: int) -> bool:
        """Kill a worker with SIGKILL; return whether it was still running."""
        return self._done(self._order("kill", pid)) == -signal.SIGKILL

    def wait(self, pid: int) -> int:
        """Wait until a worker has ended; return its exit code, negative by signal."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (code := self._order("code", pid)) is None:
            assert time.monotonic() < deadline, "a worker is stuck"
            time.sleep(0.005)
        return self._done(code)

    def wait_for(self, first: int, wanted: dict[str, Any]) -> None:
        """Wait until something is announced, after the `first` announcements."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while wanted not in self.announced()[first:]:
            assert time.monotonic() < deadline, f"nobody announces {wanted}"
            time.sleep(0.01)

    def announced(self) -> list[dict[str, Any]]:
        """Return what all workers have announced, those that were killed included."""
        return [
            json.loads(line)
            for log in sorted(self._folder.glob("*.jsonl"))
            # What follows the last line break did not get out in time.
            for line in log.read_text().split("\n")[:-1]
        ]

    def _done(self, code: int) -> int:
        errors = self._said.read_text(errors="replace")
        assert code in (0, -signal.SIGKILL), f"a worker failed ({code}):\n{errors}"
        return code

    def _order(self, *order: Any) -> Any:
        stdin, stdout = self._pipes()
        stdin.write(json.dumps(order) + "\n")
        stdin.flush()
        answer = stdout.readline()
        assert answer, f"the workers' parent failed:\n{self._said.read_text()}"
        return json.loads(answer)

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        stdin, stdout = self._program.stdin, self._program.stdout
        assert stdin is not None
        assert stdout is not None
        return stdin, stdout


class Log:
    """A worker's side of the announcements."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, **values: Any) -> None:
        """Announce something: it stays, whatever becomes of this process."""
        os.write(self._file, (json.dumps(values) + "\n").encode())


def main() -> None:
    """Obey until the other end of the pipe is gone; then nobody is left behind."""
    module = import_module(sys.argv[1])
    module.warm_up()
    parent, living = os.getpid(), set[int]()
    try:
        for line in sys.stdin:
            order, *values = json.loads(line)
            answer: int | None = None
            if order == "start":
                answer = _fork(getattr(module, values[0]), values[1], parent)
                living.add(answer)
            elif order == "kill all":
                _end(living)
            else:
                answer = _exit_code(values[0], kill=order == "kill")
                if answer is not None:
                    living.remove(values[0])
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    finally:
        if os.getpid() == parent:
            _end(living)


def _end(living: set[int]) -> None:
    while living:
        _exit_code(living.pop(), kill=True)


def _exit_code(pid: int, *, kill: bool) -> int | None:
    if kill:
        os.kill(pid, signal.SIGKILL)
    found, status = os.waitpid(pid, 0 if kill else os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _fork(function: Any, arguments: dict[str, Any], parent: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        function(Log(arguments.pop("log")), lambda: os.getppid() == parent, **arguments)
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is, it must be seen
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
