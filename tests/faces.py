"""The one door from the tests to the package.

Tests of `unit_tests` and `integration_tests` import the package's names from here, and
from nowhere else. A redesign of the package changes this file and no test.
"""

from __future__ import annotations

import itertools
import json
import secrets
import time
from collections.abc import Callable, Iterable
from itertools import compress
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from scripted import ScriptedWords
from worlds import UNIT

# ---- names ---------------------------------------------------------------------------
from langchain_dpicl import (
    BudgetExhaustedError,
    DPChain,
    DPError,
    DPRetriever,
    ESAOutputParser,
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
    ReleasedExamples,
    RetrievedGroups,
    SampledGroups,
    UnitError,
    UnsealableModelError,
    VoteOutputParser,
    accounting,
    create_dp_tool,
    few_shot,
    insights,
    offline,
    tabular,
    threads,
)
from langchain_dpicl.budget import Purchase, charges
from langchain_dpicl.cli import main
from langchain_dpicl.ledger import CorpusTerms, backup_ledger, book, open_ledger
from langchain_dpicl.ledger.units import tag_of
from langchain_dpicl.mechanisms import (
    keyword_joint,
    keyword_ptr,
    keyword_threshold,
    next_token,
    random,
    responses,
    tables,
    voting,
)
from langchain_dpicl.offline import HashingEmbeddings
from langchain_dpicl.parsers import DPOutputParser
from langchain_dpicl.released import ReleasedCorpus
from langchain_dpicl.sealed import open_for_tests

# ---- laws ----------------------------------------------------------------------------


def _reports(codes: Any, paid: Any, domain_size: int) -> Any:
    return responses.randomize(codes, domain_size=domain_size, epsilon=paid.epsilon)


_ONE, _ALL = 0, slice(None)
_LAWS: dict[str, tuple[Any, Any, Any]] = {
    "votes": (voting.charge, voting.noisy_counts, _ONE),
    "top words": (keyword_ptr.charge, keyword_ptr.ptr_top_k, _ALL),
    "common words": (keyword_threshold.charge, keyword_threshold.threshold_words, _ALL),
    "ranked words": (keyword_joint.charge, keyword_joint.joint_top_k, _ONE),
    "token": (next_token.charge, next_token.noisy_next_token, _ONE),
    "likely token": (next_token.max_charge, next_token.noisy_max_next_token, _ONE),
    "tables": (tables.histograms_charge, tables.noisy_histograms, _ONE),
    "sums": (tables.tallies_charge, tables.noisy_tallies, _ONE),
    "reports": (responses.charge, _reports, _ONE),
    "how many words": (keyword_ptr.range_charge, keyword_ptr.choose_k, _ONE),
}
_PURE = ("ranked words", "likely token", "sums", "reports", "how many words")


def seeded(seed: int | None) -> Any:
    """Return coins that a test can toss again; None tosses the system's."""
    return None if seed is None else random.SeededRandom(seed)


class Coins(random.SecureRandom):
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
    name = "epsilon" if release in _PURE else "noise_multiplier"
    terms: dict[str, float] = {name: noise[0]} if noise else {}
    terms |= {} if rate == 1.0 else {"sampling_rate": rate}
    terms |= {"noise_multiplier": 1.0} if release == "how many words" else {}
    return tuple(_LAWS[release][0](**terms).at(1.0, delta0))


def draw(release: str, data: Any, paid: Any, coins: Any = None, **public: Any) -> Any:
    """Draw a release with the noise that was paid for; `coins`: a seed, or `Coins`."""
    _, function, taken = _LAWS[release]
    public.pop("rate", None)  # An event holds what is drawn, before sampling.
    with random.use(seeded(coins) if isinstance(coins, int) else coins):
        return function(data, paid=tuple(paid)[taken], **public)


# ---- accounting ----------------------------------------------------------------------


class _Event(type):
    """A class whose constructor takes the number first, and makes the public event."""

    event: Any
    number: str

    def __call__(cls, value: Any, **terms: Any) -> Any:
        return cls.event(**{cls.number: value}, **terms)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.event)


def _event(kind: str, number: str) -> Any:
    return _Event(kind, (), {"event": getattr(accounting, kind), "number": number})


Gaussian = _event("Gaussian", "noise_multiplier")
Exponential, Pure = (_event(kind, "epsilon") for kind in ("Exponential", "Pure"))
Failure, Parallel = _event("Failure", "delta0"), _event("Parallel", "branches")


class Filter:
    """A filter at one order; a quarter of delta is for failures."""

    def __init__(self, epsilon: float, delta: float, order: Any = None) -> None:
        self.order = order or accounting.best_order(epsilon, 0.75 * delta)
        terms = {"epsilon": epsilon, "delta": delta, "order": self.order}
        self._filter = accounting.Filter(**terms, failure_share=0.25)
        self._spent = accounting.Cost(0, 0)

    def pays(self, *events: Any) -> bool:
        """Whether the events fit; they are spent then."""
        cost = self._filter.cost(events)
        both = accounting.Cost(*map(sum, zip(self._spent, cost, strict=True)))
        is_paid = max(both) <= accounting.UNITS
        self._spent = both if is_paid else self._spent
        return is_paid


