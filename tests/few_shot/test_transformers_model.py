"""A model of transformers as a next-token model: each prompt by itself, to the bit."""

from __future__ import annotations

import copy
import gc
import logging
import threading
from contextlib import nullcontext, suppress
from functools import cache
from typing import Any

import numpy as np
import pytest
from support.tiny_models import CONTEXT, SPARE_IDS, tiny_model, tiny_tokenizer

from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.few_shot import TokenPrompt, TransformersNextToken

PROMPT = TokenPrompt("Lisinopril gave a dry cough. Answer:", (70, 80))
OTHER = TokenPrompt("a skin rash. Answer:")
LONGEST = TokenPrompt("x", (70,) * (CONTEXT - 1))
TOO_LONG = TokenPrompt("x", (70,) * CONTEXT)
EMPTY = TokenPrompt("")


@cache
def shared(family: str = "llama", precision: str = "float32") -> Any:
    import torch

    return tiny_model(family).to(getattr(torch, precision))


def own() -> Any:
    return copy.deepcopy(shared())


def asked_model(model: Any = None, tokenizer: Any = None) -> TransformersNextToken:
    return TransformersNextToken(model or shared(), tokenizer or tiny_tokenizer())


# ---- one slot's figures are a function of that slot ----------------------------------

NEIGHBORS = [
    [OTHER, EMPTY],
    [PROMPT, PROMPT],
    [LONGEST, OTHER],
    [TOO_LONG, OTHER],
    *([TokenPrompt("x" * n), OTHER] for n in range(2, 60, 8)),
]


def answers(model: Any) -> set[bytes]:
    """Return all that is said of one slot as the others change, as bytes."""
    asked = asked_model(model)
    found = set()
    for first, last in NEIGHBORS:
        _, said, _ = asked.log_probabilities([first, PROMPT, last], [None] * 3)
        assert said is not None
        found.add(said.tobytes())
    return found


@pytest.mark.parametrize(
    ("family", "precision"),
    [
        *(("gpt2", "float32"), ("llama", "bfloat16")),
        *(("bloom", "float32"), ("mixtral", "bfloat16")),
    ],
)
def test_a_prompt_alone_in_its_pass_depends_on_itself_alone(
    family: str, precision: str
) -> None:
    assert len(answers(shared(family, precision))) == 1


def test_twin_what_a_pass_leaves_for_the_next_is_seen() -> None:
    model, before = own(), [0.0]

    def leave(_module: Any, _given: Any, out: Any) -> Any:
        added, before[0] = before[0], float(out.mean())
        return out + added

    model.model.layers[0].mlp.register_forward_hook(leave)
    assert len(answers(model)) > 1


def tensors() -> set[int]:
    import torch

    gc.collect()
    # By type: some of torch's objects warn when they are asked for their class.
    return {id(x) for x in gc.get_objects() if issubclass(type(x), torch.Tensor)}


def test_nothing_of_a_private_prompt_is_kept_or_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from transformers.utils import logging as theirs

    tokenizer = copy.deepcopy(tiny_tokenizer())
    tokenizer.model_max_length = 10
    asked = asked_model(tokenizer=tokenizer)
    asked.top_tokens([OTHER], 1)
    before = tensors()
    theirs.enable_propagation()
    try:
        with caplog.at_level(logging.DEBUG):
            long = TokenPrompt(PROMPT.text * 9)
            asked.log_probabilities([PROMPT, long, TOO_LONG], [None] * 3)
            assert caplog.records == []
            tokenizer(PROMPT.text * 9)
            assert "longer than" in caplog.text, "the twin"
    finally:
        theirs.disable_propagation()
    assert tensors() == before
    assert repr(asked) == "TransformersNextToken('llama')"


# ---- its figures ---------------------------------------------------------------------


def test_figures_are_over_the_whole_vocabulary_of_tokens() -> None:
    model, known = own(), len(tiny_tokenizer())
    asked = asked_model(model)
    whole, some = asked.log_probabilities([PROMPT] * 2, [None, np.array([300, 5, 40])])
    assert asked.vocabulary_size == known + SPARE_IDS == len(whole)
    assert some.tolist() == whole[[300, 5, 40]].tolist()
    assert 0.9 < np.exp(whole).sum() <= 1 + 1e-12
    top = asked.top_tokens([PROMPT], 10)[0]
    assert top.tolist() == np.argsort(-whole, kind="stable")[:10].tolist()

    def favor(_module: Any, _given: Any, out: Any) -> None:
        out.logits[...] = 0.0
        out.logits[..., [9, 4, 200]] = 1.0
        out.logits[..., known:] += 50

    model.register_forward_hook(favor)
    (said,) = asked.log_probabilities([PROMPT], [None])
    assert np.all(said[known:] == -np.inf)
    # What the model gives to ids without a token is lost, not shared out.
    assert np.exp(said).sum() < 1e-6
    assert asked.top_tokens([PROMPT], 5)[0].tolist() == [4, 9, 200, 0, 1]
    with pytest.raises(InvalidParameterError, match="there are"):
        asked.top_tokens([PROMPT], known + 1)


def test_a_text_that_leaves_no_room_is_refused_without_a_pass() -> None:
    asked = asked_model()
    asked.require_room([LONGEST])
    with pytest.raises(InvalidParameterError, match=f"the model takes {CONTEXT}"):
        asked.require_room([LONGEST, TOO_LONG])


