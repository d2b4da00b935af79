"""`says_nothing` separates replies without an answer from hedged answers."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from langchain_dpicl.parsers.reading.refusal import (
    says_nothing,
)

NOTHING = """
I don't know
I don't know.
I do not know
i dont know
I don\u2019t know!
**I don't know.**
"I don't know."
I really don't know.
I honestly do not know.
Don't know
Sorry, I don't know.
Sorry, but I don't know.
I'm sorry, I don't know based on these notes.
I don't know, because the notes only cover lab values.
I don't know which of them is more common.
I'm not sure.
I am not sure what they prefer.
I'm not certain from these records.
Not sure
I can't tell.
I cannot tell from the records.
I can't say for certain.
I can't answer that.
I cannot determine this from the given context.
I can\u2019t determine who is meant.
I'm unable to determine the answer.
Unable to determine
I am not able to answer this question.
I'm afraid I can't answer that from these reviews.
We cannot say.
One cannot tell from the text.
Can't say
Cannot be determined
Cannot be determined from the records.
It can't be determined.
The reason cannot be determined from the notes given.
The most common fee could not be identified.
The records don't say.
The records do not say which plan they have.
The provided documents do not mention any of this.
These notes don't specify a cause.
The given context does not contain this information.
The context doesn't provide enough details to answer.
The text does not state it explicitly.
The data does not show who left first.
None of these records mention a fee.
None of the notes says when it began.
None of the documents provided mention the manager.
Nothing in the records says so.
Nothing in these tickets points to a device.
The records contain no information on that.
The notes give no information about allergies.
The records are silent on this.
There is no information about that in the records.
There's no mention of a manager in these interviews.
There isn't enough information to answer.
There is not enough data to tell.
There is no way to know from these notes.
There is insufficient information in the records.
No information
No information available.
No information is given about it.
No data
Not enough information
Not enough information to say.
Insufficient information.
Insufficient data to determine this.
Not mentioned
Not mentioned.
Not stated
Not specified in the records.
Not given
Not in the records
Not in records
Not available
Not clear
Not known.
It is not mentioned.
It's not stated in the notes.
This is not specified.
That isn't clear from the records.
The cause is not mentioned in the notes.
The answer is not given in the text.
Unknown
Unknown.
Unclear
Unclear from the notes
It is unclear.
It's unclear which of them it was.
It remains unknown why.
The answer is unclear.
Undetermined
N/A
No idea
I have no idea.
It is impossible to say.
It's not possible to determine this.
It's hard to say from four notes.
Hard to tell
As an AI, I can't access medical records.
As an AI language model, I do not have access to these files.
Unfortunately, the records don't say.
Unfortunately I can't tell.
Based on the records, I can't tell.
From the given notes, it is not clear.
According to the records, it is not stated.
The records, however, do not say.
Hmm, I'm not sure.
Good question! The records don't say.
Answer: unknown
Answer: I don't know.
I don't have enough information to answer this.
I don't have access to that data.
I see no mention of it.
I would need more information to say.
No one here earns that much, so I don't know.
The two differ, so I can't say which is more common.
I don't know, but I'd be happy to look again if you share more notes.
I can't tell, but please let me know if you have other records.
<think>Perhaps asthma?</think> I don't know.
None mentioned
No clear answer
It's a tie
Evenly split
Ich wei\u00df es nicht.
Je ne sais pas.
No lo s\u00e9.
"""

SAID = """
Asthma
No.
No, not yet
None
Not yet
Never
Asthma, I think.
I'm not certain, but asthma.
Not sure, but probably asthma.
I don't know for sure, but it looks like asthma.
I can't be certain, but most seem to have asthma.
Hard to say, but overdraft fees come up most.
It's hard to tell; my best guess is asthma.
I can't tell for sure. I'd say asthma.
The records don't say, but if I had to choose: asthma.
It's unclear, though it is most likely asthma.
Most likely asthma, but I'm not sure.
Asthma, although the records don't say so outright.
Asthma? Unclear.
Hypertension, uncertain
The records show that most had asthma.
The records mention a cough.
None of the patients smokes.
None of the customers has called before.
No patients reported pain.
Nobody complained.
No, the records show the opposite.
I don't know him.
They don't know each other.
They don't know how to use the app.
They do not trust the bank.
Patients can't sleep.
They cannot log in.
The customer could not find the settings.
Customers can't see their balance.
The app does not work.
The form does not open on phones.
No pain
No chest pain
No phone support
No evidence of metastasis.
No fever was seen.
Not taking insulin
Not enough sleep
Not enough staff
Insufficient funds
Insufficient sleep
Not given antibiotics
Unknown caller
Unclear instructions
Unclear instructions on the form.
Uncertainty about the major
Nothing helps.
Nothing by mouth
Lack of information
Poor communication
The device is not available in stores.
Not only asthma but COPD.
The fee was not refunded.
She was unable to walk.
Patients were unable to sleep through the night.
The records do not mention anything other than a cough.
The manager did not listen.
They don't have insurance.
I do not have pain.
Tied tubes
It depends.
Three times
A tie between asthma and COPD.
The answer is not asthma but COPD.
They don't say hello.
Without a job
The most common reason is missing information on the form.
"""


@pytest.mark.parametrize("reply", NOTHING.strip().split("\n"))
def test_a_reply_without_an_answer_says_nothing(reply: str) -> None:
    assert says_nothing(reply)


@pytest.mark.parametrize("reply", SAID.strip().split("\n"))
def test_an_answer_says_something(reply: str) -> None:
    assert not says_nothing(reply)


@pytest.mark.parametrize("around", ["**{}**", "> {}", "`{}`", "{}\n", '"{}"'])
@pytest.mark.parametrize("reply", ["I don't know.", "Asthma", "Not stated"])
def test_what_is_around_a_reply_changes_nothing(around: str, reply: str) -> None:
    assert says_nothing(around.format(reply)) == says_nothing(reply)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.sampled_from((NOTHING + SAID).split()), max_size=20).map(" ".join)
    | st.text(max_size=200)
)
@example("\ud800")
@example("I'm")
def test_any_text_is_read_in_any_letter_case(text: str) -> None:
    said = says_nothing(text)
    if text.upper().casefold() == text.casefold():
        assert says_nothing(text.upper()) == said


@pytest.mark.parametrize(
    "piece",
    [
        *("i ", "so ", "the records ", "not ", "a", "really ", "the ", "but ", "\n"),
        *("i don't know ", "i don't know. ", "so i don't know. "),
        *("unfortunately ", "unfortunately, "),
    ],
)
def test_a_hostile_reply_takes_linear_time(piece: str) -> None:
    started = time.process_time()
    says_nothing((piece * 100_000)[:100_000])
    assert time.process_time() - started < 3
