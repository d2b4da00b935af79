"""The one door from the tests to the package.

Tests of `unit_tests` and `integration_tests` import the package's names from here, and
from nowhere else. A redesign of the package changes this file and no test: each section
says what the tests of one room need, in the names of the public surface.

Sections: names, laws, accounting, ledger, question, wall, reading, tables, few shot,
user.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# ---- names ---------------------------------------------------------------------------
# The public names, as a user imports them.
from langchain_dpicl import (
    BudgetExhaustedError,
    DPChain,
    DPError,
    DPRetriever,
    ESAOutputParser,
    GroupCallError,
    InvalidParameterError,
    KSAJointOutputParser,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    Ledger,
    LedgerError,
    NoBudgetError,
    PlanMismatchError,
    PrivacyBudgetHandler,
    PublicCallError,
    Relation,
    ReleasedCorpus,
    ReleasedExamples,
    RetrievedGroups,
    SampledGroups,
    UnitError,
    UnsealableModelError,
    UnsoundStoreError,
    VoteOutputParser,
    accounting,
    create_dp_tool,
    few_shot,
    mechanisms,
    offline,
    tabular,
)
from langchain_dpicl.accounting import Exponential, Failure, Gaussian, Parallel, Pure

# ---- laws ----------------------------------------------------------------------------
# What a release is charged at a noise, and a draw by what was paid for it.

_LAWS: dict[str, tuple[Any, Any]] = {
    "votes": (mechanisms.vote_template, mechanisms.noisy_counts),
    "vectors": (mechanisms.sum_template, mechanisms.noisy_sum),
    "top words": (mechanisms.ptr_template, mechanisms.ptr_top_k),
    "common words": (mechanisms.threshold_template, mechanisms.threshold_words),
    "ranked words": (mechanisms.joint_template, mechanisms.joint_top_k),
    "token": (mechanisms.next_token_template, mechanisms.noisy_next_token),
    "likely token": (mechanisms.max_token_template, mechanisms.noisy_max_next_token),
    "tables": (mechanisms.histograms_template, mechanisms.noisy_histograms),
    "sums": (mechanisms.tallies_template, mechanisms.noisy_tallies),
    "reports": (mechanisms.reports_template, mechanisms.randomize),
    "how many words": (mechanisms.ptr_range_template, mechanisms.choose_k),
}


def seeded(seed: int | None) -> Any:
    """Return coins that a test can toss again; None tosses the system's."""
    return None if seed is None else mechanisms.SeededRandom(seed)


class Coins(mechanisms.SecureRandom):
    """Coins that all show one 64-bit word."""

    def __init__(self, word: int) -> None:
        super().__init__()
        self.word = word

    def words(self, count: int) -> Any:
        """Return the word, `count` times."""
        return np.full(count, self.word, dtype=np.uint64)


def charged(
    release: str, *noise: float, delta0: float = 0.0, rate: float = 1.0
) -> tuple[Any, ...]:
    """Return the events that a release with this noise is charged."""
    terms = {} if rate == 1.0 else {"sampling_rate": rate}
    terms |= {"delta0": delta0} if delta0 else {}
    template = _LAWS[release][0](release, *noise[:1], **terms)
    if release == "how many words":
        template = _LAWS[release][0](release, 1.0, selection_epsilon=noise[0], **terms)
    return tuple(template.events(1.0, delta0))


def draw(release: str, data: Any, paid: Any, coins: Any = None, **public: Any) -> Any:
    """Draw a release with the noise that was paid for; `coins`: a seed, or `Coins`."""
    template, function = _LAWS[release]
    rate = public.pop("rate", 1.0)
    shape = template(release, **({} if rate == 1.0 else {"sampling_rate": rate}))
    noise = dict(vars(shape.read(tuple(paid))))
    if release == "how many words":
        noise = {"epsilon": noise["selection_epsilon"]}
    elif release == "sums":
        noise = {"epsilons": [noise["epsilon"] / len(data)] * len(data)}
    else:
        noise.pop("selection_epsilon", None)
    random = seeded(coins) if isinstance(coins, int) else coins
    return function(data, **noise, **public, random=random)


# ---- accounting ----------------------------------------------------------------------
# What an account that adds up as it goes still pays for.


class Filter:
    """A filter at one order: `pays(events)` adds them to what was spent, if they fit.

    A quarter of delta is for failures.
    """

    def __init__(
        self, epsilon: float, delta: float, order: float | None = None
    ) -> None:
        self._filter = accounting.PrivacyFilter(
            "renyi", epsilon, delta, delta0_share=0.25, order=order
        )
        self.order = float(self._filter.order or 0)
        self._spent = accounting.Cost(0, 0)

    def pays(self, *events: Any) -> bool:
        """Whether the events fit; they are spent then."""
        cost = self._filter.cost(events)
        if not self._filter.affords(self._spent, cost):
            return False
        self._spent = accounting.Cost(*map(sum, zip(self._spent, cost, strict=True)))
        return True


# ---- ledger (75 lines) ---------------------------------------------------------------
# Open an account; charge, collect, draw, read, verify; copy and damage a file.


# ---- question (45 lines) -------------------------------------------------------------
# Ask a chain; read its record; the slots of a draw.


def record(answer: Any) -> dict[str, Any]:
    """Return the public record of an answer."""
    return dict(answer.response_metadata["privacy"])


# ---- wall (25 lines) -----------------------------------------------------------------
# What looks at a question from outside.


# ---- reading (20 lines) --------------------------------------------------------------
# What a parser reads in one reply.


# ---- tables (35 lines) ---------------------------------------------------------------
# Rows, schemas, releases and margins.


# ---- few shot (25 lines) -------------------------------------------------------------
# Generators, next-token models, resume.


# ---- user (10 lines) -----------------------------------------------------------------
# The command line, the installed distribution.
