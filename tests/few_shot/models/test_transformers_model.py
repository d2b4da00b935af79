"""What a model of transformers promises as a next-token model."""

from __future__ import annotations

import copy
import threading
import warnings
from contextlib import nullcontext, suppress
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.tiny_models import CONTEXT, SPARE_IDS, tiny_model, tiny_tokenizer

from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.few_shot.models.contract import TokenPrompt
from langchain_dpicl.few_shot.models.transformers import TransformersNextToken

PROMPT = TokenPrompt("Lisinopril gave a dry cough. Answer:", (70, 80))
OTHER = TokenPrompt("a skin rash. Answer:")
LONGEST = TokenPrompt("x", (70,) * (CONTEXT - 1))
TOO_LONG = TokenPrompt("x", (70,) * CONTEXT)
EMPTY = TokenPrompt("")


@cache
def shared_model() -> Any:
    return tiny_model("llama")


def asked_model(model: Any = None) -> TransformersNextToken:
    given = shared_model() if model is None else model
    return TransformersNextToken(given, tiny_tokenizer())


def own_model() -> Any:
    return copy.deepcopy(shared_model())


def test_figures_are_the_models_over_its_whole_vocabulary() -> None:
    asked = asked_model()
    whole, some = asked.log_probabilities(
        [PROMPT, PROMPT], [None, np.array([300, 5, 40])]
    )
    assert whole is not None
    assert whole.shape == (asked.vocabulary_size,)
    assert whole.dtype == np.float64
    assert some.tolist() == whole[[300, 5, 40]].tolist()
    assert whole.max() <= 0
    assert 0.9 < np.exp(whole).sum() <= 1 + 1e-12


def test_ids_without_a_token_are_impossible() -> None:
    model = own_model()
    known = len(tiny_tokenizer())

    def favor(_module: Any, _given: Any, out: Any) -> None:
        out.logits[..., known:] += 50

    model.register_forward_hook(favor)
    asked = asked_model(model)
    said = asked.log_probabilities([PROMPT], [None])[0]
    assert asked.vocabulary_size == known + SPARE_IDS
    assert np.all(said[known:] == -np.inf)
    # What the model gave them is lost, not shared out.
    assert np.exp(said).sum() < 1e-6
    assert asked.top_tokens([PROMPT], known)[0].max() < known
    with pytest.raises(InvalidParameterError, match="there are"):
        asked.top_tokens([PROMPT], known + 1)


def test_top_tokens_are_the_likeliest_and_ties_go_by_id() -> None:
    model = own_model()
    asked = asked_model(model)
    said = asked.log_probabilities([PROMPT], [None])[0]
    top = asked.top_tokens([PROMPT], 10)[0]
    assert top.dtype == np.int64
    assert top.tolist() == np.argsort(-said, kind="stable")[:10].tolist()

    def level(_module: Any, _given: Any, out: Any) -> None:
        out.logits[...] = 0.0
        out.logits[..., [9, 4, 200]] = 1.0

    model.register_forward_hook(level)
    assert asked.top_tokens([PROMPT], 5)[0].tolist() == [4, 9, 200, 0, 1]


def test_a_prompt_that_can_not_be_asked_is_none() -> None:
    asked = asked_model()
    strange = TokenPrompt("x", (asked.vocabulary_size,))
    prompts = [TOO_LONG, PROMPT, EMPTY, strange, LONGEST]
    found = asked.log_probabilities(prompts, [None] * 5)
    assert [one is None for one in found] == [True, False, True, True, False]
    for public in (TOO_LONG, EMPTY, strange):
        with pytest.raises((InvalidParameterError, PublicCallError)):
            asked.top_tokens([public], 1)


