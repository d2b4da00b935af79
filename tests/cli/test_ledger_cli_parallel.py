"""`dpicl ledger` prints charges of disjoint classes so that one can read them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.accounting import Charge, Gaussian, Parallel, Pure
from langchain_dpicl.cli import main
from langchain_dpicl.ledger import Ledger

RARE = (Gaussian(noise_multiplier=11.5, sampling_rate=0.93, count=15),)
COMMON = (Gaussian(noise_multiplier=1.25, sampling_rate=0.0625, count=15),)
LABELS = Parallel(branches=(RARE, *[COMMON] * 5), partition="topic [b]")
COSTS = tuple((Pure(epsilon=0.01 + k / 1e4),) for k in range(40))
MANY = Parallel(branches=COSTS, count=2)


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    terms = {"accounting": "renyi", "order": 2.0, "delta0_share": 0.25}
    budget = PrivacyBudgetHandler(
        epsilon=40.0, delta=1e-4, ledger=Ledger(url), account="shots", **terms
    )
    for parts in ((LABELS,), (MANY, Pure(epsilon=0.1))):
        with budget.buy(Charge(name="shots", parts=parts)) as paid:
            paid.once(lambda: "a text")
    budget.ledger.dispose()
    return url


def test_show_names_every_class_once(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["ledger", "show", "shots", "--ledger", url]) == 0
    out = capsys.readouterr().out
    assert "6 disjoint classes by 'topic [b]'; the largest counts:" in out
    assert "- gaussian noise_multiplier=11.5 sampling_rate=0.93 count=15" in out
    assert "sampling_rate=0.0625 count=15 (5 classes)" in out
    assert "40 disjoint classes 2 times" in out
    assert "- 20 more; pure epsilon=0.1" in out


def test_show_and_export_hold_the_whole_event_as_json(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ledger", "show", "shots", "--ledger", url, "--json"]) == 0
    (event,) = json.loads(capsys.readouterr().out)["charges"][0]["events"]
    assert len(event["branches"]) == 6
    assert event["partition"] == "topic [b]"
    assert main(["ledger", "export", "shots", "--ledger", url]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    charge = next(line for line in lines if line.get("kind") == "charge")
    assert charge["body"]["events"] == [event]
    assert main(["ledger", "verify", "--ledger", url]) == 0
