"""Facts in a model's words: kept only where they say the same."""

from __future__ import annotations

import pytest
from langchain_core.documents import Document
from support.fakes import ScriptedModel
from support.released_parts import public_record

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.released import ReleasedCorpus, reworded

NUMBERS = '{"dry cough": [14, 1], "dizziness": [8, 1], "none": [6, 1], "rash": [1, 1]}'
PLAIN = (
    "Most frequent side effect of patients on lisinopril: dry cough (about 14 ± 5), "
    "then dizziness (about 8 ± 5), of about 29 ± 11 patients. Side effect none: about "
    "6 ± 5."
)
CLOSE = "Most frequent drug of patients: too close to tell, iron (about 9 ± 4)."
GOOD = (
    "Of about 29 ± 11 patients on lisinopril, about 14 ± 5 report dry coughs; "
    "dizziness comes next (about 8 ± 5), and about 6 ± 5 report none."
)
TURNED = (
    "Of about 29 ± 11 patients on lisinopril, about 8 ± 5 report dizziness, about 14 ± "
    "5 a dry cough, and about 6 ± 5 none."
)


def corpus() -> ReleasedCorpus:
    return ReleasedCorpus(
        [
            Document(PLAIN, metadata={"status": "ranked", "numbers": NUMBERS}),
            Document(
                CLOSE, metadata={"status": "close", "numbers": '{"iron": [9, 1]}'}
            ),
        ],
        public_record(),
    )


def said(reply: str) -> tuple[str, bool, int]:
    model = ScriptedModel(reply=lambda _: reply)
    first, second = found = reworded(corpus(), model)
    assert second.page_content == CLOSE
    assert found.record == corpus().record
    return first.page_content, first.metadata["worded"], len(model.asked)


def test_a_wording_that_says_the_same_is_kept() -> None:
    assert said(GOOD) == (GOOD, True, 1)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I can't say that.",
        GOOD.replace("14", "15"),
        GOOD.replace("± 11", ""),
        GOOD.replace("dry coughs", "a rash"),
        GOOD.replace("dizziness", "dizziness or a rash"),
        TURNED,
        GOOD + " In 2024 it was 3.",
    ],
)
def test_what_says_anything_else_is_not(reply: str) -> None:
    assert said(reply) == (PLAIN, False, 1)


def test_a_model_that_fails_changes_nothing() -> None:
    def fails(_: str) -> str:
        raise ValueError

    found = reworded(corpus(), ScriptedModel(reply=fails))
    assert [one.page_content for one in found] == [PLAIN, CLOSE]
    with pytest.raises(InvalidParameterError, match="model must be"):
        reworded(corpus(), "gpt")  # type: ignore[arg-type]
