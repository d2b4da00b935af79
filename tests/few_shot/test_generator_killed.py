"""A generation whose process was killed has lost nothing that was released."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.few_shot_fakes import WordModel, budget_of, generator_of, records_of

KILLED = """
import os, signal, sys
sys.path[:0] = {paths!r}
from support.few_shot_fakes import WordModel, budget_of, generator_of, records_of

class Dying(WordModel):
    def log_probabilities(self, prompts, tokens):
        if len(self.calls) == int(sys.argv[2]) and not self.is_probe(prompts):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().log_probabilities(prompts, tokens)

budget = budget_of(ledger=f"sqlite:///{{sys.argv[1]}}")
generator_of(Dying(ending=None), budget=budget).generate(records_of())
"""


@pytest.mark.parametrize("at", [0, 2])
def test_killed_it_has_lost_nothing(at: int, tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    code = KILLED.format(paths=[str(Path(__file__).parents[1])])
    ended = subprocess.run(
        [sys.executable, "-c", code, str(file), str(at)],
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert ended.returncode == -signal.SIGKILL
    budget = budget_of(ledger=f"sqlite:///{file}")
    assert budget.spent().queries == 1
    model = WordModel(ending=None)
    generator_of(model, budget=budget).generate(records_of(), resume=True)
    assert len(model.calls) == 4 - at
    assert budget.spent().queries == 1
    budget.ledger.verify("default")