def test_a_prompt_that_can_not_be_asked_is_none() -> None:
    asked = asked_model()
    strange = TokenPrompt("x", (asked.vocabulary_size,))
    prompts = [TOO_LONG, PROMPT, EMPTY, strange, LONGEST]
    found = asked.log_probabilities(prompts, [None] * 5)
    assert [one is None for one in found] == [True, False, True, True, False]
    for public in (TOO_LONG, EMPTY, strange):
        with pytest.raises((InvalidParameterError, PublicCallError)):
            asked.top_tokens([public], 1)


@pytest.mark.parametrize("what", ["nan", "inf", "-inf", "Lisinopril"])
def test_a_pass_that_fails_is_none_in_private_and_an_error_in_public(what: str) -> None:
    model = own()
    asked = asked_model(model)
    (before,) = asked.log_probabilities([PROMPT], [None])
    length = len(tiny_tokenizer()(OTHER.text)["input_ids"])

    def spoil(_module: Any, _given: Any, kwargs: Any, out: Any) -> None:
        if kwargs["input_ids"].shape == (1, length):
            out.logits[0] = float(what)  # Of a word it raises.

    model.register_forward_hook(spoil, with_kwargs=True)
    other, after = asked.log_probabilities([OTHER, PROMPT], [None] * 2)
    assert other is None
    assert np.array_equal(after, before)
    with pytest.raises(PublicCallError) as caught:
        asked.top_tokens([OTHER], 1)
    assert "Lisinopril" not in str(caught.value)


def test_equal_prompts_are_computed_once_for_the_last_position_alone() -> None:
    model, shapes = own(), []
    asked = asked_model(model)
    model.lm_head.register_forward_hook(
        lambda _module, _given, out: shapes.append(tuple(out.shape[:2]))
    )
    tokens = [np.array([3]), None, np.array([4])]
    found = asked.log_probabilities([PROMPT, OTHER, PROMPT], tokens)
    assert shapes == [(1, 1)] * 2
    assert [len(one) for one in found] == [1, asked.vocabulary_size, 1]


def test_a_model_in_training_mode_is_put_into_evaluation_mode() -> None:
    model = tiny_model("gpt2", attn_pdrop=0.5, embd_pdrop=0.5, resid_pdrop=0.5)
    asked = asked_model(model)
    before = asked.log_probabilities([PROMPT], [None])[0]
    model.train()
    assert np.array_equal(asked.log_probabilities([PROMPT], [None])[0], before)


def test_a_bos_token_comes_first_and_nothing_comes_after() -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = copy.deepcopy(tiny_tokenizer(bos=True))
    bos, end = tokenizer.bos_token_id, tokenizer.eos_token_id
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|system|> $A <|end|>",
        special_tokens=[("<|system|>", bos), ("<|end|>", end)],
    )
    model, rows = own(), []
    asked = asked_model(model, tokenizer)
    model.register_forward_pre_hook(
        lambda _module, _given, kwargs: rows.append(kwargs["input_ids"].tolist()),
        with_kwargs=True,
    )
    asked.log_probabilities([TokenPrompt(OTHER.text, (7,)), EMPTY], [None] * 2)
    text = tiny_tokenizer()(OTHER.text)["input_ids"]
    assert rows == [[[bos, *text, 7]], [[bos]]]


def test_name_end_tokens_and_spelling() -> None:
    model = own()
    model.generation_config.eos_token_id = [1, 2]
    model.config.eos_token_id = None
    end = tiny_tokenizer().eos_token_id
    asked = asked_model(model)
    assert asked.end_tokens == {1, 2, end}
    tokens = tiny_tokenizer()(" dry cough")["input_ids"]
    assert asked.decode([*tokens, end, asked.vocabulary_size - 1]) == " dry cough"
    named = TransformersNextToken(model, tiny_tokenizer(), name="tiny@v2")
    assert (asked.name, named.name) == ("llama", "tiny@v2")


def test_models_tokenizers_and_calls_that_can_not_be_used() -> None:
    for parts in ((object(), tiny_tokenizer()), (shared(), None)):
        with pytest.raises(InvalidParameterError, match="causal language model"):
            TransformersNextToken(*parts)
    tokenizer = copy.deepcopy(tiny_tokenizer())
    tokenizer.add_tokens([f"<word {i}>" for i in range(SPARE_IDS)])
    asked = asked_model(tokenizer=tokenizer)
    tokenizer.add_tokens(["<one more>"])
    with pytest.raises(InvalidParameterError, match="belong together"):
        asked_model(tokenizer=tokenizer)
    for wrong in ([asked.vocabulary_size], [-1]):
        with pytest.raises(InvalidParameterError, match="none of the model's"):
            asked.log_probabilities([PROMPT], [np.array(wrong)])
    with pytest.raises(InvalidParameterError, match="k must be"):
        asked.top_tokens([PROMPT], 0)


def meetings(asked: TransformersNextToken, model: Any, patience: float) -> int:
    """Return how often two threads are in the model at one time."""
    both, met = threading.Barrier(2), []

    def enter(_module: Any, _given: Any) -> None:
        with suppress(threading.BrokenBarrierError):
            met.append(both.wait(patience))

    model.register_forward_pre_hook(enter)
    threads = [
        threading.Thread(target=asked.log_probabilities, args=([PROMPT], [None]))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(met)


def test_threads_take_turns() -> None:
    model = own()
    assert meetings(asked_model(model), model, patience=0.2) == 0
    model = own()
    asked = asked_model(model)
    asked._lock = nullcontext()  # The twin.
    assert meetings(asked, model, patience=30.0) == 2
