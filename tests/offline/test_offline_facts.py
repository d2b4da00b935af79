from __future__ import annotations

import math
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_dpicl.offline import OfflineChatModel
from langchain_dpicl.offline.classify import label_scores
from langchain_dpicl.offline.facts import Quantity, fact_weights, facts, quantity

LABELS = ("up", "down")


@pytest.mark.parametrize(
    ("value", "low", "high", "unit"),
    [
        ("37", 37, 37, ""),
        ("37 years", 37, 37, "year"),
        ("-3.5", -3.5, -3.5, ""),
        ("$1,500", 1500, 1500, ""),
        ("25%", 25, 25, "%"),
        ("36.6 \u00b0C", 36.6, 36.6, "c"),
        ("27.5 kg/m2", 27.5, 27.5, "kg m2"),
        ("20 to 25 kg/m2", 20, 25, "kg m2"),
        ("30 to 40 years", 30, 40, "year"),
        ("30 years to 40 years", 30, 40, "year"),
        ("between 3 and 4", 3, 4, ""),
        ("2 - 3", 2, 3, ""),
        ("\u22125 to -2 dollars", -5, -2, "dollar"),
        ("below 30", -math.inf, 30, ""),
        ("at most 30 mm", -math.inf, 30, "mm"),
        ("30 or less", -math.inf, 30, ""),
        ("over 5", 5, math.inf, ""),
        ("40 years or more", 40, math.inf, "year"),
        ("40 or more years", 40, math.inf, "year"),
    ],
)
def test_numbers_and_intervals(value: str, low: float, high: float, unit: str) -> None:
    assert quantity(value) == Quantity(low, high, unit)


@pytest.mark.parametrize(
    "value",
    ["clerk", "10th", "1st-4th", "5more", "?", "1e999", "from 3", "3 to 4 or more", ""],
)
def test_words_are_no_numbers(value: str) -> None:
    assert quantity(value) is None


def test_facts_are_sentences_of_one_form() -> None:
    text = (
        "The hours per week are 40.\nThe sex is M. the BMI is 33.6 kg/m2; "
        "He said the tea is hot. The age is 7. The age is 8. The x-y is\nz."
    )
    assert facts(text) == {
        "hours per week": "40",
        "sex": "m",
        "bmi": "33.6 kg/m2",
        "age": "7",
    }


def test_near_numbers_weigh_more_than_far_ones() -> None:
    shown = [f"The age is {age} years. The job is clerk." for age in (20, 35, 60)]
    weights = fact_weights("The age is 38 years. The job is clerk.", shown)
    assert weights is not None
    near_20, near_35, near_60 = weights
    assert near_35 == 1 > near_20 > near_60 > 0


def test_a_number_is_in_its_interval() -> None:
    values = ("below 30", "30 to 40", "40 or more")
    shown = [f"The age is {value}. The job is clerk." for value in values]
    for age, best in ((12, 0), (38, 1), (70, 2)):
        weights = fact_weights(f"The age is {age}. The job is clerk.", shown)
        assert weights is not None
        assert weights.index(max(weights)) == best
        assert sorted(weights)[1] < 1
    middle = fact_weights("The age is 30 to 40. The job is clerk.", shown)
    assert middle is not None
    assert middle[1] == 1 > max(middle[0], middle[2])


def test_a_number_can_be_written_in_two_ways() -> None:
    assert fact_weights("The a is 3. The b is x.", ["The a is 3.0. The b is x."]) == [1]
    shown = ["The a is 1,500.0. The b is x.", "The a is 1501. The b is x."]
    weights = fact_weights("The a is 1500. The b is x.", shown)
    assert weights == [1, pytest.approx(math.exp(-0.5 / 0.1))]


def test_the_range_in_the_prompt_is_the_measure() -> None:
    rows = "The a is {}. The b is {}."
    weights = fact_weights(rows.format(0, 0), [rows.format(1, 0), rows.format(0, 9000)])
    assert weights is not None
    assert weights[0] == pytest.approx(weights[1])


def test_another_unit_is_another_word() -> None:
    rows = "The a is {}. The b is x."
    shown = [rows.format("5 km"), rows.format("9 miles"), rows.format("90 miles")]
    weights = fact_weights(rows.format("6 miles"), shown)
    assert weights is not None
    assert weights[1] == 1
    # Means over two facts, of 1 for the other unit, and of 3 among 84 miles.
    assert weights[0] == pytest.approx(math.exp((3 / 84 - 1) / 2 / 0.1))
    assert weights[2] == pytest.approx(math.exp((3 / 84 - 1) / 2 / 0.1))


def test_missing_facts_are_ignored() -> None:
    shown = ["The a is x. The b is y. The c is z.", "The a is x. The b is n."]
    weights = fact_weights("The a is x. The b is y. The d is q.", shown)
    assert weights is not None
    assert weights[0] == 1
    assert weights[1] == pytest.approx(math.exp(-0.5 / 0.1))


def test_texts_that_are_no_rows_are_compared_as_before() -> None:
    assert fact_weights("The age is 3. Fine.", ["The age is 3. The job is x."]) is None
    shown = (
        ("The film is good. I laughed a lot.", "up"),
        ("The film is bad. I slept.", "down"),
    )
    scores = label_scores("The film is good. I left.", LABELS, shown)
    # Recorded before rows were read as facts.
    assert scores == pytest.approx([0.5441497490626322, 0.4558502509373678])


def test_a_value_is_no_hint_at_a_label_of_its_name() -> None:
    row = "The a is {}. The state is {}."
    shown = ((row.format(1, "open"), "shut"), (row.format(9, "shut"), "open"))
    labels = ("open", "shut")
    is_open, is_shut = label_scores(row.format(1, "open"), labels, shown)
    assert is_shut > 0.8 > is_open
    between = label_scores(row.format(5, "new"), labels, shown)
    assert between == pytest.approx([0.5, 0.5])


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=6), st.floats(-1e9, 1e9))
def test_weights_are_sound(shown: list[float], target: float) -> None:
    texts = [f"The a is {number!r}. The b is x." for number in shown]
    weights = fact_weights(f"The a is {target!r}. The b is x.", texts)
    assert weights is not None
    assert max(weights) == 1
    assert all(0 < weight <= 1 for weight in weights)


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    for value in facts(f"The a is 1. {text} The b is {text}.").values():
        quantity(value)


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
        "from langchain_dpicl.offline.facts import fact_weights\n"
        "rows = [f'The a is {n}. The b is x. The c is {n * n}.' for n in range(9)]\n"
        "print(fact_weights(rows[4], rows))"
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
