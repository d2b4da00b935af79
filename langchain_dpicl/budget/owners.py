"""The owner of a draw, and whether its process still runs.

Of two draws under one charge the quicker one would be released. One person's long
record can decide which is quicker, and all other answers of that draw come with it. So
one owner draws for a charge, and others wait until the draw is stored.

Privacy:
    An owner is a random token and a process. Whether the process exists depends on no
    record. `SILENCE` is public, and longer than a draw or a step of several takes.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import secrets
from contextlib import suppress
from pathlib import Path

SILENCE = 3600.0
"""Seconds without a new step after which an owner on another machine counts as dead.

Nobody waits longer for an owner on this machine either; it keeps its charge.
"""

_at_work: set[str] = set()
"""Tokens of the charges that this process draws for, in any of its threads."""


def begin() -> str:
    """Return the token of a new owner in this process."""
    token = secrets.token_hex(8)
    _at_work.add(token)
    return token


def end(token: str) -> None:
    """Note that an owner draws no more."""
    _at_work.discard(token)


def is_at_work(token: str) -> bool:
    """Return whether an owner in this process may still draw."""
    return token in _at_work


def public_name(token: str) -> str:
    """Return an owner of this process as an entry has it: machine, process, token."""
    return f"{_process(os.getpid())}:{token}"


def owns(name: str, token: str) -> bool:
    """Return whether an entry names the owner of a token."""
    return bool(token) and name.endswith(f":{token}")


def is_alive(name: str, silent: float) -> bool:
    """Return whether an owner may still draw.

    On this machine its process tells. Elsewhere only the public time does, which begins
    anew with each stored step.

    Args:
        name: What an entry says; empty if the charge was given up.
        silent: Seconds since its last entry.
    """
    if not name:
        return False
    process, _, token = name.rpartition(":")
    if process == _process(os.getpid()):
        return token in _at_work
    machine, number, started = process.split(":")
    if machine == _machine() and os.name == "posix":
        return _started(int(number)) == started
    return silent < SILENCE


@functools.lru_cache(maxsize=1)
def _machine() -> str:
    """Return a digest of what process numbers are unique in."""
    parts = [platform.node()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii"))
        # Containers of one machine number their processes by themselves.
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()


@functools.lru_cache(maxsize=8)
def _process(number: int) -> str:
    return f"{_machine()}:{number}:{_started(number)}"


def _started(number: int) -> str:
    """Return when a process began, if the system tells; "gone" if there is none."""
    if Path("/proc/self/stat").exists():
        with suppress(OSError, IndexError):
            stat = Path(f"/proc/{number}/stat").read_text("utf-8", "replace")
            state, *more = stat.rpartition(")")[2].split()
            # A process that was killed stays a zombie until its parent looks.
            return "gone" if state in {"Z", "X"} else more[18]
        return "gone"
    if os.name == "posix":
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return "gone"
        except OSError:
            pass
    return "unknown"
