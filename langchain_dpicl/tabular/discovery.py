"""`discover`: which values enough people share, where nobody has listed them.

A schema's values are public before anybody looks at the table. What the table holds
beyond them is found by a release of its own: a value comes out only if clearly more
people have it than one. The values are public then, and become those of a column:

```python
found = discover(rows, "drug", budget=budget, unit_key="patient")
drug = found.column()  # A CategoricalColumn, with "other" for the rest.
```
"""

from __future__ import annotations

import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Literal, TypeAlias, cast

from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import ChatPromptTemplate

from langchain_dpicl.accounting import Charge, Pure
from langchain_dpicl.budget import (
    Paid,
    PrivacyBudgetHandler,
    Purchase,
    Stored,
    require_account,
)
from langchain_dpicl.common import file_format
from langchain_dpicl.common.hidden import hiding
from langchain_dpicl.common.progress import is_watched, progress_bar
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import keyword_threshold
from langchain_dpicl.mechanisms.random import current
from langchain_dpicl.parsers.reading import phrase_of, read_drafts
from langchain_dpicl.release.record import (
    NEIGHBORS,
    Status,
    charged_record,
    damaged,
    release_record,
)
from langchain_dpicl.released.checking import checked_record
from langchain_dpicl.sealed import SealedModel, sealed
from langchain_dpicl.tabular.cells import UnreadableError, spelled
from langchain_dpicl.tabular.columns import CategoricalColumn
from langchain_dpicl.tabular.people import canonical_ids
from langchain_dpicl.tabular.released_table import (
    drawn_once,
    least_charge,
    require_rows,
)
from langchain_dpicl.tabular.rows import read_chunks
from langchain_dpicl.tabular.text.asking import MAX_CHARACTERS, Asking, model_name
from langchain_dpicl.tabular.text.store import Readings
from langchain_dpicl.tabular.text.units import units_of

MECHANISM = "discover"

RELEASED_IN = 0.95
"""How often a value that `Discovery.people` people share comes out, at least."""

_LONGEST = 80

ASK = ChatPromptTemplate.from_template(
    "These are the records of one person:\n\n{records}\n\n"
    "Which {what} do they tell of? Name at most {most}, each in one to three words, "
    "one a line, the most important first, and nothing else. If they tell of none, "
    "answer: none"
)

Noise = Literal["laplace", "gaussian"]

_Counting: TypeAlias = Callable[[Callable[[], Any]], Counter[str]]
"""Counts people after the charge; runs its argument after each call. Private."""


@dataclass(frozen=True)
class Discovery:
    """Values that enough people share. Public.

    Attributes:
        name: The column.
        counts: How many people have each value, by noisy counts, the most first.
        people: So many people must share a value for it to come out in 95 % of
            releases.
        record: The public record of the release.

    Privacy:
        Post-processing of `mechanisms.keyword_threshold`: using it costs nothing.
    """

    name: str
    counts: Mapping[str, int]
    people: int
    record: dict[str, Any]

    @property
    def values(self) -> tuple[str, ...]:
        """The values, the most frequent first."""
        return tuple(self.counts)

    def column(
        self, name: str | None = None, *, other: str = "other"
    ) -> CategoricalColumn:
        """Return a column of these values, and of `other` for all else.

        Args:
            name: Its name; None: that of this discovery.
            other: The value that other and missing cells count as.

        Raises:
            InvalidParameterError: If no value came out.
        """
        if not self.values:
            raise InvalidParameterError(
                f"No value of {self.name!r} came out, so there is no column of them. "
                f"It takes about {self.people} people who share one."
            )
        values = list(dict.fromkeys((*self.values, other)))
        return CategoricalColumn(
            name=name or self.name, values=values, other=other, missing=other
        )


