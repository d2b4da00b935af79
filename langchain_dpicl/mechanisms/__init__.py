"""Differentially private mechanisms on plain numbers.

Each release is one function, in a file that reads as its own privacy argument:
sensitivity, noise, event. The event is code as well: beside each release stands the
template of what it is charged, and the noise that it takes of a charge. Nothing here
knows of LangChain, of accounts, or of where the numbers come from.

| release | charged by | file |
|---|---|---|
| `noisy_counts` | `vote_template` | `voting.py` |
| `noisy_sum` | `sum_template` | `embedding.py` |
| `ptr_top_k` | `ptr_template` | `keyword_ptr.py` |
| `choose_k`, then `ptr_top_k` | `ptr_range_template` | `keyword_ptr.py` |
| `threshold_words` | `threshold_template` | `keyword_threshold.py` |
| `joint_top_k` | `joint_template` | `keyword_joint.py` |
| `noisy_next_token` | `next_token_template` | `next_token.py` |
| `noisy_max_next_token` | `max_token_template` | `next_token.py` |
| `noisy_tallies` | `tallies_template` | `table_statistics.py` |
| `noisy_histograms` | `histograms_template` | `table_statistics.py` |
| `randomize` | `reports_template` | `randomized_response.py` |

They share one table of sensitivities (`sensitivity.py`), one source of random bits
(`source.py`), one way to draw Gaussian noise (`rounded_gaussian.py`) and one to draw
Laplace noise (`discrete_laplace.py`); all draws are exact, so no error term has to be
added to a delta or an epsilon.
"""

from __future__ import annotations

from langchain_dpicl.mechanisms.discrete_laplace import DiscreteLaplace
from langchain_dpicl.mechanisms.embedding import (
    noisy_sum,
    sum_template,
)
from langchain_dpicl.mechanisms.keyword_joint import (
    joint_template,
    joint_top_k,
)
from langchain_dpicl.mechanisms.keyword_ptr import (
    PTRNoise,
    choose_k,
    ptr_pass_rate,
    ptr_range_template,
    ptr_template,
    ptr_top_k,
    required_gap,
)
from langchain_dpicl.mechanisms.keyword_threshold import (
    ThresholdNoise,
    clear_first,
    required_count,
    threshold_pass_rate,
    threshold_template,
    threshold_words,
)
from langchain_dpicl.mechanisms.next_token import (
    max_token_template,
    next_token_template,
    noisy_max_next_token,
    noisy_next_token,
    token_distribution,
    token_distributions,
)
from langchain_dpicl.mechanisms.noise import (
    ExponentialNoise,
    GaussianNoise,
    PureNoise,
    VectorNoise,
)
from langchain_dpicl.mechanisms.randomized_response import (
    randomize,
    reports_template,
    response_chances,
)
from langchain_dpicl.mechanisms.source import (
    SecureRandom,
    SeededRandom,
    system_random,
)
from langchain_dpicl.mechanisms.table_statistics import (
    histograms_template,
    noisy_histograms,
    noisy_tallies,
    tallies_template,
)
from langchain_dpicl.mechanisms.voting import (
    lead_over_a_tie,
    least_votes,
    noisy_counts,
    required_lead,
    vote_template,
)

__all__ = [
    "DiscreteLaplace",
    "ExponentialNoise",
    "GaussianNoise",
    "PTRNoise",
    "PureNoise",
    "SecureRandom",
    "SeededRandom",
    "ThresholdNoise",
    "VectorNoise",
    "choose_k",
    "clear_first",
    "histograms_template",
    "joint_template",
    "joint_top_k",
    "lead_over_a_tie",
    "least_votes",
    "max_token_template",
    "next_token_template",
    "noisy_counts",
    "noisy_histograms",
    "noisy_max_next_token",
    "noisy_next_token",
    "noisy_sum",
    "noisy_tallies",
    "ptr_pass_rate",
    "ptr_range_template",
    "ptr_template",
    "ptr_top_k",
    "randomize",
    "reports_template",
    "required_count",
    "required_gap",
    "required_lead",
    "response_chances",
    "sum_template",
    "system_random",
    "tallies_template",
    "threshold_pass_rate",
    "threshold_template",
    "threshold_words",
    "token_distribution",
    "token_distributions",
    "vote_template",
]
