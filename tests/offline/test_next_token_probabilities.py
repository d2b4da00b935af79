from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.few_shot.models.contract import TokenPrompt
from langchain_dpicl.offline import OfflineNextTokenModel
from langchain_dpicl.offline.words import stem

MODEL = OfflineNextTokenModel()
INSTRUCTION = "Write a short news text on the topic.\n\n"


def prompt(label: str, *texts: str) -> str:
    shown = "".join(f"Label: {label}\nText: {text}\n\n" for text in texts)
    return f"{INSTRUCTION}{shown}Label: {label}\nText:"


def tokens_of(text: str) -> tuple[int, ...]:
    return tuple(MODEL._vocabulary.encode(text))


def probabilities(
    text: str, generated: Iterable[int] = (), model: OfflineNextTokenModel = MODEL
) -> np.ndarray:
    (found,) = model.log_probabilities([TokenPrompt(text, tuple(generated))], [None])
    assert found is not None
    return np.exp(found)


def greedy(text: str, model: OfflineNextTokenModel = MODEL, most: int = 40) -> str:
    generated: tuple[int, ...] = ()
    for _ in range(most):
        token = int(probabilities(text, generated, model).argmax())
        if token in model.end_tokens:
            break
        generated += (token,)
    return model.decode(generated)


PROMPTS = [
    prompt("sports"),
    prompt("sports", "The coach was angry with the referee."),
    prompt("business", "Shares of Zyxo rose.", "Prices fell in May."),
    "",
    "\n\n",
    "Text:",
    'Type: "Person"\nText: "Who?"\n\nType: "Person"\nText: "',
    "\ud800 lone",
]


@pytest.mark.parametrize("text", PROMPTS)
@pytest.mark.parametrize("so_far", ["", "the", "the coach of the", "the the the the"])
def test_probabilities_are_positive_and_sum_to_one(text: str, so_far: str) -> None:
    found = probabilities(text, tokens_of(so_far))
    assert found.shape == (MODEL.vocabulary_size,)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    (logs,) = MODEL.log_probabilities([TokenPrompt(text)], [None])
    assert logs is not None
    assert logs.dtype == np.float64
    assert np.isfinite(logs).all()
    assert (logs <= 0.0).all()


def test_even_what_follows_a_thousand_times_leaves_something_for_the_rest() -> None:
    found = probabilities(prompt("x", *["yes no " * 400] * 20), tokens_of("yes no yes"))
    assert found.min() > 0.0
    assert found.argmax() == tokens_of("no")[0]


def test_given_tokens_have_the_probabilities_of_the_whole_vocabulary() -> None:
    asked = [TokenPrompt(text) for text in PROMPTS]
    some = np.array([5, 0, 77, 3000])
    whole = MODEL.log_probabilities(asked, [None] * len(asked))
    part = MODEL.log_probabilities(asked, [some] * len(asked))
    for all_of_it, few in zip(whole, part, strict=True):
        assert all_of_it is not None
        assert np.array_equal(all_of_it[some], few)


def test_top_tokens_are_the_likeliest_ones_ties_by_id() -> None:
    (top,) = MODEL.top_tokens([TokenPrompt(PROMPTS[0])], 4000)
    found = probabilities(PROMPTS[0])
    expected = sorted(range(len(found)), key=lambda token: (-found[token], token))
    assert top.tolist() == expected[:4000]
    assert len(set(np.round(found, 14))) < len(found)  # There are ties to order.


words = st.sampled_from(["the", "coach", "price", "of", ".", "Zyxo", "who", "?"])
texts = st.lists(words, max_size=12).map(" ".join)


