"""What holds for all classes and functions: frozen values, required methods, defaults.

A default that changes would change what somebody pays or who is asked. Write the file
of defaults anew with `python -m system.test_class_shapes`, in `tests`, after a change
that is meant.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from support.package_classes import classes, defined

DEFAULTS = Path(__file__).with_name("defaults.json")

CHANGING = {
    # They gather what comes bit by bit.
    "audit.attacks._Plain", "audit.attacks._Private", "audit.snapshots.Found",
    "audit.snapshots.Snapshot", "chain.checking.ChainCheck", "chain.public_model.Use",
    "chain.stages.StagedAsking", "chain.unit_charging.UnitCharging",
    "few_shot.drafts.Draft", "few_shot.drafts.Drafts", "few_shot.generation.Generation",
    "ledger.sql.shared_commits._Waiting", "release.purchase.Waiting",
    "tabular.gdp.release.Release",
    "tabular.ldp.collecting.Rows", "tabular.text.objects._Open",
}  # fmt: skip

REQUIRED = {
    "accounting.template.Template": "filled is_fixed read to_dict",
    "ledger.base.Ledger": (
        "accounts bind_salt charge charge_units charges close_account corpora corpus "
        "create_corpus fix_plan open releases start_release state store_step "
        "unit_balances unit_tag verify"
    ),
    "ledger.release_store.ReleaseStore": "releases start_release store_step",
    "budget.account.Account": (
        "_epsilon _events _first _most _pays _queries_in _queries_left "
        "_require_payment price require_filter"
    ),
    "parsers.base.DPOutputParser": "check event_template public_parameters release",
    "parsers.keywords.KeywordOutputParser": "check event_template release",
    "parsers.staged.StagedOutputParser": (
        "check event_template noisy public_parameters said"
    ),
}
"""What a subclass of ours or a user's must bring, and nothing else."""

LEFT_OUT = {
    "parsers.base.DPOutputParser": "budget random",
    "parsers.esa.ESAOutputParser": "budget embedding random",
    "parsers.keywords.KeywordOutputParser": "budget random tokenizer",
    "parsers.vote.VoteOutputParser": "budget draft_template random",
    "chain.dp_chain.DPChain": (
        "budget document_prompt groups model parser prompt public_prompt redact"
    ),
    "facts.FactsChain": "corpus embedding model prompt",
    "retriever.DPRetriever": "chain",
}
"""Fields that hold objects, records or a budget: they are in no dump of the model."""


def name_of(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}".removeprefix("langchain_dpicl.")


def test_values_are_frozen() -> None:
    changing = {
        name_of(kind)
        for kind in classes()
        if "__dataclass_params__" in vars(kind)
        and not vars(kind)["__dataclass_params__"].frozen
    }
    assert changing == CHANGING


@pytest.mark.parametrize("name", REQUIRED)
def test_what_a_subclass_leaves_out_is_missed(name: str) -> None:
    (kind,) = (kind for kind in classes() if name_of(kind) == name)
    assert sorted(kind.__abstractmethods__) == REQUIRED[name].split()  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="abstract"):
        kind()


@pytest.mark.parametrize("name", LEFT_OUT)
def test_objects_are_in_no_dump(name: str) -> None:
    (kind,) = (kind for kind in classes() if name_of(kind) == name)
    assert issubclass(kind, BaseModel)
    fields = kind.model_fields.items()
    left_out = sorted(field for field, info in fields if info.exclude)
    assert left_out == LEFT_OUT[name].split()


def defaults() -> dict[str, dict[str, Any]]:
    """Return the numbers and switches that callers of public names need not give."""
    found: dict[str, dict[str, Any]] = {}
    for value in defined():
        if value.__name__.startswith("_"):
            continue
        found[name_of(value)] = numbers_of(value)
        for name, method in vars(value).items() if inspect.isclass(value) else ():
            function = inspect.unwrap(getattr(method, "__func__", method))
            if not name.startswith("_") and inspect.isfunction(function):
                found[f"{name_of(value)}.{name}"] = numbers_of(function)
    return {name: numbers for name, numbers in sorted(found.items()) if numbers}


def numbers_of(function: Any) -> dict[str, Any]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    given = {
        p.name: getattr(p.default, "value", p.default)
        for p in parameters
        if p.default is not p.empty
    }
    return {k: v for k, v in given.items() if isinstance(v, (bool, int, float))}


def test_defaults_stay_as_they_are() -> None:
    assert defaults() == json.loads(DEFAULTS.read_text("utf-8"))


if __name__ == "__main__":
    lines = (f" {json.dumps(k)}: {json.dumps(v)}" for k, v in defaults().items())
    DEFAULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
