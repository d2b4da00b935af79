"""From a generation's tokens to released examples with their public record."""

from __future__ import annotations

from typing import Any

from langchain_dpicl.few_shot.generation import Generation
from langchain_dpicl.outcome import Status
from langchain_dpicl.released import ReleasedExamples

NEIGHBORS = "all records of one unit added or removed"


def released_examples(generation: Generation, per_label: int) -> ReleasedExamples:
    """Return a generation's complete examples and their record.

    Args:
        generation: The generation, complete or not.
        per_label: Examples of each label that were asked for.

    Privacy:
        Post-processing of released tokens; the record holds public parameters and what
        was charged.
    """
    fields = generation.terms.fields
    examples = [
        {fields.text: text, fields.label: label}
        for label, text in generation.lanes.examples()
    ]
    return ReleasedExamples.of(examples, record_of(generation, per_label))


def record_of(generation: Generation, per_label: int) -> dict[str, Any]:
    """Return the public record of a generation, as far as it has come."""
    asking, header = generation.asking, generation.entry.header
    terms = generation.terms
    is_gaussian = terms.mechanism == "gaussian"
    record: dict[str, Any] = {
        "status": Status.RELEASED.value,
        "mechanism": terms.release,
        "parameters": {
            **terms.described(),
            "per_label": per_label,
            "sampling_rates": header["rates"],
            "label_sizes": header["sizes"],
            "noise_multipliers" if is_gaussian else "epsilons": header["noise"],
            "tokens_charged": terms.steps_of(per_label),
            "tokens_released": generation.lanes.steps,
            "complete": generation.ended,
        },
        "unit": terms.fields.described,
        "unit_key": terms.fields.unit,
        "relation": "replace",
        "neighbors": NEIGHBORS,
        "events": header["events"],
        "epsilon": header["epsilon"],
        "delta": header["delta"],
        "charge": header["charge"],
        "account": header["account"],
        "model": asking.model.name,
        "created": header["created"],
        "library": header["library"],
    }
    if not asking.random.secure:
        record["random"] = f"{asking.random!r}: for tests, not private"
    return record