# ---- ledger --------------------------------------------------------------------------
_OPEN = (accounting.Gaussian(noise_multiplier=None),)


def open_account(ledger: Any, name: str = "notes", **terms: Any) -> Any:
    """Open an account of (8, 1e-6), or what the terms say, in a ledger or a URL."""
    terms = {"epsilon": 8.0, "delta": 1e-6, **terms}
    terms |= {"accounting": "renyi"} if "accounting" in terms else {}
    return PrivacyBudgetHandler(ledger=ledger, account=name, **terms)


class Charge:
    """A charge: its number, what collects it, and whether its caller draws (`owns`).

    Without events the account chooses the noise; without a key it has its own.
    """

    def __init__(self, account: Any, events: Any = (), key: str | None = None) -> None:
        self._purchase = Purchase(
            account,
            accounting.Charge(name="net", parts=tuple(events) or _OPEN),
            key or secrets.token_hex(),
            unit_key=UNIT,
            charges_units=account.scope == "unit",
        )
        self._take(self._purchase.attempt())

    def _take(self, paid: Any) -> None:
        self._paid, self.number = paid, paid.charge
        self.owns = not getattr(paid, "is_again", True)
        self._collect = getattr(paid, "collect", None)

    def collect(self, unit_ids: Iterable[str]) -> set[str]:
        """Collect the price from units, in a per-unit account; return who has paid."""
        collect, self._collect = self._collect, None
        return set(collect(unit_ids))

    def once(self, draw: Callable[[], str]) -> str:
        """Return the one draw: the owner's, which others wait for, or buy anew."""
        if not self.owns:
            self._take(self._purchase.bought())
        self.owns = False
        if self._collect is not None:
            self.collect([])
        with self._paid as paid:
            return str(paid.once(draw))

    def give_up(self) -> None:
        """End without a draw, as a dead owner does."""
        if self.owns:
            self._paid.leave()


def read(account: Any, *units: str) -> Any:
    """Read an account: steps spent of the most, charges, draws, balances of units."""
    ledger, name = account.ledger, account.account
    book, stored = ledger.state(name), charges(ledger, name)
    draws = {c.charge: c.values[0] for c in stored if c.values}
    tags = {b.tag: b.spent.loss for b in (ledger.unit_balances(name) if units else ())}
    paid = {unit: tags.get(tag_of(book, unit), 0) for unit in units}
    found = {"spent": (*book.spent,), "most": (*book.account.limit,), "paid": paid}
    events = {c.charge: c.events for c in stored}
    return SimpleNamespace(charges=events, draws=draws, **found)


def verify(ledger: Any) -> None:
    """Check a whole ledger, or raise."""
    ledger.verify()


def close(account: Any) -> None:
    """Close an account for good."""
    account.ledger.close_account(account.account)


def renew(account: Any) -> str:
    """Open the account of the next period; return its name."""
    return str(account.ledger.renew(account.account).name)


def at(moment: Any) -> Any:
    """Set the ledger's clock inside a `with` block."""
    time = round(moment.timestamp() * 1e6)
    return mock.patch.object(book, "database_time", return_value=time)


# ---- question ------------------------------------------------------------------------


def chain(groups: Any, model: Any, parser: Any, budget: Any = None, **more: Any) -> Any:
    """Make a chain whose answers are given again."""
    return DPChain(groups=groups, model=model, parser=parser, budget=budget, **more)


def settle() -> None:
    """Wait until no question runs: one whose caller was canceled goes on."""
    while threads.QUESTIONS.unfinished:
        time.sleep(0.001)


def record(answer: Any) -> dict[str, Any]:
    """Return the public record of an answer."""
    return dict(answer.response_metadata["privacy"])


