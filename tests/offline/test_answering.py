from __future__ import annotations

import math
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_dpicl.offline import OfflineChatModel
from langchain_dpicl.offline.answering import label_scores, row_weights

LABELS = ("up", "down")
ROW = "The a is {}. The b is {}."


def weights_of(text: str, *shown: str) -> list[float]:
    weights = row_weights(text, shown)
    assert weights is not None
    return weights


@pytest.mark.parametrize(
    ("target", "near", "far"),
    [
        ("38 years", "35 years", "60 years"),
        ("-3.5", "-2", "3.5"),
        ("1,500", "1501.5", "1000"),
        ("36.6 \u00b0C", "37 \u00b0C", "39.5 \u00b0C"),
        ("1e-05", "0.1", "5"),
        ("30 to 40 kg/m2", "between 34 and 38 kg/m2", "20 to 30 kg/m2"),
        ("below 30", "20 to 30", "40 or more"),
        ("clerk", "clerk", "nurse"),
        ("10th", "10th", "9th"),
    ],
)
def test_near_values_weigh_more_than_far_ones(target: str, near: str, far: str) -> None:
    first, second = weights_of(
        ROW.format(target, "x"), ROW.format(near, "x"), ROW.format(far, "x")
    )
    assert first == 1 > second > 0


def test_the_range_in_the_prompt_is_the_measure() -> None:
    first, second = weights_of(ROW.format(0, 0), ROW.format(1, 0), ROW.format(0, 9000))
    assert first == pytest.approx(second)


def test_another_unit_is_another_word() -> None:
    rows = (ROW.format(value, "x") for value in ("9 miles", "90 miles", "6 km"))
    near, far, other = weights_of(ROW.format("6 miles", "x"), *rows)
    assert near == 1
    # Means over two facts: 84 of 84 miles, and another unit.
    assert far == pytest.approx(other) == pytest.approx(math.exp((3 / 84 - 1) / 0.2))


def test_missing_facts_are_ignored() -> None:
    shown = ("The a is x. The b is y. The c is z.", "The a is x. The b is n.")
    near, far = weights_of("The a is x. The b is y. The d is q.", *shown)
    assert near == 1
    assert far == pytest.approx(math.exp(-0.5 / 0.1))


def test_texts_that_are_no_rows_are_compared_by_words() -> None:
    assert row_weights("The age is 3. Fine.", ["The age is 3. The job is x."]) is None
    shown = (
        ("The film is good. I laughed a lot.", "up"),
        ("The film is bad. I slept.", "down"),
    )
    up, down = label_scores("The film is good. I left.", LABELS, shown)
    assert up > down
    assert up + down == pytest.approx(1)


def test_a_value_is_no_hint_at_a_label_of_its_name() -> None:
    row = "The a is {}. The state is {}."
    shown = ((row.format(1, "open"), "shut"), (row.format(9, "shut"), "open"))
    labels = ("open", "shut")
    is_open, is_shut = label_scores(row.format(1, "open"), labels, shown)
    assert is_shut > 0.8 > is_open
    between = label_scores(row.format(5, "new"), labels, shown)
    assert between == pytest.approx([0.5, 0.5])


@given(st.lists(st.text(max_size=99), min_size=1, max_size=5), st.text(max_size=99))
def test_weights_are_sound_whatever_the_values(shown: list[str], target: str) -> None:
    row = "The a is {}. The b is x. The c is 1. The d is y."
    weights = weights_of(row.format(target), *map(row.format, shown))
    assert max(weights) == 1
    assert all(0 < weight <= 1 for weight in weights)


@given(st.lists(st.floats(-1e90, 1e90), min_size=1), st.floats(-1e90, 1e90))
def test_weights_are_sound_whatever_the_numbers(
    shown: list[float], target: float
) -> None:
    weights = weights_of(
        ROW.format(repr(target), "x"), *(ROW.format(repr(one), "x") for one in shown)
    )
    assert max(weights) == 1
    assert all(0 < weight <= 1 for weight in weights)


def test_rows_whose_label_hangs_on_a_number() -> None:
    # Real tables stand in the benchmark; this one is drawn here.
    draw = random.Random(5)

    def row(label: str) -> str:
        size = draw.gauss(40 if label == "up" else 25, 6)
        return (
            f"The size is {size:.1f} mm. The hue is {draw.choice(('red', 'blue'))}. "
            f"The weight is {2 * size + draw.gauss(0, 5):.0f} kg."
        )

    shown = "".join(f"Text: {row(one)}\nLabel: {one}\n\n" for one in LABELS * 4)
    model = OfflineChatModel()
    head = f"Classify.\n\nLabels:\n- up\n- down\n\n{shown}"
    hits = [
        model.invoke(f"{head}Text: {row(label)}\nLabel:").text == label
        for label in LABELS * 100
    ]
    # Guessing gets 100 of 200, and 130 once in 60,000 times.
    assert sum(hits) >= 130


def test_the_same_prompt_gets_the_same_answer_in_every_process() -> None:
    code = (
        "from langchain_dpicl.offline.answering import candidates, row_weights\n"
        "rows = [f'The a is {n}. The b is x. The c is {n * n}.' for n in range(9)]\n"
        "notes = [f'Iron gave {n % 3} gray hive rashes. A hive, iron, {n}.' "
        "for n in range(9)]\n"
        "print(row_weights(rows[4], rows))\n"
        "print(candidates('Which gray hive rash does iron give?', notes))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1
