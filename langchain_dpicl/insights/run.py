"""`insights`: from conversations to one release of what many people talk about.

1. *Public:* topics, attributes and terms; the noise by the account's price.
2. The account is charged, once.
3. *Sealed:* a call for each person; the slots that each fills; the noisy table.
4. It is stored, and shown.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from langchain_core.documents import Document

from langchain_dpicl.accounting import Charge, Event
from langchain_dpicl.budget import (
    Paid,
    PrivacyBudgetHandler,
    Purchase,
    Stored,
    require_account,
)
from langchain_dpicl.common import file_format, parameters
from langchain_dpicl.common.hidden import hiding
from langchain_dpicl.common.progress import is_watched
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import (
    InvalidParameterError,
    NoBudgetError,
)
from langchain_dpicl.groups.units import unit_id_of
from langchain_dpicl.insights.conversations import documents_of
from langchain_dpicl.insights.reading import NO_RECORDS, TopicReader
from langchain_dpicl.insights.result import Insights
from langchain_dpicl.insights.table import Forecast, Laws, Layout, least
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.mechanisms import slots
from langchain_dpicl.mechanisms.random import current
from langchain_dpicl.release.record import (
    NEIGHBORS,
    Status,
    charged_record,
    damaged,
    release_record,
)
from langchain_dpicl.sealed import SealedModel, attempt, sealed
from langchain_dpicl.tabular.released_table import drawn_once, least_charge
from langchain_dpicl.tabular.text.asking import (
    MAX_CHARACTERS,
    Asking,
    ReadingForecast,
    model_name,
    reading_digest,
)
from langchain_dpicl.tabular.text.store import Readings
from langchain_dpicl.tabular.text.units import Part, units_of
from langchain_dpicl.threads import on_question_thread

MECHANISM = "insights"

_Person: TypeAlias = tuple[tuple[Part, ...], int]

MAX_TOPICS = 2
"""How many topics a person has at most, unless told otherwise."""

WORDS_SHARE = 0.05
"""Words are released where so small a part of the declared people can share one."""

WORDS_RATE = 0.98
"""How often a word of so many people comes out, at least."""

_OF_DELTA = 0.99
"""The part of a plan's delta that pays for words: nothing else needs it."""


