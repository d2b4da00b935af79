"""Open columns: what a row moves, what comes out, what is charged and kept."""

from __future__ import annotations

import json
import logging
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from support.draws import before_draws, full
from support.fakes import ScriptedModel
from support.table_parts import CANARY, account

from langchain_dpicl.accounting import Failure, Gaussian, Pure
from langchain_dpicl.budget import charges
from langchain_dpicl.errors import (
    InvalidParameterError,
    LedgerError,
)
from langchain_dpicl.mechanisms.keyword_threshold import pass_rate
from langchain_dpicl.mechanisms.random import SeededRandom
from langchain_dpicl.tabular import CategoricalColumn, GDPTable, TableSchema, TextRows
from langchain_dpicl.tabular.gdp import names, release, tallies
from langchain_dpicl.tabular.gdp.names import NameCounts
from langchain_dpicl.tabular.rows.chunks import Chunk, NamedRows, read_chunks

C = 2
ILL = CategoricalColumn(
    name="ill",
    values=["asthma", "flu", "other"],
    other="other",
    missing="other",
    open=True,
    max_items=C,
)
DRUG = CategoricalColumn(
    name="drug", values=["iron", "unknown"], missing="unknown", open=True
)
SCHEMA = TableSchema(label="drug", columns=[ILL, DRUG])
PAIR = [("ill", "drug")]
RARE = "Xylophonitis"

Row = dict[str, Any]
BESIDE = "what a row names beside its cells"


class Read(NamedRows):
    """Rows as `TextRows` hands them to a table."""

    unit_key = "patient"

    def __init__(self, data: Any) -> None:
        self.data = data

    def _named_rows(self) -> Iterator[tuple[Row, Any]]:
        for row in self.data:
            plain = {name: cell for name, cell in row.items() if name != BESIDE}
            yield plain, row.get(BESIDE, {})


def rows() -> list[Row]:
    return [
        *({"ill": "asthma", "drug": "iron"} for _ in range(50)),
        *({"ill": "Gout", "drug": "zinc"} for _ in range(60)),
        *(
            {"ill": "flu", "drug": None, BESIDE: {"ill": ["gout", "shingle"]}}
            for _ in range(60)
        ),
        {"ill": RARE, "drug": "iron"},
    ]


def table(data: Any = None, **terms: Any) -> GDPTable:
    given = {"budget": account(), "measure": PAIR, "random": SeededRandom(3), **terms}
    return GDPTable(Read(rows() if data is None else data), SCHEMA, **given)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any, Any]]:
    """Every draw: the function's name, its private input, its noise."""
    seen: list[tuple[str, Any, Any]] = []

    def watched(name: str) -> Callable[..., Any]:
        real = getattr(release, name)

        def drawing(private: Any, *args: Any, **given: Any) -> Any:
            seen.append((name, private, {**given, "paid": args}))
            return real(private, *args, **given)

        return drawing

    for name in ("noisy_tallies", "noisy_histograms", "threshold_words"):
        monkeypatch.setattr(release, name, watched(name))
    return seen


def counted(data: list[Row], columns: Any = (ILL, DRUG)) -> Counter[str]:
    found = NameCounts(columns)
    each = {one.name: [row[one.name] for row in data] for one in columns}
    beside = [row.get(BESIDE, {}) for row in data]
    found.add(Chunk(each, len(data), None, beside))
    return Counter(found.exact)


# -- what comes out --------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_what_many_name_comes_out_and_what_one_names_does_not(noise: Any) -> None:
    made = table(noise=noise).release()
    found = made.statistics
    assert found.open_values("ill") == ("gout", "shingle")
    assert found.open_values("drug") == ("zinc",)
    assert made.record()["parameters"]["named"] == {
        "ill": ["gout", "shingle"],
        "drug": ["zinc"],
    }
    assert "ill, not listed: gout, shingle\n" in made.summary()
    told = {one.page_content for one in made.documents(people="patients")}
    assert "Also named by patients as ill, though not listed: gout, shingle." in told
    # In the tables they are what the schema says of values that are not listed.
    counts = dict(found.counts("ill"))
    assert abs(counts["other"].value - 61) < 25
    assert abs(counts["flu"].value - 60) < 25


