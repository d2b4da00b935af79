"""Arguments that nobody means: they must end at once, with an error of ours."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from langchain_dpicl.errors import DPError, InvalidParameterError

NUMBERS: tuple[Any, ...] = (
    *(0, -1, 2.5, 2**31, 10**10, 10**13, 2**63, -(2**63), 10**30, -(10**30), 10**5000),
    *(0.0, 5e-324, 1e-300, 1e300, 1.7e308, math.nan, math.inf, -math.inf),
)
OTHERS: tuple[Any, ...] = ("x", "", None, True, [1], {}, b"1", 1j)

SECONDS = 60
"""Long for a busy machine, and nothing beside a hang."""


@contextmanager
def soon(what: object) -> Iterator[None]:
    """Fail where the block takes longer than anybody waits."""

    def too_long(*_: object) -> None:
        raise TimeoutError(f"{what} takes longer than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def sweep(use: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, int]:
    """Call with every argument in turn made extreme; count what was refused.

    Args:
        use: What is called with the arguments by name. It may work, or raise an error
            of the package; whatever else it raises comes out.
        arguments: Good values.
    """
    use(**arguments)
    refused = dict.fromkeys(arguments, 0)
    for name in arguments:
        for value in (*NUMBERS, *OTHERS):
            what = f"{name}={value!r:.40}" if value != 10**5000 else f"{name}=10**5000"
            try:
                with soon(what):
                    use(**{**arguments, name: value})
            except (DPError, InvalidParameterError):
                refused[name] += 1
            except Exception as error:
                raise AssertionError(f"{what}: {type(error).__name__}") from error
    return refused
