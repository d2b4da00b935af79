"""Differentially private mechanisms on plain numbers.

Each release is one function, in a file that reads as its own privacy argument:
sensitivity, noise, event. Nothing here knows of LangChain, of accounts, or of where
the numbers come from.

| release | file | event |
|---|---|---|
| `noisy_counts`, `noisy_argmax` | `voting.py` | Gaussian(z) |
| `noisy_sum` | `embedding.py` | Gaussian(z) |
| `ptr_top_k` | `keyword_ptr.py` | Gaussian(z), and delta0 |
| `threshold_words` | `keyword_threshold.py` | Gaussian(z), and delta0 |
| `exceeds` | `agreement.py` | Gaussian(z) |
| `joint_top_k` | `keyword_joint.py` | exponential mechanism (epsilon) |
| `noisy_next_token` | `next_token.py` | Gaussian(z) |
| `noisy_max_next_token` | `next_token.py` | epsilon |
| `choose_k`, `permute_and_flip` | `selection.py` | exponential mechanism; epsilon |
| `noisy_tallies` | `table_statistics.py` | epsilon |
| `randomize` | `randomized_response.py` | epsilon, local |

They share one table of sensitivities (`sensitivity.py`), one source of random bits
(`source.py`), one way to draw Gaussian noise (`rounded_gaussian.py`) and one to draw
Laplace noise (`discrete_laplace.py`); all draws are exact, so no error term has to be
added to a delta or an epsilon.
"""

from __future__ import annotations

from langchain_dpicl.mechanisms.agreement import exceeds, exceeds_pass_rate
from langchain_dpicl.mechanisms.discrete_laplace import DiscreteLaplace
from langchain_dpicl.mechanisms.embedding import noisy_sum
from langchain_dpicl.mechanisms.keyword_joint import joint_top_k
from langchain_dpicl.mechanisms.keyword_ptr import (
    ptr_pass_rate,
    ptr_top_k,
    required_gap,
)
from langchain_dpicl.mechanisms.keyword_threshold import (
    required_count,
    threshold_pass_rate,
    threshold_words,
)
from langchain_dpicl.mechanisms.next_token import (
    noisy_max_next_token,
    noisy_next_token,
    token_distribution,
    token_distributions,
)
from langchain_dpicl.mechanisms.randomized_response import (
    randomize,
    response_chances,
)
from langchain_dpicl.mechanisms.selection import choose_k, permute_and_flip
from langchain_dpicl.mechanisms.source import (
    SecureRandom,
    SeededRandom,
    system_random,
)
from langchain_dpicl.mechanisms.table_statistics import noisy_tallies
from langchain_dpicl.mechanisms.voting import noisy_argmax, noisy_counts

__all__ = [
    "DiscreteLaplace",
    "SecureRandom",
    "SeededRandom",
    "choose_k",
    "exceeds",
    "exceeds_pass_rate",
    "joint_top_k",
    "noisy_argmax",
    "noisy_counts",
    "noisy_max_next_token",
    "noisy_next_token",
    "noisy_sum",
    "noisy_tallies",
    "permute_and_flip",
    "ptr_pass_rate",
    "ptr_top_k",
    "randomize",
    "required_count",
    "required_gap",
    "response_chances",
    "system_random",
    "threshold_pass_rate",
    "threshold_words",
    "token_distribution",
    "token_distributions",
]
