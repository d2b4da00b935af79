"""Evaluators of a chain's answers that read nothing but the public record.

Each is a function as LangSmith takes them, of `outputs` and, where it compares, of
`reference_outputs`: it returns `{"key": ..., "score": ...}`. `answered_by` makes the
target: a function from a data set's inputs to `{"answer": ..., "privacy": ...}`.

```python
langsmith.evaluate(
    evaluation.answered_by(chain),
    data=examples,
    evaluators=[evaluation.correct, evaluation.answered, evaluation.epsilon],
)
```

Privacy:
    A score is post-processing of the released answer, its public record, and a
    reference that the operator wrote. No group, record or group answer is read. A
    reference that was looked up in the records is private, and so is every score made
    with it. Each question of a data set is charged as any other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable

from langchain_dpicl.accounting import compose, event_from_dict
from langchain_dpicl.common.prompts import FALLBACK_NOTE
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.parsers.reading.keywords import lemma
from langchain_dpicl.released.checking import pure_epsilon

__all__ = [
    "answered",
    "answered_by",
    "calls",
    "confidence",
    "correct",
    "epsilon",
    "keywords",
]

Outputs: TypeAlias = Mapping[str, Any]
Feedback: TypeAlias = dict[str, Any]


def answered_by(
    chain: Runnable[Any, AIMessage],
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the function that evaluators judge: from a question to its answer.

    Args:
        chain: A `DPChain` with its account, also one with `.with_config(...)`.

    Returns:
        A function of a mapping with `question`, and what else the prompt needs, that
        returns `answer`, the text, and `privacy`, the public record.

    Raises:
        BudgetExhaustedError: When a question is asked that the account can't pay.
    """

    def answer(inputs: dict[str, Any]) -> dict[str, Any]:
        message = chain.invoke(inputs)
        record = message.response_metadata["privacy"]
        return {"answer": str(message.text), "privacy": record}

    return answer


def correct(outputs: Outputs, reference_outputs: Outputs) -> Feedback:
    """Return whether the answer is the reference's `answer`, but for case and spaces.

    Also a fallback can be correct, which no record had a part in: see `answered`.

    Example:
        >>> given = {"answer": "Dry  cough", "privacy": {"status": "released"}}
        >>> correct(given, {"answer": "dry cough"})
        {'key': 'correct', 'score': 1}
    """
    said, wanted = _answer(outputs), _of(reference_outputs, "answer", "reference")
    return _scored("correct", int(_plain(said) == _plain(wanted)))


def keywords(outputs: Outputs, reference_outputs: Outputs) -> Feedback:
    """Return the share of the reference's `keywords` that the answer names.

    Words are compared in their base forms.

    Example:
        >>> given = {"answer": "Coughs, rashes", "privacy": {"status": "released"}}
        >>> keywords(given, {"keywords": ["cough", "rash", "nausea", "dry cough"]})
        {'key': 'keywords', 'score': 0.5}
    """
    said = f" {_lemmas(_answer(outputs))} "
    wanted = _of(reference_outputs, "keywords", "reference")
    if not wanted or isinstance(wanted, str):
        raise InvalidParameterError("The reference's 'keywords' is not a list of any.")
    found = sum(f" {_lemmas(one)} " in said for one in wanted)
    return _scored("keywords", found / len(wanted))


def answered(outputs: Outputs) -> Feedback:
    """Return whether the answer comes from the records.

    It does not where it is a fallback or a refusal.
    """
    return _scored(
        "answered", int(_record(outputs).get("status") in {"released", "cached"})
    )


def epsilon(outputs: Outputs) -> Feedback:
    """Return what this question alone costs, at the delta of its account.

    The account's epsilon for many questions is less than the sum of these scores.
    """
    record = _record(outputs)
    events = [event_from_dict(event) for event in record.get("events", ())]
    delta = (record.get("account") or {}).get("delta")
    return _scored("epsilon", compose(events, delta) if delta else pure_epsilon(events))


def calls(outputs: Outputs) -> Feedback:
    """Return the model calls of the question; None where they are not padded."""
    return _scored("calls", _record(outputs).get("calls"))


def confidence(outputs: Outputs) -> Feedback:
    """Return by how many deviations of the noise the answer leads.

    None for a mechanism that does not release it.
    """
    details = _record(outputs).get("details") or {}
    return _scored("confidence", details.get("confidence"))


def _scored(key: str, score: float | None) -> Feedback:
    return {"key": key, "score": score}


def _answer(outputs: Outputs) -> str:
    said = str(_of(outputs, "answer", "output"))
    return said.removeprefix(FALLBACK_NOTE).lstrip()


def _record(outputs: Outputs) -> Mapping[str, Any]:
    found: Mapping[str, Any] = _of(outputs, "privacy", "output")
    return found


def _of(given: Outputs, name: str, what: str) -> Any:
    if name not in given:
        raise InvalidParameterError(
            f"The {what} has no {name!r}: evaluate answered_by(chain), on references "
            "with 'answer' or 'keywords'."
        )
    return given[name]


def _plain(text: Any) -> str:
    return " ".join(str(text).casefold().split())


def _lemmas(text: Any) -> str:
    return " ".join(lemma(word) for word in re.findall(r"\w+", _plain(text)))