@hiding
def discover(  # noqa: PLR0913 - the public terms, one by one
    rows: Iterable[Any],
    column: str,
    *,
    budget: PrivacyBudgetHandler | None,
    unit_key: str | None = None,
    max_values: int = 1,
    noise: Noise | None = None,
    model: Any = None,
    progress: bool | None = None,
    resume: bool = False,
) -> Discovery:
    """Release which values of a column, or of free text, enough people share.

    Args:
        rows: The private rows, as for `GDPTable`; with `model`, LangChain documents.
        column: The column; with `model`, what is looked for in words ("side effects").
        budget: The account that pays: one charge.
        unit_key: The column, or the documents' metadata key, that says whose a record
            is. None: every row is a person's.
        max_values: Most different values that one person counts for: the most frequent
            ones of the own rows, then by the alphabet. The noise grows with it.
        noise: `laplace` or `gaussian`; None takes the one under which a value of fewer
            people comes out, by the account's public terms.
        model: A chat or completion model that reads each person's documents in one
            sealed call and names values, one a line.
        progress: Whether to show a bar while reading; None: at a terminal.
        resume: If this account has a release of the same terms, take that one, at no
            charge.

    Returns:
        The values and their noisy counts. A value that nobody has never comes out, one
        of a single person in at most `delta0` of releases (for all values together).

    Raises:
        InvalidParameterError: If an argument is out of its range, or a cell is neither
            text nor a whole number.
        UnitError: If there are no rows, or one has no unit id.
        NoBudgetError: If there is no budget.
        BudgetExhaustedError: If the account can't pay.
        PlanMismatchError: If the account's plan is for another release.
        LedgerError: If the ledger can't be used.
        PublicCallError: If the model fails on no records.
        UnsealableModelError: If the model can't be called without leaking.

    Privacy:
        Unit: all rows with one value of `unit_key`, or one row. Neighbors: all rows of
        one unit more or less. A person counts for at most `max_values` values, by the
        own rows alone (each value is spelled by a public rule on it alone: white space,
        letter case; a model's line by its lemmas). Sensitivity, noise and event:
        `mechanisms.keyword_threshold`, `add_remove`. How many people there are, and
        calls, is private.

    Example:
        >>> rows = [{"drug": "Iron"}] * 60 + [{"drug": "zinc"}] * 50 + [{"drug": "xyz"}]
        >>> budget = PrivacyBudgetHandler(
        ...     epsilon=2, delta=1e-6, queries=1, ledger=":memory:"
        ... )
        >>> found = discover(rows, "drug", budget=budget)
        >>> sorted(found.values), found.column().values[-1]
        (['iron', 'zinc'], 'other')
    """
    account = require_account(budget, "discovery")
    most = keyword_threshold.check(max_values)
    people, charge = _charge(account, most, noise)
    terms = {
        "column": column,
        "max_values": most,
        "unit_key": unit_key,
        "noise": "laplace" if isinstance(charge.parts[0], Pure) else "gaussian",
        "model": None if model is None else model_name(model),
        "is_secure": not current().is_seeded,
    }
    purchase = Purchase(
        account,
        charge,
        f"{MECHANISM} {file_format.digest(terms)}",
        unit_key=unit_key,
        header={"record": _record(terms, people)},
        resumable=True,
        anew=not resume,
    )
    shown = is_watched() if progress is None else progress

    def read() -> _Counting:
        if model is not None:
            return _reading(rows, model, column, unit_key, most, shown=shown)
        counts = _counts(rows, column, unit_key, most, shown=shown)
        return lambda _called: counts

    def draw(paid: Paid, count: _Counting) -> list[list[Any]]:
        events = cast("keyword_threshold.Paid", tuple(paid.events))
        released = keyword_threshold.threshold_words(
            count(paid.renew), events, Relation.ADD_REMOVE, items_per_answer=most
        )
        return [[value, round(number)] for value, number in released.items()]

    stored = drawn_once(purchase, "discovery", read, draw)
    return _discovery(column, people, stored, account)


def _charge(
    account: PrivacyBudgetHandler, most: int, noise: Noise | None
) -> tuple[int, Charge]:
    """Return how many people a value needs, and the charge under which it does."""
    if noise not in (None, "laplace", "gaussian"):
        raise InvalidParameterError("noise must be 'laplace', 'gaussian' or None.")
    charges = {
        "laplace": keyword_threshold.laplace_charge(name=MECHANISM),
        "gaussian": keyword_threshold.charge(name=MECHANISM),
    }

    def needed(events: Any) -> int:
        return keyword_threshold.required_count(
            events, Relation.ADD_REMOVE, items_per_answer=most, pass_rate=RELEASED_IN
        )

    listed = [*charges.values()] if noise is None else [charges[noise]]
    return least_charge(account, listed, needed)