@pytest.mark.parametrize("what", ["nan", "inf", "-inf"])
def test_what_is_not_a_number_is_none(what: str) -> None:
    model = own_model()
    asked = asked_model(model)
    bad = len(tiny_tokenizer()(OTHER.text)["input_ids"])

    def spoil(_module: Any, given: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        # Only where the other prompt ends.
        if kwargs["input_ids"].shape == (1, bad):
            out.logits[0] = float(what)

    model.register_forward_hook(spoil, with_kwargs=True)
    found = asked.log_probabilities([OTHER, PROMPT], [None] * 2)
    assert found[0] is None
    assert np.isfinite(found[1][:10]).all()
    with pytest.raises(PublicCallError, match="not numbers"):
        asked.top_tokens([OTHER], 1)


def test_a_failing_model_is_none_in_private_and_an_error_in_public() -> None:
    model = own_model()
    asked = asked_model(model)

    def fail(_module: Any, _given: Any) -> None:
        raise RuntimeError("Lisinopril")

    model.register_forward_pre_hook(fail)
    assert asked.log_probabilities([PROMPT], [None]) == [None]
    with pytest.raises(PublicCallError) as caught:
        asked.top_tokens([PROMPT], 1)
    assert "Lisinopril" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.filterwarnings("error:gone soon:FutureWarning")
def test_a_warning_is_not_told_as_a_failure_of_the_model() -> None:
    model = own_model()

    def warn(_module: Any, _given: Any) -> None:
        warnings.warn("gone soon", FutureWarning, stacklevel=2)

    asked = asked_model(model)
    model.register_forward_pre_hook(warn)
    with pytest.raises(FutureWarning, match="gone soon"):
        asked.top_tokens([PROMPT], 1)


def test_equal_prompts_are_computed_once() -> None:
    model, passes = own_model(), []
    asked = asked_model(model)
    model.register_forward_pre_hook(lambda *_: passes.append(1))
    tokens = [np.array([3]), None, np.array([4])]
    found = asked.log_probabilities([PROMPT, OTHER, PROMPT], tokens)
    assert len(passes) == 2
    assert [len(one) for one in found] == [1, asked.vocabulary_size, 1]


def test_only_the_last_position_has_logits() -> None:
    model = own_model()
    shapes = []
    model.lm_head.register_forward_hook(
        lambda _module, _given, out: shapes.append(tuple(out.shape[:2]))
    )
    asked_model(model).log_probabilities([PROMPT, OTHER], [None] * 2)
    assert shapes[-2:] == [(1, 1)] * 2


def test_a_model_in_training_mode_is_put_into_evaluation_mode() -> None:
    model = tiny_model("gpt2", attn_pdrop=0.5, embd_pdrop=0.5, resid_pdrop=0.5)
    asked = asked_model(model)
    before = asked.log_probabilities([PROMPT], [None])[0]
    model.train()
    after = asked.log_probabilities([PROMPT], [None])[0]
    assert np.array_equal(before, after)


def test_a_bos_token_comes_first_and_nothing_comes_after() -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = copy.deepcopy(tiny_tokenizer(bos=True))
    bos, end = tokenizer.bos_token_id, tokenizer.eos_token_id
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|system|> $A <|end|>",
        special_tokens=[("<|system|>", bos), ("<|end|>", end)],
    )
    asked = TransformersNextToken(shared_model(), tokenizer)
    text, rows = tiny_tokenizer()(OTHER.text)["input_ids"], []
    watch = shared_model().register_forward_pre_hook(
        lambda _module, _given, kwargs: rows.append(kwargs["input_ids"].tolist()),
        with_kwargs=True,
    )
    asked.log_probabilities([TokenPrompt(OTHER.text, (7,))], [None])
    watch.remove()
    assert rows == [[[bos, *text, 7]]]
    assert asked.log_probabilities([EMPTY], [None])[0] is not None


def test_end_tokens_and_spelling() -> None:
    model = own_model()
    model.generation_config.eos_token_id = [1, 2]
    model.config.eos_token_id = None
    end = tiny_tokenizer().eos_token_id
    asked = asked_model(model)
    assert asked.end_tokens == {1, 2, end}
    tokens = tiny_tokenizer()(" dry cough")["input_ids"]
    assert asked.decode(tokens) == " dry cough"
    assert asked.decode([*tokens, end, asked.vocabulary_size - 1]) == " dry cough"


def test_wrong_calls() -> None:
    asked = asked_model()
    for wrong in ([asked.vocabulary_size], [-1]):
        with pytest.raises(InvalidParameterError, match="none of the model's"):
            asked.log_probabilities([PROMPT], [np.array(wrong)])
    with pytest.raises(InvalidParameterError, match="k must be"):
        asked.top_tokens([PROMPT], 0)


def test_models_and_tokenizers_that_can_not_be_used() -> None:
    with pytest.raises(InvalidParameterError, match="causal language model"):
        TransformersNextToken(object(), tiny_tokenizer())
    seq2seq = SimpleNamespace(
        config=SimpleNamespace(is_encoder_decoder=True), get_input_embeddings=None
    )
    with pytest.raises(InvalidParameterError, match="encoder-decoder"):
        TransformersNextToken(seq2seq, tiny_tokenizer())
    with pytest.raises(InvalidParameterError, match="a tokenizer of transformers"):
        TransformersNextToken(shared_model(), None)
    tokenizer = copy.deepcopy(tiny_tokenizer())
    tokenizer.add_tokens([f"<word {i}>" for i in range(SPARE_IDS)])
    TransformersNextToken(shared_model(), tokenizer)
    tokenizer.add_tokens(["<one more>"])
    with pytest.raises(InvalidParameterError, match="belong together"):
        TransformersNextToken(shared_model(), tokenizer)


def test_a_name_has_the_revision_that_is_stated() -> None:
    assert asked_model().name == "llama"
    for name, expected in ((None, "llama@v2"), ("tiny", "tiny@v2")):
        asked = TransformersNextToken(
            shared_model(), tiny_tokenizer(), name=name, revision="v2"
        )
        assert asked.name == expected


def meetings(asked: TransformersNextToken, model: Any, patience: float) -> int:
    """Return how often two threads are in the model at one time."""
    both, met = threading.Barrier(2), []

    def enter(_module: Any, _given: Any) -> None:
        with suppress(threading.BrokenBarrierError):
            met.append(both.wait(patience))

    model.register_forward_pre_hook(enter)
    expected = asked_model().log_probabilities([PROMPT], [None])[0]
    found: list[Any] = []

    def work() -> None:
        found.extend(asked.log_probabilities([PROMPT], [None]))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert all(np.array_equal(said, expected) for said in found)
    return len(met)


def test_threads_take_turns() -> None:
    model = own_model()
    assert meetings(asked_model(model), model, patience=0.2) == 0


def test_threads_that_take_no_turns_are_seen() -> None:
    model = own_model()
    asked = asked_model(model)
    asked._lock = nullcontext()
    assert meetings(asked, model, patience=30.0) == 2