@hiding
def insights(  # noqa: PLR0913 - the public terms, one by one
    conversations: Iterable[Any],
    model: Any,
    *,
    unit_key: str,
    topics: Any,
    budget: PrivacyBudgetHandler | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    ledger: str | Ledger | None = None,
    account: str = MECHANISM,
    by: Mapping[str, Sequence[str]] | None = None,
    max_topics: int = MAX_TOPICS,
    people_at_most: int | None = None,
    order_key: str | None = None,
    max_concurrency: int | None = None,
    file: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    resume: bool = False,
) -> Insights:
    """Release which of the listed topics people's conversations are about.

    The account is charged once, then the model is asked about each person, by that
    person's conversations alone: once, or in parts if they are long. `forecast` says
    before what will come out.

    Args:
        conversations: The private conversations: documents, mappings, runs and spans,
            as `conversations.documents_of` reads them.
        model: A chat model or completion model, with bound arguments if you like.
        unit_key: The metadata key or field that says whose a conversation is.
        topics: `Topics`, a list of names, or a mapping from groups to names. They are
            public: written or drafted without looking at conversations.
        budget: The account that pays; None opens one of the next four, for one release.
        epsilon: Its privacy loss bound.
        delta: Its failure probability.
        ledger: Its ledger: a SQLAlchemy URL, a `Ledger`, or `":memory:"`.
        account: Its name.
        by: Attributes to split by: metadata keys, and the public values of each. All
            others count as "other". A person has the listed value that most of the own
            conversations have.
        max_topics: How many topics m a person has at most; the noise grows with it.
        people_at_most: A public number that the people stay below. It decides whether
            words that nobody listed are released, and is never compared with them.
        order_key: The metadata key by which a person's conversations are ordered.
        max_concurrency: Most calls at once; None: 32, or one where the model seems to
            compute in this process.
        file: A path that keeps what was read, so that an interrupted run goes on with
            `resume=True`. "private" must be in its name.
        progress: Whether to show a bar; None: where somebody looks.
        resume: If the account has a release of the same terms, take that one, at no
            charge, or go on where it was interrupted.

    Raises:
        InvalidParameterError: If an argument is out of its range.
        UnitError: If there are no conversations, or one does not say whose it is.
        NoBudgetError: If there is neither a budget nor epsilon, delta and a ledger.
        BudgetExhaustedError: If the account can't pay.
        PlanMismatchError: If the account's plan is for another release.
        LedgerError: If the ledger can't be used.
        PublicCallError: If the model fails on no conversations.
        UnsealableModelError: If the model can't be called without leaking.

    Privacy:
        Unit: all conversations with one value of `unit_key`. Neighbors: all of one unit
        more or less. Each person fills m slots of a table, by the own conversations and
        the model's answers about these alone; one who can't be read does as well. Noise
        and event: `mechanisms.slots`. Topics, m, attributes, words or none, and the
        kind of noise are fixed before the charge, by public numbers. How many people
        and calls there are is private.

    Example:
        >>> from langchain_core.language_models import FakeListChatModel
        >>> said = [{"user": n, "text": "Where is my refund?"} for n in range(60)]
        >>> found = insights(
        ...     said,
        ...     FakeListChatModel(responses=["refunds"]),
        ...     unit_key="user",
        ...     topics=["refunds", "late fees"],
        ...     epsilon=8,
        ...     delta=1e-6,
        ...     ledger=":memory:",
        ... )
        >>> [topic.name for topic in found.topics], found.too_few
        (['refunds'], ('late fees',))
    """
    payer = _account(budget, epsilon, delta, ledger, account, people_at_most)
    laws, charge = _priced(payer, topics, max_topics, by, people_at_most)
    reader = TopicReader(laws.layout.topics, laws.layout.slots)
    sealed_model = SealedModel(model, max_concurrency)
    prompt, called = reader.prompt("").to_string(), model_name(model)
    readings = Readings(reader.fits, file, reading_digest(model, {"prompt": prompt}))
    asking = Asking(
        sealed_model,
        reader.prompt,
        reader.parse,
        readings,
        shown=is_watched() if progress is None else progress,
    )
    terms = {
        "topics": laws.layout.topics.model_dump(mode="json"),
        "max_topics": laws.layout.slots,
        "by": {name: list(values) for name, values in laws.layout.by.items()},
        "people_at_most": people_at_most,
        "noise": laws.kind,
        "own_words": laws.noise.gate is not None,
        "order_key": order_key,
    }
    record = release_record(
        kind="table",
        status=Status.RELEASED.value,
        mechanism=MECHANISM,
        parameters=terms,
        unit=f"all conversations with the same {unit_key!r}",
        unit_key=unit_key,
        relation=Relation.ADD_REMOVE.value,
        neighbors=NEIGHBORS,
        model=called,
    )
    more = {"unit_key": unit_key, "model": called, "is_secure": not current().is_seeded}
    purchase = Purchase(
        payer,
        charge,
        f"{MECHANISM} {file_format.digest({**terms, **more})}",
        unit_key=unit_key,
        header={"record": record},
        resumable=True,
        anew=not resume,
    )

    def read() -> list[_Person]:
        people = _people(conversations, laws.layout, unit_key, order_key)
        readings.begin()
        # Also with all readings in a file: else a trial would tell of new people.
        sealed_model.probe(reader.prompt(NO_RECORDS))
        return people

    def draw(paid: Paid, people: list[_Person]) -> dict[str, Any]:
        return sealed(partial(_drawn, paid, people, asking, reader, laws))

    stored = drawn_once(purchase, "release of insights", read, draw)
    return stored_insights(stored, payer.delta, payer.public_state(stored))


@hiding
async def ainsights(conversations: Iterable[Any], model: Any, **terms: Any) -> Insights:
    """Release insights without blocking the event loop; see `insights`."""
    return await on_question_thread(partial(insights, conversations, model, **terms))


def forecast(  # noqa: PLR0913 - the public terms, one by one
    topics: Any,
    *,
    budget: PrivacyBudgetHandler | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    by: Mapping[str, Sequence[str]] | None = None,
    max_topics: int = MAX_TOPICS,
    people_at_most: int | None = None,
    tokens_per_person: int | None = None,
    price_in: float = 0.0,
    price_out: float = 0.0,
) -> Forecast:
    """Return what `insights` of these terms will show, and cost; charge nothing.

    The terms are those of `insights`, and three for the cost: `tokens_per_person`, a
    public guess of the tokens of a person's conversations, and the prices of a million
    tokens that are sent (`price_in`) and that come back (`price_out`).

    Example:
        >>> forecast(["refunds", "fees"], epsilon=3, delta=1e-6).least
        5
    """
    ledger = ":memory:" if budget is None else None
    payer = _account(budget, epsilon, delta, ledger, MECHANISM, people_at_most)
    laws, _ = _priced(payer, topics, max_topics, by, people_at_most)
    reading = None
    if people_at_most is not None and tokens_per_person is not None:
        longest = sorted(laws.layout.topics.names, key=len)[-max_topics:]
        asked = TopicReader(laws.layout.topics, max_topics).prompt(NO_RECORDS)
        reading = ReadingForecast.of(
            people_at_most,
            parameters.count(tokens_per_person, "tokens_per_person"),
            prompt=asked.to_string(),
            reply="\n".join(longest),
            price_in=price_in,
            price_out=price_out,
        )
    return Forecast.of(laws, people_at_most, reading)


