"""Public rules read one reply: choices, refusals, drafts, items and sentences.

`tests/unit_tests/reading` holds what a parser promises of replies; here are the rules
of the reader by themselves. Two lists of ways to name an option hold it to the form
that is asked for: what does not choose is never a vote, and what chooses in more words
than the form has is left unread, and is never a vote for something else.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from langchain_dpicl.parsers import words
from langchain_dpicl.parsers.reading import (
    NONE,
    UNREADABLE,
    declines,
    dropped_words,
    items,
    keeps,
    read_choice,
    read_drafts,
)
from langchain_dpicl.parsers.words import STOP_WORDS, lemma, word_set

LUNGS = ("asthma", "COPD", "chronic bronchitis", "lung cancer")

# ---- choices -------------------------------------------------------------------------

NOT_CHOSEN = """
not {x}
No {x}.
{x}? No.
The notes never mention {x}.
Anything but {x}
Something other than {x}.
I can't tell if it is {x}.
I doubt that it is {x}.
Only one of six mentions {x}.
Something else comes up most; {x} appears once.
{x} seems unlikely.
{x} is rarely mentioned.
Hardly anyone mentions {x}.
Options such as {x} do not apply.
Is it {x}?
They deny {x}.
The records contradict {x}.
The records focus on diet, although {x} is mentioned in passing.
It could be {x}, but the notes point to something broader.
{x} is second.
{x} comes last.
I would say anything apart from {x}.
The best answer is not on the list, {x} being the nearest.
Most people avoid {x}.
The main concern is ruling out {x}.
The question about {x} can't be answered from this.
Could you clarify whether {x} counts?
{x}, among others.
Perhaps {x}, perhaps something else.
{x} is declining while others grow.
They used to say {x}.
I cannot choose {x} on this evidence.
{x} is incorrect.
My answer would be {x} if the first note did not contradict it.
Zero mentions of {x}.
{x}: 0
{x}: no
The answer is something similar to {x}.
Too few say {x} to choose.
The most common theme is staff who avoid {x}.
Say no to {x}.
Most records are blank; the one that is filled in says {x}.
The records list gout, obesity and {x}.
{x} as well as gout.
"""

LEFT_UNREAD = [
    ("COPD would be my best guess; asthma is rarer.", "COPD"),
    ("Asthma is more common than COPD.", "asthma"),
    ("Most have asthma, while two have COPD.", "asthma"),
    ("Mostly asthma, although one has lung cancer.", "asthma"),
    ("Two have COPD and four have asthma, so asthma.", "asthma"),
    ("Asthma: 2\nCOPD: 3\n\nTherefore the answer is COPD.", "COPD"),
    ("- **COPD**: 3\n- asthma: 2\n\nSo COPD is the most common.", "COPD"),
    ("They all have **COPD**. One was checked for asthma.", "COPD"),
    ("It is asthma. COPD was named by one patient too.", "asthma"),
    ("not asthma but COPD", "COPD"),
    ("It isn't asthma, it's COPD.", "COPD"),
    ("COPD, not asthma", "COPD"),
    ("COPD rather than asthma.", "COPD"),
    ("Instead of asthma, the notes describe lung cancer.", "lung cancer"),
    ("There is no option but asthma.", "asthma"),
    ("It can be none other than COPD.", "COPD"),
    ("Neither asthma nor COPD; the notes say lung cancer.", "lung cancer"),
    ("not asthma, COPD or lung cancer but chronic bronchitis", "chronic bronchitis"),
    ("Asthma was ruled out. The diagnosis is COPD.", "COPD"),
    ("Asthma does not appear, COPD does.", "COPD"),
    ("One has asthma, three have COPD, making COPD the top one.", "COPD"),
    ("Between asthma and COPD, but COPD edges ahead.", "COPD"),
]


@pytest.mark.parametrize("way", NOT_CHOSEN.strip().split("\n"))
def test_an_option_that_is_named_and_not_chosen_is_no_vote(way: str) -> None:
    for option in LUNGS:
        assert not isinstance(read_choice(way.format(x=option), LUNGS), int), option


@pytest.mark.parametrize(("reply", "chosen"), LEFT_UNREAD)
def test_more_words_than_the_form_has_are_no_vote_for_another(
    reply: str, chosen: str
) -> None:
    read = read_choice(reply, LUNGS)
    assert read in (UNREADABLE, LUNGS.index(chosen))


def test_aliases_and_shared_names() -> None:
    names = {"COPD": ["chronic obstructive pulmonary disease", "smoker's lung"]}
    assert read_choice("Smoker\u2019s lung, mostly", LUNGS, names) == 1
    assert read_choice("Smoker's lung, mostly", LUNGS) is UNREADABLE
    arms = ["arm (left)", "leg (left)"]
    assert read_choice("left", arms) is UNREADABLE
    assert read_choice("leg", arms) == 1
    silent = ["yes", "no", "not stated"]
    assert read_choice("It is not stated.", silent) == 2
    assert read_choice("I don't know", silent) is NONE


# ---- refusals ------------------------------------------------------------------------

NOTHING = """
I don't know
I don't know!
I honestly do not know.
I'm sorry, I don't know based on these notes.
I am not sure what they prefer.
I cannot tell from the records.
I can't determine who is meant.
I'm afraid I can't answer that from these reviews.
Cannot be determined
The most common fee could not be identified.
These notes don't specify a cause.
The data does not show who left first.
Nothing in the records says so.
The records are silent on this.
There is not enough data to tell.
No information available.
Not enough information to say.
Not mentioned.
Not in the records
Not known.
That isn't clear from the records.
Unknown.
It's unclear which of them it was.
N/A
It's not possible to determine this.
As an AI language model, I do not have access to these files.
From the given notes, it is not clear.
Good question! The records don't say.
I don't have access to that data.
I don't know, but I'd be happy to look again if you share more notes.
It's a tie
No lo sé.
None stands out
Three-way tie
"""

SAID = """
Asthma
None
Asthma, I think.
I don't know for sure, but it looks like asthma.
It's hard to tell; my best guess is asthma.
It's unclear, though it is most likely asthma.
Asthma? Unclear.
The records show that most had asthma.
No patients reported pain.
They don't know each other.
They cannot log in.
The form does not open on phones.
No evidence of metastasis.
Not enough staff
Unknown caller
Nothing helps.
The device is not available in stores.
Patients were unable to sleep through the night.
I do not have pain.
A tie between asthma and COPD.
The most common reason is missing information on the form.
No
None
It depends.
I don't know him.
Hypertension (tied)
"""


@pytest.mark.parametrize("reply", NOTHING.strip().split("\n"))
@pytest.mark.parametrize("around", ["{}", "**{}**", '"{}"\n'])
def test_a_reply_without_an_answer_declines(reply: str, around: str) -> None:
    assert declines(around.format(reply))


@pytest.mark.parametrize("reply", SAID.strip().split("\n"))
def test_an_answer_does_not_decline(reply: str) -> None:
    assert not declines(reply)


# ---- drafts --------------------------------------------------------------------------

THREE = ["Asthma", "COPD", "Lung cancer"]
DRAFTS: list[tuple[str, list[str]]] = [
    ("1) Asthma\n2) COPD\n3) Lung cancer", THREE),
    ("a) Asthma\nb) COPD\nc) Lung cancer", THREE),
    ("* Asthma\n* COPD\n* Lung cancer\n", THREE),
    ("**1. Asthma**\n**2. COPD**\n**3. Lung cancer**", THREE),
    ("Asthma\n\nCOPD\n\nLung cancer", THREE),
    ("Here you go:\n```text\nAsthma\nCOPD\nLung cancer\n```\nHope this helps!", THREE),
    ("Possible answers:\nAsthma\nCOPD\nLung cancer", THREE),
    ("Asthma\nCOPD\nLung cancer\n(ordered from most to least likely)", THREE),
    ("Asthma (very common)\nCOPD (e.g. in smokers)\nLung cancer (5%)", THREE),
    ("Asthma, COPD, and Lung cancer.", THREE),
    ("Possible answers: Asthma, COPD, Lung cancer", THREE),
    ("1. Asthma 2. COPD 3. Lung cancer", THREE),
    ('["Asthma", "COPD", "Lung cancer",]', THREE),
    ("['Asthma', 'COPD', 'Lung cancer']", THREE),
    ('```json\n["Asthma", "COPD", "Lung cancer"]\n```', THREE),
    ('["Asthma", "COPD", "Lung cancer", "Chronic bronch', THREE),
    ('{"answers": ["Asthma", "COPD", "Lung cancer"], "note": "a guess"}', THREE),
    ('{"question": "Which?", "options": ["Asthma", "COPD", "Lung cancer"', THREE),
    ('{"1": "Asthma", "2": "COPD", "3": "Lung cancer"}', THREE),
    ("Asthma\nCOPD\nLung cancer\nNone of the above\nOther\nNot stated\nUnknown", THREE),
    ("The manager\nManager\nManagers", ["The manager"]),
    ("0-1\n2-3\n4 or more", ["0-1", "2-3", "4 or more"]),
    ("It depends\nI cannot say", ["It depends"]),
    ("I don't know.", []),
    ("I cannot answer that. The records would be needed.", []),
    ("```json\n[]\n```", []),
]


@pytest.mark.parametrize(("reply", "options"), DRAFTS)
def test_options_are_read_without_remarks(reply: str, options: list[str]) -> None:
    assert read_drafts(reply, 8) == options


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from([*THREE, "At night", "Poor sleep"]), unique=True))
def test_every_way_of_listing_gives_the_same(options: list[str]) -> None:
    if len(options) < 2:
        return
    ways = [
        "\n".join(options),
        "\n".join(f"- {option}" for option in options),
        "\n".join(f"{i}. **{option}**" for i, option in enumerate(options, 1)),
        json.dumps(options),
        f"Sure, here:\n```json\n{json.dumps(options, indent=2)}\n```\nGood luck!",
        json.dumps({"options": [{"option": option} for option in options]}),
    ]
    assert [read_drafts(way, 8) for way in ways] == [options] * len(ways)


# ---- items ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "item"),
    [
        ("No chest pain", "no chest pain"),
        ("up", "up"),
        ("No", "no"),
        ("Yes!", "yes"),
        ("before lunch", "before lunch"),
        ("The managers", "manager"),
        ("A new router", "new router"),
        ("Children", "child"),
        ("Women's shoes", "woman shoe"),
        ("Non-smoker", "non-smoker"),
        ("It's asthma.", "asthma"),
        ("Answer: asthma", "asthma"),
        ("Asthma (4 of 6)", "asthma"),
        ("1. Asthma", "asthma"),
        ("50,000 dollars", "50,000 dollar"),
    ],
)
def test_a_short_answer_is_one_item(answer: str, item: str) -> None:
    assert items(answer) == [item]


@pytest.mark.parametrize(
    "answer", ["I don't know.", "Not stated", "", "...", "**None of these.**"]
)
def test_no_answer_is_no_item(answer: str) -> None:
    assert items(answer) == []


def test_a_longer_answer_counts_for_its_lemmas() -> None:
    said = "The customers mostly complained about slow routers and about one router."
    dropped = dropped_words(STOP_WORDS, ["What do customers complain about?"])
    assert items(said, dropped) == ["mostly", "slow", "router"]
    assert items(said, STOP_WORDS, None)[:2] == ["customers", "mostly"]
    # A short answer keeps the words of the question.
    assert items("slow customers", dropped) == ["slow customer"]


def test_words_that_answer_are_no_stop_words() -> None:
    assert not STOP_WORDS & word_set(
        "yes no not none nothing nobody up down on off in out over under before after "
        "once twice more less most least few never always until without both all half"
    )


def test_other_languages_have_their_own_lemmas() -> None:
    assert items("Kinder", language="de") == ["kind"]
    with pytest.raises(ValueError, match="xx"):
        lemma("word", "xx")


def test_the_lemmatizer_keeps_no_word() -> None:
    items("Theo Ivanova reports canaries in the mornings of every single day")
    kept = words._lemmatizer._cached_lemmatize
    assert kept.cache_info().currsize == 0


# ---- sentences -----------------------------------------------------------------------

KEPT = [
    ("overdraft fee", "Most customers complain about overdraft fees."),
    ("use clean product", "Attacks often start after they used cleaning products."),
    ("child", "They mostly worry about their children."),
    ("follow-up", "They lack follow up after the visit."),
    ("retention team", "In the end it is the retention team that resolves them."),
    ("new regional director", "They blame the new director of the region."),
    ("dizziness fatigue cough", "Patients report fatigue and coughing."),
    ("no", "No, most of them do not."),
    ("yes", "Yes, most of them do."),
    ("no chest pain", "Most patients had no chest pain."),
    ("proof of income", "Most clients come without proof of income."),
    ("pay stub", "The document that is not there is the pay stub."),
    ("late fee", "Customers mention late fees more than any other charge."),
    ("three time", "They call three times before they write."),
    ("vpn", "I'm not certain why, but the VPN fails most often."),
    ("overdraft fee", "**Overdraft fees** come up most."),
    ("marry", "Most of them are married."),
]

LOST = [
    ("overdraft fee", "I'm sorry, but I can't say which fee they mention."),
    ("overdraft fee", "Without the records, I cannot tell which one is meant."),
    ("overdraft fee", "The records do not say which charge they mean."),
    ("overdraft fee", "Customers mention foreign transactions most."),
    ("new regional director", "Leavers blame the new bonus rules."),
    ("late fee", "Late fees are not a common complaint."),
    ("late fee", "Customers complain about interest rather than late fees."),
    ("late fee", "Interest is mentioned more often than late fees."),
    ("no", "Most patients arrive by ambulance."),
    ("yes", "Most patients do not arrive by ambulance."),
    ("overdraft fee", "I don't know."),
    ("overdraft fee", "As an AI, I can't access the complaints."),
]


@pytest.mark.parametrize(("released", "sentence"), KEPT)
def test_a_sentence_with_the_words_is_kept(released: str, sentence: str) -> None:
    assert keeps(sentence, released.split())


@pytest.mark.parametrize(("released", "sentence"), LOST)
def test_a_sentence_that_loses_the_words_is_not(released: str, sentence: str) -> None:
    assert not keeps(sentence, released.split())
    assert not keeps(sentence, [released])


def test_words_of_the_question_are_no_evidence() -> None:
    question = "Which fee do customers mention most?"
    said = "Customers mention the monthly fee most."
    assert keeps(said, ["overdraft", "fee"])
    assert not keeps(said, ["overdraft", "fee"], question)
    assert keeps("They mention the fee.", ["fee"], question)
    assert not keeps("Anything.", [])


# ---- any text ------------------------------------------------------------------------

READERS: dict[str, Callable[[str], Any]] = {
    "choice": lambda text: read_choice(text, LUNGS),
    "declines": declines,
    "drafts": lambda text: read_drafts(text, 8),
    "items": items,
    "keeps": lambda text: keeps(text, ["asthma", "no"]),
}
EACH = pytest.mark.parametrize("name", READERS)
PIECES = "asthma COPD not no so but none of these . , : - ** ` ( ) [ ] { } \" ' 1. a)"
texts = st.lists(st.sampled_from([*PIECES.split(), "\n", "I don't know"])).map(" ".join)


@EACH
@given(text=texts | st.text(max_size=200))
@example(text="\ud800")
@example(text="\x00**\u0300")
@example(text='["\\ud800"]')
def test_any_text_is_read_in_any_letter_case(name: str, text: str) -> None:
    found, upper = READERS[name](text), text.upper()
    if upper.casefold() == text.casefold() and name != "drafts":
        assert READERS[name](upper) == found


@EACH
@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "1. ",
        "[",
        "*",
        "asthma or ",
        "so i don't know. ",
        "none of ",
        "<think>",
        f"asthma{' ' * 19_000}",
    ],
)
def test_a_hostile_text_takes_linear_time(name: str, piece: str) -> None:
    text = (piece * (100_000 // len(piece) + 1))[:100_000]
    began = time.thread_time()
    READERS[name](text)
    assert time.thread_time() - began < 3