@settings(deadline=None, max_examples=25)
@given(
    mine=st.lists(texts, max_size=3),
    others=st.lists(st.lists(texts, max_size=3), max_size=4),
    so_far=texts,
    place=st.integers(0, 4),
)
def test_an_answer_depends_on_its_own_prompt_alone(
    mine: list[str], others: list[list[str]], so_far: str, place: int
) -> None:
    known = [token for token in tokens_of(so_far) if token < MODEL.vocabulary_size]
    own = TokenPrompt(prompt("sports", *mine), tuple(known))
    call = [TokenPrompt(prompt("sports", *one), own.generated) for one in others]
    at = min(place, len(call))
    call.insert(at, own)
    (alone,) = MODEL.log_probabilities([own], [None])
    among = MODEL.log_probabilities(call, [None] * len(call))[at]
    assert alone is not None
    assert among is not None
    assert alone.tobytes() == among.tobytes()


def test_equal_prompts_of_one_call_have_results_of_their_own() -> None:
    first, second = MODEL.log_probabilities([TokenPrompt("Text:")] * 2, [None, None])
    assert first is not None
    first[:] = 0.0
    assert second is not None
    assert second.min() < 0.0


async def test_the_asynchronous_methods_answer_the_same() -> None:
    asked = [TokenPrompt(PROMPTS[1])]
    (found,) = await MODEL.alog_probabilities(asked, [None])
    assert found is not None
    assert np.array_equal(np.exp(found), probabilities(PROMPTS[1]))
    (top,) = await MODEL.atop_tokens(asked, 5)
    assert np.array_equal(top, MODEL.top_tokens(asked, 5)[0])


def test_every_process_computes_the_same() -> None:
    program = (
        "import hashlib; import numpy as np;"
        "from langchain_dpicl.offline import OfflineNextTokenModel;"
        "from langchain_dpicl.few_shot.models.contract import TokenPrompt;"
        "m = OfflineNextTokenModel();"
        f"r, = m.log_probabilities([TokenPrompt({PROMPTS[2]!r}, (9, 40))], [None]);"
        "print(m.name, hashlib.sha256(r.tobytes()).hexdigest())"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
    assert MODEL.name in said.pop()


def reachable(start: object) -> list[object]:
    """Return everything that hangs on an object, modules and classes left out."""
    seen: dict[int, object] = {}
    left = [start]
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, (type, type(sys))) or callable(one):
            continue
        seen[id(one)] = one
        left.extend(gc.get_referents(one))
    return list(seen.values())


def test_nothing_of_a_prompt_stays_on_the_model() -> None:
    model = OfflineNextTokenModel()
    before = {id(one) for one in reachable(model)}
    private = "Quellwitz the coach of Quellwitz was angry."
    asked = [TokenPrompt(prompt("Quellwitz", private), (9, 40)), TokenPrompt(private)]
    stems = stem.cache_info().currsize
    model.log_probabilities(asked, [None, np.arange(5)])
    model.top_tokens(asked, 3)
    after = reachable(model)
    assert {id(one) for one in after} == before
    assert stem.cache_info().currsize == stems
    assert not [one for one in after if isinstance(one, str) and "uellwitz" in one]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: MODEL.top_tokens([], 0), "k must be"),
        (lambda: MODEL.top_tokens([], True), "k must be"),
        (lambda: MODEL.top_tokens([], 10**6), "k is 1000000"),
        (lambda: MODEL.decode([-1]), "Tokens go from 0"),
        (lambda: MODEL.decode([10**6]), "Tokens go from 0"),
        (lambda: MODEL.log_probabilities([TokenPrompt("x")], []), "differ in length"),
        (
            lambda: MODEL.log_probabilities([TokenPrompt("x", (10**6,))], [None]),
            "Tokens go from 0",
        ),
        (
            lambda: MODEL.log_probabilities([TokenPrompt("x")], [np.array([-1])]),
            "Tokens go from 0",
        ),
        (lambda: OfflineNextTokenModel(max_vocabulary=10), "max_vocabulary must be"),
        (lambda: OfflineNextTokenModel("one text"), "not one text"),
        (lambda: OfflineNextTokenModel([3]), "something else"),
        (lambda: OfflineNextTokenModel([" ", "\u2026"]), "no text"),
    ],
)
def test_wrong_arguments_are_refused(call: object, says: str) -> None:
    with pytest.raises(InvalidParameterError, match=says):
        call()  # type: ignore[operator]
