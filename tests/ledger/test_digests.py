"""The digests of a ledger, made by hand: another digest would refuse what is stored."""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from support.corpora import CLINIC, DECEMBER, FOR_EVER, PER_UNIT
from support.ledgers import FILTERED, NOISY, PLANNED, RENYI, UNIT_PLANNED

from langchain_dpicl.accounting import Cost
from langchain_dpicl.ledger import AccountTerms, CorpusTerms, hash_chain
from langchain_dpicl.ledger.base import AccountState

AT = datetime(2026, 12, 10, 9, 30, tzinfo=timezone.utc)
SAID = "2026-12-10T09:30:00.000000+00:00"
FIRST, SECOND, THIRD = bytes(range(32)), bytes(range(32, 64)), bytes(range(64, 96))


def entry(*parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=32, person=b"dpicl.journal").hexdigest()


def sha(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


def plain(
    name: str, queries: int, scope: str = "corpus", key: str | None = None
) -> list[Any]:
    return [name, 8.0, 1e-6, queries, "plan", scope, None, None, key]


TERMS: list[tuple[AccountTerms, bytes | None, list[Any]]] = [
    (PLANNED, None, ["notes", 8.0, 1e-6, 5, "plan", "corpus", None, None, None]),
    (
        replace(PLANNED, epsilon=8, delta=0),
        None,
        ["notes", 8.0, 0.0, 5, "plan", "corpus", None, None, None],
    ),
    (FILTERED, None, ["notes", 8.0, 1e-6, None, "zcdp", "corpus", None, 0.25, None]),
    (RENYI, None, ["notes", 8.0, 1e-6, None, "renyi", "corpus", 5.5, 0.0, None]),
    (
        UNIT_PLANNED,
        FIRST,
        ["notes", 8.0, 1e-6, 2, "plan", "unit", None, None, sha(FIRST)],
    ),
    (
        PER_UNIT,
        FIRST + SECOND,
        [
            "each",
            8.0,
            1e-06,
            20,
            "plan",
            "unit",
            None,
            None,
            sha(FIRST),
            "clinic",
            None,
            None,
        ],
    ),
    (
        DECEMBER,
        None,
        [
            "clinic/2026-12",
            8.0,
            1e-06,
            20,
            "plan",
            "corpus",
            None,
            None,
            None,
            "clinic",
            "2026-12",
            None,
        ],
    ),
    (
        replace(PLANNED, purpose="research"),
        None,
        [
            "notes",
            8.0,
            1e-06,
            5,
            "plan",
            "corpus",
            None,
            None,
            None,
            None,
            None,
            "research",
        ],
    ),
]


@pytest.mark.parametrize(("terms", "key", "said"), TERMS)
def test_a_chain_starts_with_the_terms(
    terms: AccountTerms, key: bytes | None, said: list[Any]
) -> None:
    assert hash_chain.after_terms(terms, key) == entry("", "terms", *said)


def test_the_plan_and_each_charge_follow() -> None:
    assert hash_chain.after_plan("aa", "{}") == entry("aa", "plan", "{}")
    cost = Cost(7, 3)
    said = ["aa", "charge", "notes", 4, "[]", 7, 3, SAID]
    assert hash_chain.after_charge("aa", "notes", 4, "[]", cost, AT) == entry(*said)
    for caller, spent in (("alice", 9), ("alice", None), (None, 9), ("", 0)):
        found = hash_chain.after_charge(
            "aa", "notes", 4, "[]", cost, AT, caller, caller_spent=spent
        )
        assert found == entry(*said, caller, spent)


def test_a_charge_is_written_in_one_text() -> None:
    assert hash_chain.events_text(NOISY) == (
        '[{"count": 1, "kind": "gaussian", "noise_multiplier": 4.0, '
        '"sampling_rate": 1.0}, {"count": 1, "delta0": 1e-09, "kind": "delta"}]'
    )
    assert hash_chain.canonical({"b": [1.5, None], "a": "\xe4"}) == (
        '{"a": "\\u00e4", "b": [1.5, null]}'
    )
    for odd in (float("nan"), float("inf"), [-float("inf")]):
        with pytest.raises(ValueError, match="JSON compliant"):
            hash_chain.canonical(odd)


def test_what_a_charge_releases_is_a_chain_of_its_own() -> None:
    start = entry("", "release", "notes", 2, "kind", "header")
    assert hash_chain.after_release("notes", 2, "kind", "header") == start
    assert hash_chain.after_step(start, 0, "[1]") == entry(start, "step", 0, "[1]")
    assert hash_chain.after_releases({}) is None
    found = hash_chain.after_releases({2: (3, "aa"), 5: (0, "bb")})
    assert found == entry("", "releases", 2, 3, "aa", 5, 0, "bb")
    assert found != hash_chain.after_releases({5: (0, "bb"), 2: (3, "aa")})


STATE = AccountState(PLANNED, None, 4, closed=False, spent=Cost(7, 3))
PLAIN = ["aa", "account", 4, 7, 3, False, None, None]


@pytest.mark.parametrize(
    ("state", "rest", "said"),
    [
        (STATE, (None, None, None), PLAIN),
        (
            replace(STATE, closed=True),
            (None, None, None),
            [*PLAIN[:5], True, *[None] * 2],
        ),
        (STATE, ("bb", "cc", FIRST), [*PLAIN[:6], "bb", "cc"]),
        (STATE, ("bb", None, FIRST + SECOND), [*PLAIN[:6], "bb", None, sha(SECOND)]),
        (
            replace(STATE, salt="dd"),
            ("bb", None, FIRST + SECOND + THIRD),
            [*PLAIN[:6], "bb", None, None, "dd", sha(SECOND + THIRD)],
        ),
        (replace(STATE, salt="dd"), (None, None, None), [*PLAIN, None, "dd"]),
        (replace(STATE, closed_at=AT), (None, None, None), [*PLAIN, SAID, None]),
        (replace(STATE, at=AT), (None, None, None), PLAIN),
    ],
)
def test_a_head_is_made_of_all_that_changes(
    state: AccountState, rest: tuple[Any, Any, Any], said: list[Any]
) -> None:
    assert hash_chain.head_of("aa", state, *rest) == entry(*said)


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        (CLINIC, ["clinic", "patient", 24.0, 3e-6, 365]),
        (FOR_EVER, ["archive", "patient", 24.0, 3e-6, None]),
        (CorpusTerms("few", None, 1, 1e-6), ["few", None, 1.0, 1e-6, None]),
    ],
)
def test_a_corpus_is_its_terms_and_the_last_time_it_saw(
    terms: CorpusTerms, said: list[Any]
) -> None:
    first = entry("", "corpus", *said)
    assert hash_chain.corpus_digest(terms) == first
    assert hash_chain.corpus_head(first, AT) == entry(first, "seen", SAID)


