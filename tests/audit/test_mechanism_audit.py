"""The audit of every release: it keeps its claim, and a broken one is caught."""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from langchain_dpicl.accounting import compose
from langchain_dpicl.audit import mechanisms
from langchain_dpicl.audit.bounds import exact_epsilon, sampled_epsilon
from langchain_dpicl.audit.exact import exact_law
from langchain_dpicl.audit.mechanisms import DRAWS, measured
from langchain_dpicl.audit.releases import RELEASES
from langchain_dpicl.cli import main
from langchain_dpicl.mechanisms import (
    joint_top_k,
    keyword_ptr,
    permute_and_flip,
    ptr_curve,
    ptr_pass_rate,
    ptr_top_k,
    randomized_response,
    sensitivity,
    table_statistics,
)
from langchain_dpicl.mechanisms.rounded_gaussian import RoundedGaussian

ARCHITECTURE = Path(__file__).parents[2] / "ARCHITECTURE.md"
ROW = re.compile(
    r"^\| [^|]+ \| `(\w+)` \| `(\w+)` \| `(\w+_template)` \| `mechanisms/\w+\.py` \|$",
    re.MULTILINE,
)

Patch = Callable[[pytest.MonkeyPatch], None]


def test_the_list_is_that_of_the_table_of_proofs() -> None:
    assert list(RELEASES) == ROW.findall(ARCHITECTURE.read_text())


def test_every_release_keeps_its_claim() -> None:
    report = mechanisms(progress=False)
    assert report.is_sound, report.summary
    assert len(report.rows) == len(RELEASES)
    for row in report.rows:
        found: dict[str, Any] = dict(zip(report.columns, row, strict=True))
        # One that saw nothing would keep any claim.
        assert 0.5 * found["claimed"] < found["measured"] <= found["claimed"] + 1e-9


# -- twins -----------------------------------------------------------------------------


def number(name: str, value: float) -> Patch:
    """Put a fixed sensitivity in the place of the right one."""
    return lambda patch: patch.setattr(sensitivity, name, lambda *_: value)


def shifted(module: Any) -> Patch:
    """Have the gap tested one rank further down than the words that come out."""
    real = keyword_ptr.count_at

    def count_at(ranked: Any, rank: int) -> int:
        return real(ranked, rank + 1)

    return lambda patch: patch.setattr(module, "count_at", count_at)


def halved(module: Any, name: str) -> Patch:
    real = getattr(module, name)

    def half(*args: Any, **given: Any) -> Any:
        found = real(*args, **given) / 2
        return int(found) if name == "tally_l1" else found

    return lambda patch: patch.setattr(module, name, half)


def no_threshold(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RoundedGaussian, "upper_quantile", lambda *_: 0)


def wrong_odds(patch: pytest.MonkeyPatch) -> None:
    real = randomized_response.response_chances
    patch.setattr(
        randomized_response, "response_chances", lambda e, d: real(1.3 * e, d)
    )


TWINS: list[tuple[str, str, str, Patch]] = [
    ("VoteOutputParser", "noisy_counts", "sensitivity 1", number("vote_l2", 1.0)),
    ("VoteOutputParser", "permute_and_flip", "half", number("vote_linf", 0.5)),
    ("ESAOutputParser", "noisy_sum", "sensitivity 1", number("embedding_l2", 1.0)),
    ("ESAOutputParser", "noisy_counts", "half", halved(sensitivity, "noise_scale")),
    ("KSAPTROutputParser", "ptr_top_k", "gap at k+1", shifted(keyword_ptr)),
    ("KSAPTROutputParser", "ptr_top_k", "sensitivity 1", number("keyword_gap", 1)),
    ("KSAPTROutputParser", "ptr_top_k", "no quantile", no_threshold),
    ("KSAPTROutputParser", "curve_top_k", "gap at k+1", shifted(ptr_curve)),
    ("KSAPTROutputParser", "curve_top_k", "sensitivity 1", number("keyword_gap", 1)),
    ("KSAPTROutputParser", "choose_k", "sensitivity 1", number("keyword_gap", 1)),
    (
        *("KSAThresholdOutputParser", "threshold_words", "half"),
        halved(sensitivity, "noise_scale"),
    ),
    ("KSAThresholdOutputParser", "threshold_words", "no threshold", no_threshold),
    ("KSAThresholdOutputParser", "curve_words", "one bit", number("keyword_bits", 1)),
    ("KSAJointOutputParser", "joint_top_k", "as added", number("joint_utility", 1)),
    ("PublicFirstGate", "exceeds", "half", number("agreement_count", 0.5)),
    ("NoisyThreshold", "noisy_counts", "half", number("vote_l2", 0.5)),
    ("DPFewShotGenerator", "noisy_next_token", "as added", number("next_token_l2", 1)),
    (
        *("DPFewShotGenerator", "noisy_max_next_token", "half"),
        number("next_token_linf", 0.5),
    ),
    ("GDPTable", "noisy_tallies", "half", halved(table_statistics, "tally_l1")),
    ("GDPTable", "noisy_histograms", "half", halved(table_statistics, "tally_l2")),
    ("GDPTable", "threshold_words", "half", halved(sensitivity, "keyword_l2")),
    ("LDPTable", "randomize", "odds", wrong_odds),
]


