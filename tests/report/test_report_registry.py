"""A draft for OpenDP's registry has the registry's form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator
from support.few_shot_fakes import generator_of, records_of

from langchain_dpicl import PrivacyBudgetHandler, VoteOutputParser, report
from langchain_dpicl.ledger import Ledger, MemoryLedger

FORM = yaml.safe_load((Path(__file__).parent / "registry_form.yaml").read_text())
FACTS = {
    "controller": 'A "clinic":\nof two lines',
    "curator_type": "Nonprofit",
    "sector": "Healthcare",
    "signed_by": "A. Officer",
}


def faults(text: str) -> list[str]:
    """Return what the registry's tests would find once every TODO is filled in."""
    validator = Draft7Validator(FORM, format_checker=Draft7Validator.FORMAT_CHECKER)
    errors = validator.iter_errors(yaml.safe_load(text))
    found = [error.message for error in errors if error.instance != "TODO"]
    styles = {getattr(token, "style", None) for token in yaml.scan(text)}
    return [*found, *(f"style {style}" for style in styles - {None, "|", '"', "'"})]


def accounts() -> Iterator[tuple[Ledger, str]]:
    ledger = MemoryLedger()
    terms: list[dict[str, Any]] = [
        {"queries": 5},
        {"accounting": "zcdp", "queries": 5},
        {"accounting": "renyi", "queries": 5},
        {"queries": 5, "scope": "unit"},
    ]
    for number, more in enumerate(terms):
        budget = PrivacyBudgetHandler(
            epsilon=8, delta=1e-6, ledger=ledger, account=f"Notes {number}", **more
        )
        if more.get("scope") != "unit":
            budget.charge(VoteOutputParser(labels=["a", "b"]).event_template())
        yield ledger, budget.account
    shots = PrivacyBudgetHandler(
        epsilon=4, delta=1e-5, queries=1, ledger=ledger, account="shots"
    )
    generator_of(budget=shots).generate(records_of())
    yield ledger, "shots"


@pytest.mark.parametrize("facts", [{}, FACTS], ids=["none", "facts"])
def test_an_entry_has_the_registrys_form(facts: dict[str, str]) -> None:
    for ledger, name in accounts():
        text = report.of(ledger, name, facts=facts).to_registry()
        assert faults(text) == []
        found = yaml.safe_load(text)["deployment"]
        assert found["basic"]["name"] == name
        curator = found["basic"]["data_curators"][0]
        assert curator["data_curator_name"] == facts.get("controller", "TODO")
        assert curator["data_curator_type"] == facts.get("curator_type", "TODO")
        sector = found["basic"]["data_product_sector"]
        assert sector == facts.get("sector", "TODO")
        made = found["basic"]["data_product_type"]
        access = found["deployment_model"]["access_type"]
        # The per-unit account has released nothing.
        expected = {
            "shots": ("Synthetic data", "Non-interactive"),
            "Notes 3": ("TODO", "TODO"),
        }
        assert (made, access) == expected.get(name, ("Interactive API", "Interactive"))


@pytest.mark.parametrize(
    "edit",
    [
        ("status:", "state:"),
        ('publication_date: "TODO', 'publication_date: "on TODO'),
        ("epsilon:", "eps:"),
        ('tier: "TODO"', "tier: 4"),
    ],
)
def test_twin_an_entry_of_another_form_is_found(edit: tuple[str, str]) -> None:
    ledger, name = next(accounts())
    text = report.of(ledger, name).to_registry()
    assert edit[0] in text
    assert faults(text.replace(*edit)) != []


@pytest.mark.parametrize("facts", [{}, {"curator_type": "Shop", "sector": "Retail"}])
def test_a_draft_states_nothing_that_nobody_said(facts: dict[str, str]) -> None:
    ledger = MemoryLedger()
    PrivacyBudgetHandler(epsilon=8, delta=1e-6, queries=5, ledger=ledger, account="new")
    found = yaml.safe_load(report.of(ledger, "new", facts=facts).to_registry())
    stated = {
        (part, name)
        for part, fields in found["deployment"].items()
        for name, value in fields.items()
        if value not in ("TODO", ["TODO"])
    }
    assert ("basic", "name") in stated
    (curator,) = found["deployment"]["basic"]["data_curators"]
    assert set(curator.values()) == {"TODO"}
    # Whose choice it is: the operator's, or that of releases that are still to come.
    for name in ("data_product_type", "data_product_sector", "publication_date"):
        assert ("basic", name) not in stated
    for name in ("model_name", "release_type", "data_source_type", "access_type"):
        assert ("deployment_model", name) not in stated
    for name in ("preprocessing_and_hyperparameter_tuning", "utility"):
        assert ("implementation", name) not in stated
    for name in ("registry_authors", "tier"):
        assert ("administrative", name) not in stated