def test_nothing_comes_out_of_a_table_where_nothing_is_named() -> None:
    made = table([{"ill": "flu", "drug": "iron"}] * 100).release()
    assert made.statistics.open_values("ill") == ()
    documents = [one.page_content for one in made.documents()]
    assert "No ill beyond the listed ones is named by enough people." in documents
    with pytest.raises(InvalidParameterError, match="no measured open column"):
        made.statistics.open_values("age")


def test_the_order_of_rows_does_not_count() -> None:
    one = table().release().record()["parameters"]
    other = table(rows()[::-1]).release().record()["parameters"]
    assert one == other


def test_a_column_that_is_not_measured_names_nothing() -> None:
    made = table(measure=["drug"]).release()
    assert made.record()["parameters"]["open"] == {"drug": 1}
    assert list(made.statistics.named) == ["drug"]


# -- sensitivity -----------------------------------------------------------------------

cells = st.one_of(
    st.sampled_from(["flu", "gout", "other: a, b, c, d", "x; y, z", None, "", 3, True]),
    st.text(max_size=20),
)
beside = st.lists(
    st.sampled_from([*"abcdef", "", "flu", "too\nlong", "a b c d", 3, None]), max_size=9
)
people = st.fixed_dictionaries(
    {
        "ill": cells,
        "drug": cells,
        BESIDE: st.fixed_dictionaries({}, optional={"ill": beside, "drug": beside}),
    }
)


@settings(max_examples=200, deadline=None)
@given(before=st.lists(people, max_size=6), newcomer=people, place=st.integers(0, 6))
def test_a_person_adds_one_to_at_most_so_many_counts(
    before: list[Row], newcomer: Row, place: int
) -> None:
    after = [*before[:place], newcomer, *before[place:]]
    moved = counted(after)
    moved.subtract(counted(before))
    assert {n for n in moved.values() if n} <= {1}
    assert sum(moved.values()) <= C + 1
    assert sum(n for key, n in moved.items() if key.startswith("0 ")) <= C


MANY = {"ill": "flu", "drug": "x, y", BESIDE: {"ill": list("abcdef")}}


def test_names_are_bound_to_their_row_and_not_to_equal_cells() -> None:
    """What merges equal cells or rows must not make one person's names everybody's."""
    pd = pytest.importorskip("pandas")
    notes = [Document(f"Note {n}.", metadata={"who": n}) for n in range(60)]

    def say(prompt: str) -> str:
        named = "other: xylophonitis" if "Note 7." in prompt else "other"
        return json.dumps({"ill": named, "drug": "iron"})

    read = TextRows(notes, SCHEMA, ScriptedModel(reply=say), unit_key="who")
    frame = pd.DataFrame(list(read)).astype("category")
    merged = [
        frame,
        frame.to_dict("records"),
        [{**next(iter(read)), **row} for row in read],
        list({tuple(row.items()): row for row in read}.values()) * 60,
    ]
    for data in merged:
        made = GDPTable(data, read.schema, measure=PAIR, budget=account(1000))
        assert made.release().statistics.open_values("ill") == ()
    counts = NameCounts([ILL])
    for chunk in read_chunks(read, SCHEMA.names):
        counts.add(chunk)
    assert counts.exact == {"0 xylophonitis": 1}


def test_the_bound_is_reached() -> None:
    assert sorted(counted([MANY])) == ["0 a", "0 b", "1 x"]


def test_twin_a_person_who_adds_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "names_of", lambda _, __, named: named)
    assert len(counted([MANY])) > C + 1


