"""Who draws for a charge: its owner, and nobody beside it.

Of two draws under one charge the quicker one would be released. One person's long
record can decide which is quicker, and all other answers of that draw come with it. So
a charge has one owner at a time, who alone draws for it, and others wait.

* The caller who charges owns the charge. Its name stands in the release's header.
* An owner that ends, by anything but its process's death, gives the charge up.
* A release of several steps may go on when its owner is gone, or has stored nothing
  for an hour. The next owner *claims* it: a claim is a step of the release. Of a claim
  and a draw the first that is stored counts, so a replaced owner can't store.

Privacy:
    Names of owners are random. Whether an owner's process exists depends on no record.
    The hour is public. It is assumed to be longer than any step takes.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

_CLAIM = '{"owner": '
_AT_WORK: set[str] = set()


@dataclass(frozen=True)
class Owner:
    """One caller that may charge and draw; at work inside its `with` block.

    Attributes:
        name: Its random name.
    """

    name: str = field(default_factory=lambda: secrets.token_hex(16))

    def __enter__(self) -> Self:
        """Begin to work."""
        _AT_WORK.add(self.name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        """Give up what is not drawn."""
        _AT_WORK.discard(self.name)

    @property
    def is_at_work(self) -> bool:
        """Whether it draws, or is about to."""
        return self.name in _AT_WORK

    @property
    def public(self) -> dict[str, Any]:
        """The owner as a header and a claim have it: its name and its process."""
        return {"name": self.name, **_process(os.getpid())}

    @property
    def claim(self) -> str:
        """The step that makes it the owner of a release."""
        return json.dumps({"owner": self.public})


def claimed(step: str) -> Any:
    """Return the owner that a step names; None if it is no claim."""
    if step.startswith(_CLAIM):
        with suppress(ValueError, KeyError, TypeError):
            return json.loads(step)["owner"]
    return None


def is_here(owner: Any) -> bool:
    """Return whether an owner is at work in this process."""
    return isinstance(owner, dict) and owner.get("name") in _AT_WORK


def is_gone(owner: Any) -> bool:
    """Return whether an owner surely draws no more.

    Of a process on another host, or in another container, nobody can tell.
    """
    if not isinstance(owner, dict) or not isinstance(owner.get("process"), int):
        return True
    now = _process(owner["process"])
    if owner.get("host") != now["host"]:
        return False
    if owner["process"] == os.getpid():
        return not is_here(owner) or owner.get("started") != now["started"]
    return now["started"] is None or owner.get("started") != now["started"]


def _process(number: int) -> dict[str, Any]:
    """Return a process's host, its number, and when it began: None if it is gone."""
    parts = [platform.node()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii"))
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    host = hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()
    return {"host": host, "process": number, "started": _started(number)}


def _started(number: int) -> str | None:
    if Path("/proc/self/stat").exists():
        with suppress(OSError, IndexError):
            stat = Path(f"/proc/{number}/stat").read_bytes()
            state, *rest = stat.rpartition(b")")[2].split()
            # A process that was killed stays a zombie until its parent looks.
            return None if state in {b"Z", b"X"} else rest[18].decode()
        return None
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return "unknown"