def _counts(
    rows: Any, column: str, unit_key: str | None, most: int, *, shown: bool
) -> Counter[str]:
    """Return how many people have each value. Private."""
    wanted = tuple(dict.fromkeys((column, *(() if unit_key is None else (unit_key,)))))
    own: dict[str, Counter[str]] = {}
    n_rows = 0
    with progress_bar("Reading rows", None, shown=shown, speed="rows/s") as done:
        for columns, size in read_chunks(rows, wanted, only=False):
            ids = (
                [str(n_rows + row) for row in range(size)]
                if unit_key is None
                else canonical_ids(_listed(columns[unit_key]), unit_key, n_rows)
            )
            for unit, cell in zip(ids, _listed(columns[column]), strict=True):
                own.setdefault(unit, Counter()).update(_value(column, cell))
            n_rows += size
            done(size)
    require_rows(n_rows)
    return _of_people(own.values(), most)


def _listed(cells: Any) -> list[Any]:
    return cells if isinstance(cells, list) else list(cells.to_pylist())


def _of_people(people: Iterable[Counter[str]], most: int) -> Counter[str]:
    """Return how many people count for each value, each for `most` at most."""
    counts: Counter[str] = Counter()
    for own in people:
        ranked = sorted(own, key=lambda value: (-own[value], value))
        counts.update(ranked[:most])
    return counts


def _value(column: str, cell: Any) -> list[str]:
    """Return a cell's value in its one spelling; none where it is missing or long."""
    text: str | None = ""
    with suppress(UnreadableError):
        text = spelled(cell)
    if text == "":
        raise InvalidParameterError(
            f"Column {column!r}: a cell is neither text nor a whole number. Read the "
            "column as text (csv_rows; pandas dtype=str; polars infer_schema=False)."
        )
    value = " ".join(unicodedata.normalize("NFC", text or "").casefold().split())
    return [value] if _is_short(value) else []


def _is_short(value: str) -> bool:
    return 0 < len(value) <= _LONGEST and value.isprintable()


def _reading(
    documents: Any,
    model: Any,
    what: str,
    unit_key: str | None,
    most: int,
    *,
    shown: bool,
) -> _Counting:
    """Return what reads everybody by a model, and counts the values. Private."""
    if unit_key is None:
        raise InvalidParameterError("unit_key says whose a document is: name it.")

    def prompt(records: str) -> PromptValue:
        return ASK.format_prompt(records=records, what=what, most=most)

    def values(reply: str) -> dict[str, list[str]]:
        phrases = map(phrase_of, read_drafts(reply, most))
        return {"values": list({p for p in phrases if p and _is_short(p)})}

    sealed_model = SealedModel(model)
    sealed_model.probe(prompt("(no records)"))
    units = units_of(
        documents, unit_key=unit_key, order_key=None, max_characters=MAX_CHARACTERS
    )
    readings = Readings(lambda _: True, None, "")
    asking = Asking(sealed_model, prompt, values, readings, shown=shown)

    def count(called: Callable[[], Any]) -> Counter[str]:
        asking.ask(units, threading.Event(), called)
        told = ([part.get("values", ()) for part in asking.readings(u)] for u in units)
        return _of_people((Counter(chain(*values)) for values in told), most)

    return lambda called: sealed(partial(count, called))


def _record(terms: Mapping[str, Any], people: int) -> dict[str, Any]:
    unit_key = terms["unit_key"]
    same = f"all records with the same {unit_key!r}"
    return release_record(
        kind="table",
        status=Status.RELEASED.value,
        mechanism=MECHANISM,
        parameters={**terms, "people_for_95_percent": people},
        unit="one row" if unit_key is None else same,
        unit_key=unit_key,
        relation=Relation.ADD_REMOVE.value,
        neighbors=NEIGHBORS,
    )


def _discovery(
    column: str, people: int, stored: Stored, account: PrivacyBudgetHandler
) -> Discovery:
    """Return what a charge has released, with its record."""
    with suppress(IndexError, TypeError, ValueError):
        counts = {str(value): int(count) for value, count in stored.values[0]}
        record = charged_record(stored.header["record"], stored, account.delta)
        record["parameters"]["counts"] = counts
        record["account"] = account.public_state(stored)
        return Discovery(column, counts, people, checked_record(record))
    raise damaged()
