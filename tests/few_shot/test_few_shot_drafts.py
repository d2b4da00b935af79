"""Examples in the making: where they end, and what their steps are spent on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.few_shot_fakes import WordModel

from langchain_dpicl.few_shot.drafts import Draft, Drafts

PIECES = ("<end>", "a", "b", "\n", " ", "EN", "D", ".")
END, A, B, BREAK, SPACE, EN, D, DOT = range(len(PIECES))


class Pieces(WordModel):
    """Spells tokens without anything between them; two of them end a text."""

    def __init__(self) -> None:
        super().__init__(words=PIECES)

    @property
    def end_tokens(self) -> frozenset[int]:
        return frozenset({END, len(PIECES)})

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(PIECES[token] for token in tokens)


def drafts(**changes: Any) -> Drafts:
    terms: dict[str, Any] = {
        "labels": ["x"],
        "per_label": 1,
        "max_tokens": 8,
        "stop": ["\n"],
    }
    return Drafts(Pieces(), **{**terms, **changes})


def written(*tokens: int, **changes: Any) -> Draft:
    """Return one example after some tokens, of which it takes all or ends before."""
    made = drafts(**changes)
    for token in tokens:
        if made.active():
            made.take([token])
    return made.drafts[0]


@pytest.mark.parametrize(
    ("tokens", "stop", "text", "steps"),
    [
        # A stop text in one token, and what comes with it.
        ([A, BREAK, B], ["\n"], "a", 2),
        # One that spans two tokens, and three.
        ([A, EN, D, B], ["END"], "a", 3),
        ([A, EN, D, DOT, B], ["END."], "a", 4),
        # The earliest of several counts, wherever it stands in the list.
        ([A, DOT, B], ["END", "."], "a", 2),
        ([A, EN, D], ["D", "END"], "a", 3),
        # Blank text before the first word is no end.
        ([BREAK, SPACE, BREAK, A, BREAK], ["\n"], "\n \na", 5),
        ([SPACE, A, SPACE, B, DOT], ["."], " a b", 5),
        # A beginning of a stop text is none.
        ([A, EN, A, END], ["END"], "aENa", 4),
    ],
)
def test_stop_texts(tokens: list[int], stop: list[str], text: str, steps: int) -> None:
    draft = written(*tokens, stop=stop)
    assert (draft.text, draft.steps, draft.ended) == (text, steps, True)


@pytest.mark.parametrize("end", [END, len(PIECES)])
def test_each_end_token_ends_a_text_and_is_not_part_of_it(end: int) -> None:
    draft = written(A, end, B)
    assert (draft.tokens, draft.text, draft.steps, draft.ended) == ((A,), "a", 2, True)


def test_a_text_ends_after_the_last_step_that_was_paid_for() -> None:
    draft = written(*[A] * 7)
    assert not draft.ended
    draft = written(*[A] * 9)
    assert (draft.text, draft.steps, draft.ended) == ("a" * 8, 8, True)


def test_a_prompt_goes_on_with_the_tokens_so_far() -> None:
    draft = written(A, B)
    assert draft.prompt("p").generated == (A, B)
    assert draft.prompt("p").text == "p"


def test_what_is_incomplete_or_blank_is_no_example() -> None:
    made = drafts(labels=["y", "x"], per_label=2)
    made.take([A, SPACE, A, B])
    assert made.examples() == []
    made.take([END, END, B, B])
    made.take([END, A])
    assert made.examples() == [("y", "a"), ("x", "ab")]
    assert [draft.label for draft in made.active()] == ["x"]


def test_one_token_for_each_active_example_no_more_and_no_less() -> None:
    made = drafts(per_label=2)
    with pytest.raises(ValueError, match="zip"):
        made.take([A])
    made = drafts(per_label=2)
    with pytest.raises(ValueError, match="zip"):
        made.take([A, A, A])


def spend(made: Drafts, tokens: Sequence[int]) -> Drafts:
    """Run to the end with a stream of tokens, again and again."""
    at = 0
    while active := made.active():
        if at > 10_000:
            raise AssertionError("It never ends.")
        made.take([tokens[(at + n) % len(tokens)] for n in range(len(active))])
        at += len(active)
    return made


def overspent(made: Drafts) -> list[str]:
    """Return the labels that took more steps than they are charged for."""
    steps: Counter[str] = Counter()
    for draft in made.drafts:
        steps[draft.label] += draft.steps
    most = made.per_label * made.max_tokens
    return [label for label in made.labels if steps[label] > most]


streams = st.lists(st.integers(0, len(PIECES) - 1), min_size=1, max_size=40)


@settings(deadline=None, max_examples=200)
@given(
    streams,
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 9),
    st.sampled_from([["\n"], ["END", "."], []]),
)
def test_no_label_takes_more_steps_than_it_is_charged_for(
    tokens: list[int],
    n_labels: int,
    per_label: int,
    max_tokens: int,
    stop: list[str],
) -> None:
    labels = list("xyz"[:n_labels])
    terms = {
        "labels": labels,
        "per_label": per_label,
        "max_tokens": max_tokens,
        "stop": stop,
    }
    made = spend(drafts(**terms), tokens)
    assert overspent(made) == []
    assert made.steps == sum(draft.steps for draft in made.drafts) <= made.most_steps
    assert all(1 <= draft.steps <= max_tokens for draft in made.drafts)
    assert all(len(draft.tokens) <= draft.steps for draft in made.drafts)
    for label in labels:
        own = [draft for draft in made.drafts if draft.label == label]
        assert [draft.number for draft in own] == list(range(len(own)))
        assert len(own) == per_label
    # Whoever follows the tokens again comes to the same.
    again = spend(drafts(**terms), tokens)
    assert again.drafts == made.drafts
    assert again.examples() == made.examples()
