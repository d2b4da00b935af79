"""What the net does not say of objects that can't be changed."""

from __future__ import annotations

from typing import Any

import pytest

from langchain_dpicl import (
    InvalidParameterError,
    KSAJointOutputParser,
    PrivacyBudgetHandler,
)


def test_a_handler_of_yours_keeps_what_it_notes() -> None:
    class Noting(PrivacyBudgetHandler):
        def __init__(self, **terms: Any) -> None:
            super().__init__(**terms)
            self.seen = 0

    mine = Noting(epsilon=1, delta=1e-6, queries=1, ledger=":memory:")
    mine.seen += 1
    assert mine.seen == 1
    with pytest.raises(InvalidParameterError):
        mine.epsilon = 2.0


@pytest.mark.parametrize(
    ("domain", "match"), [(3, r"domain: .*list of words"), ("cough", "not a string")]
)
def test_a_domain_that_is_no_list_is_refused(domain: Any, match: str) -> None:
    with pytest.raises(InvalidParameterError, match=match):
        KSAJointOutputParser(k=1, domain=domain)
