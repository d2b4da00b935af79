"""A sentence keeps the released words, or they are given by themselves."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from langchain_dpicl.parsers.reading.wording import keeps

KEPT: list[tuple[str, str]] = [
    ("overdraft fee", "Most customers complain about overdraft fees."),
    ("overdraft fee", "**Overdraft fees** come up most."),
    ("use clean product", "Attacks often start after they used cleaning products."),
    ("marry", "Most of them are married."),
    ("child", "They mostly worry about their children."),
    ("woman", "Most callers are women."),
    ("follow-up", "They lack follow up after the visit."),
    ("nonadherence", "The main reason is non-adherence to medication."),
    ("retention team", "In the end it is the retention team that resolves them."),
    ("retention team", "Usually the retention teams, not the billing desk."),
    ("new regional director", "They blame the new director of the region."),
    ("dizziness fatigue cough", "Patients report dizziness, fatigue and a cough."),
    ("dizziness fatigue cough", "Patients report fatigue and coughing."),
    ("up", "The pressure mostly went up."),
    ("no", "No, most of them do not."),
    ("no", "Most patients do not arrive by ambulance."),
    ("yes", "Yes, most of them do."),
    ("yes", "Most patients arrive by ambulance."),
    ("no chest pain", "Most patients had no chest pain."),
    ("not take insulin", "They come back because they did not take their insulin."),
    ("proof of income", "Most clients come without proof of income."),
    ("proof of income", "Most clients don't bring proof of their income."),
    ("pay stub", "The document that is not there is the pay stub."),
    ("late fee", "There is no doubt that late fees are the main complaint."),
    ("late fee", "Customers mention late fees more than any other charge."),
    ("late fee", "It is not the interest but the late fee that they mind."),
    ("three time", "They call three times before they write."),
    ("喘息", "多くの患者は喘息です。"),
    ("vpn", "I'm not certain why, but the VPN fails most often."),
]

LOST: list[tuple[str, str]] = [
    ("overdraft fee", "I'm sorry, but I can't say which fee they mention."),
    ("overdraft fee", "I don't know."),
    ("overdraft fee", "Without the records, I cannot tell which one is meant."),
    ("overdraft fee", "As an AI, I can't access the complaints."),
    ("overdraft fee", "The records do not say which charge they mean."),
    ("overdraft fee", ""),
    ("overdraft fee", "Customers mention foreign transactions most."),
    ("router", "They mostly use a laptop."),
    ("new regional director", "Leavers blame the new bonus rules."),
    ("pay time off", "Employees want longer vacations."),
    ("late fee", "Late fees are not a common complaint."),
    ("late fee", "Late fees aren't mentioned often; interest is."),
    ("late fee", "Customers complain about interest rather than late fees."),
    ("late fee", "Customers complain about interest, not late fees."),
    ("late fee", "Interest is mentioned more often than late fees."),
    ("no", "Yes, most patients arrive by ambulance."),
    ("no", "Most patients arrive by ambulance."),
    ("yes", "No, they rarely do."),
    ("yes", "Most patients do not arrive by ambulance."),
    ("up", "The pressure mostly went down."),
    ("喘息", "多くの患者は肺炎です。"),
]


@pytest.mark.parametrize(("words", "wording"), KEPT)
def test_a_sentence_with_the_words_is_kept(words: str, wording: str) -> None:
    assert keeps(wording, words.split())
    assert keeps(wording, [words])


@pytest.mark.parametrize(("words", "wording"), LOST)
def test_a_sentence_that_loses_the_words_is_not(words: str, wording: str) -> None:
    assert not keeps(wording, words.split())
    assert not keeps(wording, [words])


def test_words_of_the_question_are_no_evidence() -> None:
    question = "Which fee do customers mention most?"
    said = "Customers mention the monthly fee most."
    assert keeps(said, ["overdraft", "fee"])
    assert not keeps(said, ["overdraft", "fee"], question)
    assert keeps("They mention the fee.", ["fee"], question)


def test_without_words_nothing_is_kept() -> None:
    assert not keeps("Anything.", [])


texts = st.text(max_size=120) | st.lists(
    st.sampled_from(" ".join(wording for _, wording in KEPT + LOST).split()),
    max_size=20,
).map(" ".join)


@settings(deadline=None, max_examples=300)
@given(
    texts, st.lists(st.text(max_size=10) | st.sampled_from(["late", "no"]), max_size=4)
)
@example("\ud800", ["\ud800"])
def test_any_sentence_is_checked_in_any_letter_case(
    wording: str, words: list[str]
) -> None:
    kept = keeps(wording, words)
    upper = wording.upper()
    if upper.casefold() == wording.casefold():
        assert keeps(upper, words) == kept


@pytest.mark.parametrize("piece", ["late ", "fee ", "late fee not ", "a", "than ", "("])
def test_a_hostile_sentence_takes_linear_time(piece: str) -> None:
    started = time.process_time()
    keeps((piece * 100_000)[:100_000], ["late", "fee"])
    assert time.process_time() - started < 5
