"""What a store's client raises can hold what a record holds: it stays in here."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from langchain_dpicl.exceptions import DPError, GroupCallError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


def hiding_errors(
    describe: Callable[[Exception], str],
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that turns what a client raises into a `GroupCallError`.

    Args:
        describe: Says what failed, in public words. Errors of this library pass.
    """

    def decorate(method: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(method)
        def ask(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return method(*args, **kwargs)
            except DPError:
                raise
            except Exception as error:  # noqa: BLE001  # the client's or its driver's
                failed = GroupCallError(describe(error))
            # Raised here, where no handler is active: the client's error is no context
            # of ours.
            raise failed

        return ask

    return decorate