def test_a_name_said_twice_counts_once() -> None:
    twice = {"ill": "flu", "drug": "zinc, Zinc", BESIDE: {"ill": ["a", "a"]}}
    assert counted([twice]) == {"0 a": 1, "1 zinc": 1}


def test_the_noise_is_for_all_open_columns_together(drawn: Any) -> None:
    made = table().release()
    [(_, counts, noise)] = [one for one in drawn if one[0] == "threshold_words"]
    assert noise["items_per_answer"] == C + 1
    paid, relation = noise["paid"]
    assert relation == "add_remove"
    parameters = made.record()["parameters"]
    assert paid[0].noise_multiplier == parameters["names_noise_multiplier"]
    assert paid[1].delta0 == parameters["names_delta0"]
    assert counts == counted(rows())
    # What one person alone names comes out with at most delta0, all of it together.
    rate = pass_rate(1, paid, relation, items_per_answer=C + 1)
    assert 0 < (C + 1) * rate <= paid[1].delta0
    # The twin: a threshold for persons of one name.
    low = pass_rate(1, paid, relation, items_per_answer=1)
    assert (C + 1) * low > paid[1].delta0
    assert table().forecast(200).named is not None


# -- what is charged -------------------------------------------------------------------


@pytest.mark.parametrize("accounting", [None, "renyi"])
def test_tables_and_names_are_one_charge(accounting: Any, drawn: Any) -> None:
    budget = account(3.0, accounting=accounting)
    made = table(budget=budget, noise="laplace").release()
    (record,) = charges(budget.ledger, budget.account)
    pure, gaussian, failure = record.events
    assert isinstance(pure, Pure)
    assert isinstance(gaussian, Gaussian)
    assert isinstance(failure, Failure)
    (_, _, tables), (_, _, words) = drawn
    assert tables["paid"] == (pure,)
    assert words["paid"][0] == (gaussian, failure)
    assert made.record()["epsilon"] <= 3.0 * (1 + 1e-6)
    assert made.record()["delta"] == 1e-6


def test_a_counts_epsilon_leaves_the_rest_to_the_names() -> None:
    made = table(budget=account(3.0), epsilon=1.0).release()
    assert made.record()["parameters"]["epsilon_before_sampling"] == 1.0
    assert made.record()["epsilon"] == pytest.approx(3.0, rel=1e-2)


@pytest.mark.parametrize(
    ("terms", "error", "match"),
    [
        ({"measure": None}, InvalidParameterError, "with the tables of measure="),
        ({"unit_key": "who"}, InvalidParameterError, "must be left out"),
    ],
)
def test_what_is_refused_costs_nothing_and_reads_nothing(
    terms: Any, error: Any, match: str
) -> None:
    def never() -> Iterator[Row]:
        raise AssertionError("read")
        yield

    budget = terms.get("budget") or account()
    with pytest.raises(error, match=match):
        table(never(), **{"budget": budget, **terms}).release()
    assert budget.spent().queries == 0


def test_an_open_column_says_what_others_count_as() -> None:
    bare = CategoricalColumn(name="ill", values=["asthma", "flu"], open=True)
    schema = TableSchema(label="drug", columns=[bare, DRUG])
    with pytest.raises(InvalidParameterError, match=r"'ill' is open: .*other="):
        GDPTable([], schema, measure=PAIR)
    with pytest.raises(InvalidParameterError, match="max_items= goes with open"):
        CategoricalColumn(name="ill", values=["asthma", "flu"], max_items=2)
    with pytest.raises(InvalidParameterError, match="max_items"):
        CategoricalColumn(name="ill", values=["a", "b"], open=True, max_items=0)
    assert TableSchema(**SCHEMA.describe()) == SCHEMA
    closed = CategoricalColumn(name="ill", values=["asthma", "flu"])
    assert not {"open", "max_items"} & closed.describe().keys()


