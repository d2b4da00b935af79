"""Limits of filters and what is added up under them: exact, but for known roundings."""

from __future__ import annotations

import pytest

from langchain_dpicl.accounting import (
    Failure,
    Parallel,
    Pure,
    limits,
)
from langchain_dpicl.errors import InvalidParameterError


def test_what_has_no_rho_is_refused() -> None:
    for event in (Failure(0.1), Parallel(((Pure(0.1),),))):
        name = type(event).__name__
        with pytest.raises(
            InvalidParameterError, match=f"A {name} has no loss that can be"
        ):
            limits.exact_rho(event)
