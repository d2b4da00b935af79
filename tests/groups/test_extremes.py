"""Group sources and parsers, made with numbers that nobody means."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from support.extremes import soon, sweep

from langchain_dpicl.accounting import Exponential
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups import RetrievedGroups, SampledGroups
from langchain_dpicl.mechanisms.keyword_ptr import choose_k
from langchain_dpicl.offline import HashingEmbeddings
from langchain_dpicl.parsers import (
    ESAOutputParser,
    KSAJointOutputParser,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    VoteOutputParser,
)

DOCUMENTS = [Document(f"note {n} cough", metadata={"who": n}) for n in range(60)]


def retrieved(**terms: Any) -> RetrievedGroups:
    return RetrievedGroups.from_documents(
        DOCUMENTS, HashingEmbeddings(), unit_key="who", **terms
    )


def test_retrieval() -> None:
    sweep(retrieved, {"n_groups": 20, "docs_per_group": 2})
    passing = {"docs_per_group": 2, "score_threshold": 0.1}
    sweep(lambda **terms: retrieved(n_groups=20, **terms), passing)


def test_samples() -> None:
    good = {"n_groups": 20, "sampling_rate": 0.5, "docs_per_unit": 1, "n_units": 60}
    sweep(
        lambda **terms: SampledGroups.from_documents(
            DOCUMENTS, unit_key="who", **terms
        ),
        good,
    )
    rate = {"people": 60, "n_groups": 20, "people_per_group": 2}
    sweep(SampledGroups.rate_for, rate)


def test_parsers() -> None:
    noise = {"noise_multiplier": 2.0, "delta0": 1e-9}
    sweep(lambda **terms: KSAPTROutputParser(**terms).charge(), {"k": 2, **noise})
    sweep(
        lambda **terms: KSAPTROutputParser(k=(1, 3), **terms).charge(),
        {**noise, "selection_epsilon": 1.0},
    )
    many = {"first": 1, "last": 3}
    sweep(lambda first, last: KSAPTROutputParser(k=(first, last)), many)
    with pytest.raises(InvalidParameterError, match="at most"):
        KSAPTROutputParser(k=(1, 10_001))
    with soon("a range"), pytest.raises(InvalidParameterError, match="at most"):
        choose_k({}, range(1, 10**12), Exponential(epsilon=1.0), "replace")
    sweep(
        lambda **terms: KSAThresholdOutputParser(**terms).charge(),
        {"items_per_answer": 2, **noise},
    )
    sweep(
        lambda **terms: KSAJointOutputParser(domain=["a", "b", "c"], **terms).charge(),
        {"k": 2, "epsilon": 1.0},
    )
    sweep(
        lambda **terms: VoteOutputParser(labels=["a", "b"], **terms).charge(),
        {"noise_multiplier": 2.0},
    )
    sweep(
        lambda **terms: ESAOutputParser(
            embedding=HashingEmbeddings(), **terms
        ).charge(),
        {"n_candidates": 3, "noise_multiplier": 2.0},
    )