# -- what is kept, and what becomes of a crash -----------------------------------------


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("at", [0, 1])
def test_a_crash_at_a_step_loses_nothing_and_draws_nothing_twice(
    at: int, noise: Any, monkeypatch: pytest.MonkeyPatch, drawn: Any
) -> None:
    budget = account()
    with monkeypatch.context() as patch:
        before_draws(patch, lambda step, _: full() if step == at else None)
        with pytest.raises(LedgerError, match="disk is full"):
            table(budget=budget, noise=noise).release()
    (kept,) = stored(budget)
    assert len(kept) == at
    before = len(drawn)
    made = table(budget=budget, noise=noise, random=SeededRandom(8)).release(
        resume=True
    )
    assert made.statistics.open_values("ill") == ("gout", "shingle")
    (steps,) = stored(budget)
    assert steps[: len(kept)] == kept
    assert len(steps) == 2
    assert len(drawn) - before == 2 - len(kept)
    assert budget.spent().queries == 1

    again = table(iter([]), budget=budget, noise=noise).release(resume=True)
    assert again.record() == made.record()
    assert len(drawn) - before == 2 - len(kept)


def stored(budget: Any) -> list[tuple[Any, ...]]:
    return [charge.values for charge in charges(budget.ledger, budget.account)]


# -- what nobody sees ------------------------------------------------------------------


def shown(error: BaseException) -> str:
    """Return a traceback with its locals, without the test's own frame."""
    below = error.with_traceback(error.__traceback__.tb_next)  # type: ignore[union-attr]
    found = traceback.TracebackException.from_exception(below, capture_locals=True)
    return "".join(found.format())


def test_a_name_that_is_not_released_is_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    secret = [{"ill": CANARY, "drug": "iron", BESIDE: {"drug": [CANARY]}}]
    budget = account(ledger=url)
    made = table([*rows(), *secret], budget=budget)
    seen = [repr(made), str(made.forecast(100))]
    made.release()
    seen += [
        *map(repr, (made, made.statistics, budget, made.statistics.terms)),
        made.summary(),
        json.dumps(made.record()),
        *(f"{one.page_content} {one.metadata}" for one in made.documents()),
        str(made.sample(5)),
        caplog.text,
    ]
    columns = (ILL, DRUG)
    seen.append(repr(NameCounts(columns)))

    def failing() -> Iterator[Row]:
        yield from secret
        yield {"ill": [], "drug": "iron"}

    with pytest.raises(InvalidParameterError) as refused:
        table(failing(), budget=account()).release()
    seen.append(shown(refused.value))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(LedgerError) as crashed:
        before_draws(patch, full)
        table([*rows(), *secret], budget=account()).release()
    seen.append(shown(crashed.value))
    budget.ledger.dispose()
    seen += [file.read_bytes().decode("latin-1") for file in tmp_path.iterdir()]
    whole = "".join(seen).casefold()
    parts = [CANARY.casefold(), *CANARY.split("-")[:1], RARE.casefold()]
    assert [part for part in parts if part in whole] == []
    # The search finds what there is: the released one stands in record and ledger.
    assert sum("gout" in one for one in map(str.casefold, seen)) >= 4


@pytest.mark.parametrize("is_broken", [False, True])
def test_an_interrupt_shows_no_cell(
    is_broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_column: Any, _cell: Any, _named: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(names, "names_of", interrupted)
    if is_broken:
        monkeypatch.setattr(tallies, "without_frames", lambda step: step())
    with pytest.raises(KeyboardInterrupt) as stopped:
        table([{"ill": CANARY, "drug": "iron"}]).release()
    assert (CANARY in shown(stopped.value)) is is_broken


def test_the_columns_do_not_share_their_counts() -> None:
    both = [{"ill": "zinc", "drug": "zinc"}] * 3
    assert counted(both) == {"0 zinc": 3, "1 zinc": 3}
    assert counted([{"ill": "asthma", "drug": "iron"}]) == {}
