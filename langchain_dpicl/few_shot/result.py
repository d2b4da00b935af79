"""From a generation's tokens to released examples with their public record."""

from __future__ import annotations

from typing import Any

from langchain_dpicl.common.outcome import Status
from langchain_dpicl.few_shot.generation import Generation
from langchain_dpicl.release.record import NEIGHBORS, paid_part, release_record
from langchain_dpicl.released import ReleasedExamples


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
        for label, text in generation.drafts.examples()
    ]
    return ReleasedExamples.of(examples, record_of(generation, per_label))


def record_of(generation: Generation, per_label: int) -> dict[str, Any]:
    """Return the public record of a generation, as far as it has come."""
    asking, header = generation.asking, generation.entry.header
    terms = generation.terms
    is_gaussian = terms.mechanism == "gaussian"
    return release_record(
        kind="examples",
        status=Status.RELEASED.value,
        mechanism=terms.release,
        parameters={
            **terms.described(),
            "per_label": per_label,
            "sampling_rates": header["rates"],
            "label_sizes": header["sizes"],
            "noise_multipliers" if is_gaussian else "epsilons": header["noise"],
            "tokens_charged": terms.steps_of(per_label),
            "tokens_released": generation.drafts.steps,
            "complete": generation.ended,
        },
        unit=terms.fields.described,
        unit_key=terms.fields.unit,
        relation="replace",
        neighbors=NEIGHBORS,
        model=asking.model.name,
        random=asking.random,
        **paid_part(header),
    )