def test_the_registry_names_one_account_after_the_other() -> None:
    assert hash_chain.NO_ACCOUNTS == ""
    one = hash_chain.after_account("", "aa")
    assert one == entry("", "registered", "aa")
    two = hash_chain.after_account(one, "bb", "cc")
    assert two == entry(one, "registered", "bb", "cc")
    assert hash_chain.after_account(one, "bb", None) == entry(one, "registered", "bb")


def term(key: bytes, tag: bytes, spent: Cost) -> int:
    keyed = hashlib.blake2b(
        tag + struct.pack(">QQ", *spent),
        key=key,
        digest_size=32,
        person=b"dpicl.balances",
    )
    return int.from_bytes(keyed.digest(), "big")


def test_balances_are_a_sum_of_keyed_hashes() -> None:
    key, modulus = FIRST + SECOND, 2**256
    before, after = Cost(1, 0), Cost(2**40, 7)
    a, b = b"a" * 16, b"b" * 16
    assert hash_chain.NO_BALANCES == "0" * 64
    start = hash_chain.balances_after("0" * 64, key, [(a, Cost(0, 0), before)])
    assert start == f"{term(SECOND, a, before):064x}"
    both = hash_chain.balances_after(
        start, key, [(a, before, after), (b, Cost(0, 0), Cost(0, 1))]
    )
    expected = (term(SECOND, a, after) + term(SECOND, b, Cost(0, 1))) % modulus
    assert both == f"{expected:064x}"
    less = hash_chain.balances_after("0" * 64, key, [(a, before, Cost(0, 0))])
    assert less == f"{modulus - term(SECOND, a, before):064x}"
    assert hash_chain.balances_after(less, key, []) == less


def test_a_small_digest_keeps_its_zeros() -> None:
    assert hash_chain.balances_after("f" * 64, FIRST, []) == "f" * 64
    assert hash_chain.balances_after(f"{255:064x}", FIRST, []) == "0" * 62 + "ff"
    assert hash_chain.balances_after(f"{2**256 + 5:x}", FIRST, []) == f"{5:064x}"


def test_a_time_is_one_moment_in_any_zone() -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    for at in (AT, AT.replace(tzinfo=None), AT.astimezone(east)):
        assert hash_chain.utc(at) == AT
        assert hash_chain.utc(at).utcoffset() == timedelta(0)
        assert hash_chain.corpus_head("aa", at) == entry("aa", "seen", SAID)
    odd = AT.replace(microsecond=12_345)
    said = "2026-12-10T09:30:00.012345+00:00"
    assert hash_chain.corpus_head("aa", odd) == entry("aa", "seen", said)
