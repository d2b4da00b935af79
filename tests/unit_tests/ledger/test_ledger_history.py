"""Any history of a ledger, in memory and in SQLite, agrees with a dictionary."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from unit_tests.ledger import history
from unit_tests.ledger.history import History, Model


def check(**changes: Any) -> None:
    steps = settings(stateful_step_count=30, phases=[Phase.explicit, Phase.generate])
    run_state_machine_as_test(type("Here", (History,), changes), settings=steps)


@pytest.mark.promise(
    "never-overspent", "acknowledged-is-stored", "one-draw-a-charge", "terms-are-fixed"
)
def test_any_history_agrees_with_a_dictionary(place: Any) -> None:
    check(place=place)


class Generous(Model):
    """Never says that a budget is spent."""

    def refusals(self, name: str, events: Any) -> Any:
        return super().refusals(name, events) - {history.BudgetExhaustedError}


class Forgetful(Model):
    """Forgets what was drawn."""

    def __setitem__(self, name: str, account: Any) -> None:
        account.draws = defaultdict(str)
        super().__setitem__(name, account)

    def setdefault(self, name: str, account: Any) -> Any:  # type: ignore[override]
        self[name] = self.get(name, account)
        return self[name]


@pytest.mark.promise("never-overspent", "one-draw-a-charge", twin=True)
@pytest.mark.parametrize("model", [Generous, Forgetful])
def test_twin_a_wrong_dictionary_does_not_agree(model: type[Model]) -> None:
    with pytest.raises(AssertionError):
        check(place=lambda: ":memory:", model_class=model)