@pytest.mark.parametrize(
    ("maker", "function", "patch"),
    [(maker, function, patch) for maker, function, _, patch in TWINS],
    ids=[f"{maker}-{function}-{how}" for maker, function, how, _ in TWINS],
)
def test_a_broken_release_is_caught(
    maker: str, function: str, patch: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch(monkeypatch)
    [make] = [v for k, v in RELEASES.items() if k[:2] == (maker, function)]
    claim = make()
    assert measured(claim, DRAWS, 1 - 1e-4) > compose(claim.events, claim.delta)


def test_every_release_has_a_twin() -> None:
    assert {twin[:2] for twin in TWINS} == {key[:2] for key in RELEASES}


def test_the_report_names_what_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = [key for key in RELEASES if key[1] in {"exceeds", "permute_and_flip"}]
    kept = {key: RELEASES[key] for key in keys}
    # The function has its module's name.
    module = sys.modules["langchain_dpicl.audit.mechanisms"]
    monkeypatch.setattr(module, "RELEASES", kept)
    assert main(["audit", "mechanisms"]) == 0
    assert "All 2 releases keep their claims." in capsys.readouterr().out
    number("agreement_count", 0.5)(monkeypatch)
    assert main(["audit", "mechanisms", "--thorough"]) == 1
    assert "More than is claimed: PublicFirstGate's exceeds." in capsys.readouterr().out


# -- laws and bounds -------------------------------------------------------------------


def test_the_law_of_a_joint_draw_is_its_formula() -> None:
    counts, rate = [9, 3, 1], 1 / 4  # Of sequences, by how far they are from the best.
    top = sorted(counts, reverse=True)
    weights = {
        pair: math.exp(-rate * max(top[i] - counts[pair[i]] for i in (0, 1)))
        for pair in itertools.permutations(range(3), 2)
    }
    law = exact_law(
        lambda source: tuple(
            joint_top_k(counts, 2, epsilon=1.0, relation="replace", random=source)
        )
    )
    total = sum(weights.values())
    assert law == pytest.approx({k: w / total for k, w in weights.items()}, rel=1e-6)


def test_the_law_of_a_flip_and_of_a_test_are_known() -> None:
    def flip(source: Any) -> int:
        return permute_and_flip([0.0, 2.0], epsilon=1.0, sensitivity=1.0, random=source)

    assert exact_law(flip)[0] == pytest.approx(math.exp(-1) / 2)
    noise: dict[str, Any] = {"noise_multiplier": 2.0, "delta0": 0.01}
    law = exact_law(
        lambda source: ptr_top_k(
            {"a": 14}, 1, relation="replace", random=source, **noise
        )
    )
    rate = ptr_pass_rate(14, relation="replace", **noise)
    assert law[frozenset("a")] == pytest.approx(rate, rel=1e-9)


def test_epsilon_of_randomized_response_at_delta() -> None:
    p, q = {0: 0.9, 1: 0.1}, {0: 0.1, 1: 0.9}
    assert exact_epsilon(p, q, 0.0) == pytest.approx(math.log(9))
    assert exact_epsilon(p, q, 0.1) == pytest.approx(math.log(8))
    assert exact_epsilon(p, q, 0.8) == 0.0
    assert exact_epsilon({0: 1.0}, {1: 1.0}, 0.5) == math.inf


def test_a_sampled_epsilon_takes_both_limits() -> None:
    # Jagielski et al. 2020: by hand, from the limits of 90 and 10 of 100.
    found = sampled_epsilon(
        [True] * 90 + [False] * 10, [True] * 10 + [False] * 90, 0.0, 0.95
    )
    assert found == pytest.approx(math.log(0.8237774 / 0.1762226), rel=1e-5)
    assert sampled_epsilon([True], [False], 0.9, 0.95) == 0.0