def _account(
    budget: PrivacyBudgetHandler | None,
    epsilon: float | None,
    delta: float | None,
    ledger: str | Ledger | None,
    account: str,
    people_at_most: int | None,
) -> PrivacyBudgetHandler:
    """Return the account that pays: the given one, or one for a single release."""
    if budget is None and epsilon is not None and delta is not None and ledger:
        return PrivacyBudgetHandler(
            epsilon=epsilon,
            delta=delta,
            ledger=ledger,
            queries=1,
            account=account,
            people_at_most=people_at_most,
        )
    if budget is not None and (epsilon, delta, ledger) != (None, None, None):
        raise InvalidParameterError(
            "Give either budget=, or epsilon=, delta= and ledger= for an account of "
            "one release."
        )
    if budget is None:
        raise NoBudgetError(
            "No privacy budget: nothing was read and nothing was released. Give "
            "budget=PrivacyBudgetHandler(...), or epsilon=, delta= and ledger=."
        )
    return require_account(budget, "release of insights")


def _priced(
    account: PrivacyBudgetHandler,
    topics: Any,
    max_topics: int,
    by: Mapping[str, Sequence[str]] | None,
    people: int | None,
) -> tuple[Laws, Charge]:
    """Return the release whose least topic is smaller, by the account's price. Public.

    Words come with it where enough of the declared people can share one.
    """
    layout = Layout.of(topics, max_topics, by)
    most = 0 if people is None else parameters.count(people, "people_at_most")

    def needed(events: Sequence[Event]) -> tuple[int, bool] | None:
        laws = Laws(layout, slots.SlotNoise.of(events, layout.slots))
        gate = laws.noise.gate
        if gate is not None and gate.required(WORDS_RATE, 1) > WORDS_SHARE * most:
            return None
        return least(laws.topic(), len(layout.topics.names)), gate is None

    share = _OF_DELTA * account.delta if account.terms.queries == 1 else None
    charges = (
        slots.charge(name=MECHANISM),
        slots.gaussian_charge(name=MECHANISM),
        slots.charge(words=True, delta0=share, name=MECHANISM),
        slots.gaussian_charge(words=True, name=MECHANISM),
    )
    _, charge = least_charge(account, charges, needed)
    return Laws(layout, slots.SlotNoise.of(account.quote(charge), layout.slots)), charge


# ---- the private half ----------------------------------------------------------------


def _people(
    conversations: Iterable[Any], layout: Layout, unit_key: str, order_key: str | None
) -> list[_Person]:
    """Return all people, each as texts for calls and a column. Private."""
    documents = documents_of(conversations, unit_key)
    own: dict[str, list[Document]] = {}
    for position, document in enumerate(documents):
        unit_id = unit_id_of(document, unit_key, position=position)
        own.setdefault(unit_id, []).append(document)
    units = units_of(
        documents,
        unit_key=unit_key,
        order_key=order_key,
        max_characters=MAX_CHARACTERS,
    )
    return [
        (parts, layout.column(one.metadata for one in own[unit_id]))
        for unit_id, parts in zip(sorted(own), units, strict=True)
    ]


def _drawn(
    paid: Paid,
    people: Sequence[_Person],
    asking: Asking,
    reader: TopicReader,
    laws: Laws,
) -> dict[str, Any]:
    """Have everybody's conversations read; return the noisy table and the words."""
    asking.ask([parts for parts, _ in people], threading.Event(), paid.renew)
    rows, words = [], []
    for parts, _ in people:
        reading = attempt(partial(reader.reading, asking.readings(parts)))
        row, other = laws.layout.filled(reading), reading and reading.other
        rows.append(row)
        has_other = other is not None and laws.layout.other in row
        words.append(attempt(partial(reader.word, other)) if has_other else None)
    table, released = slots.noisy_slots(
        np.array(rows, np.int64).reshape(-1, laws.layout.slots),
        [column for _, column in people],
        words,
        paid.events,
        shape=laws.layout.shape,
        other=laws.layout.other,
    )
    return {"counts": table.tolist(), "words": released}


# ---- the public half -----------------------------------------------------------------


def stored_insights(
    stored: Stored, delta: float, account: Mapping[str, Any]
) -> Insights:
    """Return what a charge of an account has released; epsilon is stated at delta.

    Raises:
        LedgerError: If what is stored makes no sense.
    """
    with suppress(IndexError, KeyError, TypeError, InvalidParameterError):
        record = charged_record(stored.header["record"], stored, delta)
        drawn = stored.values[0]
        return Insights({**record, "account": account}, drawn["counts"], drawn["words"])
    raise damaged()