class PlannedCoins(random.SecureRandom):
    """A random source for `random=` that tosses each unit's coin as planned."""

    is_seeded = True

    def plan(self, tosses: Any, words: Any, rows: Any) -> None:
        """Plan one draw: who is in it, and each unit's word and number of rows."""
        kept = [n for n, toss in enumerate(tosses) if toss]
        heads = np.zeros(-(-len(tosses) // 8) * 8, np.uint8)
        heads[: len(tosses)] = [255 * (not toss) for toss in tosses]
        ranks = [words[n] + row for n in kept for row in range(rows[n])]
        self._calls = [heads.view(np.uint64), [], [words[n] for n in kept], ranks]

    def words(self, count: int) -> Any:
        """Return the next planned words."""
        return np.array(self._calls.pop(0)[:count], np.uint64)


def payers(budget: Any, units: Any) -> dict[str, int]:
    """Return how much each unit of a per-unit account has paid."""
    return dict(read(budget, *units).paid)


def dispose(budget: PrivacyBudgetHandler) -> None:
    """Close the connections of an account's ledger."""
    getattr(budget.ledger, "dispose", lambda: None)()


# ---- reading -------------------------------------------------------------------------


def read_reply(labels: Any, reply: str, aliases: Any = None) -> str:
    """Return the label that a reply chooses, "none", or "unreadable"."""
    parser = VoteOutputParser(labels=labels, aliases=aliases or {})
    place = parser.choice(reply)
    kind = parser.reads(reply, tuple(labels))
    other = "none" if kind == "nothing" else "unreadable"
    return other if place is None else str(labels[place])


def common_items(answers: list[str], most: int = 1, **terms: Any) -> list[str]:
    """Return what several answers are counted for; the leader alone if there is one."""
    terms |= {"noise_multiplier": 0.05, "delta0": 1e-9}
    terms |= {"abstain_text": "", "budget": planned(1e9, queries=5)}
    parser = KSAThresholdOutputParser(items_per_answer=most, **terms)
    # Of equal counts one leads by chance, once in 20 draws.
    told = max((parser.invoke(answers) for _ in range(5)), key=len)
    return sorted(told.rpartition(": ")[2].split(", ")) if told else []


# ---- tables --------------------------------------------------------------------------


def planned(epsilon: float = 4.0, **terms: Any) -> PrivacyBudgetHandler:
    """Return an account of one release, in memory."""
    terms = {"delta": 1e-6, "queries": 1, "ledger": ":memory:", **terms}
    return PrivacyBudgetHandler(epsilon=epsilon, **terms)


def table_of(kind: str, rows: Any, schema: Any, **terms: Any) -> Any:
    """Return a "GDPTable" or "LDPTable" at an `epsilon`; with a `seed`, released."""
    seed, epsilon = terms.pop("seed", None), terms.pop("epsilon", 4)
    terms["budget"] = terms.get("budget") or planned(epsilon)
    more = {"participation": "public"} if kind == "LDPTable" else {}
    table = getattr(tabular, kind)(rows, schema, **{**more, **terms})
    return table if seed is None else random.use(seeded(seed))(table.release)()


def tallied(parts: list[Any], schema: Any, **terms: Any) -> Any:
    """Return a table of parts that workers count each by itself."""
    tallies = [tabular.tally(part, schema, b"k" * 32, **terms) for part in parts]
    return tabular.GDPTable.from_tallies(tallies, schema, budget=planned(1e5))


def counts(table: Any, *columns: str) -> dict[tuple[str, ...], int]:
    """Return the unbiased count of each cell of a measured table."""
    found = table.statistics.table(columns)
    return dict(zip(itertools.product(*found.values), found.noisy.flat, strict=True))


def means(table: Any, column: str) -> list[tuple[float, float]]:
    """Return each label's mean of a column, and its number of rows."""
    found, label = table.statistics, table.schema.label
    where = [({label: value}, size.value) for value, size in found.counts(label)]
    return [(found.mean(column, w).value, n) for w, n in sorted(where, key=str)]


def reports(rows: Any, schema: Any, epsilon: float, seed: int | None = None) -> Any:
    """Return what clients report of rows, one report each."""
    client = tabular.LDPClient(schema, epsilon=epsilon)
    with random.use(seeded(seed)):
        return [client.report(rows[0])] if len(rows) < 2 else [*client.reports(rows)]


# ---- few shot ------------------------------------------------------------------------


class Words(ScriptedWords, few_shot.NextTokenModel):
    """A scripted model of words, as a generator asks it."""

    vocabulary_size = property(lambda self: len(self.words))

    def top_tokens(self, prompts: Any, k: int) -> Any:
        """Return the likeliest words after each public prompt."""
        return [self.order(p.text, p.generated)[:k] for p in prompts]

    def log_probabilities(self, prompts: Any, tokens: Any) -> Any:
        """Return the logarithms of what it likes, or None."""
        asked = zip(prompts, tokens, strict=True)
        return [self.logs(p.text, p.generated, wanted) for p, wanted in asked]


def generator(model: Any, labels: Any, *, seed: int | None = None, **terms: Any) -> Any:
    """Return a generator of examples; terms may hold `epsilon` to pay."""
    terms["budget"] = terms.get("budget") or planned(terms.pop("epsilon", 8.0))
    kinds = {"gaussian": few_shot.Greedy, "noisy_max": few_shot.NoisyMax}
    options = dict(terms.pop("decoder", ())) | {"stop": terms.pop("stop", "\n")}
    terms["mechanism"] = kinds[terms.get("mechanism", "gaussian")](**options)
    named = terms.pop("label_sizes", labels)
    made = few_shot.DPFewShotGenerator(model, "Given a kind, write.", named, **terms)
    return SimpleNamespace(generate=random.use(seeded(seed))(made.generate))
