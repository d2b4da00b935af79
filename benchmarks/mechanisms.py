"""Mechanisms, calibration and few-shot tokens beside what they are compared with.

All but few-shot is timed by the processor's clock: nothing waits. The few-shot row
runs a model of 135 million random weights in this process, which takes as long as a
trained one: the figure is what a generation takes beside its model.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.common import Line, Options, account, in_turn, seconds, show
from langchain_dpicl import Relation, VoteOutputParser
from langchain_dpicl.accounting import Exponential, Gaussian
from langchain_dpicl.few_shot import Clipped, DPFewShotGenerator, Greedy
from langchain_dpicl.mechanisms.keyword_joint import joint_top_k
from langchain_dpicl.mechanisms.next_token import noisy_next_token
from langchain_dpicl.mechanisms.voting import noisy_counts

PAID = Gaussian(noise_multiplier=3.0)
EPSILON, DELTA, RATE, USES = 1.0, 1e-6, 0.005, 10_000
EXACT = 1e-3
"""How near a calibrated multiplier comes, relative."""


def noise(runs: int) -> Iterator[Line]:
    """Yield the time of noise, beside that of numpy, which is not secure."""
    rng = np.random.default_rng(1)
    rows = np.full((1, 1536), 1 / 1536)
    counts = rng.integers(0, 100, 100_000)
    cases: list[tuple[str, Callable[[], object], Callable[[], object], str]] = [
        (
            "noisy sum of one row, 1,536 coordinates",
            lambda: noisy_next_token(rows, PAID, Relation.REPLACE),
            lambda: rows.sum(axis=0) + rng.normal(size=1536),
            "<= 2 ms",
        ),
        (
            "noise on 100,000 counts",
            lambda: noisy_counts(counts, PAID, Relation.REPLACE),
            lambda: counts + rng.normal(size=counts.size),
            "<= 20 ms",
        ),
    ]
    for what, ours, plain, reach in cases:
        mine, theirs = in_turn(runs, ours, plain, clock=time.process_time)
        yield Line(what, mine, "numpy, not secure", theirs, reach)


def joint(runs: int, words: int) -> Iterator[Line]:
    """Yield the time of the joint mechanism, beside that of sorting its counts."""
    rng = np.random.default_rng(1)
    shapes = {
        "uniform": rng.integers(0, 101, words),
        "geometric": rng.geometric(0.2, words).clip(0, 100),
    }
    paid, relation = Exponential(epsilon=1.0), Relation.ADD_REMOVE
    for shape, counts in shapes.items():
        ours, theirs = in_turn(
            runs,
            lambda c=counts: joint_top_k(c, 30, paid, relation),
            lambda c=counts: np.sort(c),
            clock=time.process_time,
        )
        what = f"joint mechanism, {words:,} words, k = 30, {shape} counts"
        yield Line(what, ours, "numpy sort of the counts", theirs, "<= 200 ms")


def pld_search() -> float:
    """Return the multiplier that dp-accounting's distributions find, by bisection."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    low, high = 1.0, 4.0
    while high / low > 1 + EXACT:
        middle = (low * high) ** 0.5
        one = pld.from_gaussian_mechanism(middle, sampling_prob=RATE)
        spent = one.self_compose(USES).get_epsilon_for_delta(DELTA)
        low, high = (middle, high) if spent > EPSILON else (low, middle)
    return high


def calibration() -> Line:
    """Return what a plan's first charge takes: calibrated, and checked by another."""
    found: list[float] = []

    def plan(epsilon: float = EPSILON) -> None:
        budget = account(epsilon, DELTA, queries=USES)
        parser = VoteOutputParser(labels=["yes", "no"])
        paid = budget.buy(parser.charge(RATE), unit_key="patient_id")
        found.append(paid.events[0].noise_multiplier)

    plan(2 * EPSILON)  # Imports.
    ours = seconds(plan, time.process_time)
    theirs = seconds(lambda: found.append(pld_search()), time.process_time)
    what = f"calibrate q = {RATE}, {USES:,} uses, cross-checked (z {found[1]:.4f})"
    against = f"dp-accounting's PLD alone, bisected (z {found[2]:.4f})"
    return Line(what, ours, against, theirs, "<= 1.5 s")


class Watch:
    """Adds up the seconds of a model's calls."""

    def __init__(self, model: Any) -> None:
        self.seconds = 0.0
        for name in ("top_tokens", "log_probabilities"):
            setattr(model, name, self._timed(getattr(model, name)))

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*given)
            finally:
                self.seconds += time.perf_counter() - start

        return run


def model_of_135m() -> Any:
    """Return a model shaped as SmolLM-135M with random weights, and letters to read."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    from langchain_dpicl.few_shot import TransformersNextToken

    signs = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<end>"]
    reader = Tokenizer(models.BPE({sign: at for at, sign in enumerate(signs)}, []))
    reader.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    reader.decoder = decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=reader,
        eos_token="<end>",  # noqa: S106
    )
    config = transformers.LlamaConfig(
        vocab_size=49_152,
        hidden_size=576,
        intermediate_size=1_536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
    )
    return TransformersNextToken(transformers.LlamaForCausalLM(config), tokenizer)


def few_shot(tokens: int, groups: int, size: int, decoder: Any) -> Line:
    """Return what a generation of one example takes beside its model."""
    model = model_of_135m()
    watch = Watch(model)
    generator = DPFewShotGenerator(
        model,
        "Write a news item.",
        {"sports": size},
        n_groups=groups,
        records_per_group=2,
        max_tokens=tokens,
        decoder=decoder,
        budget=account(100, 1e-6),
    )
    records = [{"text": f"Town {i} won.", "label": "sports"} for i in range(size)]
    taken = seconds(lambda: generator.generate(records, progress=False))
    what = (
        f"few-shot, {decoder.kind}, {groups} slots, {tokens} tokens, beside the model"
    )
    reach = "<= 5 %"
    return Line(what, taken - watch.seconds, "model of 135M", watch.seconds, reach)


def run(options: Options) -> None:
    """Print all tables."""
    quick = options.quick
    runs, words = (5, 100_000) if quick else (31, 1_000_000)
    show("Noise", *noise(runs), *joint(runs, words))
    show("Calibration", calibration())
    if importlib.util.find_spec("torch"):
        tokens, groups, size = (2, 3, 12_000) if quick else (5, 20, 120_000)
        show(
            "Few-shot generation",
            few_shot(tokens, groups, size, Greedy(stop=())),
            few_shot(tokens, groups, groups, Clipped(stop=())),
        )
