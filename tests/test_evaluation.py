"""Evaluators read the answer, its public record and a reference, and nothing else."""

from __future__ import annotations

import uuid
import warnings
from typing import Any

import pytest
from support.agent_parts import CANARY, QUESTION, account, canaried_chain

from langchain_dpicl import BudgetExhaustedError, InvalidParameterError, evaluation
from langchain_dpicl.accounting import (
    Pure,
    compose,
    event_from_dict,
    event_to_dict,
)

ALL = [getattr(evaluation, name) for name in evaluation.__all__]
EVALUATORS: list[Any] = [one for one in ALL if one is not evaluation.answered_by]
REFERENCE = {"answer": " Cough", "keywords": ["coughs", "rash"]}


def record(**changes: Any) -> dict[str, Any]:
    return {"answer": "cough", "privacy": {"status": "released", **changes}}


def test_a_paid_answer_is_judged_by_its_record() -> None:
    budget = account()
    target = evaluation.answered_by(canaried_chain(budget=budget))
    outputs = target({"question": QUESTION})
    found = outputs["privacy"]
    assert outputs["answer"] == "cough"
    assert evaluation.answered(outputs) == {"key": "answered", "score": 1}
    assert evaluation.correct(outputs, REFERENCE)["score"] == 1
    assert evaluation.correct(outputs, {"answer": "rash"})["score"] == 0
    assert evaluation.keywords(outputs, REFERENCE)["score"] == 0.5
    events = [event_from_dict(event) for event in found["events"]]
    one = evaluation.epsilon(outputs)["score"]
    # At the first charge the account has spent what this question costs.
    assert one == pytest.approx(compose(events, 1e-6))
    assert one == pytest.approx(found["account"]["epsilon_spent"])
    assert evaluation.calls(outputs)["score"] == found["calls"] > 60
    assert evaluation.confidence(outputs)["score"] == found["details"]["confidence"]
    # Of a later question it is the same, while the account's grows.
    outputs = target({"question": QUESTION})
    assert evaluation.epsilon(outputs)["score"] == pytest.approx(one)
    assert outputs["privacy"]["account"]["epsilon_spent"] > one * 1.2


@pytest.mark.parametrize(
    ("status", "score"),
    [("released", 1), ("cached", 1), ("fallback", 0), ("abstained", 0)],
)
def test_only_answers_from_the_records_are_answers(status: str, score: int) -> None:
    assert evaluation.answered(record(status=status))["score"] == score


def test_what_is_not_public_has_no_score() -> None:
    assert evaluation.calls(record()) == {"key": "calls", "score": None}
    assert evaluation.confidence(record()) == {"key": "confidence", "score": None}
    assert evaluation.epsilon(record())["score"] == 0
    pure = event_to_dict(Pure(0.5, count=3))
    spent = record(events=[pure], account={"delta": 0.0})
    assert evaluation.epsilon(spent)["score"] == 1.5


@pytest.mark.parametrize(
    ("judge", "why"),
    [
        (lambda: evaluation.answered({"output": "cough"}), "output has no 'privacy'"),
        (lambda: evaluation.correct(record(), {}), "reference has no 'answer'"),
        (lambda: evaluation.keywords(record(), {"keywords": "cough"}), "not a list"),
        (lambda: evaluation.keywords(record(), {"keywords": []}), "not a list"),
    ],
)
def test_what_cannot_be_judged_is_named(judge: Any, why: str) -> None:
    with pytest.raises(InvalidParameterError, match=why):
        judge()


def test_a_spent_account_is_no_score() -> None:
    target = evaluation.answered_by(canaried_chain(budget=account(queries=1)))
    target({"question": QUESTION})
    with pytest.raises(BudgetExhaustedError):
        target({"question": QUESTION})


@pytest.mark.parametrize("leaking", [False, True])
def test_langsmith_runs_them_without_a_network(leaking: bool) -> None:
    """The twin's target hands out a record, which results then hold."""
    from langsmith import Client, evaluate
    from langsmith.run_helpers import tracing_context
    from langsmith.schemas import Example

    chain = canaried_chain(budget=account())
    asked = evaluation.answered_by(chain)

    def target(inputs: dict[str, Any]) -> dict[str, Any]:
        more = {"note": CANARY} if leaking else {}
        # Else the chain's public runs are sent, whatever `upload_results` is.
        with tracing_context(enabled=False):
            return {**asked(inputs), **more}

    data = [
        Example(id=uuid.uuid4(), inputs={"question": QUESTION}, outputs=REFERENCE)
        for _ in range(2)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # That `upload_results` is new.
        rows = list(
            evaluate(
                target,
                data=data,
                evaluators=EVALUATORS,
                upload_results=False,
                client=Client(api_key="none", auto_batch_tracing=False),
            )
        )
    assert len(rows) == 2
    for row in rows:
        scores = {one.key: one.score for one in row["evaluation_results"]["results"]}
        assert {name: scores[name] for name in ("correct", "answered", "keywords")} == {
            "correct": 1,
            "answered": 1,
            "keywords": 0.5,
        }
        assert set(scores) == {one.__name__ for one in EVALUATORS}
    seen = repr([(row["run"].outputs, row["evaluation_results"]) for row in rows])
    assert "cough" in seen
    assert (CANARY in seen) == leaking
